from __future__ import annotations

import math
from fractions import Fraction

import pytest
from core.exact import LAW, make_statistic, statistics
from hypothesis import example, given
from hypothesis import strategies as st

from dp_dask.core.bounds import Bounds, Outside
from dp_dask.core.grid import MAX_PRIVATE_RECORDS, Grid, choose_grid
from dp_dask.core.privacy import Neighbours
from dp_dask.core.statistic import BoundedSum


def choose(lower: float, upper: float, outside: str = "clamp", neighbours: str = "replace", **choices) -> Grid:
    choices = {"is_integer": False, "epsilon": 1.0, "n": 100} | choices
    return choose_grid(Bounds(lower, upper), outside=Outside(outside), neighbours=Neighbours(neighbours), **choices)


@LAW
@given(statistic=statistics())
def test_the_ends_of_the_grid_are_the_rounded_bounds(statistic: BoundedSum):
    grid, bounds = statistic.grid, statistic.bounds
    assert math.frexp(grid.unit)[0] == 0.5
    assert grid.lower == round(Fraction(bounds.lower) / Fraction(grid.unit))
    assert grid.upper == round(Fraction(bounds.upper) / Fraction(grid.unit))
    assert grid.lower <= grid.upper


@LAW
@given(statistic=statistics())
def test_a_continuous_range_has_128_to_4096_cells(statistic: BoundedSum):
    assert 2**7 - 1 <= statistic.grid.upper - statistic.grid.lower <= 2**12 + 1


@LAW
@given(st.floats(0.001, 50), st.integers(1, 10**9))
@example(1.0, 16384)
@example(0.5, 1)
def test_rounding_adds_at_most_a_five_thousandth_of_the_variance_of_the_noise(epsilon: float, n: int):
    if n * epsilon**2 <= 16384:  # beyond it the number of cells stays at 4096, and the likelihood has to know of the rounding
        unit = choose(0, 1, epsilon=epsilon, n=n).unit
        assert n * unit**2 / 12 <= 2e-4 * 2 / epsilon**2 * (1 + 1e-9)


def test_more_records_or_more_epsilon_never_make_the_grid_coarser():
    for units in (
        [choose(-3, 5, n=n).unit for n in (0, 1, 10, 100, 10**4, 10**6, 10**12)],
        [choose(-3, 5, epsilon=epsilon).unit for epsilon in (1e-9, 0.1, 1, 10, 1e6)],
    ):
        assert units == sorted(units, reverse=True)
        assert units[0] > units[-1]


@pytest.mark.parametrize("width", [1, 2, 3, 30, 31, 4095, 4096])
@pytest.mark.parametrize("outside", Outside)
@pytest.mark.parametrize("neighbours", Neighbours)
def test_whole_numbers_up_to_4096_cells_are_not_rounded(width: int, outside: Outside, neighbours: Neighbours):
    grid = choose(-7, width - 7, outside, neighbours, is_integer=True)
    assert grid.unit <= 1
    assert (grid.upper - grid.lower) * grid.unit == width


def test_whole_numbers_over_a_wider_range_are_rounded():
    assert choose(0, 4097, is_integer=True).unit == 2
    assert choose(0, 10**6, is_integer=True).unit == 256


@pytest.mark.parametrize(("lower", "upper", "value"), [(0, 30, 0), (5, 30, 5), (-30, -5, -5), (-3, 4, 0), (-3, 0, 0)])
def test_under_clamp_and_replace_a_null_counts_as_the_point_nearest_to_zero(lower: float, upper: float, value: float):
    grid = choose(lower, upper, is_integer=True)
    assert grid.origin * grid.unit == value
    assert grid.high - grid.low == grid.upper - grid.lower


@pytest.mark.parametrize(("lower", "upper"), [(0, 1), (0, 30), (-3, 4), (5, 8), (-8, -5)])
def test_under_clamp_and_add_remove_a_null_counts_as_the_midpoint(lower: float, upper: float):
    grid = choose(lower, upper, neighbours="add_remove", is_integer=True)
    assert grid.origin * grid.unit == (lower + upper) / 2
    assert grid.largest * grid.unit == (upper - lower) / 2


@LAW
@given(statistic=statistics())
def test_under_add_remove_the_largest_contribution_is_half_the_width(statistic: BoundedSum):
    grid = choose_grid(
        statistic.bounds, outside=Outside.CLAMP, neighbours=Neighbours.ADD_REMOVE, is_integer=False, epsilon=1.0, n=None
    )
    assert grid.largest == math.ceil((grid.upper - grid.lower) / 2)


@pytest.mark.parametrize("neighbours", Neighbours)
def test_under_truncate_a_null_counts_as_zero(neighbours: Neighbours):
    assert choose(5, 30, "truncate", neighbours).origin == 0
    assert choose(-30, -5, "truncate", neighbours).origin == 0


@LAW
@given(statistic=statistics())
def test_zero_is_always_among_the_contributions(statistic: BoundedSum):
    grid = statistic.grid
    assert grid.low <= 0 <= grid.high
    assert grid.largest == max(abs(grid.low), abs(grid.high))


def test_headroom_ends_at_2_to_the_61():
    grid = Grid(unit=1.0, lower=-1, upper=1, origin=0)
    grid.check_headroom(2**61 - 1)
    with pytest.raises(ValueError, match=r"^2305843009213693952 records of up to 1 units could overflow the sum; narrow"):
        grid.check_headroom(2**61)


def test_headroom_counts_the_larger_side():
    with pytest.raises(ValueError, match="of up to 8 units"):
        Grid(unit=1.0, lower=-8, upper=1, origin=0).check_headroom(2**58)


def test_every_clamped_grid_has_room_where_n_is_private():
    for lower in (0, 1e6, -1e6):
        choose(lower, lower + 1, neighbours="add_remove", n=None, epsilon=1e6).check_headroom(MAX_PRIVATE_RECORDS)


def test_truncating_far_from_zero_has_no_room_where_n_is_private():
    grid = choose(1e6, 1e6 + 1, "truncate", "add_remove", n=None)
    with pytest.raises(ValueError, match="narrow the bounds or bring them nearer to zero"):
        grid.check_headroom(MAX_PRIVATE_RECORDS)


@pytest.mark.parametrize("unit", [3.0, 0.1, -2.0, 0.0, math.inf, math.nan])
def test_a_unit_that_is_no_power_of_two_is_refused(unit: float):
    with pytest.raises(ValueError, match="unit"):
        Grid(unit=unit, lower=0, upper=1, origin=0)


@pytest.mark.parametrize("ends", [(-(2**50) - 1, 0, 0), (0, 2**50 + 1, 0), (0, 1, -(2**50) - 1)])
def test_an_index_beyond_2_to_the_50_is_refused(ends: tuple[int, int, int]):
    with pytest.raises(ValueError, match="too far from zero for their width; subtract a public constant"):
        Grid(unit=1.0, lower=ends[0], upper=ends[1], origin=ends[2])


@pytest.mark.parametrize("unit", [2.0**-901, 2.0**901, 5e-324])
def test_a_unit_that_the_kernel_could_not_add_exactly_is_refused(unit: float):
    Grid(unit=2.0**-900, lower=0, upper=1, origin=0)
    Grid(unit=2.0**900, lower=0, upper=1, origin=0)
    with pytest.raises(ValueError, match="a width that needs a unit of"):
        Grid(unit=unit, lower=0, upper=1, origin=0)


def test_a_grid_whose_lower_end_is_above_its_upper_is_refused():
    with pytest.raises(ValueError, match="lower"):  # np.clip would give 'upper', which 'low' does not cover
        Grid(unit=1.0, lower=5, upper=-3, origin=0)


def test_a_negative_count_weight_is_refused():
    statistic = make_statistic(0, 1, neighbours=Neighbours.ADD_REMOVE, weight=1)
    with pytest.raises(ValueError, match="count_weight"):
        BoundedSum(column="x", bounds=statistic.bounds, outside=statistic.outside, grid=statistic.grid, count_weight=-1)


@pytest.mark.parametrize(
    ("lower", "upper", "words"),
    [
        (math.nan, 1, "must be finite numbers"),
        (0, math.inf, "must be finite numbers"),
        (1, 1, "the first must be below the second"),
        (2, 1, "the first must be below the second"),
        (0.0, -0.0, "the first must be below the second"),
    ],
)
def test_bounds_that_are_no_interval_are_refused(lower: float, upper: float, words: str):
    with pytest.raises(ValueError, match=words):
        Bounds(lower, upper)


def test_bounds_far_from_zero_for_their_width_are_refused():
    with pytest.raises(ValueError, match="subtract a public constant"):
        choose(1e15, 1e15 + 1)


@pytest.mark.parametrize(("lower", "upper"), [(-1.7e308, 1.7e308), (0, 5e-324), (0, 1e-310), (-1e-320, 1e-320)])
def test_bounds_whose_unit_float64_cannot_hold_or_invert_are_refused_in_words(lower: float, upper: float):
    with pytest.raises(ValueError, match="width"):
        choose(lower, upper)
