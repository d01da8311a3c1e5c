"""Replay: an edited, removed, moved or inserted entry of each kind is found, behind true digests where it contradicts others."""

from __future__ import annotations

from decimal import Decimal

import pytest
from gate.gate_examples import charge, execute, forge, make_release, make_request, rows
from gate.marks import only_sqlite

from dp_dask.errors import BudgetError, LedgerError
from dp_dask.gate import journal
from dp_dask.gate.limits import Limit
from dp_dask.gate.periods import Per
from dp_dask.gate.replay import first_fault

KINDS = ["open", "grant", "revoke", "limit", "charge", "refused", "limit", "charge", "limit"]


@pytest.fixture
def filled(timed):
    timed.grant("people", Decimal(2), who="steward", why="more")
    timed.revoke("people", Decimal(1), who="steward", why="less")
    timed.limit("people", Limit(Decimal("0.5"), who="analyst"), who="steward", why="")
    charge(timed, "a", "0.2")
    with pytest.raises(BudgetError):
        charge(timed, "b", "0.4")
    timed.limit("people", Limit(Decimal(3), per=Per.WEEK, zone="Europe/Berlin"), who="steward", why="")
    charge(timed, "c", "0.3")
    timed.limit("people", Limit(None, who="analyst"), who="steward", why="")
    assert [row["kind"] for row in timed.entries()] == KINDS
    assert timed.verify() == len(KINDS)
    return timed


COLUMNS = [column.name for column in journal.entries.columns if column.name not in ("seq", "request")]


@only_sqlite
@pytest.mark.parametrize("seq", range(1, len(KINDS) + 1))
def test_an_edited_removed_moved_or_inserted_entry_of_each_kind_is_found(filled, seq):
    before = filled.entries()
    assert first_fault(before) is None
    for column in COLUMNS:
        assert first_fault([{**row, column: "9"} if row["seq"] == seq else row for row in before]) == seq, column
        if before[seq - 1][column] is not None:
            assert first_fault([{**row, column: None} if row["seq"] == seq else row for row in before]) == seq, column
    last = seq == len(before)
    gone = [row for row in before if row["seq"] != seq]
    assert first_fault(gone) == (None if last else seq)  # of an end cut off, only a backup tells
    moved_up = [{**row, "seq": row["seq"] - (row["seq"] > seq)} for row in gone]
    assert first_fault(moved_up) == (None if last else seq)
    twice = [*before[:seq], {**before[seq - 1], "seq": seq + 1}, *({**row, "seq": row["seq"] + 1} for row in before[seq:])]
    assert first_fault(twice) == seq + 1
    if not last:
        swapped = [*before]
        swapped[seq - 1 : seq + 1] = {**before[seq], "seq": seq}, {**before[seq - 1], "seq": seq + 1}
        assert first_fault(swapped) == seq


@pytest.mark.parametrize(
    ("seq", "fields"),
    [
        (1, {"kind": "grant"}),
        (2, {"kind": "open"}),
        (2, {"kind": "gift"}),
        (2, {"neighbours": "add_remove"}),
        (2, {"neighbours": "friends"}),
        (2, {"at": "2020-01-01T00:00:00.000+00:00"}),
        (3, {"kind": "grant"}),
        (3, {"granted": "12"}),
        (3, {"epsilon": "13", "granted": "-1"}),
        (3, {"epsilon": "0", "granted": "12"}),
        (4, {"epsilon": "0.1"}),  # a share less than what was charged to it
        (4, {"epsilon": "rho 0.5", "granted": "rho 11", "spent": "rho 0"}),
        (4, {"terms": ""}),
        (4, {"terms": "{}"}),
        (4, {"terms": '{"per": "year", "zone": "UTC"}'}),
        (4, {"terms": '{"who": "analyst", "more": 1}'}),
        (4, {"terms": "[]"}),
        (5, {"who": "x", "epsilon": "0.6", "spent": "0.6"}),
        (6, {"kind": "charge"}),
        (6, {"kind": "gift"}),
        (6, {"spent": "0.6"}),
        (6, {"epsilon": "0"}),
        (9, {"epsilon": "-1"}),
    ],
    ids=str,
)
def test_a_forged_entry_behind_true_digests_contradicts_itself_or_a_later_one(filled, url, seq, fields):
    forge(url, seq, fields)
    faults = {(4, "0.1"): 5, (5, "0.6"): 6}
    with pytest.raises(LedgerError, match=f"entry {faults.get((seq, fields.get('epsilon')), seq)} was"):
        filled.verify()


@pytest.mark.parametrize("edit", ["terms = '{}'", "epsilon = '9'", """terms = '{"who": "x"}'"""])
def test_a_limit_that_was_edited_serves_no_charge(filled, url, edit):
    execute(url, f"UPDATE dp_dask_entries SET {edit} WHERE seq = 7")
    before = rows(url)
    with pytest.raises(LedgerError, match="entry 7 was edited"):
        filled.commit([("d", make_release(make_request("0.1")))], who="analyst", why="")
    with pytest.raises(LedgerError, match="entry 7 was edited"):
        filled.accounts()
    assert rows(url) == before


def test_a_last_entry_that_was_edited_gets_no_follower(filled, url):
    execute(url, "UPDATE dp_dask_entries SET at = '2020-01-01T00:00:00.000+00:00' WHERE seq = 9")
    with pytest.raises(LedgerError, match="entry 9 was edited"):
        filled.grant("people", Decimal(1), who="", why="")
    assert len(rows(url)) == 9
