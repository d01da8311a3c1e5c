"""Reservations: what runs under way will be charged is kept for them, renewed while they live, and never more than advice."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from decimal import Decimal

import pytest
from gate.gate_examples import charge, execute, impatient, lock_held, loss, make_release, make_request, rows

from dp_dask.core.privacy import Neighbours, Unit
from dp_dask.errors import BudgetError, LedgerError
from dp_dask.gate import reservations
from dp_dask.gate.limits import Limit
from dp_dask.gate.periods import Per
from dp_dask.gate.reservations import LIFETIME

REPLACE = Neighbours.REPLACE


def reserving(ledger, *amounts, who="ann", dataset="people", first="a", unit=Unit.EPSILON):
    losses = {f"{first}{i}": loss(amount, unit) for i, amount in enumerate(amounts)}
    return ledger.reserved(dataset, REPLACE, losses, who=who, why="test")


def reserved(ledger):
    [(account, _)] = ledger.accounts()
    return account.reserved


def test_of_two_runs_that_do_not_both_fit_the_second_is_refused_before_it_reads(timed, url):
    with reserving(timed, "4", "3"):
        assert reserved(timed) == 7
        told = (
            r"asks for epsilon 4, 10 is left, and 7 of it is reserved by runs under way "
            r"\(4 by ann until 2026-03-27T12:05:00\+00:00, 3 by ann .*\); wait until they end, or lower epsilon"
        )
        with pytest.raises(BudgetError, match=told) as caught, reserving(timed, "4", who="bob", first="b"):
            pytest.fail("reserved twice")
        assert caught.value.exit_code == 3
        assert reserved(timed) == 7
        with reserving(timed, "3", who="bob", first="b"):
            assert reserved(timed) == 10
    assert reserved(timed) == 0
    with reserving(timed, "10"):
        pass
    assert [row["kind"] for row in rows(url)] == ["open", "refused"]
    assert rows(url)[-1]["who"] == "bob"


def test_a_question_whether_a_run_is_affordable_counts_reservations_and_writes_nothing(timed, url):
    with reserving(timed, "7"):
        before = rows(url)
        with pytest.raises(BudgetError, match="reserved by runs under way"):
            timed.check_affordable("people", REPLACE, {"b": loss("4")}, who="bob")
        timed.check_affordable("people", REPLACE, {"b": loss("3")}, who="bob")
        assert (rows(url), reserved(timed)) == (before, 7)


def test_two_runs_of_one_request_reserve_its_price_once(timed):
    """Whichever commits first pays, and the other shows what it made."""
    with reserving(timed, "6"), reserving(timed, "6", "4", who="bob"):
        assert reserved(timed) == 10
        first = charge(timed, "a0", "6")
        assert reserved(timed) == 4  # what is charged is no longer reserved, by whomever
        assert charge(timed, "a0", "6") == first
        charge(timed, "a1", "4")
    assert timed.balance("people").left == 0


def test_a_reservation_ends_with_a_failed_run_too(timed):
    with pytest.raises(ValueError, match="planted"), reserving(timed, "6"):
        raise ValueError("planted")
    assert reserved(timed) == 0


def test_a_commit_asks_the_journal_alone(timed):
    with reserving(timed, "10"):
        charge(timed, "other", "9")
    with reserving(timed, "1"), pytest.raises(BudgetError, match=r"asks for epsilon 2, 1 is left \(9 of 10 spent\)"):
        charge(timed, "a0", "2")


def test_the_run_that_reserved_may_commit_and_no_other_need_wait_then(timed):
    with reserving(timed, "10"):
        timed.commit([("a0", make_release(make_request("10")))], who="ann", why="")
        assert reserved(timed) == 0
    assert timed.verify() == 2


def die_reserving(ledger, run):
    """What a run that is killed leaves."""
    with ledger._database.writing() as connection:
        reservations.reserve(
            connection, "people", Unit.EPSILON, {"a": Decimal(8)}, run=run, who="ann", now=ledger._database.clock(connection)
        )


def test_a_run_that_died_is_forgotten_when_its_reservation_is_over(timed, clock, url):
    die_reserving(timed, "dead")
    clock.now += LIFETIME - timedelta(milliseconds=1)
    with pytest.raises(BudgetError, match="reserved by runs under way"), reserving(timed, "4"):
        pass
    clock.now += timedelta(milliseconds=1)
    with reserving(timed, "4"):
        assert reserved(timed) == 4
        execute(url, "UPDATE dp_dask_reservations SET dataset = 'x' WHERE run = 'dead'")  # it is not there any more
        assert reserved(timed) == 4


def test_a_clock_that_is_put_back_keeps_no_dead_run_alive(timed, clock):
    die_reserving(timed, "dead")
    clock.now -= timedelta(days=1)
    with reserving(timed, "10"):
        assert reserved(timed) == 10


def test_a_clock_that_stands_behind_the_journal_lets_reservations_end_all_the_same(timed, clock):
    timed.grant("people", Decimal(1), who="", why="")
    clock.now -= timedelta(days=1)
    die_reserving(timed, "dead")
    clock.now += LIFETIME
    assert reserved(timed) == 0


def test_a_run_that_lives_renews_its_reservation_from_a_daemon_thread(made, opened, url, monkeypatch):
    monkeypatch.setattr(reservations, "LIFETIME", timedelta(seconds=1))
    ledger, other = opened(url), made(url)
    with reserving(ledger, "0.7"):
        [thread] = [thread for thread in threading.enumerate() if thread.name == "dp-dask reservation"]
        assert thread.daemon
        until = time.monotonic() + 2.5
        while time.monotonic() < until:
            assert reserved(other) == Decimal("0.7")
            time.sleep(0.1)
    thread.join(10)
    assert not thread.is_alive()
    assert reserved(other) == 0


def test_a_renewal_that_fails_does_not_fail_the_run(made, opened, url, monkeypatch):
    opened(url)
    monkeypatch.setattr(reservations, "LIFETIME", timedelta(seconds=0.5))
    ledger = made(impatient(url))
    with reserving(ledger, "0.7"):
        execute(url, "ALTER TABLE dp_dask_reservations RENAME TO gone")
        time.sleep(0.4)
        execute(url, "ALTER TABLE gone RENAME TO dp_dask_reservations")
        charge(ledger, "a0", "0.7")


def test_a_reservation_that_cannot_be_given_back_does_not_fail_the_run(made, opened, url):
    opened(url)
    ledger = made(impatient(url))
    with reserving(ledger, "0.7"):
        execute(url, "ALTER TABLE dp_dask_reservations RENAME TO gone")


def test_a_locked_ledger_is_told_before_a_run_reads(made, opened, url):
    opened(url)
    book = made(impatient(url))
    with lock_held(url), pytest.raises(LedgerError, match="locked by another run"), reserving(book, "0.1"):
        pytest.fail("reserved")
    assert reserved(book) == 0


def test_reservations_count_in_limits_of_a_period_and_of_their_own_requester(timed):
    timed.limit("people", Limit(Decimal(5), per=Per.DAY), who="", why="")
    timed.limit("people", Limit(Decimal(2), who="ann"), who="", why="")
    timed.limit("people", Limit(Decimal(4), who="bob"), who="", why="")
    with reserving(timed, "1.5"):
        [(account, _)] = timed.accounts()
        assert [each.reserved for each in account.standings] == [Decimal("1.5"), Decimal("1.5"), 0]
        with pytest.raises(BudgetError, match=r"2 is left of the limit of what ann may spend, and 1\.5 of it is reserved"):
            timed.check_affordable("people", REPLACE, {"b": loss("1")}, who="ann")
        with pytest.raises(BudgetError, match=r"5 is left of the limit of each day in UTC, and 1\.5 of it is reserved"):
            timed.check_affordable("people", REPLACE, {"b": loss("4")}, who="bob")
        timed.check_affordable("people", REPLACE, {"b": loss("3.5")}, who="bob")


def test_reservations_of_a_budget_in_rho_are_in_rho(made, url):
    ledger = made(url)
    ledger.open_dataset("people", REPLACE, Decimal(1), unit=Unit.RHO, who="", why="")
    with reserving(ledger, "0.4"):
        assert reserved(ledger) == Decimal("0.08")
        with (
            pytest.raises(BudgetError, match=r"asks for rho 0\.93, 1 is left, and 0\.08 of it is reserved"),
            reserving(ledger, "0.93", first="b", unit=Unit.RHO),
        ):
            pass
    assert ledger.entries()[-1]["epsilon"] == "rho 0.93"


def test_reservations_of_another_data_set_are_its_own(timed):
    timed.open_dataset("others", REPLACE, Decimal(1), who="", why="")
    with reserving(timed, "1", dataset="others"), reserving(timed, "10", first="b"):
        assert [account.reserved for account, _ in timed.accounts()] == [1, 10]
