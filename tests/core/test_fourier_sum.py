"""FourierSum and StackedSum: exact phases, proven bounds held to every record of small cases, and what is refused."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_dask.core.bounds import Bounds, Outside
from dp_dask.core.cells import Cells, choose_cells
from dp_dask.core.fourier import exact_mmd, product_lattice
from dp_dask.core.fourier_sum import ONE, PHASES, TURN, FourierSum, phase_error
from dp_dask.core.partition import make_partition
from dp_dask.core.privacy import Neighbours
from dp_dask.core.stacked_sum import StackedSum
from dp_dask.core.table_sum import TableSum
from dp_dask.distances.mmd_product import mmd_product

REPLACE, ADD_REMOVE = Neighbours.REPLACE, Neighbours.ADD_REMOVE


def waves(frequencies, amplitudes, cells=6, **options):
    """A sum over columns of whole numbers 0, 1, .. ``cells`` - 1."""
    size = len(frequencies[0])
    return FourierSum(
        columns=tuple("abcdef"[:size]),
        bounds=(Bounds(0, cells - 1),) * size,
        cells=(Cells(spacing="even", exponent=0, first=0, count=cells),) * size,
        frequencies=tuple(map(tuple, frequencies)),
        amplitudes=tuple(amplitudes),
        unit=1.0,
        **options,
    )


def every_record(size, cells=6):
    return np.array([*itertools.product(range(cells), repeat=size), (math.nan,) * size], dtype=float)


def test_no_librarys_cosine_would_be_rounded_otherwise():
    """A cosine that is right to 1e-15 cannot cross a half: none comes nearer to one than 1e-5 in 65536."""
    assert min(abs(ONE * math.cos(2 * math.pi * k / PHASES) % 1 - 0.5) for k in range(PHASES)) > 1e-5


FEATURES = st.integers(1, 3).flatmap(
    lambda c: st.lists(
        st.tuples(st.lists(st.integers(0, TURN - 1), min_size=c, max_size=c), st.integers(0, 900)), min_size=1, max_size=4
    )
)


@settings(deadline=None)
@given(FEATURES, st.integers(0, 20))
def test_records_lie_near_their_exact_phases_and_within_the_bounds(features, weight):
    frequencies, amplitudes = zip(*features, strict=True)
    if not any(amplitudes):
        amplitudes = (*amplitudes[:-1], 1)
    made = waves(frequencies, amplitudes, count_weight=weight)
    records = every_record(len(frequencies[0]))
    moves = made.contributions(records)
    assert (moves[-1] == 0).all()
    turns = np.array([[sum(int(f) * int(i) for f, i in zip(row, record, strict=True)) % TURN / TURN for row in frequencies]
                      for record in records[:-1]])  # fmt: skip
    exact = np.concatenate([np.cos(2 * math.pi * turns), np.sin(2 * math.pi * turns)], axis=1) * (amplitudes * 2)
    size = len(amplitudes)
    far = np.hypot(moves[:-1, :size] - exact[:, :size], moves[:-1, size:] - exact[:, size:])
    assert (far <= phase_error(np.array(amplitudes, dtype=float))).all()
    widest = max(int(np.abs(moves - move).sum(axis=1).max()) for move in moves)
    furthest = max(int(((moves - move) ** 2).sum(axis=1).max()) for move in moves)
    assert widest <= made.sensitivity(REPLACE)
    assert furthest <= made.squared_sensitivity(REPLACE)
    assert weight + int(np.abs(moves).sum(axis=1).max()) <= made.sensitivity(ADD_REMOVE)
    assert weight**2 + int((moves**2).sum(axis=1).max()) <= made.squared_sensitivity(ADD_REMOVE)


def test_bounds_are_attained_where_records_stand_opposite():
    made = waves([(TURN // 2,)], [1000])  # whole and half turns
    assert made.contributions(np.array([[0.0], [1.0]])).tolist() == [[1000, 0], [-1000, 0]]
    assert made.squared_sensitivity(REPLACE) == pytest.approx(2000**2, rel=1e-2)
    assert made.squared_sensitivity(ADD_REMOVE) == pytest.approx(1000**2, rel=1e-2)
    assert made.sensitivity(ADD_REMOVE) == pytest.approx(1000 * math.sqrt(2), rel=1e-2)


@pytest.mark.parametrize(("tolerance", "bandwidth"), [(1e-3, 0.5), (1e-6, 1.5), (1e-4, 30.0)])
def test_a_product_of_lattices_is_the_kernel_and_no_less_than_its_bound(tolerance, bandwidth):
    widths = np.array([2.0, 3.0])
    frequencies, weights, least = product_lattice(widths, bandwidth, tolerance)
    r = np.random.default_rng(1).uniform(-1, 1, (4000, 2)) * widths
    kernel = np.cos(r @ frequencies.T) @ weights
    np.testing.assert_allclose(kernel, np.exp(-((r / bandwidth) ** 2).sum(axis=1) / 2), atol=5 * tolerance)
    assert -3 * tolerance < least <= kernel.min() + 1e-15
    assert (np.diff(weights) <= 0).all()


def test_features_of_a_product_give_the_discrepancy_over_all_pairs():
    rng = np.random.default_rng(2)
    x, y = rng.uniform(0, 1, (500, 2)) * [2, 3], rng.beta(2, 3, (400, 2)) * [2, 3]
    frequencies, weights, _ = product_lattice(np.array([2.0, 3.0]), 1.5, 1e-12)
    moved = np.exp(1j * x @ frequencies.T).mean(axis=0) - np.exp(1j * y @ frequencies.T).mean(axis=0)
    assert math.sqrt((weights * np.abs(moved) ** 2).sum()) == pytest.approx(exact_mmd(x, y, 1.5), abs=1e-10)


@pytest.mark.parametrize(("tolerance", "bandwidth"), [(1e-2, 0.3), (1e-3, 0.5)])
def test_no_dot_product_of_a_product_lies_below_its_proven_bound(tolerance, bandwidth):
    statistic = mmd_product({"x": Bounds(0, 2), "y": Bounds(0, 3)}, bandwidth, 10, tolerance=tolerance).statistic
    moves = statistic.contributions(np.random.default_rng(3).uniform(0, 1, (1500, 2)) * [2, 3]).astype(float)
    assert (moves @ moves.T).min() >= statistic.least
    assert statistic.least < 0
    assert statistic.squared_sensitivity(REPLACE) < 0.55 * replace(statistic, least=None).squared_sensitivity(REPLACE)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"columns": ("a", "a")}, "different columns"),
        ({"bounds": ()}, "with bounds and cells for each"),
        ({"amplitudes": (1,)}, "with an amplitude for each"),
        ({"amplitudes": (0, 0)}, "one of them above 0"),
        ({"amplitudes": (1, 2**31)}, "between 0 and 2\\^30"),
        ({"frequencies": ((1, 2), (3, TURN))}, "at least 0 and below"),
        ({"frequencies": ((1, 2), (3,))}, "a frequency for each column"),
        ({"least": 1}, "least is 1"),
        ({"count_weight": -1}, "count_weight must not be negative"),
    ],
)
def test_what_is_no_sum_of_waves_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        replace(waves([(1, 2), (3, 4)], [5, 6]), **change)


def part(name, rows, outside=Outside.CLAMP):
    cells = Cells(spacing="even", exponent=0, first=0, count=len(rows[0]))
    table = tuple(" ".join(map(str, row)) for row in rows)
    ones, zeros = (1.0,) * len(rows), (0,) * len(rows)
    bounds = Bounds(0, len(rows[0]) - 1)
    return TableSum(column=name, bounds=bounds, outside=outside, cells=cells, table=table, units=ones, origins=zeros)


ROWS = st.lists(st.lists(st.integers(-9, 9), min_size=3, max_size=3), min_size=1, max_size=3)


@given(st.lists(ROWS, min_size=1, max_size=3), st.integers(0, 9))
def test_stacked_tables_have_the_largest_change_over_all_pairs_of_records(tables, weight):
    made = StackedSum(parts=tuple(part(name, rows) for name, rows in zip("abc", tables, strict=False)), count_weight=weight)
    records = np.array([*itertools.product([0, 1, 2, math.nan], repeat=len(tables))])
    moves = made.contributions(records)
    assert max(int(np.abs(moves - move).sum(axis=1).max()) for move in moves) == made.sensitivity(REPLACE)
    assert max(int(((moves - move) ** 2).sum(axis=1).max()) for move in moves) == made.squared_sensitivity(REPLACE)
    assert weight + int(np.abs(moves).sum(axis=1).max()) == made.sensitivity(ADD_REMOVE)
    assert weight**2 + int((moves**2).sum(axis=1).max()) == made.squared_sensitivity(ADD_REMOVE)
    assert made.largest == np.abs(moves).max()
    assert len(made.units) == moves.shape[1]


def test_what_cannot_be_stacked_is_refused():
    with pytest.raises(ValueError, match="must be of different columns"):
        StackedSum(parts=(part("a", [[0, 1]]), part("a", [[0, 2]])))
    with pytest.raises(ValueError, match="one at least"):
        StackedSum(parts=())
    with pytest.raises(ValueError, match="share one count_weight"):
        StackedSum(parts=(replace(part("a", [[0, 1]]), count_weight=1),))


def test_a_partition_of_one_cell_is_refused():
    cells = choose_cells(Bounds(0.1, 0.2), "even", is_integer=True, wanted=8)
    with pytest.raises(ValueError, match="one cell only"):
        make_partition("x", Bounds(0.1, 0.2), Outside.CLAMP, cells, [0.15])
