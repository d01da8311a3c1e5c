"""A pipeline that is its own cluster: the processes of one srun, over TLS; how they end, and what they are refused for."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import slow_reading
from slow_runs import TESTS, granted, readers, spent

from dp_dask.clusters import attended
from dp_dask.clusters.local import plugin as Local  # noqa: N812
from dp_dask.clusters.slurm_runner import plugin as SlurmRunner  # noqa: N812
from dp_dask.errors import ClusterError

FILE = """
dataset: {name: people, source: {kind: parquet, path: data}, unit: record}
privacy: {neighbours: replace, n: 4000}
measurements:
  m: {model: bernoulli, column: x, epsilon: 1000, prior: {alpha: 1, beta: 1}}
cluster: {kind: slurm-runner, shared: shared, interface: lo, wait: 100}
ledger: sqlite:///ledger.db
output: out
"""
STEP = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "3", "SLURM_PROCID": "1"}


@pytest.fixture
def begin(slurm, tmp_path):
    """Start a run by three processes, which takes two seconds to read."""
    x = np.random.default_rng(1).integers(0, 2, 4000)
    (tmp_path / "data").mkdir()
    for i, part in enumerate(np.array_split(x, 8)):
        pq.write_table(pa.table({"x": part}), tmp_path / "data" / f"{i}.parquet")
    (tmp_path / "begun").mkdir()
    slow = {
        "PYTHONPATH": f"{TESTS.parent}:{TESTS}",
        "DASK_DISTRIBUTED__WORKER__PRELOAD": json.dumps([str(TESTS / "slow_reading.py")]),
        slow_reading.MARKER: str(tmp_path / "begun"),
    }
    running = []

    def start(text=FILE, options=()):
        (tmp_path / "p.yaml").write_text(text)
        words = ["srun", *options, "--ntasks=3", sys.executable, "-m", "dp_dask", "run", "p.yaml", "--json"]
        step = subprocess.Popen(words, cwd=tmp_path, env=slurm | slow, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        running.append(step)
        return step

    yield start
    for step in running:
        step.kill()
        step.communicate()


def of_step(number):
    """The processes of this number in a step that runs here."""
    wanted = {f"SLURM_PROCID={number}".encode(), b"SLURM_STEP_NUM_TASKS=3"}
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if wanted <= set(path.read_bytes().split(b"\0")):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def assert_no_stranger_is_let_in(port):
    """Assert that a client is asked for a certificate, by TLS 1.3."""
    settings = ssl.create_default_context()
    settings.check_hostname, settings.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", port), timeout=10) as plain, settings.wrap_socket(plain) as secret:
        assert secret.version() == "TLSv1.3"
        with pytest.raises(ssl.SSLError, match="certificate required"):
            secret.recv(1)


def test_three_processes_are_scheduler_driver_and_worker_over_tls(begin, tmp_path):
    (tmp_path / "p.yaml").write_text(FILE)
    pipeline = granted(tmp_path / "p.yaml")
    step = begin()
    worker = readers(tmp_path / "begun", 1)
    assert worker == of_step(2)
    [folder] = (tmp_path / "shared").iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    address = json.loads((folder / "scheduler.json").read_text())["address"]
    assert address.startswith("tls://127.0.0.1:")
    assert_no_stranger_is_let_in(int(address.rpartition(":")[2]))
    told, said = step.communicate(timeout=120)
    assert (step.returncode, said) == (0, "")  # and nothing of Dask's own logs
    assert json.loads(told)["charged"] == "1000"
    assert spent(pipeline) == 1000
    assert len(list((tmp_path / "out").rglob("release.json"))) == 1
    assert list((tmp_path / "shared").iterdir()) == []
    assert of_step(0) == of_step(2) == []


def test_a_driver_that_is_refused_ends_all_with_its_own_exit_code(begin, tmp_path):
    (tmp_path / "p.yaml").write_text(FILE)
    pipeline = granted(tmp_path / "p.yaml")
    step = begin(FILE.replace("epsilon: 1000", "epsilon: 1001"))
    told, said = step.communicate(timeout=120)
    assert step.returncode == 3, said
    assert "asks for epsilon 1001, 1000 is left" in json.loads(told)["message"]
    assert spent(pipeline) == 0
    assert list((tmp_path / "shared").iterdir()) == list((tmp_path / "begun").iterdir()) == []


def test_a_driver_that_is_killed_takes_all_with_it_and_nothing_is_charged(begin, tmp_path):
    (tmp_path / "p.yaml").write_text(FILE)
    pipeline = granted(tmp_path / "p.yaml")
    step = begin(options=("--kill-on-bad-exit",))  # by which Slurm ends the others as they end themselves
    assert readers(tmp_path / "begun", 1) == of_step(2)
    [driver] = of_step(1)
    os.kill(driver, signal.SIGKILL)
    _, said = step.communicate(timeout=120)
    assert step.returncode == 137, said
    assert spent(pipeline) == 0
    assert list((tmp_path / "shared").iterdir()) == []
    assert of_step(0) == of_step(1) == of_step(2) == []


def refused(tmp_path, monkeypatch, **changes):
    for name, value in (STEP | changes).items():
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    with pytest.raises(ClusterError) as caught, attended(Local(), SlurmRunner(shared=tmp_path, wait=0.5)):
        pass
    return str(caught.value)


def test_what_is_no_step_of_enough_processes_is_told_how_to_start_one(tmp_path, monkeypatch):
    use = "start it with: srun --ntasks=4 python -m dp_dask run FILE --cluster NAME"
    assert (
        refused(tmp_path, monkeypatch, SLURM_STEP_ID=None, SLURM_PROCID="0") == f"this is no step of Slurm; {use}"
    )  # a batch script
    assert "the step has 2 processes and takes 3 at least" in refused(tmp_path, monkeypatch, SLURM_STEP_NUM_TASKS="2")


def test_a_folder_that_is_not_seen_or_of_someone_else_is_not_trusted(tmp_path, monkeypatch):
    assert "no scheduler came within 0.5 s; is shared a folder that all nodes see?" in refused(tmp_path, monkeypatch)
    folder = tmp_path / "dp-dask-step-7-0-0"
    folder.mkdir(mode=0o755)
    assert f"{folder}: is not a folder of this user alone" in refused(tmp_path, monkeypatch)
    assert f"{folder}: cannot be made (File exists)" in refused(tmp_path, monkeypatch, SLURM_PROCID="0")


def test_only_the_driver_computes_and_a_step_is_one_cluster(tmp_path, monkeypatch):
    for name, value in (STEP | {"SLURM_PROCID": "2"}).items():
        monkeypatch.setenv(name, value)
    one = SlurmRunner(shared=tmp_path)
    with pytest.raises(ClusterError, match="process 2 of this step is no driver, which is process 1 alone"), one.client():
        pass
    with pytest.raises(ClusterError, match="leave simulation_cluster out"), attended(one, SlurmRunner(shared=tmp_path / "b")):
        pass
    with attended(Local(), Local()):
        pass
