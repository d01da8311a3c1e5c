"""Disks that are full or read-only: of ledger, results and workers. Nothing is charged, or what was charged is not lost."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import dask
import disks
import numpy as np
import pytest
from dask_processes import end, environment
from slow_runs import QUIET, TESTS, assert_nothing_is_charged, assert_quiet, in_the_middle, joined, opened, spent, started
from slow_source import SPLITS

from dp_dask.clusters.local import plugin as Local  # noqa: N812
from dp_dask.core.candidates import CandidateBatch
from dp_dask.errors import ClusterError, ConfigError, DpDaskError, LedgerError
from dp_dask.output import write_run
from dp_dask.pipeline import run
from dp_dask.public.publication import read
from dp_dask.simulation_store import stored

HERE = Local(workers=6)


@pytest.fixture(scope="module", autouse=True)
def _mounts(tmp_path_factory):
    problem = disks.why_not(tmp_path_factory.mktemp("mounts"))
    if problem:
        pytest.skip(problem)


def test_a_ledger_whose_disk_is_full_or_read_only_charges_nothing_and_shows_nothing(tmp_path):
    begun = tmp_path / "begun"
    with disks.disk(tmp_path / "small", "128k") as small:
        pipeline = replace(opened(small, begun, HERE), output=tmp_path / "out")
        thread = in_the_middle(begun, lambda _: disks.fill(small))
        assert_nothing_is_charged(pipeline, LedgerError, "ledger.db: its disk is full; make room there, and run again")
        thread.join()
        n_begun = len(list(begun.iterdir()))
        assert n_begun == SPLITS  # the disk filled up while it read: the commit itself was refused
        assert_nothing_is_charged(pipeline, LedgerError, "its disk is full")
        disks.remount(small, "ro")
        assert_nothing_is_charged(pipeline, LedgerError, "ledger.db: it is read-only; see to the rights of a file and its folder")
        assert len(list(begun.iterdir())) == n_begun  # neither of these two runs has read anything
        assert list(pipeline.output.iterdir()) == []
        disks.remount(small, "rw")
        (small / "filler").unlink()
        made = run(pipeline)
        assert_quiet(made)
        assert made.charged == ("m",)
        assert spent(pipeline) == 1000


def test_results_that_find_no_room_are_not_lost_and_written_by_a_later_run_for_nothing(tmp_path):
    begun = tmp_path / "begun"

    def refused(made, name):
        with pytest.raises(DpDaskError) as caught:
            write_run(made, small)
        assert caught.value.exit_code == 1
        assert f"{name}: cannot be written (No space left on device); make room there" in str(caught.value)
        assert "found again, free" in str(caught.value)
        assert not list(small.rglob("*.part"))

    with disks.disk(tmp_path / "small") as small:
        pipeline = replace(opened(tmp_path, begun, HERE), output=small)
        disks.remount(small, "ro")
        assert_nothing_is_charged(pipeline, ConfigError, "may not be written to; choose another folder")
        assert list(begun.iterdir()) == []
        disks.remount(small, "rw")
        thread = in_the_middle(begun, lambda _: disks.fill(small))
        made = run(pipeline)
        thread.join()
        assert made.charged == ("m",)
        refused(made, "release.json")
        (small / "filler").unlink()
        again = run(pipeline)
        assert (again.charged, again.publication.released) == ((), made.publication.released)
        refused(again, "posterior.nc")  # for which the disk is too small
        disks.remount(small, "size=10m")
        folder, _ = write_run(run(pipeline), small)
        assert {path.name for path in folder.iterdir()} == {"release.json", "posterior.nc", "report.html", "run.json"}
        assert read(folder / "release.json").measurements["m"].release.noisy_sums == QUIET
    assert len(list(begun.iterdir())) == SPLITS
    assert spent(pipeline) == 1000


def batch_of(first):
    return CandidateBatch(first, np.random.default_rng(first).integers(0, 2**40, (40_000, 2)), ())


def test_simulations_that_find_no_room_leave_no_half_a_file(tmp_path):
    with disks.disk(tmp_path / "small") as small:
        with pytest.raises(DpDaskError, match=r"cannot be written to \(No space left on device\); what is there already is kept"):
            list(stored(map, small / "simulations", reuse=False)(batch_of, [0]))
        assert list((small / "simulations").iterdir()) == []


@pytest.mark.parametrize("processes", [False, True])
def test_a_local_cluster_names_the_folder_that_it_cannot_write_to(tmp_path, processes):
    with disks.disk(tmp_path / "small") as small:
        disks.remount(small, "ro")
        with dask.config.set({"temporary-directory": str(small)}), pytest.raises(ClusterError) as caught:
            Local(processes=processes, workers=1).client().__enter__()
        told = f"did not start ({small}/dask-scratch-space: Read-only file system); make room there, or give Dask another folder"
        assert told in str(caught.value)


def test_a_worker_that_may_not_write_does_not_come_and_one_whose_disk_fills_up_is_not_disturbed(tmp_path):
    """What the workers' settings keep off their disks needs no room there."""
    begun = tmp_path / "begun"
    log = tmp_path / "dask" / "log"
    with disks.disk(tmp_path / "small") as small:
        disks.remount(small, "ro")
        local = ("--local-directory", str(small))
        with started(tmp_path, options=local) as file:
            until = time.monotonic() + 60
            while f"Read-only file system: '{small}/dask-scratch-space'" not in log.read_text():
                assert time.monotonic() < until, log.read_text()
                time.sleep(0.1)
            pipeline = opened(tmp_path, begun, replace(joined(file), wait=0.5))
            told = "one that cannot write to its local directory ends at once and says so in its log"
            assert_nothing_is_charged(pipeline, ClusterError, told)
            disks.remount(small, "rw")
            paths = {"PYTHONPATH": f"{TESTS.parent}:{TESTS}", "TMPDIR": str(small)}
            command = [sys.executable, "-m", "dask", "worker", "--host", "tcp://127.0.0.1", "--scheduler-file", str(file)]
            options = ["--dashboard-address", "127.0.0.1:0", "--nthreads", "4", "--no-nanny", *local]
            with log.open("ab") as said:
                env = environment(small, None, paths)
                worker = subprocess.Popen([*command, *options], env=env, stdout=said, stderr=said, cwd=tmp_path)
            try:
                thread = in_the_middle(begun, lambda _: disks.fill(small))
                assert_quiet(run(replace(pipeline, cluster=joined(file))))
                thread.join()
                assert (small / "filler").exists()
            finally:
                end([worker])
    assert spent(pipeline) == 1000


def test_a_stream_that_takes_nothing_more_is_told():
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "dp_dask", "schema"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, cwd=TESTS.parent)
    told = "error: No space left on device where something was to be written; a release that was committed is found again, free"
    assert (done.returncode, done.stderr) == (1, f"{told}, by the next run\n")
