"""Units: a data set's first charge decides whom its budget protects, a record or persons of one column."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gate.gate_examples import make_release, make_request

from dp_dask.core.privacy import Neighbours
from dp_dask.core.unit import RECORD, UnitOfProtection
from dp_dask.errors import BudgetError

PERSON = UnitOfProtection(kind="person", column="id", type="number", max_records=1)
SAME = [UnitOfProtection(kind="person", column="id", type="number", combine="mean"), PERSON]
OTHERS = [
    RECORD,
    UnitOfProtection(kind="person", column="household", type="number", max_records=1),
    UnitOfProtection(kind="person", column="id", type="text", max_records=1),
]


def asked(unit, column="visits"):
    request = make_request("0.1", neighbours=Neighbours.REPLACE)
    return replace(request, unit=unit, statistic=replace(request.statistic, column=column))


def commit(ledger, *units):
    made = [make_release(asked(unit, f"c{i}")) for i, unit in enumerate(units)]
    return ledger.commit([(f"{each.id}", each) for each in made], who="ann", why="test")


@pytest.mark.parametrize("unit", SAME, ids=str)
def test_persons_of_one_column_are_one_unit_however_many_records_count(opened, url, unit):
    ledger = opened(url)
    commit(ledger, PERSON)
    ledger.check_unit("people", unit)
    commit(ledger, unit)
    ledger.verify()


@pytest.mark.parametrize("unit", OTHERS, ids=str)
def test_another_unit_is_refused_before_and_at_the_commit_and_costs_nothing(opened, url, unit):
    ledger = opened(url)
    ledger.check_unit("people", unit)
    commit(ledger, PERSON)
    spent = ledger.balance("people").spent
    told = r"data set 'people' protects a person \(column id, at most 1 record\), this run .*: use one unit for a data set"
    with pytest.raises(BudgetError, match=told):
        ledger.check_unit("people", unit)
    with pytest.raises(BudgetError, match=told):
        commit(ledger, unit)
    assert ledger.balance("people").spent == spent
    assert ledger.verify() == 3  # opened, charged, refused


def test_two_units_in_one_run_and_persons_after_records_are_refused(opened, url):
    ledger = opened(url)
    with pytest.raises(BudgetError, match="protects a record, this run a person"):
        commit(ledger, RECORD, PERSON)
    assert ledger.balance("people").spent == 0
    commit(ledger, RECORD)
    with pytest.raises(BudgetError, match="protects a record, this run a person"):
        commit(ledger, PERSON)
