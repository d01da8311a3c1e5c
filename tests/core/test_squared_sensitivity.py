"""Squared L2 sensitivities: attained by a pair of neighbours and exceeded by none, over all records that there are."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from core.exact import LAW, edges, make_statistic, statistics
from hypothesis import given
from hypothesis import strategies as st

from dp_dask.core.bounds import Bounds, Outside
from dp_dask.core.categories import CategoryCounts
from dp_dask.core.cells import Cells
from dp_dask.core.gram import GramSum, gram_sum
from dp_dask.core.grouped import GroupedSum
from dp_dask.core.privacy import Neighbours
from dp_dask.core.table_sum import TableSum

REPLACE, ADD_REMOVE = Neighbours.REPLACE, Neighbours.ADD_REMOVE


def furthest(moves):
    """Return the largest squared distance between two of the vectors [record, coordinate], in Python's integers."""
    moves = np.asarray(moves).astype(object)
    return max(int(((moves - move) ** 2).sum(axis=1).max()) for move in moves)


def longest(moves, weight):
    return weight**2 + max(int((move.astype(object) ** 2).sum()) for move in np.asarray(moves))


def small_sum(low, high, weight):
    """A statistic of whole numbers, whose contributions are low..high."""
    made = make_statistic(low, high, Outside.TRUNCATE, ADD_REMOVE, is_integer=True, weight=weight)
    assert (made.grid.low, made.grid.high) == (low, high)
    return made


def table_of(rows, weight=0):
    cells = Cells(spacing="even", exponent=0, first=0, count=len(rows[0]))
    return TableSum(
        column="x",
        bounds=Bounds(0, len(rows[0]) - 1),
        outside=Outside.CLAMP,
        cells=cells,
        table=tuple(" ".join(map(str, row)) for row in rows),
        units=(1.0,) * len(rows),
        origins=(0,) * len(rows),
        count_weight=weight,
    )


@LAW
@given(statistic=statistics())
def test_of_a_bounded_sum(statistic):
    values = np.array([math.nan if record is None else record for record in edges(statistic)])
    moves = statistic.contributions(values)[:, None]
    assert furthest(moves) == statistic.squared_sensitivity(REPLACE)
    assert longest(moves, statistic.count_weight) == statistic.squared_sensitivity(ADD_REMOVE)


ENTRIES = st.one_of(st.integers(-9, 9), st.integers(-(2**40), 2**40))
ROWS = st.integers(1, 4).flatmap(lambda d: st.lists(st.lists(ENTRIES, min_size=5, max_size=5), min_size=d, max_size=d))


@LAW
@given(rows=ROWS, weight=st.integers(0, 50))
def test_of_a_table(rows, weight):
    made = table_of(rows, weight)
    moves = made.contributions(np.array([*range(5), math.nan]))
    assert furthest(moves) == made.squared_sensitivity(REPLACE)
    assert longest(moves, weight) == made.squared_sensitivity(ADD_REMOVE)


def test_of_a_table_of_more_cells_than_are_looked_at_together():
    rng = np.random.default_rng(1)
    rows = rng.integers(-1000, 1000, (2, 700))
    made = table_of(rows.tolist())
    assert made.squared_sensitivity(REPLACE) == furthest(np.append(rows, np.zeros((2, 1), dtype=np.int64), axis=1).T)


@pytest.mark.parametrize("k", [2, 5])
def test_of_counts(k):
    made = CategoryCounts(column="x", categories=tuple(range(k)))
    moves = np.append(np.eye(k, dtype=np.int64), np.zeros((1, k), dtype=np.int64), axis=0)  # the last is counted nowhere
    assert furthest(moves) == made.squared_sensitivity(REPLACE) == 2
    assert longest(moves, 0) == made.squared_sensitivity(ADD_REMOVE) == 1


@pytest.mark.parametrize(("low", "high"), [(0, 6), (-6, 0), (-6, 6), (-2, 5)])
@pytest.mark.parametrize("weight", [1, 3, 6, 20])
def test_of_groups(low, high, weight):
    """All pairs of records: every contribution in either of two groups, nulls among them, and records in no group."""
    within = small_sum(low, high, weight)
    made = GroupedSum(within=within, by=CategoryCounts(column="g", categories=("a", "b")))
    each = [(c, weight) for c in range(low, high + 1)]
    moves = np.array([(*pair, 0, 0) for pair in each] + [(0, 0, *pair) for pair in each] + [(0, 0, 0, 0)])
    assert furthest(moves) == made.squared_sensitivity(REPLACE)
    assert longest(moves, 0) == made.squared_sensitivity(ADD_REMOVE)


def test_of_groups_it_is_not_always_twice_that_of_an_added_record():
    made = GroupedSum(within=small_sum(-6, 6, 1), by=CategoryCounts(column="g", categories=("a", "b")))
    assert made.squared_sensitivity(REPLACE) == 144 > 2 * made.squared_sensitivity(ADD_REMOVE)


@pytest.mark.parametrize(("c", "levels"), [(1, 16), (2, 8), (3, 4), (4, 1), (5, 1)])
@pytest.mark.parametrize("centre", [0.0, 0.25, 0.5])
def test_of_products(c, levels, centre):
    """Every pair of records on a coarse grid, the null among them."""
    gram = GramSum(
        columns=tuple("abcde"[:c]),
        bounds=(Bounds(-1, 1),) * c,
        levels=levels,
        centre=int(centre * levels**2),
        count_weight=levels,
    )
    grid = np.arange(-levels, levels + 1) / levels
    moves = gram.contributions(np.array([*itertools.product(grid, repeat=c), (math.nan,) * c]))
    largest = max(int(((moves - move) ** 2).sum(axis=1).max()) for move in moves)
    assert largest == gram.squared_sensitivity(REPLACE)
    assert longest(moves, levels) == gram.squared_sensitivity(ADD_REMOVE)


@pytest.mark.parametrize("c", range(1, 9))
def test_of_products_the_corners_attain_it_and_no_pair_that_climbs_gets_further(c):
    """From random pairs, one entry at a time to its best of a grid: no hill is higher than the corners."""
    gram = gram_sum(tuple("abcdefgh"[:c]), (Bounds(-1, 1),) * c, ADD_REMOVE, None)
    gram = replace(gram, levels=2, centre=0, count_weight=0)
    corners = gram.contributions(np.array([[1.0] * c, [-1.0] * (c // 2 + 1) + [1.0] * (c - c // 2 - 1)]))
    assert int(((corners[0] - corners[1]) ** 2).sum()) == gram.squared_sensitivity(REPLACE)
    rng = np.random.default_rng(c)
    for _ in range(20):
        pair = rng.integers(-2, 3, (2, c)) / 2
        for _ in range(3):
            for side, i in itertools.product(range(2), range(c)):
                tried = np.repeat(pair[side][None], 5, axis=0)
                tried[:, i] = np.arange(-2, 3) / 2
                moved = gram.contributions(tried) - gram.contributions(pair[[1 - side]])
                pair[side] = tried[(moved**2).sum(axis=1).argmax()]
        one, other = gram.contributions(pair)
        assert int(((one - other) ** 2).sum()) <= gram.squared_sensitivity(REPLACE)
