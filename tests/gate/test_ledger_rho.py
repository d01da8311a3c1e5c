"""Budgets in rho: exact sums of both kinds of noise, refusals, one digest a request, and ledgers of epsilon as they were."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

import pytest
import sqlalchemy as sa
from gate.gate_examples import balances, execute, loss, make_release, make_request, make_rho_request, rows

from dp_dask.core.privacy import Neighbours, Unit
from dp_dask.errors import BudgetError, LedgerError
from dp_dask.gate import journal
from dp_dask.gate.forms import request_json
from dp_dask.gate.ledger import Ledger

REPLACE = Neighbours.REPLACE


@pytest.fixture
def ledger(tmp_path):
    made = Ledger(f"sqlite:///{tmp_path / 'ledger.db'}")
    made.open_dataset("people", REPLACE, Decimal("0.5"), unit=Unit.RHO, who="steward", why="")
    made.open_dataset("others", REPLACE, Decimal(1), who="steward", why="")
    yield made
    made.close()


def commit(ledger, digest, request):
    return ledger.commit([(digest, make_release(request))], who="analyst", why="test")[0]


def url(ledger):
    return ledger._database.engine.url.render_as_string()


def test_a_budget_in_rho_is_charged_rho_and_half_the_square_of_epsilon_exactly(ledger):
    commit(ledger, "a", make_rho_request("0.1"))
    commit(ledger, "b", make_request("0.3"))
    commit(ledger, "c", make_request("0.000000000001"))
    balance = ledger.balance("people")
    assert balance.unit is Unit.RHO
    assert balance.spent == Decimal("0.1") + Decimal("0.045") + Decimal("0.0000000000000000000000005")
    assert balance.left + balance.spent == Decimal("0.5")
    assert [row["epsilon"] for row in rows(url(ledger))[2:]] == ["rho 0.1", "rho 0.045", "rho 5E-25"]
    assert ledger.verify() == 5
    assert ledger.find("a").request.rho == Decimal("0.1")
    assert ledger.find("b").request.epsilon == Decimal("0.3")


def test_a_budget_in_rho_can_be_spent_to_the_last_digit_and_not_beyond(ledger):
    commit(ledger, "a", make_rho_request("0.375"))
    commit(ledger, "b", make_request("0.5"))
    assert ledger.balance("people").left == 0
    with pytest.raises(BudgetError, match=r"asks for rho 1E-12, 0\.\d+ is left"):
        commit(ledger, "c", make_rho_request("0.000000000001"))
    with pytest.raises(BudgetError, match="lower rho"):
        ledger.check_affordable("people", REPLACE, {"x": loss("0.000000000001")}, who="analyst")
    assert [row["epsilon"] for row in rows(url(ledger))[2:]] == ["rho 0.375", "rho 0.125", "rho 1E-12"]
    assert ledger.verify() == 5


def test_gaussian_noise_is_refused_by_a_budget_in_epsilon(ledger):
    refusal = r"asks for rho 0\.1, and the budget is in epsilon.*give epsilon.*--rho R; what is spent.*adds to it"
    with pytest.raises(BudgetError, match=refusal) as caught:
        commit(ledger, "a", make_rho_request("0.1", dataset="others"))
    assert caught.value.exit_code == 3
    with pytest.raises(BudgetError, match="no finite epsilon"):
        ledger.check_affordable("others", REPLACE, {"x": loss("0.1"), "y": loss("0.1", Unit.RHO)}, who="analyst")
    assert ledger.balance("others").spent == 0


def test_a_budget_keeps_its_unit(ledger):
    with pytest.raises(LedgerError, match=r"open already with rho 0\.5 under replace, not epsilon 0\.5"):
        ledger.open_dataset("people", REPLACE, Decimal("0.5"), who="steward", why="")
    with pytest.raises(BudgetError, match=r"is in rho, not in epsilon; grant with --rho"):
        ledger.grant("people", Decimal(1), who="steward", why="")
    assert ledger.grant("people", Decimal(1), unit=Unit.RHO, who="steward", why="").granted == Decimal("1.5")
    assert ledger.open_dataset("people", REPLACE, Decimal("0.5"), unit=Unit.RHO, who="steward", why="").granted == Decimal("1.5")
    assert {b.dataset: b.unit for b in balances(ledger)} == {"people": Unit.RHO, "others": Unit.EPSILON}


def test_a_second_run_finds_the_first_ones_release(ledger):
    request = make_rho_request("0.1")
    digest = ledger.digest(request, "v1")
    first = commit(ledger, digest, request)
    again = commit(ledger, digest, request)
    assert again == first == ledger.find(digest)
    assert ledger.balance("people").spent == Decimal("0.1")
    assert len({digest, *(ledger.digest(r, "v1") for r in (make_rho_request("0.2"), make_request("0.1")))}) == 3
    assert ledger.digest(replace(request, rho=Decimal("0.100")), "v1") == digest


def test_a_release_that_loses_more_than_it_pays_for_is_not_written(ledger):
    release = make_release(make_rho_request("0.1"))
    with pytest.raises(LedgerError, match="loses more privacy"):
        ledger.commit([("a", replace(release, privacy_loss=0.11))], who="", why="")


def test_a_request_of_epsilon_has_the_digest_that_it_had_before_there_was_rho(ledger):
    """So that releases of older ledgers are found again, and not paid for twice."""
    request = make_request("0.3")
    engine = sa.create_engine(url(ledger))
    with engine.connect() as connection:
        salt = connection.execute(sa.select(journal.about.c.salt)).scalar_one()
    before = (
        b'{"dataset":"people","statistic":{"column":"visits","bounds":{"lower":0.0,"upper":30.0},"outside":"clamp","grid":'
        b'{"unit":1.0,"lower":0,"upper":30,"origin":0},"count_weight":0},"neighbours":"replace","n":50,"epsilon":"0.3"}'
    )
    assert ledger.digest(request, "v1") == hashlib.sha256(salt.encode() + b"\n" + before + b"\nv1").hexdigest()
    assert request_json.validate_json(before) == request


@pytest.mark.parametrize(
    "change",
    ["epsilon = 'rho 0.05'", "epsilon = '0.1'", "spent = '0.1'", "spent = 'rho 0.05', epsilon = 'rho 0.05'", "granted = '0.5'"],
)
def test_an_edited_entry_is_found(ledger, change):
    commit(ledger, "a", make_rho_request("0.1"))
    execute(url(ledger), f"UPDATE dp_dask_entries SET {change} WHERE seq = 3")
    with pytest.raises(LedgerError, match="entry 3"):
        ledger.verify()


def test_a_chain_whose_units_are_mixed_is_found(ledger):
    """Digests recomputed by a forger do not help: totals are followed in one unit."""
    balance = ledger.balance("people")
    with ledger._database.writing() as connection:
        journal.append(
            connection, replace(balance, unit=Unit.EPSILON), "grant", Decimal("0.1"), at=datetime.now(UTC), who="", why=""
        )
    with pytest.raises(LedgerError, match="entry 3"):
        ledger.verify()
