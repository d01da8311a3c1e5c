"""Make pipelines/data/toy_mixture: the simulated records of Park, Vinaroz & Jitkrittum (2021), section 5.

Run: python pipelines/make_toy_mixture.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FOLDER = Path(__file__).parent / "data" / "toy_mixture"
PROBABILITIES = (0.25, 0.04, 0.33, 0.04, 0.34)
N, FILES, SEED = 5_000, 2, 2021


def main() -> None:
    """Draw uniform records on [i - 1, i) with the i-th probability; write them in files of equal size."""
    rng = np.random.default_rng(SEED)
    of_component = rng.multinomial(N, PROBABILITIES)
    x = rng.permutation(np.repeat(np.arange(5.0), of_component) + rng.random(N))
    FOLDER.mkdir(parents=True, exist_ok=True)
    for number, part in enumerate(np.array_split(x, FILES)):
        pq.write_table(pa.table({"x": part}), FOLDER / f"part-{number}.parquet", compression="zstd")


if __name__ == "__main__":
    main()
