from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from core.exact import LAW, contribution, edges, make_statistic, records, statistics, total
from hypothesis import example, given
from hypothesis import strategies as st

from dp_dask.core.bounds import Outside
from dp_dask.core.privacy import Neighbours
from dp_dask.core.statistic import BoundedSum, Total

EXAMPLES = [
    make_statistic(*ends, outside, neighbours, is_integer=ends[1] == 30)
    for ends, outside, neighbours in product(
        [(0.0, 1.0), (0, 30), (10.0, 11.0), (-11.0, -10.0), (-1.0, 3.0), (0.1, 0.9), (2.0**53, 2.0**53 + 2**20), (-1e250, 1e250)],
        Outside,
        Neighbours,
    )
]
CASE = pytest.mark.parametrize(
    "statistic", EXAMPLES, ids=lambda s: f"{s.bounds.lower:g}..{s.bounds.upper:g} {s.outside} {s.count_weight}"
)


def relation(statistic: BoundedSum) -> Neighbours:
    return Neighbours.ADD_REMOVE if statistic.count_weight else Neighbours.REPLACE


def contributions(statistic: BoundedSum, chosen: list[float | None]) -> list[int]:
    values = np.array([math.nan if record is None else record for record in chosen])
    return [int(c) for c in statistic.contributions(values)]


def released(statistic: BoundedSum, data: list[float | None]) -> tuple[int, int]:
    """Return the vector that leaves the records: the sum, and the weighted count where n is private."""
    return sum(contributions(statistic, data)), statistic.count_weight * len(data)


def distance(a: tuple[int, int], b: tuple[int, int]) -> int:
    return abs(a[0] - b[0]) + abs(a[1] - b[1])


def attained(statistic: BoundedSum, chosen: list[float | None]) -> int:
    """Return the largest move of the released vector over all neighbours that differ in one of the chosen records."""
    moves = contributions(statistic, chosen)
    if relation(statistic) is Neighbours.REPLACE:
        return max(moves) - min(moves)
    return statistic.count_weight + max(map(abs, moves))


@CASE
def test_at_every_edge_a_contribution_is_what_rational_arithmetic_says(statistic: BoundedSum):
    chosen = edges(statistic)
    assert contributions(statistic, chosen) == [contribution(statistic, record) for record in chosen]


@LAW
@given(data=st.data(), statistic=statistics())
def test_a_contribution_is_what_rational_arithmetic_says(data: st.DataObject, statistic: BoundedSum):
    chosen = edges(statistic) + data.draw(st.lists(records(statistic), max_size=10))
    assert contributions(statistic, chosen) == [contribution(statistic, record) for record in chosen]


@CASE
def test_at_the_edges_the_sensitivity_is_attained_and_never_exceeded(statistic: BoundedSum):
    assert attained(statistic, edges(statistic)) == statistic.sensitivity(relation(statistic))


@LAW
@given(statistic=statistics())
def test_the_sensitivity_is_attained_by_a_bound_or_a_null_and_never_exceeded(statistic: BoundedSum):
    sensitivity = statistic.sensitivity(relation(statistic))
    assert attained(statistic, [statistic.bounds.lower, statistic.bounds.upper, None]) == sensitivity
    assert attained(statistic, edges(statistic)) == sensitivity


@LAW
@given(data=st.data(), statistic=statistics())
@example(data=None, statistic=make_statistic(10, 11, Outside.TRUNCATE))
@example(data=None, statistic=make_statistic(10, 11, Outside.TRUNCATE, Neighbours.ADD_REMOVE))
def test_neighbours_are_never_further_apart_than_the_sensitivity(data: st.DataObject | None, statistic: BoundedSum):
    if data is None:
        others, one, another = [10.5, None], 11.0, None
    else:
        others = data.draw(st.lists(records(statistic), max_size=4))
        one, another = data.draw(records(statistic)), data.draw(records(statistic))
    here = released(statistic, [*others, one])
    there = released(statistic, others if statistic.count_weight else [another, *others])
    assert distance(here, there) <= statistic.sensitivity(relation(statistic))


@pytest.mark.parametrize("sign", [1, -1])
def test_the_sensitivity_of_a_truncated_statistic_includes_the_zero_of_a_record_outside(sign: int):
    lower, upper = sorted((sign * 10.0, sign * 11.0))
    statistic = make_statistic(lower, upper, Outside.TRUNCATE)
    far = 11 / statistic.grid.unit
    assert statistic.sensitivity(Neighbours.REPLACE) == far  # the published code has (11 - 10) / unit
    assert abs(released(statistic, [sign * 11.0])[0] - released(statistic, [sign * 12.0])[0]) == far


def test_the_sensitivity_of_a_clamped_statistic_is_its_width_wherever_it_lies():
    for lower in (-11.0, -0.5, 0.0, 10.0):
        statistic = make_statistic(lower, lower + 1)
        assert statistic.sensitivity(Neighbours.REPLACE) * statistic.grid.unit == 1


def test_the_count_weight_is_part_of_the_sensitivity_under_add_remove_only():
    statistic = make_statistic(0, 1, neighbours=Neighbours.ADD_REMOVE, weight=7)
    heavier = make_statistic(0, 1, neighbours=Neighbours.ADD_REMOVE, weight=8)
    assert heavier.sensitivity(Neighbours.ADD_REMOVE) == statistic.sensitivity(Neighbours.ADD_REMOVE) + 1
    assert heavier.sensitivity(Neighbours.REPLACE) == statistic.sensitivity(Neighbours.REPLACE)


@CASE
def test_a_null_and_a_nan_contribute_zero(statistic: BoundedSum):
    assert contributions(statistic, [None, math.nan, -math.nan]) == [0, 0, 0]


def test_infinities_are_moved_to_the_bounds_under_clamp_and_dropped_under_truncate():
    clamped, truncated = make_statistic(-2, 5), make_statistic(-2, 5, Outside.TRUNCATE)
    assert contributions(clamped, [math.inf, -math.inf]) == contributions(clamped, [5.0, -2.0])
    assert contributions(truncated, [math.inf, -math.inf]) == [0, 0]


def test_minus_zero_is_zero():
    statistic = make_statistic(0, 1, Outside.TRUNCATE, Neighbours.ADD_REMOVE)
    assert contributions(statistic, [-0.0]) == contributions(statistic, [0.0])
    assert contributions(make_statistic(-1, -0.0, Outside.TRUNCATE), [0.0]) == [0]


def test_a_half_cell_goes_to_the_even_one():
    statistic = make_statistic(0, 30, is_integer=True)
    assert contributions(statistic, [0.5, 1.5, 2.5, 29.5]) == [0, 2, 2, 30]


def test_totals_add_up():
    assert Total((1, -2), 3) + Total((2**62, 2), 4) + Total((2**62, 0), 0) == Total((2**63 + 1, 0), 7)


def test_totals_of_different_statistics_do_not_add_up():
    with pytest.raises(ValueError, match="zip"):
        Total((1, 2), 3) + Total((1,), 3)


@LAW
@given(statistic=statistics(), data=st.data())
def test_a_sum_is_that_of_its_parts_in_any_order(statistic: BoundedSum, data: st.DataObject):
    chosen = data.draw(st.lists(records(statistic), max_size=8))
    shuffled = data.draw(st.permutations(chosen))
    cut = data.draw(st.integers(0, len(chosen)))
    parts = (total(statistic, chosen[:cut]), total(statistic, chosen[cut:]))
    assert sum(parts) == released(statistic, shuffled)[0]
