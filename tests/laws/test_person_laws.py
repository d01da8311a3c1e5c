"""The law of persons: all records of one come, go or change, and no released vector moves farther than is claimed."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from private.people import COMBINABLE, KINDS, at_most, held, here, joined

from dp_dask.core import plugins
from dp_dask.core.bounds import Bounds
from dp_dask.core.cluster_bands import ClusterBands
from dp_dask.core.gram import GramSum, gram_sum
from dp_dask.core.privacy import Loss, Neighbours, Unit
from dp_dask.core.release import Release, Request
from dp_dask.core.sensitive import reveal
from dp_dask.core.unit import MOST_RECORDS, RECORD, UnitOfProtection
from dp_dask.gate.additive import noise_of
from dp_dask.public.observe import planned

ADD_REMOVE, REPLACE = Neighbours.ADD_REMOVE, Neighbours.REPLACE
LAW = settings(deadline=None, derandomize=True, database=None, max_examples=25)
VALUES = st.sampled_from([None, -1e300, -4.0, 0.0, 1.0, 3.0, 4.0, 12.0, 1e300])
GROUPS = st.sampled_from(["a", "b", "z", None])


def records_of(ids, **sizes):
    return st.lists(st.tuples(ids, VALUES, VALUES, GROUPS), **sizes)


OTHERS = records_of(st.none() | st.integers(0, 3), max_size=10)
MINE = records_of(st.just(9), max_size=7)
SOMEONE = st.sampled_from([9, 10]).flatmap(lambda person: records_of(st.just(person), min_size=1, max_size=7))
UNITS = [at_most(1), at_most(2), at_most(5), joined("mean"), joined("sum")]
EACH = [(kind, unit) for kind in KINDS for unit in UNITS if unit.combine is None or kind in COMBINABLE]
each = pytest.mark.parametrize(("kind", "unit"), EACH, ids=[f"{kind}-{unit.combine or unit.most}" for kind, unit in EACH])


def vector(data, statistic, unit, records):
    """The sums and the weighted count of records in any order, splits and passes."""
    source = held(data.draw(st.permutations(records)), data.draw(st.integers(1, 4)), data.draw(st.integers(1, 5)))
    totals = [reveal(one) for one in here(source, (statistic,), unit, passes=data.draw(st.integers(1, 2)))]
    sums = [sum(column) for column in zip(*(total.sums for total in totals), strict=True)]
    return [*sums, statistic.count_weight * sum(total.n_records for total in totals)]


def assert_near(one, other, statistic, unit, neighbours):
    moved = [abs(a - b) for a, b in zip(one, other, strict=True)]
    assert sum(moved) <= unit.sensitivity(statistic, neighbours)
    assert sum(each * each for each in moved) <= unit.squared_sensitivity(statistic, neighbours)


@each
@LAW
@given(others=OTHERS, mine=MINE, data=st.data())
def test_a_person_added_or_removed(kind, unit, others, mine, data):
    statistic = KINDS[kind]
    without, within = vector(data, statistic, unit, others), vector(data, statistic, unit, others + mine)
    assert_near(without, within, statistic, unit, ADD_REMOVE)


def with_public_n(statistic):
    if isinstance(statistic, GramSum):
        return gram_sum(statistic.columns, statistic.bounds, REPLACE, 100)
    return replace(statistic, count_weight=0) if statistic.count_weight else statistic


@pytest.mark.parametrize(("kind", "unit"), [(kind, unit) for kind, unit in EACH if unit.most == 1])
@LAW
@given(others=OTHERS, one=SOMEONE, other=SOMEONE, data=st.data())
def test_a_person_replaced_where_each_has_one_record_that_counts(kind, unit, others, one, other, data):
    statistic = with_public_n(KINDS[kind])
    first, second = vector(data, statistic, unit, others + one), vector(data, statistic, unit, others + other)
    assert_near(first, second, statistic, unit, REPLACE)


# The law can fail

TOP = (9, 12.0, 3.0, "a")


@pytest.mark.parametrize("m", [1, 3])
def test_the_claim_is_attained_and_exceeded_where_contributions_are_not_bounded(m):
    """Five equal records at the bound move a sum by min(m, 5) times what one does."""
    statistic, unit = KINDS["bounded"], at_most(m)

    def moved(counted_by):
        totals = [reveal(here(held(records), (statistic,), counted_by)[0]) for records in ([TOP] * 5, [])]
        one, other = ([*total.sums, statistic.count_weight * total.n_records] for total in totals)
        return [abs(a - b) for a, b in zip(one, other, strict=True)]

    assert sum(moved(unit)) == unit.sensitivity(statistic, ADD_REMOVE) == m * statistic.sensitivity(ADD_REMOVE)
    assert sum(each**2 for each in moved(unit)) == unit.squared_sensitivity(statistic, ADD_REMOVE)
    unbounded = moved(at_most(5))
    assert sum(unbounded) > unit.sensitivity(statistic, ADD_REMOVE)
    assert sum(each**2 for each in unbounded) > unit.squared_sensitivity(statistic, ADD_REMOVE)


# What is claimed where


def request(unit, statistic=KINDS["bounded"], neighbours=ADD_REMOVE, n=None, **loss):
    return Request(dataset="d", statistic=statistic, neighbours=neighbours, n=n, unit=unit, **(loss or {"epsilon": Decimal(1)}))


@pytest.mark.parametrize("unit", [RECORD, *UNITS])
def test_a_request_has_the_sensitivity_of_its_unit(unit):
    statistic = KINDS["bounded"]
    assert request(unit).sensitivity == unit.most * statistic.sensitivity(ADD_REMOVE)
    assert request(unit).squared_sensitivity == unit.most**2 * statistic.squared_sensitivity(ADD_REMOVE)


@pytest.mark.parametrize("unit", [RECORD, *UNITS])
def test_the_noise_is_that_of_the_unit_where_it_is_drawn_and_where_it_is_planned(unit):
    """A release with the noise of fewer records of a person is refused."""
    model = plugins.load("dp_dask.models", "normal")(sigma=1.0)
    for loss in ({"epsilon": Decimal("0.5")}, {"rho": Decimal("0.02")}):
        asked = request(unit, **loss)
        draw = noise_of(asked)
        moved = asked.sensitivity if "epsilon" in loss else asked.squared_sensitivity
        assert draw.sensitivity == moved
        needed = moved / 0.5 if "epsilon" in loss else (moved / 0.04) ** 0.5
        assert draw.found.scale == pytest.approx(needed, rel=1e-6)
        assert planned(asked, model, 10.0).scale == pytest.approx(needed, rel=1e-6)
        made = {"id": "0" * 32, "created": "", "sampler": "", "privacy_loss": 0.1, "noisy_sums": (0,), "noisy_count": 0}
        Release(request=asked, mechanism=draw.mechanism, sensitivity=moved, scale=draw.found.scale, **made)
        for wrong in ({"scale": 0.99 * draw.found.scale}, {"sensitivity": moved - 1}):
            given = {"sensitivity": moved, "scale": draw.found.scale} | wrong
            with pytest.raises(ValueError, match="scale or sensitivity is less"):
                Release(request=asked, mechanism=draw.mechanism, **given, **made)


def test_a_public_n_goes_with_one_record_a_person_alone():
    public = with_public_n(KINDS["bounded"])
    for unit in (at_most(1), joined("mean")):
        assert request(unit, public, REPLACE, 5).sensitivity == public.sensitivity(REPLACE)
    with pytest.raises(ValueError, match=r"max_records is 2 under neighbours: replace.* give max_records: 1 or combine"):
        request(at_most(2), public, REPLACE, 5)


def test_what_has_no_meaning_for_persons_is_refused():
    with pytest.raises(ValueError, match=r"clusters' bands .* protect a record and no person"):
        request(at_most(2), ClusterBands(cluster="c", sizes=(1, 2)))
    for kind in ("categories", "groups"):
        with pytest.raises(ValueError, match=r"have no mean and no sum .* give max_records in place of combine"):
            request(joined("mean"), KINDS[kind])
    with pytest.raises(ValueError, match="outside: clamp, or max_records"):
        request(joined("sum"), KINDS["truncated"])


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"column": "id"}, "a record has neither column"),
        ({"kind": "person", "type": "text", "max_records": 1}, "a person needs a column"),
        ({"kind": "person", "column": "id", "max_records": 1}, "and its type: number or text"),
        ({"kind": "person", "column": "id", "type": "text"}, "give max_records, .* or combine"),
        ({"kind": "person", "column": "id", "type": "text", "max_records": 1, "combine": "sum"}, "not both"),
        ({"kind": "person", "column": "id", "type": "text", "max_records": 0}, "from 1 to 1024"),
        ({"kind": "person", "column": "id", "type": "text", "max_records": MOST_RECORDS + 1}, "from 1 to 1024"),
    ],
)
def test_units_that_cannot_be_are_refused(facts, message):
    with pytest.raises(ValueError, match=message):
        UnitOfProtection(**facts)


@pytest.mark.parametrize("unit", list(Unit))
@pytest.mark.parametrize("m", [1, 2, 3, 7, 1024])
def test_grids_and_summaries_are_chosen_for_the_loss_that_a_record_would_have_with_this_noise(unit, m):
    loss = Loss(unit, Decimal("0.3"))
    found = at_most(m).for_a_record(loss).amount * m ** (1 if unit is Unit.EPSILON else 2)
    assert 0 <= found - loss.amount < Decimal("2e-6")
    assert at_most(m).for_a_record(Loss(unit, Decimal("1e-12"))).amount > 0


def test_bounds_of_a_sum_that_is_combined_hold_zero():
    from dp_dask.core.combined import Combined

    assert Combined("x", Bounds(3, 9), "sum").ends == (0, 9)
    assert Combined("x", Bounds(-9, -3), "sum").ends == (-9, 0)
    assert Combined("x", Bounds(3, 9), "mean").ends == (3, 9)
