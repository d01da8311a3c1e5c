"""Ledger: budgets, charges, digests and the chain of entries, one suite for SQLite and a real PostgreSQL."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal, localcontext
from typing import Any

import pytest
from gate.gate_examples import (
    balances,
    charge,
    effective,
    everything_said,
    execute,
    forge,
    loss,
    make_release,
    make_request,
    make_statistic,
    rows,
)
from gate.marks import only_sqlite
from servers import PASSWORD

from dp_dask.core.bounds import Bounds, Outside
from dp_dask.core.privacy import Neighbours
from dp_dask.errors import BudgetError, LedgerError
from dp_dask.gate import journal
from dp_dask.gate.ledger import Ledger
from dp_dask.gate.replay import first_fault

REPLACE, ADD_REMOVE = Neighbours.REPLACE, Neighbours.ADD_REMOVE


# Opening and granting.


def test_a_new_data_set_has_its_budget_and_has_spent_nothing(made, url):
    empty_ledger = made(url)
    assert not empty_ledger.exists()
    opened_with = empty_ledger.open_dataset("people", REPLACE, Decimal("0.5"), who="steward", why="a study")
    assert empty_ledger.exists()
    assert empty_ledger.balance("people") == opened_with == journal.Balance("people", REPLACE, Decimal("0.5"), Decimal(0))
    assert opened_with.left == Decimal("0.5")
    [entry] = rows(url)
    assert [entry[key] for key in ("kind", "who", "why", "epsilon", "request")] == ["open", "steward", "a study", "0.5", None]


def test_opening_again_with_the_same_budget_changes_nothing(ledger, url):
    before = rows(url)
    again = ledger.open_dataset("people", REPLACE, Decimal("1.0"), who="another", why="again")
    assert again == ledger.balance("people")
    assert rows(url) == before


@pytest.mark.parametrize(("neighbours", "epsilon"), [(REPLACE, "2"), (REPLACE, "0.999999999999"), (ADD_REMOVE, "1")])
def test_opening_again_with_another_budget_or_relation_is_refused(ledger, url, neighbours, epsilon):
    before = rows(url)
    with pytest.raises(LedgerError, match=r"open already with epsilon 1 under replace"):
        ledger.open_dataset("people", neighbours, Decimal(epsilon), who="steward", why="")
    assert rows(url) == before


def test_a_grant_adds_to_the_budget_and_leaves_what_is_spent(ledger):
    charge(ledger, "a", "0.3")
    granted = ledger.grant("people", Decimal("0.25"), who="steward", why="more")
    assert granted == ledger.balance("people") == journal.Balance("people", REPLACE, Decimal("1.25"), Decimal("0.3"))
    assert ledger.verify() == 3


def test_opening_again_after_a_grant_still_changes_nothing(ledger):
    granted = ledger.grant("people", Decimal("0.25"), who="steward", why="more")
    assert ledger.open_dataset("people", REPLACE, Decimal(1), who="steward", why="again") == granted


@pytest.mark.parametrize("epsilon", ["0", "-1", "NaN", "Infinity", "1e-13", "1000000.1"])
def test_no_budget_can_be_opened_or_granted_that_is_not_a_positive_exact_decimal(ledger, url, epsilon):
    before = rows(url)
    for act in (
        lambda e: ledger.grant("people", e, who="", why=""),
        lambda e: ledger.open_dataset("x", REPLACE, e, who="", why=""),
    ):
        with pytest.raises(ValueError, match="epsilon is"):
            act(Decimal(epsilon))
    assert rows(url) == before


def test_a_data_set_without_a_budget_is_refused_everywhere(ledger):
    acts: list[Callable[[], Any]] = [
        lambda: ledger.balance("others"),
        lambda: ledger.grant("others", Decimal(1), who="", why=""),
        lambda: ledger.check_affordable("others", REPLACE, {"x": loss("0.1")}, who="analyst"),
        lambda: charge(ledger, "a", dataset="others"),
    ]
    for act in acts:
        with pytest.raises(BudgetError, match=r"'others' has no budget in this ledger.*dp-dask ledger init"):
            act()
    assert ledger.find("a") is None


def test_without_a_ledger_every_question_names_the_command_that_makes_one_and_makes_nothing(made, url, tmp_path):
    empty_ledger = made(url)
    acts: list[Callable[[], Any]] = [
        lambda: empty_ledger.balance("people"),
        empty_ledger.accounts,
        empty_ledger.verify,
        lambda: empty_ledger.grant("people", Decimal(1), who="", why=""),
        lambda: empty_ledger.check_affordable("people", REPLACE, {"x": loss("0.1")}, who="analyst"),
    ]
    for act in acts:
        with pytest.raises(BudgetError, match="dp-dask ledger init"):
            act()
    assert not empty_ledger.exists()
    assert list(tmp_path.iterdir()) == []
    assert PASSWORD not in empty_ledger._database.name


def test_a_new_sqlite_ledger_is_for_its_owner_alone(opened, tmp_path):
    folder = tmp_path / "not" / "yet"
    opened(f"sqlite:///{folder / 'ledger.db'}")
    assert (folder / "ledger.db").stat().st_mode & 0o777 == 0o600


def test_data_sets_have_budgets_of_their_own(opened, url):
    ledger = opened(url, "1", "b", "a")
    charge(ledger, "x", "0.75", dataset="a")
    assert [(b.dataset, b.left) for b in balances(ledger)] == [("a", Decimal("0.25")), ("b", Decimal(1))]
    with pytest.raises(BudgetError, match=r"'a': this run asks for epsilon 0\.5, 0\.25 is left"):
        charge(ledger, "y", "0.5", dataset="a")
    charge(ledger, "y", "0.5", dataset="b")
    assert [b.spent for b in balances(ledger)] == [Decimal("0.75"), Decimal("0.5")]
    assert ledger.verify() == 5  # the refusal too is an entry


# Charging.


def test_a_charge_and_its_release_are_one_entry_and_come_back_bit_for_bit(ledger, url):
    release = make_release(make_request("0.1"), noisy_sum=-(2**61) - 1)
    assert ledger.find("a") is None
    assert ledger.commit([("a", release)], who="analyst", why="visits") == [release]
    assert ledger.find("a") == release
    assert ledger.find("a").scale.hex() == release.scale.hex()
    assert str(ledger.find("a").request.epsilon) == "0.1"
    entry = rows(url)[-1]
    assert [entry[key] for key in ("kind", "who", "why", "epsilon", "spent", "request")] == [
        "charge",
        "analyst",
        "visits",
        "0.1",
        "0.1",
        "a",
    ]


def test_a_digest_committed_twice_is_charged_once_and_the_first_release_is_shown(ledger, url):
    first = charge(ledger, "a")
    assert charge(ledger, "a") == first
    assert ledger.balance("people").spent == Decimal("0.1")
    assert len(rows(url)) == 2


def test_a_digest_twice_in_one_commit_is_charged_once_and_shown_twice(ledger):
    one, two, other = (make_release(make_request("0.1")) for _ in range(3))
    assert ledger.commit([("a", one), ("b", other), ("a", two)], who="", why="") == [one, other, one]
    assert ledger.balance("people").spent == Decimal("0.2")
    assert ledger.verify() == 3


def test_a_release_that_is_there_already_is_shown_even_when_nothing_is_left(ledger):
    first = charge(ledger, "a", "1")
    assert charge(ledger, "a", "1") == first
    with pytest.raises(BudgetError):
        charge(ledger, "b", "0.000000000001")


def test_over_budget_is_refused_before_and_at_the_commit_with_nothing_charged(ledger, url):
    charge(ledger, "a", "0.8")
    before = rows(url)
    with pytest.raises(BudgetError, match=r"asks for epsilon 0\.3, 0\.2 is left \(0\.8 of 1 spent\).*ledger grant"):
        ledger.check_affordable("people", REPLACE, {"x": loss("0.3")}, who="analyst")
    with pytest.raises(BudgetError):
        charge(ledger, "b", "0.3")
    with pytest.raises(BudgetError):  # the first of the two would fit
        ledger.commit([("c", make_release(make_request("0.2"))), ("d", make_release(make_request("0.1")))], who="", why="")
    assert effective(url) == before
    assert ledger.find("c") is None
    assert charge(ledger, "e", "0.2").request.epsilon == Decimal("0.2")  # a refusal poisons nothing


def test_a_commit_over_several_data_sets_is_all_or_nothing(opened, url):
    ledger = opened(url, "1", "a", "b")
    fits, too_much = make_release(make_request("0.1", dataset="a")), make_release(make_request("1.1", dataset="b"))
    with pytest.raises(BudgetError, match="'b'"):
        ledger.commit([("x", fits), ("y", too_much)], who="", why="")
    assert [b.spent for b in balances(ledger)] == [0, 0]
    assert ledger.find("x") is None


def test_epsilons_of_two_neighbouring_relations_are_never_added(ledger, url):
    before = rows(url)
    other = make_request("0.1", neighbours=ADD_REMOVE, n=None, statistic=make_statistic(count_weight=15))
    with pytest.raises(BudgetError, match=r"opened under replace, this run is under add_remove"):
        ledger.check_affordable("people", ADD_REMOVE, {"x": loss("0.1")}, who="analyst")
    with pytest.raises(BudgetError, match="do not add up"):
        ledger.commit([("a", make_release(other))], who="", why="")
    assert rows(url) == before


@pytest.mark.parametrize("epsilon", ["-0.5", "0", "-0", "NaN", "-Infinity", "1e-13"])
def test_no_charge_can_give_budget_back_or_be_free(ledger, url, epsilon):
    before = rows(url)
    with pytest.raises((ValueError, BudgetError, LedgerError)):
        ledger.commit([("a", replace(make_release(make_request()), request=make_request(epsilon)))], who="", why="")
    assert rows(url) == before


def test_a_release_that_costs_more_than_its_request_says_is_refused(ledger):
    honest = make_release(make_request("0.1"))
    with pytest.raises(LedgerError):
        ledger.commit([("a", replace(honest, privacy_loss=0.1000001))], who="", why="")
    assert ledger.balance("people").spent == 0


# Exact decimals.


@pytest.mark.parametrize(
    ("granted", "epsilons"),
    [
        ("0.3", ["0.1"] * 3),  # in floats 0.30000000000000004
        ("0.3", ["0.1", "0.2"]),
        ("1", ["0.3", "0.3", "0.3", "0.1"]),
        ("1000000", ["999999.999999999999", "0.000000000001"]),
    ],
)
def test_a_budget_can_be_spent_to_the_last_digit_and_not_beyond(opened, url, granted, epsilons):
    ledger = opened(url, granted)
    for i, epsilon in enumerate(epsilons):
        charge(ledger, f"{i}", epsilon)
    assert ledger.balance("people").left == 0
    with pytest.raises(BudgetError):
        charge(ledger, "more", "0.000000000001")
    assert ledger.verify() == 2 + len(epsilons)


def test_sums_stay_exact_whatever_decimal_precision_the_caller_works_with(opened, url):
    ledger = opened(url, "200")
    with localcontext() as context:
        context.prec = 4
        charge(ledger, "a", "100.1")
        charge(ledger, "b", "0.04")
    assert ledger.balance("people").spent == Decimal("100.14")
    assert ledger.verify() == 3


def test_an_epsilon_has_one_form_in_the_ledger_however_it_is_written(made, url):
    empty_ledger = made(url)
    empty_ledger.open_dataset("people", REPLACE, Decimal("0.500"), who="", why="")
    empty_ledger.grant("people", Decimal("5E-1"), who="", why="")
    assert [row["epsilon"] for row in rows(url)] == ["0.5", "0.5"]
    assert empty_ledger.balance("people").granted == 1


# The digest of a request.


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (make_request("0.5"), make_request("0.50")),
        (make_request(statistic=make_statistic(lower=0.0)), make_request(statistic=make_statistic(lower=-0.0))),
    ],
    ids=["epsilon", "bounds"],
)
def test_equal_requests_share_a_digest(opened, tmp_path, one, other):
    ledger = opened(f"sqlite:///{tmp_path / 'ledger.db'}")
    assert one == other
    assert ledger.digest(one, "v") == ledger.digest(other, "v")


def test_requests_that_differ_in_anything_have_different_digests(ledger):
    base = make_request()
    statistic, grid = base.statistic, base.statistic.grid
    statistics = [
        make_statistic(column="visit"),
        replace(statistic, bounds=Bounds(0.0, 30.000000000000004)),
        replace(statistic, outside=Outside.TRUNCATE),
        replace(statistic, count_weight=1),
        *(
            replace(statistic, grid=replace(grid, **change))
            for change in ({"unit": 0.5}, {"lower": 1}, {"upper": 31}, {"origin": 1})
        ),
    ]
    requests = [
        base,
        make_request("0.2"),
        make_request("0.100000000001"),
        make_request(dataset="People"),
        make_request(n=51),
        make_request(neighbours=ADD_REMOVE, n=None),
        *(make_request(statistic=other) for other in statistics),
    ]
    digests = {ledger.digest(request, version) for request in requests for version in ("v", "w", "")}
    assert len(digests) == 3 * len(requests)


def test_a_digest_is_salted_with_the_ledger_and_stays_the_same_in_it(made, opened, tmp_path):
    urls = [f"sqlite:///{tmp_path / name}" for name in ("a.db", "b.db")]
    books = [opened(urls[0]), opened(urls[1]), made(urls[0])]
    first, second, again = (book.digest(make_request(), "v") for book in books)
    assert first == again != second


def test_a_file_name_that_is_not_text_can_still_be_part_of_a_version(opened, tmp_path):
    ledger = opened(f"sqlite:///{tmp_path / 'ledger.db'}")
    names = [os.fsdecode(raw) for raw in (b"a\xff.parquet", b"a\xfe.parquet")]
    assert len({ledger.digest(make_request(), f"{name}\t1\t2") for name in names}) == 2


# Verify.


@pytest.fixture
def filled(opened: Callable[..., Ledger], url: str) -> Ledger:
    ledger = opened(url)
    charge(ledger, "a", "0.1")
    ledger.grant("people", Decimal("0.5"), who="steward", why="more")
    charge(ledger, "b", "0.2")
    charge(ledger, "c", "0.3")
    assert ledger.verify() == 5
    return ledger


TEXTS = [column.name for column in journal.entries.columns if column.name != "seq"]


@pytest.mark.parametrize("column", TEXTS)
def test_verify_finds_an_edited_field(filled, url, column):
    execute(url, f"UPDATE dp_dask_entries SET {column} = '9' WHERE seq = 4")
    with pytest.raises(LedgerError, match="entry 4 was edited, removed or moved"):
        filled.verify()


@pytest.mark.parametrize("value", ["NULL", "''", "' '"])
def test_verify_finds_a_field_that_was_emptied(filled, url, value):
    execute(url, f"UPDATE dp_dask_entries SET release = {value} WHERE seq = 2")
    with pytest.raises(LedgerError, match="entry 2 was edited"):
        filled.verify()


@only_sqlite  # which lets a column hold what it likes
def test_verify_finds_a_field_that_is_no_longer_text(filled, url):
    execute(url, "UPDATE dp_dask_entries SET why = x'00ff' WHERE seq = 2")
    with pytest.raises(LedgerError, match="entry 2 was edited"):
        filled.verify()


@pytest.mark.parametrize("seq", [1, 3, 4])
def test_verify_finds_a_removed_row(filled, url, seq):
    execute(url, f"DELETE FROM dp_dask_entries WHERE seq = {seq}")
    with pytest.raises(LedgerError, match=f"entry {seq} was"):
        filled.verify()


def test_verify_finds_a_row_that_was_removed_and_the_others_moved_up(filled, url):
    execute(url, "DELETE FROM dp_dask_entries WHERE seq = 3", "UPDATE dp_dask_entries SET seq = 3 WHERE seq = 4")
    with pytest.raises(LedgerError, match="entry 3 was"):
        filled.verify()


def test_verify_finds_swapped_rows(filled, url):
    execute(url, *(f"UPDATE dp_dask_entries SET seq = {to} WHERE seq = {at}" for at, to in ((4, 99), (5, 4), (99, 5))))
    with pytest.raises(LedgerError, match="entry 4 was"):
        filled.verify()


@pytest.mark.parametrize(
    ("seq", "fields"),
    [
        (2, {"spent": "0.01"}),
        (3, {"granted": "9"}),
        (4, {"spent": "0.1"}),
        (4, {"epsilon": "0.1"}),
        (4, {"kind": "grant"}),
        (4, {"epsilon": "lots"}),
        (5, {"epsilon": "-0.3", "spent": "0"}),
        (5, {"epsilon": "5", "spent": "5.3"}),
    ],
    ids=str,
)
def test_verify_finds_a_forged_amount_behind_true_digests(filled, url, seq, fields):
    forge(url, seq, fields)
    with pytest.raises(LedgerError, match=f"entry {seq} was"):
        filled.verify()


@pytest.mark.parametrize("forgotten", ["seq", "previous"])
def test_verify_finds_an_entry_cut_out_unless_all_later_ones_are_made_again(opened, url, forgotten):
    """The chain has no key: whoever makes it again from the cut on, with true numbers and totals, is not found."""
    charge(opened(url, "1", "people", "others"), "a")
    first, _, last = rows(url)
    whole = {**last, "seq": 2, "previous": first["digest"]}
    for entry, fault in ((whole, None), ({**whole, forgotten: last[forgotten]}, 2)):
        assert first_fault([first, {**entry, "digest": journal.digest(entry)}]) == fault


def test_digests_made_again_for_unchanged_entries_are_the_same(filled, url):
    before = rows(url)
    forge(url, 4, {})
    assert rows(url) == before
    assert filled.verify() == 5


@pytest.mark.parametrize(
    "edit",
    [
        "granted = 'lots'",
        "spent = ''",
        "neighbours = 'friends'",
        'release = \'{"id": "planted-text"}\'',
        "release = 'planted-text'",
    ],
)
def test_an_edited_ledger_is_a_ledger_error_on_every_path_and_is_not_quoted(opened, url, edit):
    ledger = opened(url)
    charge(ledger, "a")
    execute(url, f"UPDATE dp_dask_entries SET {edit} WHERE seq = 2".replace("%", "%%"))
    acts: list[Callable[[], Any]] = [
        lambda: ledger.balance("people") and ledger.find("a"),
        lambda: charge(ledger, "a") and charge(ledger, "b"),
    ]
    for act in acts:
        with pytest.raises(LedgerError) as caught:
            act()
        assert "planted-text" not in everything_said(caught.value)


def test_spent_budget_edited_back_is_noticed_by_the_next_charge(opened, url):
    """Else nobody notices until somebody asks for verify."""
    ledger = opened(url, "0.1")
    charge(ledger, "a", "0.1")
    execute(url, "UPDATE dp_dask_entries SET spent = '0' WHERE seq = 2")
    with pytest.raises(LedgerError):
        charge(ledger, "b", "0.1")
    assert ledger.find("b") is None
