"""Ledger crashes: coordinators, workers and the database killed at any moment, and many command lines that want one budget.

After each, a pair of releases is whole or absent, what was shown is found again, and no more is charged than was granted.
"""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from decimal import Decimal
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import PROCESSES, dp_dask
from gate.gate_examples import execute, rows
from gate.processes import PAIR, commit_pair, commit_pairs_until_killed
from servers import missing_postgresql, postgresql

from dp_dask.config import load
from dp_dask.core.privacy import Neighbours
from dp_dask.errors import BudgetError, DpDaskError
from dp_dask.gate.ledger import Ledger
from dp_dask.pipeline import run

KILLS = {"sqlite": 200, "postgresql": 100}
CRASHES = 8


class Crasher:
    """A process that commits pairs, and what it has said of them."""

    def __init__(self, url: str, first: int) -> None:
        self.shown: dict[int, list[str] | None] = {}
        self.receiver, sender = PROCESSES.Pipe(duplex=False)
        self.process = PROCESSES.Process(target=commit_pairs_until_killed, args=(url, first, sender))
        self.process.start()
        sender.close()
        self.receiver.recv()  # it has begun

    def hear(self) -> None:
        """Wait for the next pair."""
        i, shown = self.receiver.recv()
        self.shown[i] = shown

    def kill(self) -> None:
        self.process.kill()
        self.process.join(30)
        try:
            while True:
                self.hear()
        except EOFError:
            self.receiver.close()


def stored(url: str) -> dict[str, str]:
    """Every charge's request, and the text of its release."""
    return {row["request"]: row["release"] for row in rows(url) if row["kind"] == "charge"}


def assert_whole(ledger: Ledger, found: dict[str, str], shown: dict[int, list[str] | None], spent: Decimal) -> None:
    """All that was shown is stored and nothing else but pairs of which the last word was cut off; the sums are right."""
    whole = {int(request.split("-")[0]) for request in found}
    assert set(found) == {f"{i}-{half}" for i in whole for half in "ab"}
    for i, ids in shown.items():
        assert (i in whole) is (ids is not None)
        for half, each in zip("ab", ids or (), strict=False):
            assert f'"id":"{each}"' in found[f"{i}-{half}"]
    balance = ledger.balance("people")
    assert balance.spent == len(whole) * PAIR == spent
    assert balance.spent <= balance.granted


def test_a_coordinator_killed_at_two_hundred_moments_leaves_each_pair_whole_or_absent(opened, url):
    """The moments are spread evenly over two and a half pairs; what is left of the budget then is spent to the last pair."""
    rng = np.random.default_rng(20260101)
    granted = 150 * PAIR
    ledger = opened(url, str(granted))
    start = time.monotonic()
    shown = {i: commit_pair(ledger, i) for i in range(5)}
    pair = (time.monotonic() - start) / 5
    for kill in range(KILLS[url.partition(":")[0].partition("+")[0]]):
        first = max(shown) + 1
        crasher = Crasher(url, first)
        time.sleep(rng.uniform(0, 2.5 * pair))
        crasher.kill()
        shown |= crasher.shown
        cut_off = max(shown) + 1
        found = ledger.find(f"{cut_off}-a")
        assert (found is None) is (ledger.find(f"{cut_off}-b") is None)
        if found is not None:  # committed, and no longer told: the run is started again
            shown[cut_off] = commit_pair(ledger, cut_off)
            assert shown[cut_off][0] == found.id
        elif kill % 10 == 0:  # neither charged nor shown, and free to be asked again
            execute(url, "DELETE FROM dp_dask_reservations")  # as time would
            with suppress(BudgetError):
                shown[cut_off] = commit_pair(ledger, cut_off)
        assert ledger.balance("people").spent == PAIR * sum(ids is not None for ids in shown.values()) <= granted
    execute(url, "DELETE FROM dp_dask_reservations")
    with suppress(BudgetError):
        while True:
            shown[max(shown) + 1] = commit_pair(ledger, max(shown) + 1)
    assert_whole(ledger, stored(url), shown, ledger.balance("people").spent)
    kinds = Counter(row["kind"] for row in rows(url))
    assert kinds["charge"] == 300
    assert kinds["refused"] > 0
    assert ledger.verify() == sum(kinds.values())


@pytest.fixture(scope="module")
def crashing_server():
    missing = missing_postgresql()
    if missing:
        pytest.skip(missing)
    with postgresql(fsync=True) as server:
        yield server


def test_postgresql_stopped_at_once_or_killed_loses_nothing_that_was_shown(crashing_server, opened):
    rng = np.random.default_rng(20260102)
    url = crashing_server.emptied()
    ledger = opened(url, "1")
    crasher = Crasher(url, 0)
    for crash in range(CRASHES):
        for _ in range(3):
            crasher.hear()
        time.sleep(rng.uniform(0, 0.05))
        (crashing_server.stop if crash % 2 else crashing_server.kill)()
        with pytest.raises(DpDaskError, match="cannot be reached or read; nothing is shown"):
            ledger.balance("people")
        crashing_server.start()
        crasher.hear()
        assert crasher.process.is_alive()
    crasher.kill()
    found = stored(url)
    last = max(crasher.shown) + 1
    if f"{last}-a" in found:
        crasher.shown[last] = commit_pair(ledger, last)
    assert None not in crasher.shown.values()
    assert_whole(ledger, stored(url), crasher.shown, ledger.balance("people").spent)
    assert ledger.verify() == len(rows(url))


def write_pipeline(folder: Path, url: str, column: str = "x", *, processes: bool = False, parts: int = 1) -> Path:
    (folder / "data").mkdir(exist_ok=True)
    for part in range(parts):
        pq.write_table(pa.table({"x": [i / 10 for i in range(100)]}), folder / "data" / f"{part}.parquet")
    cluster = "{kind: local, processes: true, workers: 2}" if processes else "{kind: local, workers: 1}"
    prior = "{alpha: 1, beta: 1}"
    text = f"""
dataset: {{name: people, source: {{kind: parquet, path: data}}, unit: record}}
privacy: {{neighbours: replace, n: {100 * parts}}}
measurements: {{m: {{model: exponential, column: x, bounds: [0, {column}], epsilon: 0.1, prior: {prior}}}}}
inference: {{draws: 100}}
cluster: {cluster}
ledger: "{url}"
output: runs
"""
    file = folder / f"{column}.yaml"
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.parametrize("kills", [1, 2])
def test_workers_killed_while_they_read_cost_nothing_or_give_one_release(tmp_path, opened, kills):
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    ledger = opened(url, "0.1")
    pipeline = load(write_pipeline(tmp_path, url, "9", processes=True, parts=12))
    killed = 0

    def kill(_stage: str, _done: int, _of: int) -> None:
        nonlocal killed
        for process in psutil.Process().children(recursive=True):
            if killed < kills and "spawn_main" in " ".join(process.cmdline()):
                process.kill()
                killed += 1

    try:
        made = run(pipeline, progress=kill)
        assert made.charged == ("m",)
    except DpDaskError:
        assert ledger.balance("people").spent == 0
        assert [account.reserved for account, _ in ledger.accounts()] == [0]
        made = run(pipeline)
    assert killed == kills
    assert run(pipeline).publication == made.publication
    assert ledger.balance("people").spent == Decimal("0.1")
    assert ledger.verify() == 2


def test_of_fifty_command_lines_that_want_a_budget_for_ten_ten_get_it(tmp_path, opened, url):
    ledger = opened(url, "1")
    for i in range(50):
        write_pipeline(tmp_path, url, f"{9 + i}")
    with ThreadPoolExecutor(50) as pool:
        done = list(pool.map(lambda i: dp_dask(tmp_path, "run", f"{9 + i}.yaml"), range(50)))
    assert Counter(each.returncode for each in done) == {0: 10, 3: 40}, [each.stderr for each in done if each.returncode]
    told = [each.stderr for each in done if each.returncode == 3]
    assert all("asks for epsilon 0.1" in each for each in told)
    assert Counter(row["kind"] for row in rows(url)) == {"open": 1, "charge": 10, "refused": 40}
    assert ledger.balance("people").left == 0
    assert ledger.balance("people").neighbours is Neighbours.REPLACE
    assert [account.reserved for account, _ in ledger.accounts()] == [0]
    assert ledger.verify() == 51
