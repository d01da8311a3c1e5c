"""Moments of one record's contribution in closed form, the rounding to the grid included.

A clamped record contributes clip(x, A, B) rounded to a multiple of the unit u, with A and B the bounds on the grid. The cells'
edges are the midpoints between the multiples, so that a sum over cells is an integral by the midpoint rule, whose error
Euler and Maclaurin give in closed form: Sheppard's correction inside, and terms with the density at A and B.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.bounds import Outside
from dp_dask.core.statistic import BoundedSum
from dp_dask.core.table_sum import TableSum
from dp_dask.models import Model

__all__ = ["closed"]

Floats = NDArray[np.float64]


def closed(model: Model, statistic: BoundedSum | TableSum, theta: Floats, order: int) -> list[Floats]:
    """Return E[c(x)^k], k = 1 .. order, in grid units.

    Exact for whole numbers on a grid of unit 1 or less. Else the error is of the order of (unit / spread)^4, which is not
    small where most records share a cell: the caller compares with a sum over the cells. Not finite where a power of the unit
    leaves float64.
    """
    if isinstance(statistic, TableSum):
        return _of_table(model, statistic, theta, order)
    grid = statistic.grid
    low, high = grid.lower * grid.unit, grid.upper * grid.unit
    is_clamped = statistic.outside is Outside.CLAMP
    if model.is_integer and not is_clamped:
        low, high = float(np.ceil(statistic.bounds.lower)), float(np.floor(statistic.bounds.upper))
    first, last = grid.lower - grid.origin, grid.upper - grid.origin
    with np.errstate(all="ignore"):
        inside = list(model.partial_moments(theta, low, high, grid.origin * grid.unit, order))
        for k in range(1, order + 1):
            for _ in range(k):
                inside[k] = inside[k] / grid.unit
        if model.is_integer:
            if not is_clamped:
                return inside[1:]
            below, above = model.cdf(np.ceil(low) - 1, theta), model.sf(np.floor(high), theta)
            return [inside[k] + float(first) ** k * below + float(last) ** k * above for k in range(1, order + 1)]
        steps = np.array([0.0, 0.5, 1.0])[:, None] * grid.unit
        left, right = model.cdf(low + steps, theta), model.sf(high - steps, theta)
        below, above = left[0], right[0]
        if not is_clamped:  # the bounds themselves lie within half a cell of A and B, on either side
            below = below - model.cdf(statistic.bounds.lower, theta)
            above = above - model.sf(statistic.bounds.upper, theta)
        at_low, at_high = (-3 * t[0] + 4 * t[1] - t[2] for t in (left, right))  # u times the density
        moments = []
        for k in range(1, order + 1):
            ends = float(first) ** k * below + float(last) ** k * above
            rounding = k * (float(last) ** (k - 1) * at_high - float(first) ** (k - 1) * at_low)
            if k > 1:
                rounding = rounding + k * (k - 1) * inside[k - 2]
            moments.append(inside[k] + ends + rounding / 24)
    return moments


def _of_table(model: Model, statistic: TableSum, theta: Floats, order: int) -> list[Floats]:
    """The same of a tabulated statistic: its own moments with Sheppard's correction, the bounds' records with their cells'."""
    bounds, unit = statistic.bounds, statistic.units[0]
    first, last = float(statistic.rows[0, 0]), float(statistic.rows[0, -1])
    with np.errstate(all="ignore"):
        inside = list(model.partial_moments(theta, bounds.lower, bounds.upper, statistic.origins[0] * unit, order))
        for k in range(1, order + 1):
            for _ in range(k):
                inside[k] = inside[k] / unit
        for k in range(order, 1, -1) if not model.is_integer else ():
            inside[k] = inside[k] + k * (k - 1) * inside[k - 2] / 24
        if statistic.outside is Outside.CLAMP:
            start = np.ceil(bounds.lower) - 1 if model.is_integer else bounds.lower
            below, above = model.cdf(start, theta), model.sf(bounds.upper, theta)
            inside = [moment + first**k * below + last**k * above for k, moment in enumerate(inside)]
    return inside[1:]
