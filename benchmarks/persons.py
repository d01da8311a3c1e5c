"""What it takes to protect persons: seconds and peak memory of a reduction by person, beside the plain one.

Run: python benchmarks/persons.py [--persons 500000] [--records-each 10] [--max-records 3] [--passes 1] [--text] [--combine mean]
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dp_dask.clusters.local import plugin as Local  # noqa: N812
from dp_dask.core.bounds import Bounds, Outside
from dp_dask.core.grid import choose_grid
from dp_dask.core.privacy import Neighbours
from dp_dask.core.statistic import BoundedSum
from dp_dask.core.unit import RECORD, UnitOfProtection
from dp_dask.private.reduce import reduce
from dp_dask.private.sources.parquet import plugin as Parquet  # noqa: N812

FILES, BOUNDS = 16, Bounds(0, 60)


def write(folder: Path, persons: int, records_each: float, *, is_text: bool) -> None:
    """Write records of persons in no order: ids of 64 bits, or texts of 12 bytes, and a value."""
    rng = np.random.default_rng(1)
    size = int(persons * records_each) // FILES
    for i in range(FILES):
        numbers = rng.integers(0, persons, size)
        ids = pa.array([f"P{number:011}" for number in numbers]) if is_text else pa.array(numbers * 2**33 + 7)
        pq.write_table(pa.table({"id": ids, "x": rng.exponential(12, size)}), folder / f"{i:02}.parquet", compression="zstd")


def measure(folder: Path, unit: UnitOfProtection, passes: int, workers: int) -> tuple[float, ...]:
    """Reduce once; return seconds, CPU seconds of the workers, the peak memory of the largest worker and of the driver in GB."""
    grid = choose_grid(BOUNDS, outside=Outside.CLAMP, neighbours=Neighbours.ADD_REMOVE, is_integer=False, epsilon=1.0, n=None)
    statistic = BoundedSum(column="x", bounds=BOUNDS, outside=Outside.CLAMP, grid=grid, count_weight=1)
    options: dict[str, Any] = {"progress": lambda _done, _of: None, "stall_timeout": 1800.0, "unit": unit, "dataset": "bench"}
    with Local(workers=workers, processes=True).client() as client:
        before = sum(client.run(time.process_time).values())
        start = time.perf_counter()
        reduce(client, Parquet(path=folder), [statistic], passes=passes, **options)
        seconds = time.perf_counter() - start
        busy = sum(client.run(time.process_time).values()) - before
        peaks = client.run(lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
    return seconds, busy, max(peaks.values()), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main() -> None:
    """Print a row for records as they are, and one for persons."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--persons", type=int, default=500_000)
    parser.add_argument("--records-each", type=float, default=10.0)
    parser.add_argument("--max-records", type=int, default=3)
    parser.add_argument("--passes", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--text", action="store_true")
    parser.add_argument("--combine", choices=("mean", "sum"))
    given = parser.parse_args()
    kept = {"combine": given.combine} if given.combine else {"max_records": given.max_records}
    person = UnitOfProtection(kind="person", column="id", type="text" if given.text else "number", **kept)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, given.persons, given.records_each, is_text=given.text)
        print(f"{int(given.persons * given.records_each):,} records of {given.persons:,} persons, {given.workers} processes")
        for unit, passes in ((RECORD, 1), (person, given.passes)):
            seconds, busy, worker, driver = measure(folder, unit, passes, given.workers)
            told = (
                f"{unit}, {passes} passes: {seconds:.1f} s, {busy:.1f} s of CPU, worker {worker:.2f} GB, driver {driver:.2f} GB"
            )
            print(told, flush=True)


if __name__ == "__main__":
    main()
