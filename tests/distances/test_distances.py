"""Distances against their definitions over records, and their sensitivities over replaced, added and removed records."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_dask.core import plugins
from dp_dask.core.bounds import Bounds, Outside
from dp_dask.core.fourier import exact_mmd
from dp_dask.core.privacy import Neighbours
from dp_dask.core.recordwise import Recordwise
from dp_dask.core.simulated import Simulated
from dp_dask.distances.histogram import histogram
from dp_dask.distances.means import means
from dp_dask.distances.mmd import mmd
from dp_dask.distances.mmd_product import mmd_product
from dp_dask.distances.mmd_random import mmd_random

REPLACE, ADD_REMOVE = Neighbours.REPLACE, Neighbours.ADD_REMOVE
N = 40
UNIT = Bounds(0, 1)
WIDE = Bounds(-3, 5)
MADE = {  # of N records
    "mmd": [mmd("x", WIDE, 0.9, N), mmd("x", WIDE, 4.0, N, outside=Outside.TRUNCATE)],
    "mmd_product": [mmd_product({"x": WIDE, "y": UNIT}, 1.5, N, tolerance=1e-3)],
    "mmd_random": [mmd_random({"x": WIDE, "y": UNIT, "z": Bounds(10, 12)}, 1.0, N, features=30, seed=3)],
    "histogram": [histogram("x", WIDE, [-1, 0, 0.5, 4], N), histogram("x", WIDE, [0], N, outside=Outside.TRUNCATE)],
    "means": [means({"x": WIDE, "y": UNIT}, {"x": 0.5, "y": 3}, N)],
}
ALL = [(name, each) for name, several in MADE.items() for each in several]
IDS = [f"{name}-{i}" for name, several in MADE.items() for i in range(len(several))]


def test_every_distance_is_tested():
    assert plugins.names("dp_dask.distances") == sorted([*MADE, "recordwise"])
    for name in plugins.names("dp_dask.distances"):
        assert callable(plugins.load("dp_dask.distances", name))


def summed(distance, records):
    """The statistic of one data set [k, column], by its definition over records."""
    statistic = distance.statistic
    values = np.asarray(records, dtype=np.float64).reshape(-1, len(statistic.columns))
    moves = statistic.contributions(values[:, 0] if hasattr(statistic, "table") else values)
    return moves.sum(axis=0)


VALUES = st.one_of(st.floats(-6, 13), st.sampled_from([math.nan, -1e9, 1e9, 0.0, 1.0, -3.0, 5.0, 10.0, 12.0]))


@pytest.mark.parametrize(("name", "distance"), ALL, ids=IDS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_neighbour_is_further_than_the_sensitivity(name, distance, data):
    """Data sets of one to four records, from which a distance's reach is as far as from many."""
    del name
    record = st.tuples(*[VALUES] * len(distance.statistic.columns))
    kept = data.draw(st.lists(record, max_size=3))
    one, other = data.draw(record), data.draw(record)
    from_here = summed(distance, data.draw(st.lists(record, min_size=1, max_size=4)))[None]
    whole, replaced, removed = (summed(distance, rows) for rows in ([*kept, one], [*kept, other], kept))
    first, second, third = (int(distance.between(from_here, each)[0]) for each in (whole, replaced, removed))
    assert abs(first - second) <= distance.sensitivity(REPLACE)
    assert abs(first - third) <= distance.sensitivity(ADD_REMOVE)


@pytest.mark.parametrize(
    ("distance", "replace", "add_remove"),
    [
        (MADE["mmd"][0], math.sqrt(2) / N, 1 / N),
        (MADE["mmd_product"][0], math.sqrt(2) / N, 1 / N),
        (MADE["mmd_random"][0], 2 / N, 1 / N),
        (MADE["histogram"][0], 1 / N, 0.5 / N),
        (MADE["means"][0], math.hypot(4, 3) / N, math.hypot(4, 3) / 2 / N),
    ],
    ids=list(MADE),
)
def test_sensitivities_are_those_of_the_literature_and_rounding(distance, replace, add_remove):
    assert replace * 0.99 <= distance.sensitivity(REPLACE) * distance.step <= replace * 1.02
    assert add_remove * 0.99 <= distance.sensitivity(ADD_REMOVE) * distance.step <= add_remove * 1.02


@pytest.mark.parametrize(("name", "distance"), [each for each in ALL if each[0] != "mmd_random"], ids=lambda each: str(each)[:20])
def test_some_neighbour_is_nearly_as_far(name, distance):
    """Opposite corners of the bounds, or a null, and a data set on the line through both."""
    statistic = distance.statistic
    bounds = (
        [part.bounds for part in statistic.parts] if name == "means" else np.atleast_1d(np.array(statistic.bounds, dtype=object))
    )
    corners = np.array([[each.lower for each in bounds], [each.upper for each in bounds], [math.nan] * len(bounds)])
    one, other, null = (summed(distance, row) for row in corners)
    furthest = int(distance.between((2 * one - other)[None], other)[0] - distance.between((2 * one - other)[None], one)[0])
    assert furthest >= 0.97 * distance.sensitivity(REPLACE)
    lost = distance.between((2 * one - null)[None], null)[0] - distance.between((2 * one - null)[None], one)[0]
    assert lost >= 0.97 * distance.sensitivity(ADD_REMOVE)


def draw(rng, distance, sizes):
    count = sum(sizes)
    values = {name: rng.normal(2, 3, count) for name in distance.statistic.columns}
    return Simulated(np.array(sizes), values)


@pytest.mark.parametrize(("name", "distance"), ALL, ids=IDS)
def test_simulated_data_sets_are_summed_as_records_are(name, distance):
    del name
    sizes = [0, 3, 0, 200, 1, 0]
    simulated = draw(np.random.default_rng(1), distance, sizes)
    stacked = np.stack([simulated.values[each] for each in distance.statistic.columns], axis=1)
    parts = np.split(stacked, np.cumsum(sizes)[:-1])
    assert distance.statistic.totals_of(simulated).tolist() == [summed(distance, part).tolist() for part in parts]


def mixed(rng, columns):
    """Two data sets of different laws inside the bounds of MADE's columns."""
    ends = {"x": (-3, 5), "y": (0, 1), "z": (10, 12)}
    low, high = np.array([ends[name] for name in columns]).T
    shape = (600, len(columns))
    return low + (high - low) * rng.beta(2, 3, shape), low + (high - low) * rng.beta(3, 2.5, shape)


@pytest.mark.parametrize(
    ("distance", "bandwidth", "error"),
    [
        (mmd("x", WIDE, 0.9, 600), 0.9, 2e-4),
        (mmd_product({"x": WIDE, "y": UNIT}, 0.8, 600), 0.8, 5e-4),
        (mmd_random({"x": WIDE, "y": UNIT, "z": Bounds(10, 12)}, 1.0, 600, features=1000), 1.0, 0.02),
    ],
    ids=["mmd", "mmd_product", "mmd_random"],
)
def test_discrepancies_are_those_over_all_pairs(distance, bandwidth, error):
    one, other = mixed(np.random.default_rng(2), distance.statistic.columns)
    exact = exact_mmd(one, other, bandwidth)
    steps = distance.between(summed(distance, one)[None], summed(distance, other))[0]
    assert exact > 0.1
    assert steps * distance.step == pytest.approx(exact, abs=error)


def test_histogram_and_means_are_their_formulas():
    one, other = mixed(np.random.default_rng(3), ("x", "y"))
    distance = histogram("x", WIDE, [-1, 0, 2], 600)
    shares = [np.histogram(each[:, 0], [-9, -1, 0, 2, 9])[0] / 600 for each in (one, other)]
    steps = distance.between(summed(distance, one[:, :1])[None], summed(distance, other[:, :1]))[0]
    assert steps * distance.step == pytest.approx(np.abs(shares[0] - shares[1]).sum() / 2, abs=0.01)
    distance = means({"x": Bounds(-1, 3), "y": UNIT}, {"x": 0.5, "y": 3}, 600)
    clamped = [np.column_stack([np.clip(each[:, 0], -1, 3), each[:, 1]]).mean(axis=0) * [0.5, 3] for each in (one, other)]
    steps = distance.between(summed(distance, one)[None], summed(distance, other))[0]
    assert steps * distance.step == pytest.approx(np.linalg.norm(clamped[0] - clamped[1]), abs=1e-3)


def test_steps_are_whole_numbers_below_the_exact_root():
    distance = MADE["mmd"][0]
    size = len(distance.statistic.table)
    rng = np.random.default_rng(4)
    for scale in (1, 10**3, 10**9, 10**14):
        sums = rng.integers(-scale, scale + 1, (50, size))
        exact = [math.isqrt(sum(each**2 for each in row)) for row in sums.tolist()]
        assert distance.between(sums, np.zeros(size, dtype=np.int64)).tolist() == exact
    squares = np.zeros((3, size), dtype=np.int64)
    squares[:, 0] = [2**30 - 1, 2**30, 0]
    assert distance.between(squares, squares[2]).tolist() == [2**30 - 1, 2**30, 0]


RECORDWISE = Recordwise(columns=("a", "b"), weights=(1.0, 0.5), clip=2.0, n=3)


@given(st.data())
def test_a_record_moves_a_recordwise_distance_by_one_clip_at_most(data):
    values = st.floats(allow_nan=True, allow_infinity=True)
    rows = st.lists(st.tuples(values, values), min_size=3, max_size=3)
    simulated, observed = np.array(data.draw(rows)), np.array(data.draw(rows))
    neighbour = observed.copy()
    neighbour[data.draw(st.integers(0, 2))] = data.draw(st.tuples(values, values))
    first, second = (int(RECORDWISE.between(simulated[None], each)[0]) for each in (observed, neighbour))
    assert abs(first - second) <= RECORDWISE.sensitivity(REPLACE)
    assert 0 <= first <= 3 * RECORDWISE.sensitivity(REPLACE)


def test_a_recordwise_distance_is_its_formula_and_attains_its_bound():
    rng = np.random.default_rng(5)
    simulated, observed = rng.normal(0, 1.5, (7, 3, 2)), rng.normal(0, 1.5, (3, 2))
    exact = np.minimum(np.linalg.norm((simulated - observed) * [1, 0.5], axis=2), 2).mean(axis=1)
    np.testing.assert_allclose(RECORDWISE.between(simulated, observed) * RECORDWISE.step, exact, atol=2 / 4096)
    here, far = np.zeros((3, 2)), np.array([[9.0, 0], [0, 0], [0, 0]])
    moved = RECORDWISE.between(here[None], far)[0] - RECORDWISE.between(here[None], here)[0]
    assert moved == RECORDWISE.sensitivity(REPLACE)
    assert moved * RECORDWISE.step == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match="no useful bound under add_remove"):
        RECORDWISE.sensitivity(ADD_REMOVE)
    with pytest.raises(ValueError, match="must have n = 3 records of 2 columns"):
        RECORDWISE.between(simulated[:, :2], observed[:2])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mmd("x", WIDE, 0.0, N), "bandwidth is 0; give at least"),
        (lambda: mmd("x", WIDE, math.nan, N), "bandwidth is nan"),
        (lambda: mmd("x", WIDE, 1.0, 0), "n must be at least 1"),
        (lambda: mmd_product({"x": WIDE, "y": WIDE, "z": WIDE}, 0.05, N), "more than 4096 features; give a larger one"),
        (lambda: mmd_product(dict.fromkeys("abcde", UNIT), 1.0, N), "5 columns with a bandwidth of 1; give 1 to 4"),
        (lambda: mmd_random({}, 1.0, N), "give a column at least"),
        (lambda: mmd_random({"x": WIDE}, 1.0, N, features=5000), "1 to 4096 features"),
        (lambda: means({"x": WIDE}, {"y": 1}, N), "weights are given for y; give one above 0 for each of x"),
        (lambda: means({"x": WIDE}, {"x": -1}, N), "give one above 0"),
        (lambda: histogram("x", WIDE, [], N), "give at least one"),
        (lambda: Recordwise(columns=("a",), weights=(1.0,), clip=0.0, n=3), "clip is 0"),
        (lambda: Recordwise(columns=("a",), weights=(1.0,), clip=1.0, n=0), "n is 0"),
    ],
)
def test_what_makes_no_distance_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
