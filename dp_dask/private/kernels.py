"""Kernels: the exact integer sum of a bounded statistic over an Arrow array, block by block.

Each block is multiplied, rounded and clipped in one scratch buffer and summed in float64. Every term is an
integer, and a block's terms stay below 2^53 in sum, so that the float sum IS the integer sum, whatever the order of
additions (research/scan_performance.md 1.1). Fresh temporaries would cost eight times as much.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dp_dask.core.bounds import Outside
from dp_dask.core.statistic import BoundedSum
from dp_dask.private.arrow import values_and_validity

__all__ = ["BLOCK", "sum_array"]

BLOCK = 2**16
EXACT = 2**53


def sum_array(statistic: BoundedSum, array: pa.Array, scratch: NDArray[np.float64]) -> int:
    """Return the sum of the contributions of every slot; ``scratch`` holds BLOCK floats and is overwritten."""
    total = 0
    with np.errstate(all="ignore"):
        for start in range(0, len(array), BLOCK):
            values, valid = values_and_validity(array.slice(start, BLOCK))
            total += _sum_block(statistic, values, valid, scratch[: len(values)])
    return total


def _sum_block(
    statistic: BoundedSum,
    values: NDArray[np.float64],
    valid: NDArray[np.bool_] | None,
    cells: NDArray[np.float64],
) -> int:
    grid = statistic.grid
    np.multiply(values, 1 / grid.unit, out=cells)  # exact: the unit is a power of two
    np.rint(cells, out=cells)
    np.clip(cells, grid.lower, grid.upper, out=cells)
    if grid.origin:
        np.subtract(cells, grid.origin, out=cells)
    if statistic.outside is Outside.TRUNCATE:
        bounds = statistic.bounds
        np.copyto(cells, 0, where=(values < bounds.lower) | (values > bounds.upper))
    if valid is not None:
        np.copyto(cells, 0, where=~valid)
    total = cells.sum()
    if np.isnan(total):  # a NaN passes every comparison above; rare, so found by the sum itself
        np.copyto(cells, 0, where=np.isnan(cells))
        total = cells.sum()
    if grid.largest * len(cells) < EXACT:
        return int(total)
    return int(cells.astype(np.int64).sum())
