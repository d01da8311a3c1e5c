"""Soak: many scheduled runs in a row on one local cluster; what grows from run to run would end an unattended service.

Run: python benchmarks/soak.py [--runs 500] [--leak handles]
Prints memory, file handles, threads and the ledger's CPU time over the runs, and fails where any of them grows beyond its bound.
With ``--leak`` each run keeps something, as a run never should: what is printed shows that it would be seen.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from dp_dask.clusters.local import plugin as Local  # noqa: N812
from dp_dask.config import load
from dp_dask.gate.ledger import Ledger
from dp_dask.pipeline import run
from dp_dask.scheduled import schedule

FILE = """
dataset: {name: people, source: {kind: parquet, path: data}, unit: record}
privacy: {neighbours: add_remove, expected_records: 20000}
measurements:
  visits: {model: geometric, column: x, bounds: [0, 30], epsilon: 0.001, prior: {alpha: 1, beta: 1}}
ledger: sqlite:///ledger.db
output: out
"""
FIRST = datetime(2020, 1, 1, tzinfo=UTC)
WARM = 50  # runs until caches are full
BOUNDS = {"memory, kB a run": 40.0, "file handles": 3.0, "threads": 3.0, "ledger, last fifth to first": 2.0}


@dataclass(frozen=True)
class Lent:
    """A cluster that goes on after each run."""

    lent: Any
    stall_timeout: float = 60.0
    driver_sees_records: bool = True

    @contextmanager
    def client(self) -> Iterator[Any]:
        """Lend its client."""
        yield self.lent


class Timed(Ledger):
    """A ledger that adds up the CPU seconds of its commits: those on the clock are a busy machine's as well."""

    seconds = 0.0

    def commit(self, *arguments: Any, **options: Any) -> Any:
        """Commit, and add up the time."""
        began = time.thread_time()
        try:
            return super().commit(*arguments, **options)
        finally:
            Timed.seconds += time.thread_time() - began


LEAKS: dict[str, Callable[[], Any]] = {
    "memory": lambda: b"x" * 10**6,
    "handles": lambda: os.open(os.devnull, os.O_RDONLY),
    "threads": lambda: threading.Thread(target=threading.Event().wait, daemon=True).start(),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--leak", choices=LEAKS, help="what each run is to keep")
    given = parser.parse_args()
    runs, leak = given.runs, LEAKS.get(given.leak, lambda: None)
    process, rows, kept = psutil.Process(), [], []
    import dp_dask.pipeline as steps

    steps.Ledger = Timed
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "data").mkdir()
        pq.write_table(pa.table({"x": np.random.default_rng(1).geometric(0.3, 20_000)}), folder / "data" / "a.parquet")
        (folder / "p.yaml").write_text(FILE)
        pipeline = load(folder / "p.yaml")
        ledger = Ledger(pipeline.ledger)
        ledger.open_dataset("people", pipeline.neighbours, Decimal(10), who="steward", why="soak")
        ledger.close()
        with Local(workers=2).client() as client:
            lent = replace(pipeline, cluster=Lent(client))
            for i in range(runs):
                slot = (FIRST + timedelta(days=i)).strftime("%Y-%m-%dT00:00:00Z")
                Timed.seconds = 0.0
                began = time.perf_counter()
                run(schedule(lent, slot)[0])
                seconds = time.perf_counter() - began
                kept.append(leak())
                gc.collect()
                if i == 0:
                    gc.freeze()  # modules and what they hold: to go through them each time takes longer than the run
                handles = process.num_fds()
                rows.append((process.memory_info().rss / 1e3, handles, threading.active_count(), Timed.seconds, seconds))
    told(np.array(rows))


def told(rows: Any) -> None:
    """Print what there was at the first run, after warming up and at the last, and what it grew by."""
    print(f"{'run':>6} {'memory MB':>10} {'handles':>8} {'threads':>8} {'ledger ms':>10} {'run ms':>8}")
    for i in sorted({0, min(WARM, len(rows) - 1), len(rows) // 2, len(rows) - 1}):
        memory, handles, threads, of_ledger, seconds = rows[i]
        print(f"{i + 1:>6} {memory / 1e3:>10.1f} {handles:>8.0f} {threads:>8.0f} {1e3 * of_ledger:>10.1f} {1e3 * seconds:>8.0f}")
    late = rows[min(WARM, len(rows) // 2) :]
    fifth = max(len(late) // 5, 1)
    slope = np.polyfit(np.arange(len(late)), late[:, 0], 1)[0] if len(late) > 1 else 0.0
    grown = dict(
        zip(
            BOUNDS,
            (
                float(slope),
                float(late[-fifth:, 1].mean() - late[:fifth, 1].mean()),
                float(late[-fifth:, 2].mean() - late[:fifth, 2].mean()),
                float(np.median(late[-fifth:, 3]) / np.median(late[:fifth, 3])),
            ),
            strict=True,
        )
    )
    for what, value in grown.items():
        print(f"{what}: {value:.3g} (at most {BOUNDS[what]:g})")
    sys.exit(any(value > BOUNDS[what] for what, value in grown.items()))


if __name__ == "__main__":
    main()
