"""Ledger upgrades: a ledger of schema 1, as that version wrote it, becomes one of this version, or stays as it was."""

from __future__ import annotations

import sqlite3
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from gate.gate_examples import charge, execute, make_request, make_rho_request, rows
from gate.marks import only_sqlite
from gate.processes import all_at_once, verify_together

from dp_dask.core.privacy import Neighbours
from dp_dask.errors import DpDaskError, LedgerError
from dp_dask.gate import upgrades
from dp_dask.gate.limits import Limit
from dp_dask.gate.periods import Per

OLD = (Path(__file__).parent / "ledger_of_schema_1.sql").read_text(encoding="utf-8")
COLUMNS = "seq, at, dataset, kind, neighbours, epsilon, granted, spent, who, why, request, release, previous, digest"


@pytest.fixture
def old(url):
    statements = [statement.replace("%", "%%") for statement in OLD.split(";\n") if statement.strip()]
    execute(url, *statements)
    return url


def ask(url: str, query: str) -> list[Any]:
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.connect() as connection:
        return [tuple(row) for row in connection.exec_driver_sql(query)]


def dump(url: str) -> list[Any]:
    return ask(url, f"SELECT {COLUMNS} FROM dp_dask_entries ORDER BY seq")


def version(url: str) -> int:
    [(found,)] = ask(url, "SELECT schema_version FROM dp_dask_ledger")
    return found


def has_terms(url: str) -> bool:
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    return "terms" in [column["name"] for column in sa.inspect(engine).get_columns("dp_dask_entries")]


@pytest.mark.parametrize("first", ["balance", "verify", "find", "accounts", "grant", "open", "charge"])
def test_whatever_is_asked_first_an_old_ledger_is_upgraded_and_every_entry_stays(old, made, opened, first):
    before = dump(old)
    ledger = made(old)
    acts = {
        "balance": lambda: ledger.balance("people"),
        "verify": ledger.verify,
        "find": lambda: ledger.find("none"),
        "accounts": ledger.accounts,
        "grant": lambda: ledger.grant("people", Decimal(1), who="", why=""),
        "open": lambda: opened(old, "1", "new"),
        "charge": lambda: charge(ledger, "new"),
    }
    acts[first]()
    assert version(old) == upgrades.SCHEMA_VERSION
    assert dump(old)[:5] == before
    added = len(dump(old)) - 5
    assert added == (first in {"grant", "open", "charge"})
    assert ledger.verify() == 5 + added


def test_old_releases_are_found_and_new_kinds_of_entries_go_on_the_old_chain(old, made):
    ledger = made(old)
    ledger.balance("people")
    request, rho = make_request("0.1"), make_rho_request("0.1", dataset="others")
    assert ledger.find(ledger.digest(request, "v")).request == request
    assert ledger.find(ledger.digest(rho, "v")).request == rho
    assert (ledger.balance("people").granted, ledger.balance("people").spent) == (Decimal("1.25"), Decimal("0.1"))
    ledger.limit("people", Limit(Decimal("0.1"), who="analyst"), who="steward", why="")  # spent before there were limits
    with pytest.raises(DpDaskError, match=r"0 is left of the limit of 0\.1 of what analyst may spend \(0\.1 spent\)"):
        charge(ledger, "more")
    ledger.revoke("people", Decimal("0.5"), who="steward", why="")
    assert [row["terms"] for row in rows(old)][:5] == [None] * 5
    assert ledger.verify() == 8


@pytest.mark.parametrize("edit", ["who = 'x'", "spent = '0'", "at = '2026-01-01T00:00:00.000+00:00'", "previous = ''"])
def test_an_edit_of_before_the_upgrade_is_found_after_it(old, made, edit):
    execute(old, f"UPDATE dp_dask_entries SET {edit} WHERE seq = 3")
    with pytest.raises(LedgerError, match="entry 3 was edited"):
        made(old).verify()


@pytest.mark.parametrize("terms", ["''", "'{}'"])
def test_terms_given_to_an_old_entry_are_found(old, made, terms):
    ledger = made(old)
    ledger.balance("people")
    execute(old, f"UPDATE dp_dask_entries SET terms = {terms} WHERE seq = 4")
    with pytest.raises(LedgerError, match="entry 4 was edited"):
        ledger.verify()


def test_an_upgrade_that_fails_half_way_changes_nothing(old, made, monkeypatch):
    def fail(_connection: Any) -> None:
        msg = "planted"
        raise LedgerError(msg)

    before = dump(old)
    monkeypatch.setattr(upgrades, "SCHEMA_VERSION", 3)
    monkeypatch.setattr(upgrades, "STEPS", {**upgrades.STEPS, 2: fail})
    with pytest.raises(LedgerError, match="planted"):
        made(old).balance("people")
    assert (version(old), has_terms(old), dump(old)) == (1, False, before)
    monkeypatch.undo()
    assert made(old).verify() == 5


def test_eight_processes_that_find_an_old_ledger_upgrade_it_once(old):
    assert all_at_once(verify_together, [(old,)] * 8) == ["5"] * 8
    assert version(old) == upgrades.SCHEMA_VERSION


def test_a_newer_ledger_is_refused_with_nothing_changed(ledger, made, url):
    execute(url, "UPDATE dp_dask_ledger SET schema_version = 99")
    before = rows(url)
    told = r"is of schema 99, and this dp_dask knows 2 and older ones; install the newer dp_dask"
    newer = made(url)
    for act in (
        lambda: newer.balance("people"),
        newer.verify,
        newer.accounts,
        lambda: newer.find("a"),
        lambda: charge(newer, "a"),
        lambda: charge(ledger, "a"),  # opened before somebody upgraded it, which takes no more than an hour of reading
        lambda: newer.grant("people", Decimal(1), who="", why=""),
        lambda: newer.open_dataset("new", Neighbours.REPLACE, Decimal(1), who="", why=""),
    ):
        with pytest.raises(LedgerError, match=told):
            act()
    assert rows(url) == before


@only_sqlite
def test_a_program_of_schema_1_does_not_take_a_limited_data_set_for_one_without_limits(ledger, tmp_path):
    """It reads the last entry of its data set and holds its fields, of which it knows no terms, against the digest."""
    ledger.limit("people", Limit(Decimal("0.1"), per=Per.DAY), who="steward", why="")
    charge(ledger, "a", "0.05")
    with sqlite3.connect(tmp_path / "ledger.db") as connection:
        connection.row_factory = sqlite3.Row
        row = connection.execute(f"SELECT {COLUMNS} FROM dp_dask_entries ORDER BY seq DESC").fetchone()
    from dp_dask.gate import journal

    assert journal.digest({**dict(row), "terms": None}) != row["digest"]
