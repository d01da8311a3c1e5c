"""Make pipelines/data/tuberculosis_patients: the observed cases of one simulated outbreak, a patient a row.

Run: pip install '.[numba]' && python pipelines/make_tuberculosis.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dp_dask.simulators.tuberculosis import plugin as Tuberculosis  # noqa: N812

FOLDER = Path(__file__).parent / "data" / "tuberculosis_patients"
TRUTH = np.array([[192.0, 5.88, 6.74, 0.09]])  # beta, R1, t1, R2 (Lintusaari et al. 2019, as used by Park et al. 2021)
SEED = 1
FILES = 4


def main() -> None:
    """Simulate the outbreak, shuffle its patients over all files, and number its clusters anew by chance."""
    rng = np.random.default_rng(SEED)
    cases = Tuberculosis().simulate(TRUTH, None, rng).values
    _, cluster = np.unique(cases["cluster"], return_inverse=True)
    labels = rng.permutation(cluster.max() + 1) + 1
    table = pa.table({"cluster": labels[cluster].astype(np.int32), "month": cases["month"].astype(np.int32)})
    order = rng.permutation(len(table))
    FOLDER.mkdir(parents=True, exist_ok=True)
    for number, rows in enumerate(np.array_split(order, FILES)):
        pq.write_table(table.take(rows), FOLDER / f"part-{number}.parquet", compression="zstd")


if __name__ == "__main__":
    main()
