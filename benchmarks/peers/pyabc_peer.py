"""The toy in pyABC, run by ``benchmarks/simulations.py`` with a Python that has pyABC: one generation, 5 % of it accepted."""

from __future__ import annotations

import logging
import sys
import tempfile

import dask
import numpy as np
import pyabc
from distributed import Client, LocalCluster
from toy import COMPONENTS, Toy, probabilities, serve

KEEP_MEMORY = {  # as our own worker processes do, which is faster than Dask's default
    "distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_": 2**25,
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 2**27,
}
STICKS = [f"v{i}" for i in range(1, COMPONENTS)]


class Model:
    """A data set's sums, as pyABC wants them: a dictionary for a dictionary."""

    def __init__(self, name: str) -> None:
        self.toy = Toy(name)

    def __call__(self, parameters: dict) -> dict:
        """Simulate one data set."""
        rng = np.random.default_rng(np.random.randint(2**31, size=2))  # noqa: NPY002  (pyABC's stream is NumPy's global one)
        sticks = np.array([[parameters[name] for name in STICKS]])
        return {"sums": self.toy.sums(probabilities(sticks), rng)[0]}

    def distance(self, x: dict, observed: dict) -> float:
        """Return the distance in steps."""
        return float(self.toy.distance(x["sums"][None], observed["sums"])[0])


def main() -> None:
    workers = int(sys.argv[1])
    logging.getLogger("ABC").setLevel(logging.ERROR)
    prior = pyabc.Distribution({name: pyabc.RV("beta", 1, COMPONENTS - i) for i, name in enumerate(STICKS, 1)})
    with (
        dask.config.set(KEEP_MEMORY),
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):

        def run(name: str, batch: int | None, accepted: int, threshold: float) -> int:
            sampler = pyabc.SingleCoreSampler() if batch is None else pyabc.DaskDistributedSampler(client, batch_size=batch)
            model = Model(name)
            abc = pyabc.ABCSMC(
                model, prior, model.distance, population_size=accepted, eps=pyabc.ListEpsilon([threshold]), sampler=sampler
            )
            with tempfile.TemporaryDirectory() as folder:
                abc.new(pyabc.create_sqlite_db_id(folder), {"sums": model.toy.observed()})
                abc.run(max_nr_populations=1)
            return int(sampler.nr_evaluations_)

        serve(pyabc.__version__, run)


if __name__ == "__main__":
    main()
