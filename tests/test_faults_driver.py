"""The loss of a driver: a command line that is killed while others read for it."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta

import slow_reading
from slow_runs import TESTS, assert_nothing_is_charged, assert_quiet, granted, readers, spent, started
from slow_source import ROWS, SPLITS

from dp_dask.config import load
from dp_dask.errors import BudgetError
from dp_dask.gate.ledger import Ledger
from dp_dask.gate.reservations import LIFETIME
from dp_dask.pipeline import run

FILE = """
dataset:
  name: people
  unit: record
  version: "1"
  source:
    kind: adbc
    driver: adbc_driver_sqlite
    uri: "file:{folder}/records.db?mode=ro"
    table: visits
    columns: {{x: number, id: number}}
    key: {{column: id, from: 0, to: {records}, parts: {splits}}}
privacy: {{neighbours: add_remove, expected_records: 2400}}
measurements:
  m: {{model: categorical, column: x, categories: [0, 1], epsilon: {epsilon}, prior: {{alpha: [1, 1]}}}}
cluster: {{kind: scheduler-file, path: {file}, workers: 2, overrides: [distributed.comm.require-encryption]}}
ledger: sqlite:///ledger.db
output: out
"""


def written(folder, name, file, epsilon):
    text = FILE.format(folder=folder, file=file, records=SPLITS * ROWS, splits=SPLITS, epsilon=epsilon)
    (folder / name).write_text(text)
    return folder / name


def rest(begun, since):
    """Wait until no split is begun for a second; return how many were."""
    until = time.monotonic() + 60
    while True:
        count = len(list(begun.iterdir()))
        time.sleep(1)
        if count == len(list(begun.iterdir())):
            return count
        assert time.monotonic() < until, f"{count - since} more, and no end"


def tasks_on(dask_scheduler):
    return len(dask_scheduler.tasks)


def test_a_driver_that_is_killed_leaves_a_cluster_that_rests_and_a_next_run_that_is_whole(tmp_path):
    begun = tmp_path / "begun"
    begun.mkdir()
    database = sqlite3.connect(tmp_path / "records.db")
    database.execute("CREATE TABLE visits (id INTEGER, x INTEGER)")
    database.executemany("INSERT INTO visits VALUES (?, ?)", [(i, i % 2) for i in range(SPLITS * ROWS)])
    database.commit()
    database.close()
    slow = {"options": ("--preload", str(TESTS / "slow_reading.py")), slow_reading.MARKER: str(begun)}
    with started(tmp_path, workers=2, **slow) as file:
        pipeline = granted(written(tmp_path, "p.yaml", file, 1000))
        env = {key: value for key, value in os.environ.items() if not key.startswith("DASK_")} | {"PYTHONPATH": str(TESTS.parent)}
        driver = subprocess.Popen(
            [sys.executable, "-m", "dp_dask", "run", "p.yaml"], cwd=tmp_path, env=env, stderr=subprocess.PIPE
        )
        assert len(readers(begun)) == 2
        assert driver.poll() is None
        driver.kill()
        driver.communicate()
        assert spent(pipeline) == 0
        n_begun = rest(begun, len(list(begun.iterdir())))
        assert 6 <= n_begun < SPLITS
        # What it had reserved is told to others, and lapses.
        other = load(written(tmp_path, "other.yaml", file, 1))
        assert_nothing_is_charged(other, BudgetError, "1000 of it is reserved by runs under way")
        later = Ledger(pipeline.ledger, clock=lambda _: datetime.now(UTC) + LIFETIME + timedelta(seconds=1))
        [(account, _)] = later.accounts()
        assert account.reservations == ()
        later.close()
        with pipeline.cluster.client() as client:
            assert client.run_on_scheduler(tasks_on) == 0
            assert len(client.nthreads()) == 2
        made = run(pipeline)
        assert_quiet(made)
        assert made.charged == ("m",)
    assert len(list(begun.iterdir())) <= n_begun + SPLITS
    assert spent(pipeline) == 1000
