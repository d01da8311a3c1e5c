"""Faults of real processes in the middle of a scan: the answer is that of a quiet run, or nothing is charged and it is told."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace

import pytest
from slow_runs import assert_nothing_is_charged, assert_quiet, in_the_middle, joined, opened, scheduler_of, spent, started
from slow_source import SPLITS

from dp_dask.errors import ClusterError
from dp_dask.pipeline import run

ONE_DEATH = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1"}  # a task that kills two workers is given up, not four
CUT, APART = 20, 2  # seconds


@pytest.fixture
def begun(tmp_path):
    return tmp_path / "begun"


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
        assert_nothing_is_charged(pipeline, ClusterError, "no split finished for 4 s")
        thread.join()
    with started(tmp_path / "again") as file:
        assert_quiet(run(replace(pipeline, cluster=joined(file))))


def test_when_the_scheduler_is_lost_nothing_is_charged(tmp_path, begun):
    with started(tmp_path) as file:
        pipeline = opened(tmp_path, begun, joined(file, stall=8.0))
        thread = in_the_middle(begun, lambda _: os.kill(scheduler_of(tmp_path / "dask"), signal.SIGKILL))
        assert_nothing_is_charged(pipeline, ClusterError, "")
        thread.join()


def test_a_network_that_is_gone_for_some_time_changes_nothing(tmp_path, begun):
    """Processes are stopped, as a network that was cut looks from both its sides: a worker's first, then the scheduler's too."""

    def cut(process):
        os.kill(process, signal.SIGSTOP)
        time.sleep(CUT)
        os.kill(process, signal.SIGCONT)

    def cut_both(readers):
        worker = threading.Thread(target=cut, args=(readers[0],))
        worker.start()
        time.sleep(APART)  # in which the scheduler has a worker that is silent
        cut(scheduler_of(tmp_path / "dask"))
        worker.join()

    with started(tmp_path, workers=2) as file:
        pipeline = opened(tmp_path, begun, joined(file, 2))
        thread = in_the_middle(begun, cut_both)
        start = time.monotonic()
        made = run(pipeline)
        assert time.monotonic() - start > CUT
        thread.join()
    assert_quiet(made)
    assert spent(pipeline) == 1000


def test_a_task_that_ends_its_process_again_and_again_ends_the_run(tmp_path, begun):
    with started(tmp_path, nanny=True, **ONE_DEATH) as file:
        pipeline = opened(tmp_path, begun, joined(file), "exit")
        told = "the cluster lost tasks (KilledWorker); nothing was released or charged"
        assert_nothing_is_charged(pipeline, ClusterError, told)


def test_a_worker_that_runs_out_of_memory_ends_the_run_and_not_the_machine(tmp_path, begun):
    with started(tmp_path, nanny=True, options=("--memory-limit", "400MB"), **ONE_DEATH) as file:
        pipeline = opened(tmp_path, begun, joined(file), "memory")
        assert_nothing_is_charged(pipeline, ClusterError, "nothing was released or charged")
