"""Faults of real processes in the middle of a scan: the answer is that of a quiet run, or nothing is charged and it is told."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from dask_processes import running
from slow_source import ROWS, SPLITS, Slow

from dp_dask.clusters.scheduler_file import plugin as SchedulerFile  # noqa: N812
from dp_dask.config import load
from dp_dask.errors import ClusterError
from dp_dask.gate.ledger import Ledger
from dp_dask.pipeline import run

TESTS = Path(__file__).parent
FILE = """
dataset: {name: people, source: {kind: parquet, path: data}, unit: record}
privacy: {neighbours: add_remove, expected_records: 2400}
measurements:
  m: {model: categorical, column: x, categories: [0, 1], epsilon: 1000, prior: {alpha: [1, 1]}}
ledger: sqlite:///ledger.db
output: out
"""
ONE_DEATH = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1"}  # a task that kills two workers is given up, not four
QUIET = (SPLITS * ROWS // 2, SPLITS * ROWS // 2)  # at epsilon 1000 there is no noise but once in 1e400


@pytest.fixture
def begun(tmp_path):
    folder = tmp_path / "begun"
    folder.mkdir()
    return folder


def opened(folder, begun, cluster, fatal=""):
    (folder / "p.yaml").write_text(FILE)
    pipeline = load(folder / "p.yaml")
    ledger = Ledger(pipeline.ledger)
    ledger.open_dataset("people", pipeline.neighbours, Decimal(1000), who="steward", why="test")
    ledger.close()
    return replace(pipeline, source=Slow(str(begun), fatal), cluster=cluster)


def spent(pipeline):
    ledger = Ledger(pipeline.ledger)
    try:
        return ledger.balance("people").spent
    finally:
        ledger.close()


def joined(file, workers=1, stall=60.0):
    return SchedulerFile(path=file, workers=workers, stall_timeout=stall)


def in_the_middle(begun, act):
    """Call ``act`` with the processes that read, once six splits were begun."""

    def wait():
        until = time.monotonic() + 60
        while len(list(begun.iterdir())) < 6 and time.monotonic() < until:
            time.sleep(0.02)
        act(sorted({int(path.name.partition("-")[2]) for path in begun.iterdir()}))

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def started(folder, **options):
    return running(folder / "dask", PYTHONPATH=f"{TESTS.parent}:{TESTS}", **options)


def scheduler_of(folder):
    """The process that wrote the scheduler's file."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        words = path.read_bytes().split(b"\0") if path.exists() else []
        if b"scheduler" in words and any(word.startswith(str(folder).encode()) for word in words):
            return int(path.parent.name)
    msg = "there is no scheduler"
    raise AssertionError(msg)


def assert_quiet(made):
    assert made.publication.measurements["m"].release.noisy_sums == QUIET


def assert_nothing_is_charged(pipeline, told):
    with pytest.raises(ClusterError) as caught:
        run(pipeline)
    assert told in str(caught.value)
    assert spent(pipeline) == 0


def test_a_worker_that_is_killed_takes_nothing_with_it(tmp_path, begun):
    with started(tmp_path, workers=2) as file:
        pipeline = opened(tmp_path, begun, joined(file, 2))
        thread = in_the_middle(begun, lambda readers: os.kill(readers[0], signal.SIGKILL))
        assert_quiet(run(pipeline))
        thread.join()
    assert spent(pipeline) == 1000
    assert len(list(begun.iterdir())) > SPLITS  # some were read twice, and counted once


def test_when_all_workers_are_lost_nothing_is_charged_and_the_next_run_is_whole(tmp_path, begun):
    with started(tmp_path) as file:
        pipeline = opened(tmp_path, begun, joined(file, stall=4.0))
        thread = in_the_middle(begun, lambda readers: [os.kill(each, signal.SIGKILL) for each in readers])
        assert_nothing_is_charged(pipeline, "no split finished for 4 s")
        thread.join()
    with started(tmp_path / "again") as file:
        assert_quiet(run(replace(pipeline, cluster=joined(file))))


def test_when_the_scheduler_is_lost_nothing_is_charged(tmp_path, begun):
    with started(tmp_path) as file:
        pipeline = opened(tmp_path, begun, joined(file, stall=8.0))
        thread = in_the_middle(begun, lambda _: os.kill(scheduler_of(tmp_path / "dask"), signal.SIGKILL))
        assert_nothing_is_charged(pipeline, "")
        thread.join()


def test_a_network_that_is_gone_for_some_seconds_changes_nothing(tmp_path, begun):
    """The scheduler is stopped, as a network that was cut looks from both its sides."""

    def cut(_):
        scheduler = scheduler_of(tmp_path / "dask")
        os.kill(scheduler, signal.SIGSTOP)
        time.sleep(8)
        os.kill(scheduler, signal.SIGCONT)

    with started(tmp_path, workers=2) as file:
        pipeline = opened(tmp_path, begun, joined(file, 2))
        thread = in_the_middle(begun, cut)
        assert_quiet(run(pipeline))
        thread.join()


def test_a_task_that_ends_its_process_again_and_again_ends_the_run(tmp_path, begun):
    with started(tmp_path, nanny=True, **ONE_DEATH) as file:
        pipeline = opened(tmp_path, begun, joined(file, stall=60.0), "exit")
        assert_nothing_is_charged(pipeline, "the cluster lost tasks (KilledWorker); nothing was released or charged")


def test_a_worker_that_runs_out_of_memory_ends_the_run_and_not_the_machine(tmp_path, begun):
    with started(tmp_path, nanny=True, options=("--memory-limit", "400MB"), **ONE_DEATH) as file:
        pipeline = opened(tmp_path, begun, joined(file, stall=60.0), "memory")
        assert_nothing_is_charged(pipeline, "nothing was released or charged")
