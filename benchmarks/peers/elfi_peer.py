"""The toy in ELFI, run by ``benchmarks/simulations.py`` with a Python that has ELFI: its rejection sampler on one core."""

from __future__ import annotations

import logging

import elfi
import numpy as np
from toy import COMPONENTS, Toy, probabilities, serve


def run(name: str, batch: int, accepted: int, threshold: float) -> int:
    toy = Toy(name)
    observed = toy.observed()

    def simulate(*sticks: np.ndarray, batch_size: int = 1, random_state: np.random.RandomState) -> np.ndarray:
        rng = np.random.default_rng(random_state.randint(2**31, size=2))
        return toy.sums(probabilities(np.stack(sticks, axis=1).reshape(batch_size, -1)), rng)

    model = elfi.ElfiModel()
    sticks = [elfi.Prior("beta", 1, COMPONENTS - i, model=model, name=f"v{i}") for i in range(1, COMPONENTS)]
    sums = elfi.Simulator(simulate, *sticks, observed=observed[None], name="sums")
    elfi.Discrepancy(lambda x, observed: toy.distance(x, observed[0][0]), sums, name="d")
    found = elfi.Rejection(model["d"], batch_size=batch, seed=1).sample(accepted, threshold=threshold, bar=False)
    return int(found.n_sim)


def main() -> None:
    logging.getLogger("elfi").setLevel(logging.ERROR)
    serve(elfi.__version__, run)


if __name__ == "__main__":
    main()
