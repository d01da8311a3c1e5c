"""Faults that a cluster survives: drivers that are killed, clocks that are set, and last a worker's death as it simulates."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from datetime import UTC, datetime, timedelta

import commands
import jumping_clock
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import slow_reading
from slow_runs import (
    TESTS,
    assert_nothing_is_charged,
    assert_quiet,
    granted,
    in_the_middle,
    joined,
    opened,
    readers,
    spent,
    started,
)
from slow_source import ROWS, SPLITS

from dp_dask.config import load
from dp_dask.errors import BudgetError
from dp_dask.gate import database
from dp_dask.gate.ledger import Ledger
from dp_dask.gate.reservations import LIFETIME
from dp_dask.pipeline import run

DAY = 86_400.0
ON_CLUSTER = "cluster: {{kind: scheduler-file, path: {file}, workers: 2, overrides: [distributed.comm.require-encryption]}}\n"
SCAN = """
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
ledger: sqlite:///ledger.db
output: out
"""
BATCHES = 24
CHOICE = """
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


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """The scheduler's file, the folder that tells what was begun, and the file that its clocks follow."""
    folder = tmp_path_factory.mktemp("shared")
    begun, clock = folder / "begun", folder / "clock"
    begun.mkdir()
    preload = str(TESTS / "jumping_clock.py")
    changes = {
        slow_reading.MARKER: str(begun),
        jumping_clock.FILE: str(clock),
        "DASK_DISTRIBUTED__SCHEDULER__PRELOAD": f"['{preload}']",
    }
    options = ("--preload", str(TESTS / "slow_reading.py"), "--preload", preload)
    with started(folder, workers=2, options=options, **changes) as file:
        yield file, begun, clock


@pytest.fixture
def begun(shared):
    for path in shared[1].iterdir():
        path.unlink()
    return shared[1]


def scan(folder, file, epsilon):
    return SCAN.format(folder=folder, records=SPLITS * ROWS, splits=SPLITS, epsilon=epsilon) + ON_CLUSTER.format(file=file)


def killed(folder, begun, count):
    """Begin a run by the command line, and kill it when so much was begun."""
    with commands.begun(folder, "run", "p.yaml") as (driver, files):
        readers(begun, count)
        assert driver.is_alive(), files[1].read_text()


def rest(begun):
    """Wait until nothing is begun for a second; return how much was."""
    until = time.monotonic() + 60
    while True:
        count = len(list(begun.iterdir()))
        time.sleep(1)
        if count == len(list(begun.iterdir())):
            return count
        assert time.monotonic() < until, f"{count}, and no end"


def tasks_on(dask_scheduler):
    return len(dask_scheduler.tasks)


def test_a_driver_that_is_killed_leaves_a_cluster_that_rests_and_a_next_run_that_is_whole(shared, begun, tmp_path):
    file = shared[0]
    records = sqlite3.connect(tmp_path / "records.db")
    records.execute("CREATE TABLE visits (id INTEGER, x INTEGER)")
    records.executemany("INSERT INTO visits VALUES (?, ?)", [(i, i % 2) for i in range(SPLITS * ROWS)])
    records.commit()
    records.close()
    (tmp_path / "p.yaml").write_text(scan(tmp_path, file, 1000))
    pipeline = granted(tmp_path / "p.yaml")
    killed(tmp_path, begun, 6)
    assert spent(pipeline) == 0
    n_begun = rest(begun)
    assert 6 <= n_begun < SPLITS
    # What it had reserved is told to others, and lapses.
    (tmp_path / "other.yaml").write_text(scan(tmp_path, file, 1))
    other = load(tmp_path / "other.yaml")
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


def test_clocks_that_are_set_in_mid_run_change_nothing_and_fire_no_timeout(shared, tmp_path, monkeypatch):
    """By a day, and back by two: of scheduler, workers and driver, its ledger's clock among them."""
    file, _, file_of_clock = shared
    begun, here, seen = tmp_path / "begun", jumping_clock.Clock(file_of_clock), []

    def jump(_):
        for seconds in (DAY, -DAY):
            file_of_clock.write_text(f"{seconds}")
            here.seconds = seconds
            seen.append(len(list(begun.iterdir())))
            time.sleep(1)

    pipeline = opened(tmp_path, begun, joined(file, 2, stall=10.0))
    for module, name, function in list(here.places()):
        monkeypatch.setattr(module, name, function)
    monkeypatch.setattr(database, "_clock", lambda _: datetime.fromtimestamp(here(), UTC))
    thread = in_the_middle(begun, jump)
    made = run(pipeline)
    thread.join()
    with pipeline.cluster.client() as client:
        moved = [client.run_on_scheduler(jumping_clock.wall), *client.run(jumping_clock.wall).values()]
    file_of_clock.write_text("0")
    assert [tuple(round(seconds / DAY) for seconds in each) for each in moved] == [(-1, -1)] * 3
    assert seen[1] < SPLITS  # both jumps came while it read
    assert_quiet(made)
    assert spent(pipeline) == 1000
    ledger = Ledger(pipeline.ledger)
    ledger.verify()
    times = [entry["at"] for entry in ledger.entries()]
    ledger.close()
    assert times == sorted(times)


def choice(folder, cluster):
    folder.mkdir()
    (folder / "data").mkdir()
    x = np.repeat([0.5, 1.5, 2.5], [240, 40, 120])
    pq.write_table(pa.table({"x": np.random.default_rng(5).permutation(x)}), folder / "data" / "a.parquet")
    (folder / "p.yaml").write_text(CHOICE + cluster)
    return granted(folder / "p.yaml", 1_000_000)


def kept(pipeline):
    """The batches in the store: each file is named by its content."""
    return {path.name for path in (pipeline.output / "simulations").glob("*.parquet")}


def test_a_choice_survives_its_driver_s_and_a_worker_s_death_and_is_charged_once(shared, begun, tmp_path):
    undisturbed = choice(tmp_path / "quiet", "cluster: {kind: local, workers: 1}\n")
    quiet = run(undisturbed).publication.selections["near"]
    assert len(quiet.accepted) == 40
    pipeline = choice(tmp_path / "run", ON_CLUSTER.format(file=shared[0]))
    killed(tmp_path / "run", begun, 9)
    before = kept(pipeline)
    assert 0 < len(before) < BATCHES
    assert spent(pipeline) == 0
    for path in begun.iterdir():
        path.unlink()
    thread = in_the_middle(begun, lambda workers: os.kill(workers[0], signal.SIGKILL))
    made = run(pipeline, resume=True)
    thread.join()
    with joined(shared[0]).client() as client:
        assert len(client.nthreads()) == 1
    assert made.charged == ("near",)
    assert made.publication.selections["near"].accepted == quiet.accepted
    assert kept(pipeline) == kept(undisturbed)
    assert before < kept(pipeline)
    again = {path.name.partition("-")[0] for path in begun.iterdir() if path.name.startswith("batch")}
    assert len(again) == BATCHES - len(before)  # what was kept is not simulated again
    assert spent(pipeline) == 1_000_000
