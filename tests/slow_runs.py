"""Slow runs: a pipeline on a cluster of real processes that takes seconds to read, and acts on it in the middle."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from dask_processes import running
from slow_source import ROWS, SPLITS, Slow

from dp_dask.clusters.scheduler_file import plugin as SchedulerFile  # noqa: N812
from dp_dask.config import Pipeline, load
from dp_dask.errors import DpDaskError
from dp_dask.gate.ledger import Ledger
from dp_dask.pipeline import Run, run

TESTS = Path(__file__).parent
FILE = """
dataset: {name: people, source: {kind: parquet, path: data}, unit: record}
privacy: {neighbours: add_remove, expected_records: 2400}
measurements:
  m: {model: categorical, column: x, categories: [0, 1], epsilon: 1000, prior: {alpha: [1, 1]}}
ledger: sqlite:///ledger.db
output: out
"""
QUIET = (SPLITS * ROWS // 2, SPLITS * ROWS // 2)  # at epsilon 1000 there is no noise but once in 1e400


def granted(file: Path, epsilon: int = 1000) -> Pipeline:
    """Load a pipeline file and give its data set the budget of one run."""
    pipeline = load(file)
    ledger = Ledger(pipeline.ledger)
    ledger.open_dataset("people", pipeline.neighbours, Decimal(epsilon), who="steward", why="test")
    ledger.close()
    return pipeline


def opened(folder: Path, begun: Path, cluster: Any, fatal: str = "") -> Pipeline:
    """Make a pipeline of the slow source, which tells in ``begun`` what it reads."""
    folder.mkdir(exist_ok=True)
    begun.mkdir(exist_ok=True)
    (folder / "p.yaml").write_text(FILE)
    return replace(granted(folder / "p.yaml"), source=Slow(str(begun), fatal), cluster=cluster)


def spent(pipeline: Pipeline) -> Decimal:
    """Return what the data set was charged."""
    ledger = Ledger(pipeline.ledger)
    try:
        return ledger.balance("people").spent
    finally:
        ledger.close()


def joined(file: Path, workers: int = 1, stall: float = 60.0) -> SchedulerFile:
    """The cluster of a scheduler's file."""
    return SchedulerFile(path=file, workers=workers, stall_timeout=stall)


def started(folder: Path, **options: Any) -> AbstractContextManager[Path]:
    """Start a scheduler and workers that can import the tests' own modules."""
    return running(folder / "dask", PYTHONPATH=f"{TESTS.parent}:{TESTS}", **options)


def readers(begun: Path, splits: int = 6) -> list[int]:
    """Wait until so many splits were begun; return the processes that read them."""
    until = time.monotonic() + 60
    while len(list(begun.iterdir())) < splits and time.monotonic() < until:
        time.sleep(0.02)
    return sorted({int(path.name.partition("-")[2]) for path in begun.iterdir()})


def in_the_middle(begun: Path, act: Callable[[list[int]], Any]) -> threading.Thread:
    """Call ``act`` with the processes that read, once six splits were begun."""
    thread = threading.Thread(target=lambda: act(readers(begun)), daemon=True)
    thread.start()
    return thread


def scheduler_of(folder: Path) -> int:
    """Return the process that wrote the scheduler's file."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        words = path.read_bytes().split(b"\0") if path.exists() else []
        if b"scheduler" in words and any(word.startswith(f"{folder}/".encode()) for word in words):
            return int(path.parent.name)
    msg = "there is no scheduler"
    raise AssertionError(msg)


def assert_quiet(made: Run) -> None:
    """Assert that a run gave what an undisturbed one gives."""
    assert made.publication.measurements["m"].release.noisy_sums == QUIET


def assert_nothing_is_charged(pipeline: Pipeline, kind: type[DpDaskError], told: str) -> None:
    """Assert that a run fails in words, and that its data set was charged nothing by then."""
    with pytest.raises(kind) as caught:
        run(pipeline)
    assert told in str(caught.value)
    assert spent(pipeline) == 0
