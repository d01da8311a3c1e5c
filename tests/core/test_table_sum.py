"""TableSum and CategoryCounts: sensitivity over every pair of neighbours, cells that are found exactly."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from cases import CASES, statistic
from hypothesis import given
from hypothesis import strategies as st

from dp_dask.core.bounds import Bounds, Outside
from dp_dask.core.categories import CategoryCounts
from dp_dask.core.cells import Cells, choose_cells
from dp_dask.core.privacy import Neighbours
from dp_dask.core.table_sum import TableSum, make_table

TABLES = [case for case in CASES if case.model.spacing is not None]
REPLACE, ADD_REMOVE = Neighbours.REPLACE, Neighbours.ADD_REMOVE


def small(rows, outside=Outside.CLAMP, weight=0):
    """A table with these integers over even cells 0, 1, .."""
    cells = Cells(spacing="even", exponent=0, first=0, count=len(rows[0]))
    table = tuple(" ".join(map(str, row)) for row in rows)
    bounds = Bounds(0, len(rows[0]) - 1)
    ones, zeros = (1.0,) * len(rows), (0,) * len(rows)
    return TableSum(
        column="x", bounds=bounds, outside=outside, cells=cells, table=table, units=ones, origins=zeros, count_weight=weight
    )


@given(
    st.integers(1, 9).flatmap(lambda d: st.lists(st.lists(st.integers(-9, 9), min_size=4, max_size=4), min_size=d, max_size=d))
)
def test_the_sensitivity_is_the_largest_over_all_pairs_of_records(rows):
    possible = [tuple(column) for column in zip(*rows, strict=True)] + [(0,) * len(rows)]
    widest = max(sum(abs(a - b) for a, b in zip(x, y, strict=True)) for x, y in itertools.combinations(possible, 2))
    assert small(rows).sensitivity(REPLACE) == widest
    assert small(rows, weight=5).sensitivity(ADD_REMOVE) == 5 + max(sum(map(abs, x)) for x in possible)


def test_the_sensitivity_is_the_same_by_signs_and_by_pairs():
    """Of many cells signs are fewer, of the same cells in two coordinates more pairs are; both are held to every pair."""
    rows = np.random.default_rng(2).integers(-500, 500, (8, 300))
    points = np.append(rows, np.zeros((8, 1), dtype=np.int64), axis=1)
    widest = max(int(np.abs(points - points[:, i : i + 1]).sum(axis=0).max()) for i in range(301))
    assert small(rows.tolist()).sensitivity(REPLACE) == widest  # 2^8 signs, 301 columns
    assert small(np.repeat(rows, 2, axis=0).tolist()).sensitivity(REPLACE) == 2 * widest  # 2^16 signs


@pytest.mark.parametrize("d", [2, 7, 100, 256])
def test_a_partition_moves_by_two_or_one_however_many_its_cells(d):
    made = small(np.repeat(np.eye(d, dtype=np.int64), 2, axis=1).tolist())
    assert (made.sensitivity(REPLACE), made.sensitivity(ADD_REMOVE)) == (2, 1)
    assert (made.squared_sensitivity(REPLACE), made.squared_sensitivity(ADD_REMOVE)) == (2, 1)


def test_tables_whose_sensitivity_takes_too_long_are_refused():
    with pytest.raises(ValueError, match="1 to 256 coordinates"):
        small(np.eye(257, dtype=np.int64).tolist())
    rows = np.arange(20_000) * np.arange(1, 8)[:, None]
    with pytest.raises(ValueError, match="7 coordinates over 20000 different cells is too large; give fewer of either"):
        small(rows.tolist())


@pytest.mark.parametrize("case", TABLES, ids=[case.name for case in TABLES])
@pytest.mark.parametrize("outside", list(Outside))
@given(records=st.tuples(*[st.floats(allow_nan=True, allow_infinity=True)] * 2))
def test_no_neighbour_moves_a_table_sum_by_more_than_its_sensitivity(case, outside, records):
    made = statistic(case, outside=outside)
    one, other = made.contributions(np.array(records))
    assert int(np.abs(one - other).sum()) <= made.sensitivity(REPLACE)
    private = statistic(case, outside=outside, neighbours=ADD_REMOVE)
    moves = np.abs(private.contributions(np.array(records))).sum(axis=1) + private.count_weight
    assert int(moves.max()) <= private.sensitivity(ADD_REMOVE)


@given(st.floats(1e-6, 1e6), st.floats(1.001, 1e9), st.sampled_from(["even", "octave"]), st.floats(0, 1))
def test_a_value_lies_between_its_cells_edges(low, ratio, spacing, share):
    bounds = Bounds(low, low * ratio)
    cells = choose_cells(bounds, spacing, is_integer=False, wanted=300)
    assert 150 <= cells.count <= 1300 or ratio < 1.01
    x = min(max(low * (1 + share * (ratio - 1)), bounds.lower), bounds.upper)
    i = int(cells.find(np.array([x]))[0])
    edges = np.concatenate([[-math.inf], cells.edges, [math.inf]])
    assert edges[i] <= x <= edges[i + 1]
    middle = cells.middles(bounds)[i]
    assert max(edges[i], bounds.lower) <= middle <= min(edges[i + 1], bounds.upper)


def test_a_table_rounds_the_statistic_to_its_unit():
    t = np.array([[0.0, 0.3, 1.0], [1.0, 2.0, 5.0]])
    table, units, origins = make_table(t, n_units=100, is_centred=False)
    rows = np.array([[int(v) for v in line.split()] for line in table])
    assert units == (2**-5, 2**-5)
    np.testing.assert_allclose((rows + np.array(origins)[:, None]) * 2**-5, t, atol=2**-6)


def test_nulls_and_truncated_records_contribute_zero():
    made = small([[5, 6, 7], [1, 2, 3]], Outside.TRUNCATE)
    assert made.contributions(np.array([math.nan, -1, 3.0, 1.0])).tolist() == [[0, 0], [0, 0], [0, 0], [6, 2]]
    assert small([[5, 6, 7]]).contributions(np.array([math.nan, -math.inf, math.inf])).ravel().tolist() == [0, 5, 7]


@given(st.lists(st.lists(st.floats(-3, 6) | st.floats(), max_size=4), max_size=6), st.sampled_from(list(Outside)))
def test_totals_are_the_sums_of_the_contributions(groups, outside):
    made = small([[5, 6, 7], [1, -2, 3]], outside)
    values = np.array([value for group in groups for value in group], dtype=np.float64)
    found = made.totals(values, np.array([len(group) for group in groups], dtype=np.int64))
    assert found.tolist() == [made.contributions(np.array(group, dtype=np.float64)).sum(axis=0).tolist() for group in groups]
    for value in values:  # against the definition, record by record
        is_inside = made.bounds.lower <= value <= made.bounds.upper
        counts = is_inside or (outside is Outside.CLAMP and not math.isnan(value))
        cell = int(np.rint(min(max(value, made.bounds.lower), made.bounds.upper))) if counts else 0
        assert made.contributions(np.array([value]))[0].tolist() == [int(row[cell]) if counts else 0 for row in made.rows]


@pytest.mark.parametrize("outside", list(Outside))
@pytest.mark.parametrize("most", [9, 2**52])  # the larger one's sums are beyond what float64 holds exactly
def test_totals_of_large_groups_are_to_the_last_digit_those_of_small_ones(outside, most):
    rng = np.random.default_rng(1)
    made = small(rng.integers(-most, most, (5, 3)).tolist(), outside)
    counts = np.array([0, 400, 0, 1, 250, 0])
    values = np.where(rng.random(counts.sum()) < 0.05, math.nan, rng.normal(1, 2, counts.sum()))
    expected = [part.sum(axis=0).tolist() for part in np.split(made.contributions(values), np.cumsum(counts)[:-1])]
    assert made.totals(values, counts).tolist() == expected
    each = made.totals(values[:1], np.append(counts[3:4], [0] * 9))  # too few values to be counted by cell
    assert each[0].tolist() == made.contributions(values[:1])[0].tolist()
    assert not each[1:].any()


def test_what_a_table_cannot_be_is_refused():
    with pytest.raises(ValueError, match="one integer for each cell"):
        TableSum(column="x", bounds=Bounds(0, 2), outside=Outside.CLAMP, cells=small([[1, 2, 3]]).cells, table=("1 2",),
                 units=(1.0,), origins=(0,))  # fmt: skip
    with pytest.raises(ValueError, match="not finite everywhere inside the bounds"):
        make_table(np.array([[0.0, math.inf]]), n_units=8, is_centred=True)
    with pytest.raises(ValueError, match="the same everywhere inside the bounds"):
        make_table(np.array([[1.0, 1.0]]), n_units=8, is_centred=True)
    with pytest.raises(ValueError, match="too far from zero"):
        make_table(np.array([[1e15, 1e15 + 1]]), n_units=8, is_centred=True)
    with pytest.raises(ValueError, match="needs one above 0"):
        choose_cells(Bounds(0, 1), "octave", is_integer=False, wanted=8)
    with pytest.raises(ValueError, match="give from 1 to 65536"):
        Cells(spacing="even", exponent=0, first=0, count=10**6)


def test_categories_move_two_counts_when_replaced_and_one_when_added():
    made = CategoryCounts(column="x", categories=("a", "b", "c"))
    assert (made.sensitivity(REPLACE), made.sensitivity(ADD_REMOVE)) == (2, 1)


@pytest.mark.parametrize(
    ("categories", "message"),
    [(("a",), "1 categories; give from 2"), (("a", "a"), "listed twice"), ((1, "a"), "mix whole numbers and texts")],
)
def test_lists_that_are_no_categories_are_refused(categories, message):
    with pytest.raises(ValueError, match=message):
        CategoryCounts(column="x", categories=categories)


@pytest.mark.parametrize("categories", [("0", "1"), (0, 1), ("a", "10")])
def test_categories_keep_their_type_through_files(categories):
    """Texts that look like numbers stay texts: in a release, in a model's known values, in a pipeline's groups."""
    from pathlib import Path

    from pydantic import TypeAdapter

    from dp_dask.entries.build import Faults, build
    from dp_dask.entries.groups import GroupBy
    from dp_dask.entries.model import make_model, plain_model

    made = CategoryCounts(column="x", categories=categories)
    adapter = TypeAdapter(CategoryCounts)
    assert adapter.validate_json(adapter.dump_json(made)) == made
    model = make_model("categorical", {"categories": list(categories)}, "m", Faults(Path()))
    assert plain_model(model) == {"categories": categories}
    assert build(GroupBy, {"column": "g", "groups": list(categories)}, "m", Faults(Path())).groups == categories
