"""Clocks that are set in the middle of a scan: by a day, and back by two."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import jumping_clock
from slow_runs import TESTS, assert_quiet, in_the_middle, joined, opened, spent, started
from slow_source import SPLITS

from dp_dask.gate import database
from dp_dask.gate.ledger import Ledger
from dp_dask.pipeline import run

DAY = 86_400.0


def test_clocks_that_are_set_in_mid_run_change_nothing_and_fire_no_timeout(tmp_path, monkeypatch):
    """Of scheduler, workers and driver, its ledger's clock among them."""
    begun, file_of_clock = tmp_path / "begun", tmp_path / "clock"
    here = jumping_clock.Clock(file_of_clock)
    preload = str(TESTS / "jumping_clock.py")
    changes = {jumping_clock.FILE: str(file_of_clock), "DASK_DISTRIBUTED__SCHEDULER__PRELOAD": f"['{preload}']"}
    seen = []

    def jump(_):
        for seconds in (DAY, -DAY):
            file_of_clock.write_text(f"{seconds}")
            here.seconds = seconds
            seen.append(len(list(begun.iterdir())))
            time.sleep(1)

    with started(tmp_path, workers=2, options=("--preload", preload), **changes) as file:
        pipeline = opened(tmp_path, begun, joined(file, 2, stall=10.0))
        for module, name, function in list(here.places()):
            monkeypatch.setattr(module, name, function)
        monkeypatch.setattr(database, "_clock", lambda _: datetime.fromtimestamp(here(), UTC))
        thread = in_the_middle(begun, jump)
        made = run(pipeline)
        thread.join()
        with pipeline.cluster.client() as client:
            moved = [client.run_on_scheduler(jumping_clock.wall), *client.run(jumping_clock.wall).values()]
    assert [tuple(round(seconds / DAY) for seconds in each) for each in moved] == [(-1, -1)] * 3
    assert seen[1] < SPLITS  # both jumps came while it read
    assert_quiet(made)
    assert spent(pipeline) == 1000
    ledger = Ledger(pipeline.ledger)
    ledger.verify()
    times = [entry["at"] for entry in ledger.entries()]
    ledger.close()
    assert times == sorted(times)
