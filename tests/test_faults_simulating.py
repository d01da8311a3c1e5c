"""Deaths in the middle of simulations whose choice is charged: of the driver, then of a worker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import slow_reading
from slow_runs import TESTS, granted, in_the_middle, joined, readers, spent, started

from dp_dask.pipeline import run

BATCHES = 24
FILE = """
dataset: {name: people, source: {kind: parquet, path: data}, unit: record}
privacy: {neighbours: replace, n: 400}
measurements:
  near:
    simulator: uniform_mixture
    components: 3
    prior: {kind: dirichlet, alpha: 1}
    method: svt
    distance: {kind: histogram, column: x, bounds: [0, 3], edges: [1, 2]}
    c: 40
    tolerance: 0.02
    epsilon: 1000000 # no noise but once in 1e400: the first forty that are near
    simulations: 24000
ledger: sqlite:///ledger.db
output: out
"""


def written(folder, cluster):
    folder.mkdir(exist_ok=True)
    (folder / "data").mkdir()
    x = np.repeat([0.5, 1.5, 2.5], [240, 40, 120])
    pq.write_table(pa.table({"x": np.random.default_rng(5).permutation(x)}), folder / "data" / "a.parquet")
    (folder / "p.yaml").write_text(f"{FILE}cluster: {cluster}\n")
    return granted(folder / "p.yaml", 1_000_000)


def kept(pipeline):
    """The batches in the store: each file is named by its content."""
    return {path.name for path in (pipeline.output / "simulations").glob("*.parquet")}


def test_a_choice_survives_its_driver_s_and_a_worker_s_death_and_is_charged_once(tmp_path):
    undisturbed = written(tmp_path / "quiet", "{kind: local, workers: 1}")
    quiet = run(undisturbed).publication.selections["near"]
    assert len(quiet.accepted) == 40
    begun = tmp_path / "begun"
    begun.mkdir()
    slow = {"options": ("--preload", str(TESTS / "slow_reading.py")), slow_reading.MARKER: str(begun)}
    with started(tmp_path, workers=2, **slow) as file:
        cluster = f"{{kind: scheduler-file, path: {file}, workers: 2, overrides: [distributed.comm.require-encryption]}}"
        pipeline = written(tmp_path / "run", cluster)
        env = {key: value for key, value in os.environ.items() if not key.startswith("DASK_")} | {"PYTHONPATH": str(TESTS.parent)}
        words = [sys.executable, "-m", "dp_dask", "run", "p.yaml"]
        driver = subprocess.Popen(words, cwd=tmp_path / "run", env=env, stderr=subprocess.PIPE)
        readers(begun, 9)
        assert driver.poll() is None, driver.stderr.read().decode()
        driver.kill()
        driver.communicate()
        before = kept(pipeline)
        assert 0 < len(before) < BATCHES
        assert spent(pipeline) == 0
        for path in begun.iterdir():
            path.unlink()
        thread = in_the_middle(begun, lambda workers: os.kill(workers[0], signal.SIGKILL))
        made = run(replace(pipeline, cluster=joined(file, 2)), resume=True)
        thread.join()
        with joined(file).client() as client:
            assert len(client.nthreads()) == 1
    assert made.charged == ("near",)
    assert made.publication.selections["near"].accepted == quiet.accepted
    assert kept(pipeline) == kept(undisturbed)
    assert before < kept(pipeline)
    again = {path.name.partition("-")[0] for path in begun.iterdir() if path.name.startswith("batch")}
    assert len(again) == BATCHES - len(before)  # what was kept is not simulated again
    assert spent(pipeline) == 1_000_000
