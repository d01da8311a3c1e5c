"""GramSum: integers against rational arithmetic, sensitivity against every pair of records, kernel against definition."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from core.exact import LAW
from hypothesis import given
from hypothesis import strategies as st

from dp_dask.core.bounds import Bounds
from dp_dask.core.gram import BLOCK, GramSum, gram_sum
from dp_dask.core.grid import MAX_PRIVATE_RECORDS
from dp_dask.core.privacy import Neighbours


def make(c: int, levels: int = 2**10, *, centre: int = 0, weight: int = 0) -> GramSum:
    bounds = [Bounds(-1, 1), Bounds(0, 30), Bounds(-1e-3, 7.25), Bounds(100, 101), Bounds(-1e200, 3e199), Bounds(5, 5.1)][:c]
    return GramSum(columns=tuple("abcdef"[:c]), bounds=tuple(bounds), levels=levels, centre=centre, count_weight=weight)


@st.composite
def grams(draw: st.DrawFn) -> GramSum:
    levels = 2 ** draw(st.integers(0, 10))
    centre, weight = draw(st.integers(0, levels**2 // 2)), draw(st.integers(0, levels**2))
    return make(draw(st.integers(1, 6)), levels, centre=centre, weight=weight)


@st.composite
def records(draw: st.DrawFn, gram: GramSum) -> list[float]:
    special = st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 1e308])
    return [
        draw(st.one_of(st.sampled_from([b.lower, b.upper]), st.floats(b.lower, b.upper), special, st.floats()))
        for b in gram.bounds
    ]


def contribution(gram: GramSum, record: list[float]) -> list[int]:
    """The definition in rational arithmetic, given the cells; cells differ from exact ones by float64's last digits only."""
    if any(map(math.isnan, record)):
        return [0] * gram.size
    q = []
    for x, b in zip(record, gram.bounds, strict=True):
        lower, upper = Fraction(b.lower), Fraction(b.upper)
        clamped = min(max(Fraction(x) if math.isfinite(x) else (upper if x > 0 else lower), lower), upper)
        exact = (clamped - (lower + upper) / 2) / (upper - lower) * 2 * gram.levels
        candidates = {round(exact + shift) for shift in (0, Fraction(1, 10**9), -Fraction(1, 10**9))}
        cell = int(gram.contributions(np.array([[b.lower if o is not b else x for o in gram.bounds]]))[0, len(q)]) // gram.levels
        assert cell in candidates
        q.append(cell)
    products = [q[i] * q[j] - (gram.centre if i == j else 0) for i in range(len(q)) for j in range(i, len(q))]
    return [gram.levels * cell for cell in q] + products


@LAW
@given(data=st.data(), gram=grams())
def test_a_contribution_is_what_rational_arithmetic_says(data: st.DataObject, gram: GramSum):
    record = data.draw(records(gram))
    assert gram.contributions(np.array([record]))[0].tolist() == contribution(gram, record)


@LAW
@given(data=st.data(), gram=grams())
def test_neighbours_are_never_further_apart_than_the_sensitivity(data: st.DataObject, gram: GramSum):
    one, other = gram.contributions(np.array([data.draw(records(gram)), data.draw(records(gram))]))
    assert np.abs(one - other).sum() <= gram.sensitivity(Neighbours.REPLACE)
    assert gram.count_weight + np.abs(one).sum() <= gram.sensitivity(Neighbours.ADD_REMOVE)


@pytest.mark.parametrize(("c", "levels"), [(1, 16), (2, 8), (3, 4), (4, 1)])
@pytest.mark.parametrize("centre", [0.0, 0.5])
def test_no_pair_of_all_records_exceeds_the_sensitivity_and_one_comes_near(c: int, levels: int, centre: float):
    """Every pair of records on a coarse grid, the null among them."""
    gram = GramSum(
        columns=tuple("abcd"[:c]),
        bounds=(Bounds(-1, 1),) * c,
        levels=levels,
        centre=int(centre * levels**2),
        count_weight=levels,
    )
    grid = np.arange(-levels, levels + 1) / levels
    everything = np.array([*itertools.product(grid, repeat=c), (math.nan,) * c])
    moves = gram.contributions(everything)
    furthest = max(int(np.abs(moves - move).sum(axis=1).max()) for move in moves)
    sensitivity = gram.sensitivity(Neighbours.REPLACE)
    assert 0.95 * sensitivity <= furthest <= sensitivity
    assert gram.count_weight + np.abs(moves).sum(axis=1).max() == gram.sensitivity(Neighbours.ADD_REMOVE)


@pytest.mark.parametrize("c", range(1, 7))
def test_the_furthest_pair_is_a_corner_and_a_point_near_the_middle(c: int):
    gram = GramSum(columns=tuple("abcdef"[:c]), bounds=(Bounds(-1, 1),) * c)
    pair = gram.contributions(np.array([[1.0] * c, [-1 / (c + 1)] * c]))
    furthest, sensitivity = np.abs(pair[0] - pair[1]).sum(), gram.sensitivity(Neighbours.REPLACE)
    assert sensitivity * (1 - 1e-5) <= furthest <= sensitivity
    assert sensitivity < (gram.size + 0.5) * gram.unit  # and not twice the size


@LAW
@given(data=st.data(), gram=grams())
def test_the_kernel_equals_the_sum_of_contributions(data: st.DataObject, gram: GramSum):
    values = np.array(data.draw(st.lists(records(gram), max_size=6))).reshape(-1, len(gram.columns))
    valid = np.array(data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values))), dtype=np.bool_)
    np.testing.assert_array_equal(gram.sum_block(values), gram.contributions(values).sum(axis=0))
    np.testing.assert_array_equal(gram.sum_block(values, valid), gram.contributions(values[valid]).sum(axis=0))


def test_the_kernel_is_exact_over_several_blocks_at_the_largest_values():
    gram = make(3, centre=2**19)
    values = np.asfortranarray(np.tile([1.0, 30.0, 7.25], (2 * BLOCK + 7, 1)))
    values[BLOCK + 3, 1] = math.nan
    expected = gram.contributions(values).sum(axis=0)
    np.testing.assert_array_equal(gram.sum_block(values), expected)
    assert expected[0] == (2 * BLOCK + 6) * gram.unit
    kept = values.copy()
    gram.sum_block(values, np.ones(len(values), dtype=np.bool_))
    np.testing.assert_array_equal(values, kept)


def test_a_null_in_any_column_drops_the_whole_record():
    gram = make(2, centre=2**18)
    values = np.array([[0.5, math.nan], [math.nan, 3.0], [math.nan, math.nan]])
    assert not gram.contributions(values).any()
    assert not gram.sum_block(values).any()
    assert gram.contributions(np.array([[0.7, 3.0]])).all()


@pytest.mark.parametrize("neighbours", Neighbours)
def test_the_chosen_statistic_has_room_for_every_record_and_its_noise(neighbours: Neighbours):
    n = 10**9 if neighbours is Neighbours.REPLACE else None
    gram = gram_sum("ab", [Bounds(0, 1), Bounds(-5, 5)], neighbours, n)
    gram.check_headroom(MAX_PRIVATE_RECORDS)
    assert np.abs(gram.contributions(np.array([[1.0, 5.0]]))).max() == gram.unit
    if n is None:
        assert gram.sensitivity(neighbours) == 5 * gram.unit  # the count 1, two columns, two squares at 1/2, one product
        with pytest.raises(ValueError, match="overflow"):
            gram.check_headroom(2**42)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"columns": ("a", "a")}, "each once"),
        ({"columns": ()}, "1 to 8 columns"),
        ({"bounds": (Bounds(0, 1),)}, "its own"),
        ({"levels": 3}, "power of two"),
        ({"levels": 2**11}, "at most 1024"),
        ({"centre": 2**19 + 1}, "centre"),
        ({"count_weight": -1}, "count_weight"),
        ({"bounds": (Bounds(0, 1), Bounds(-1e308, 1e308))}, "column b.*rescale"),
        ({"bounds": (Bounds(0, 1), Bounds(1e15, 1e15 + 1))}, "subtract a public constant"),
    ],
)
def test_what_cannot_be_summed_exactly_is_refused(change: dict, message: str):
    with pytest.raises(ValueError, match=message):
        GramSum(**{"columns": ("a", "b"), "bounds": (Bounds(0, 1), Bounds(0, 1))} | change)
