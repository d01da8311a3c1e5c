"""Slurm for real: jobs over TLS, one cancelled in the middle of a scan, replaced where asked; what it is refused for."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dp_dask.clusters.slurm import plugin as Slurm  # noqa: N812
from dp_dask.errors import ClusterError

ROOT = Path(__file__).parent.parent.parent
pytestmark = pytest.mark.usefixtures("slurm")
FILE = """
dataset: {name: people, source: {kind: parquet, path: data}, unit: record}
privacy: {neighbours: replace, n: 4000}
measurements:
  m: {model: bernoulli, column: x, epsilon: 1, prior: {alpha: 1, beta: 1}}
ledger: sqlite:///ledger.db
output: out
"""


def make(folder, **options):
    prologue = [f"export SLURM_CONF={os.environ['SLURM_CONF']}", f"export PYTHONPATH={ROOT}:{ROOT / 'tests'}"]
    given = {"jobs": 2, "memory": "1GB", "shared": folder / "shared", "interface": "lo", "prologue": prologue, "workers": 2}
    return Slurm(**given | options)


def slow_square(i: int) -> int:
    time.sleep(0.2)
    return i * i


def job_ids():
    return subprocess.run(["squeue", "-h", "-o", "%i"], capture_output=True, text=True, check=True).stdout.split()


def test_jobs_compute_over_tls_and_one_that_is_cancelled_takes_nothing_with_it(tmp_path):
    cluster = make(tmp_path)
    with cluster.client() as client:
        assert client.scheduler.address.startswith("tls://127.0.0.1:")
        [folder] = (tmp_path / "shared").iterdir()
        assert folder.stat().st_mode & 0o777 == 0o700
        futures = client.map(slow_square, range(40), pure=False)
        time.sleep(1)
        subprocess.run(["scancel", job_ids()[0]], check=True)
        assert sum(client.gather(futures)) == sum(i * i for i in range(40))
        assert len(client.scheduler_info(n_workers=-1)["workers"]) == 1
    assert list((tmp_path / "shared").iterdir()) == []  # the certificates of the run are gone
    until = time.monotonic() + 30
    while job_ids():
        assert time.monotonic() < until
        time.sleep(0.2)


def test_with_adapt_a_job_that_is_cancelled_is_replaced(tmp_path):
    with make(tmp_path, adapt={"minimum": 1, "maximum": 1}, workers=1).client() as client:
        first = job_ids()
        subprocess.run(["scancel", *first], check=True)
        until = time.monotonic() + 60
        while not set(job_ids()) - set(first):
            assert time.monotonic() < until
            time.sleep(0.5)
        client.wait_for_workers(1, timeout=60)
        assert client.submit(slow_square, 3, pure=False).result(60) == 9


def write_pipeline(folder):
    (folder / "data").mkdir()
    pq.write_table(pa.table({"x": np.random.default_rng(1).integers(0, 2, 4000)}), folder / "data" / "a.parquet")
    (folder / "p.yaml").write_text(FILE)


def test_a_pipeline_runs_inside_one_allocation(slurm, tmp_path):
    write_pipeline(tmp_path)
    env = slurm | {"DP_DASK_PYTHON": sys.executable, "DP_DASK_INTERFACE": "lo", "PYTHONPATH": str(ROOT)}
    env["DP_DASK_DEPLOY"] = str(ROOT / "deploy" / "slurm" / "run.sbatch")
    init = [sys.executable, "-m", "dp_dask", "ledger", "init", "p.yaml", "--epsilon", "1"]
    subprocess.run(init, cwd=tmp_path, env=env, check=True, capture_output=True)
    script = ROOT / "deploy" / "slurm" / "run.sbatch"
    command = ["sbatch", "--wait", "--ntasks=3", "--output=job.log", str(script), str(tmp_path / "p.yaml")]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr + (tmp_path / "job.log").read_text()
    assert list((tmp_path / "out").rglob("release.json"))
    assert not list(tmp_path.glob("dp-dask-*"))  # scheduler's file and certificates are gone


def test_what_does_not_start_is_told_by_name(tmp_path, monkeypatch):
    def refused(**options):
        with pytest.raises(ClusterError) as caught, make(tmp_path, workers=1, wait=2.0, **options).client():
            pass
        return str(caught.value)

    told = refused(interface="no0")
    assert told.startswith("SLURMCluster did not start (")
    assert "look at its commands, cluster.interface and cluster.options" in told
    assert "0 of 1 workers came within 2 s" in refused(options={"job_extra_directives": ["--begin=now+1hour"]})
    (tmp_path / "file").write_text("")
    assert "file: no private folder can be made there" in refused(shared=tmp_path / "file")
    monkeypatch.setenv("PATH", "/nowhere")
    assert refused().startswith("sbatch is not here; run where the batch system's commands are")
    assert list((tmp_path / "shared").iterdir()) == []


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"options": {"quue": "a"}}, "options: unknown option 'quue'; known: account, "),
        ({"options": {"security": "a"}}, "options: 'security' is set by dp-dask itself"),
        ({"jobs": 0}, "jobs is 0; give at least 1"),
        ({"adapt": {"min": 1}}, r"adapt is \{'min': 1\}; give \{minimum: 1, maximum: 2\}"),
    ],
)
def test_options_that_slurm_has_not_are_refused(tmp_path, options, told):
    with pytest.raises(ValueError, match=told):
        make(tmp_path, **options)
