"""Exact: what a record must contribute, in rational arithmetic, and the statistics and records that laws are tried on.

Independent of the code it judges: of a grid it takes the unit and the origin alone, never the clip.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from dp_dask.core.bounds import Bounds, Outside
from dp_dask.core.grid import choose_grid
from dp_dask.core.privacy import Neighbours
from dp_dask.core.statistic import BoundedSum

LAW = settings(deadline=None, derandomize=True, database=None, max_examples=150)

Record = float | int | Decimal | None


def contribution(statistic: BoundedSum, record: Any) -> int:
    """Convert to the nearest float64, hold to the bounds, divide by the unit, round half to even, subtract the origin."""
    if record is None or math.isnan(record):
        return 0
    x = float(record)
    bounds = statistic.bounds
    if not bounds.lower <= x <= bounds.upper:
        if statistic.outside is Outside.TRUNCATE:
            return 0
        x = bounds.lower if x < bounds.lower else bounds.upper
    return round(Fraction(x) / Fraction(statistic.grid.unit)) - statistic.grid.origin


def total(statistic: BoundedSum, records: Any) -> int:
    return sum(contribution(statistic, record) for record in records)


def make_statistic(
    lower: float,
    upper: float,
    outside: Outside = Outside.CLAMP,
    neighbours: Neighbours = Neighbours.REPLACE,
    *,
    column: str = "x",
    is_integer: bool = False,
    epsilon: float = 1.0,
    n: int | None = 100,
    weight: int = 7,
) -> BoundedSum:
    bounds = Bounds(lower, upper)
    grid = choose_grid(bounds, outside=outside, neighbours=neighbours, is_integer=is_integer, epsilon=epsilon, n=n)
    count_weight = weight if neighbours is Neighbours.ADD_REMOVE else 0
    return BoundedSum(column=column, bounds=bounds, outside=outside, grid=grid, count_weight=count_weight)


def edges(statistic: BoundedSum) -> list[float | None]:
    """Return the records most likely to break a bound: its ends and their neighbours, half cells, and what is no number."""
    bounds, unit = statistic.bounds, statistic.grid.unit
    lower, upper = bounds.lower, bounds.upper
    around = [math.nextafter(end, away) for end in (lower, upper) for away in (-math.inf, math.inf)]
    halves = [
        (k + 0.5) * unit for k in (statistic.grid.lower, statistic.grid.lower + 1, statistic.grid.upper - 1, statistic.grid.upper)
    ]
    odd = [None, math.nan, math.inf, -math.inf, 0.0, -0.0, 5e-324, -5e-324, 2.0**53, -(2.0**53), 1e308, -1e308]
    return [lower, upper, *around, *halves, lower / 2 + upper / 2, *odd]


def statistics() -> st.SearchStrategy[BoundedSum]:
    """Draw bounds of every size and distance from zero that a grid accepts, with either treatment of what is outside."""

    def build(start: float, width: float, scale: int, **choices: Any) -> BoundedSum:
        lower = math.ldexp(start, scale)
        return make_statistic(lower, lower + math.ldexp(width, scale), **choices)

    return st.builds(
        build,
        start=st.one_of(st.sampled_from([0.0, 1.0, -1.0, -0.5]), st.floats(-1e6, 1e6)),
        width=st.one_of(st.just(1.0), st.floats(0.001, 1e4)),
        scale=st.one_of(st.just(0), st.integers(-850, 850)),
        outside=st.sampled_from(Outside),
        neighbours=st.sampled_from(Neighbours),
        epsilon=st.sampled_from([1e-6, 0.1, 1.0, 10.0]),
        n=st.sampled_from([0, 1, 1000, 10**9, None]),
        weight=st.integers(1, 5000),
    )


def records(statistic: BoundedSum) -> st.SearchStrategy[float | None]:
    bounds = statistic.bounds
    return st.one_of(st.sampled_from(edges(statistic)), st.floats(bounds.lower, bounds.upper), st.floats())
