"""Tables: a model's statistic, tabulated over cells between the bounds."""

from __future__ import annotations

import math
from typing import Any

from dp_dask.core.bounds import Bounds, Outside
from dp_dask.core.cells import choose_cells
from dp_dask.core.grid import MAX_CELLS
from dp_dask.core.table_sum import TableSum, make_table, with_inside_count

__all__ = ["inside_sum", "table_sum"]

MOST_JOINT_CELLS = 2**8  # units of a coordinate where the law is summed over cells for every pair of parameters
MOST_INSIDE_CELLS = 2**10  # the same for every value of one parameter
WEIGHING = 2**6  # units of the sum, so that a weight of a whole number of them is a share to a per cent or two


def table_sum(model: Any, column: str, bounds: Bounds, outside: Outside, wanted: int) -> TableSum:
    """Tabulate the statistic of a model, one sum or several, on about ``wanted`` units; raises ValueError."""
    is_scalar = not hasattr(model, "features")
    size = wanted if is_scalar else min(wanted, MOST_JOINT_CELLS)
    # More cells than the statistic has units, so that rounding x adds little to rounding t(x).
    return _tabulate(model, column, bounds, outside, size, (4 if is_scalar else 2) * size, is_centred=outside is Outside.CLAMP)


def inside_sum(model: Any, column: str, bounds: Bounds, outside: Outside, wanted: int, share: float) -> TableSum:
    """Tabulate a truncated sum with the count of its records; raises ValueError.

    The sum is centred, which halves what one record adds to it: the count tells a record in the middle from one outside.
    """
    if bounds.lower <= model.support[0] and bounds.upper >= model.support[1]:
        msg = "inside_count: no record of this model lies outside these bounds, so that the count tells nothing; leave it out"
        raise ValueError(msg)
    if not math.isfinite(bounds.width):
        msg = f"a width of {bounds.width!r} is beyond what floating point sums exactly; rescale the column"
        raise ValueError(msg)
    size = min(wanted, MOST_INSIDE_CELLS)
    # Whole numbers take no finer units than the count's weight needs to be near its share: fewer units, fewer frequencies.
    n_units = min(size, max(round(bounds.width), WEIGHING)) if model.spacing is None and model.is_integer else size
    return with_inside_count(_tabulate(model, column, bounds, outside, n_units, 2 * size, is_centred=True), share)


def _tabulate(
    model: Any, column: str, bounds: Bounds, outside: Outside, n_units: int, n_cells: int, *, is_centred: bool
) -> TableSum:
    cells = choose_cells(bounds, model.spacing or "even", is_integer=model.is_integer, wanted=min(n_cells, MAX_CELLS))
    middles = cells.middles(bounds)
    t = model.features(middles, bounds) if hasattr(model, "features") else model.statistic(middles)[None]
    table, units, origins = make_table(t, n_units=n_units, is_centred=is_centred)
    return TableSum(column=column, bounds=bounds, outside=outside, cells=cells, table=table, units=units, origins=origins)
