"""Ledger limits: of a period, of a requester, under the lifetime's; revocations and refusals, and a clock that is put back."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from gate.gate_examples import charge, effective, make_release, make_request, make_rho_request, make_statistic, rows

from dp_dask.core.privacy import Neighbours, Unit
from dp_dask.errors import BudgetError
from dp_dask.gate.limits import Limit
from dp_dask.gate.periods import Per

BERLIN = "Europe/Berlin"


def limit(ledger, amount, *, unit=Unit.EPSILON, **of):
    return ledger.limit("people", Limit(None if amount is None else Decimal(amount), **of), unit=unit, who="steward", why="test")


def commit(ledger, digest, epsilon, who="analyst"):
    return ledger.commit([(digest, make_release(make_request(epsilon)))], who=who, why="test")


def standing(ledger, index=0):
    [(account, _)] = ledger.accounts()
    return account.standings[index]


# A limit that renews.


def test_a_day_s_limit_is_refused_beyond_and_renews_at_local_midnight(timed, clock):
    limit(timed, "0.5", per=Per.DAY, zone=BERLIN)
    clock.set("2026-03-28T23:59", BERLIN)
    charge(timed, "a", "0.3")
    told = (
        r"this run asks for epsilon 0\.3, 0\.2 is left of the limit of 0\.5 of each day in Europe/Berlin \(0\.3 spent since "
        r"2026-03-28T00:00\+01:00\), which renews at 2026-03-29T00:00\+01:00; wait until then, lower epsilon, .*ledger limit"
    )
    with pytest.raises(BudgetError, match=told) as caught:
        charge(timed, "b", "0.3")
    assert caught.value.exit_code == 3
    charge(timed, "c", "0.2")
    clock.now += timedelta(minutes=1)
    charge(timed, "d", "0.5")
    assert timed.balance("people").spent == 1
    with pytest.raises(BudgetError, match=r"0 is left .*renews at 2026-03-30T00:00\+02:00"):  # a day of 23 hours
        charge(timed, "e", "0.1")
    clock.set("2026-03-29T23:59:59.999", BERLIN)
    with pytest.raises(BudgetError):
        charge(timed, "e", "0.1")
    clock.set("2026-03-30T00:00", BERLIN)
    charge(timed, "e", "0.1")
    assert timed.verify() == 9


@pytest.mark.parametrize(
    ("per", "last", "first"),
    [
        (Per.DAY, "2026-10-25T23:59", "2026-10-26T00:00"),  # 25 hours after midnight
        (Per.WEEK, "2026-11-01T23:59", "2026-11-02T00:00"),
        (Per.MONTH, "2026-10-31T23:59", "2026-11-01T00:00"),
    ],
)
def test_periods_end_where_the_local_calendar_turns(timed, clock, per, last, first):
    limit(timed, "0.1", per=per, zone=BERLIN)
    clock.set("2026-10-25T00:00" if per is Per.DAY else "2026-10-26T00:00", BERLIN)
    charge(timed, "a", "0.1")
    clock.set(last, BERLIN)
    with pytest.raises(BudgetError):
        charge(timed, "b", "0.1")
    clock.set(first, BERLIN)
    charge(timed, "b", "0.1")


def test_what_can_never_fit_is_not_told_to_wait(timed):
    limit(timed, "0.5", per=Per.DAY)
    with pytest.raises(BudgetError, match="which renews") as caught:
        charge(timed, "a", "0.6")
    assert "wait" not in str(caught.value)


def test_the_lifetime_s_budget_stands_above_each_limit(timed, clock):
    limit(timed, "6", per=Per.DAY)
    charge(timed, "a", "6")
    clock.now += timedelta(days=1)
    with pytest.raises(BudgetError, match=r"4 is left \(6 of 10 spent\).*ledger grant"):
        charge(timed, "b", "6")
    charge(timed, "b", "4")


def test_limits_of_two_periods_hold_together(timed, clock):
    limit(timed, "0.2", per=Per.DAY)
    limit(timed, "0.3", per=Per.MONTH)
    charge(timed, "a", "0.2")
    clock.now += timedelta(days=1)
    with pytest.raises(BudgetError, match=r"0\.1 is left of the limit of 0\.3 of each month"):
        charge(timed, "b", "0.2")
    charge(timed, "b", "0.1")


def test_a_commit_of_several_releases_counts_as_their_sum(timed):
    limit(timed, "0.5", per=Per.DAY)
    with pytest.raises(BudgetError, match=r"asks for epsilon 0\.6, 0\.5 is left of the limit"):
        timed.commit([(digest, make_release(make_request("0.3"))) for digest in "ab"], who="analyst", why="")
    assert timed.find("a") is None
    [*_, entry] = timed.entries()
    assert (entry["kind"], entry["epsilon"], entry["spent"]) == ("refused", "0.6", "0")


def test_a_later_limit_of_the_same_sort_replaces_the_earlier_one(timed):
    limit(timed, "0.1", per=Per.DAY)
    limit(timed, "0.3", per=Per.DAY, zone=BERLIN)
    charge(timed, "a", "0.3")
    assert [(each.limit.zone, each.left) for each in timed.accounts()[0][0].standings] == [(BERLIN, 0)]
    limit(timed, "0.2", per=Per.DAY)  # less than is spent
    assert standing(timed).left == 0
    with pytest.raises(BudgetError, match=r"0 is left of the limit of 0\.2"):
        charge(timed, "b", "0.1")
    limit(timed, None, per=Per.DAY)
    charge(timed, "b", "9.7")
    assert timed.accounts()[0][0].standings == ()
    assert timed.verify() == 8


def test_a_limit_counts_what_was_spent_before_it_was_set(timed):
    charge(timed, "a", "0.4")
    limit(timed, "0.5", per=Per.DAY)
    with pytest.raises(BudgetError, match=r"0\.1 is left of the limit"):
        charge(timed, "b", "0.2")


def test_a_release_that_is_there_already_is_free_whatever_the_limit(timed):
    first = charge(timed, "a", "0.4")
    limit(timed, "0", per=Per.DAY)
    assert charge(timed, "a", "0.4") == first


def test_limits_are_those_of_one_data_set(timed):
    timed.open_dataset("others", Neighbours.REPLACE, Decimal(1), who="", why="")
    limit(timed, "0.1", per=Per.DAY)
    charge(timed, "a", "0.5", dataset="others")
    charge(timed, "b", "0.1")


# A clock that is put back.


def test_a_clock_that_is_put_back_gives_no_day_twice(timed, clock):
    limit(timed, "0.5", per=Per.DAY)
    clock.set("2026-03-28T00:00")
    charge(timed, "a", "0.5")
    clock.set("2026-03-27T18:00")
    with pytest.raises(BudgetError, match=r"0 is left .* since 2026-03-28T00:00\+00:00\)"):
        charge(timed, "b", "0.1")
    timed.grant("people", Decimal(1), who="", why="")
    times = [row["at"] for row in timed.entries()]
    assert times == sorted(times)
    assert times[-1] == "2026-03-28T00:00:00.000+00:00"
    clock.set("2026-03-29T00:00")
    charge(timed, "b", "0.1")
    assert timed.verify() == 6


# Shares.


def test_a_requester_s_share_is_of_all_that_they_ever_spend(timed, clock):
    limit(timed, "0.5", who="ann")
    commit(timed, "a", "0.4", "ann")
    clock.now += timedelta(days=400)
    told = r"0\.1 is left of the limit of 0\.5 of what ann may spend \(0\.4 spent\), which does not renew; lower epsilon, or ask"
    with pytest.raises(BudgetError, match=told):
        commit(timed, "b", "0.2", "ann")
    commit(timed, "b", "0.2", "bob")
    commit(timed, "c", "0.1", "ann")
    limit(timed, "0", who="bob")
    with pytest.raises(BudgetError, match="of what bob may spend"):
        commit(timed, "d", "0.1", "bob")
    limit(timed, None, who="ann")
    commit(timed, "d", "1", "ann")
    [(account, refused)] = timed.accounts()
    assert [(each.limit.who, each.spent, each.left, each.period) for each in account.standings] == [
        ("bob", Decimal("0.2"), 0, None)
    ]
    assert refused == 2
    assert timed.verify() == 10


# In rho.


def test_limits_in_rho_count_an_epsilon_as_half_its_square(made, url):
    ledger = made(url)
    ledger.open_dataset("people", Neighbours.REPLACE, Decimal(1), unit=Unit.RHO, who="", why="")
    limit(ledger, "0.2", unit=Unit.RHO, per=Per.DAY)
    limit(ledger, "0.16", unit=Unit.RHO, who="ann")
    ledger.commit([("a", make_release(make_rho_request("0.1")))], who="ann", why="")
    with pytest.raises(BudgetError, match=r"asks for rho 0\.08, 0\.06 is left of the limit of 0\.16 of what ann"):
        ledger.commit([("b", make_release(make_request("0.4")))], who="ann", why="")
    ledger.commit([("b", make_release(make_request("0.4")))], who="bob", why="")
    with pytest.raises(BudgetError, match=r"asks for rho 0\.045, 0\.02 is left of the limit of 0\.2 of each day"):
        ledger.commit([("c", make_release(make_request("0.3")))], who="bob", why="")
    assert [row["epsilon"] for row in rows(url) if row["kind"] == "refused"] == ["rho 0.08", "rho 0.045"]
    for amount in ("0.1", "0"):
        with pytest.raises(BudgetError, match=r"is in rho, not in epsilon; limit with --rho"):
            limit(ledger, amount, per=Per.DAY)
    limit(ledger, None, per=Per.DAY)
    assert ledger.verify() == 8


def test_sums_of_limits_are_exact(timed):
    limit(timed, "0.3", per=Per.DAY)
    for digest in "abc":
        charge(timed, digest, "0.1")  # in floats 0.30000000000000004
    with pytest.raises(BudgetError):
        charge(timed, "d", "0.000000000001")


@pytest.mark.parametrize("bad", [{}, {"per": Per.DAY, "who": "ann"}])
def test_a_limit_is_of_one_thing(bad):
    with pytest.raises(ValueError, match="of a period or of a requester"):
        Limit(Decimal(1), **bad)


@pytest.mark.parametrize("amount", ["-1", "NaN", "Infinity", "1e-13", "1000001"])
def test_a_limit_is_an_exact_decimal(timed, url, amount):
    before = rows(url)
    with pytest.raises(ValueError, match="epsilon is"):
        limit(timed, amount, per=Per.DAY)
    with pytest.raises(ValueError, match="IANA"):
        limit(timed, "1", per=Per.DAY, zone="Mars/Base")
    assert rows(url) == before


# Revoking.


def test_what_is_left_can_be_taken_back_and_no_more(timed):
    charge(timed, "a", "4")
    assert timed.revoke("people", Decimal(1), who="steward", why="") == timed.balance("people")
    assert timed.balance("people").granted == 9
    with pytest.raises(BudgetError, match=r"epsilon 5\.000000000001 is more than the 5 that is left \(4 of 9 spent\); what"):
        timed.revoke("people", Decimal("5.000000000001"), who="steward", why="")
    assert timed.revoke("people", Decimal(5), who="steward", why="").left == 0
    with pytest.raises(BudgetError):
        charge(timed, "b", "0.1")
    with pytest.raises(BudgetError, match="is in epsilon, not in rho; revoke with --epsilon"):
        timed.revoke("people", Decimal(1), unit=Unit.RHO, who="steward", why="")
    timed.grant("people", Decimal(1), who="steward", why="")
    charge(timed, "b", "1")
    assert timed.verify() == 7


@pytest.mark.parametrize("amount", ["0", "-1", "NaN"])
def test_no_revocation_can_add_to_a_budget(timed, amount):
    with pytest.raises(ValueError, match="epsilon is"):
        timed.revoke("people", Decimal(amount), who="", why="")
    assert timed.balance("people").granted == 10


# Refusals.


def test_a_refusal_is_an_entry_that_tells_who_why_and_how_much_and_changes_no_total(timed, url):
    charge(timed, "a", "9.9")
    before = effective(url)
    for _ in range(2):
        with pytest.raises(BudgetError):
            timed.commit([("b", make_release(make_request("0.2")))], who="ann", why="a question")
    assert effective(url) == before
    entry = rows(url)[-1]
    told = [entry[key] for key in ("kind", "who", "why", "epsilon", "granted", "spent", "request", "release")]
    assert told == ["refused", "ann", "a question", "0.2", "10", "9.9", None, None]
    assert timed.accounts()[0][1] == 2
    assert timed.verify() == 4


def test_a_run_of_another_relation_or_without_a_price_is_no_refusal_of_the_budget(timed, url):
    other = make_request("0.1", neighbours=Neighbours.ADD_REMOVE, n=None, statistic=make_statistic(count_weight=15))
    for request in (other, make_rho_request("0.1")):
        with pytest.raises(BudgetError):
            timed.commit([("a", make_release(request))], who="", why="")
    assert [row["kind"] for row in rows(url)] == ["open"]
