"""Kernels: the exact integer sum of a bounded statistic over an Arrow array, block by block.

Each block is clipped and rounded in one scratch buffer, whose bits are then integers that sum exactly, in any order. Fresh
temporaries would cost eight times as much, masks that branch three times (benchmarks/scan.py).
"""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dp_dask.core.bounds import Outside
from dp_dask.core.statistic import BoundedSum
from dp_dask.private.arrow import values_and_validity

__all__ = ["BLOCK", "new_scratch", "sum_array"]

BLOCK = 2**17  # large enough for the calls to cost little, small enough for the cache


def new_scratch() -> NDArray[np.float64]:
    """Return the memory that ``sum_array`` works in, one a task."""
    return np.empty((2, BLOCK))


def sum_array(statistic: BoundedSum, array: pa.Array, scratch: NDArray[np.float64]) -> int:
    """Return the sum of the contributions of every slot."""
    is_plain = pa.types.is_float64(array.type)  # no conversion, so no memory to bound
    values, valid = values_and_validity(array if is_plain else array.slice(0, 0))
    grid = statistic.grid
    ends = grid.lower * grid.unit, grid.upper * grid.unit
    constant = np.float64(1.5 * 2**52 * grid.unit)
    base = int(constant.view(np.int64)) + grid.origin
    total = 0
    with np.errstate(all="ignore"):
        for start in range(0, len(array), BLOCK):
            stop = start + BLOCK
            if is_plain:
                block, mask = values[start:stop], None if valid is None else valid[start:stop]
            else:
                block, mask = values_and_validity(array.slice(start, BLOCK))
            total += _sum_block(statistic, block, mask, scratch, ends, constant, base)
    return total


def _sum_block(
    statistic: BoundedSum,
    values: NDArray[np.float64],
    valid: NDArray[np.bool_] | None,
    scratch: NDArray[np.float64],
    ends: tuple[float, float],
    constant: np.float64,
    base: int,
) -> int:
    """Sum one block's contributions.

    Adding 1.5 * 2^52 units to a value below 2^51 units rounds it to a whole number of units, half to even, and leaves that number
    in the low bits: the sum's bits, less the constant's, are ``rint(x / unit)``. The bits are summed modulo 2^64, which is
    exact because the true sum is below 2^61 (``Grid.check_headroom``).
    """
    n = len(values)
    cells = scratch[0, :n]
    np.clip(values, *ends, out=cells)
    if math.isnan(cells.max()):  # NaN passes a clip; rare, so found by the maximum
        is_number = ~np.isnan(values)
        valid = is_number if valid is None else valid & is_number
    np.add(cells, constant, out=cells)
    bits = cells.view(np.int64)
    n_valid = n
    if valid is not None:
        weights = scratch[1, :n].view(np.int64)
        np.copyto(weights, valid)
        np.multiply(bits, weights, out=bits)
        n_valid = int(np.count_nonzero(valid))
    total = int(bits.sum()) - n_valid * base
    if statistic.outside is Outside.TRUNCATE:  # the clip has counted these as the end cells
        grid = statistic.grid
        for is_outside, cell in ((values < statistic.bounds.lower, grid.lower), (values > statistic.bounds.upper, grid.upper)):
            counted = is_outside if valid is None else is_outside & valid
            total -= (cell - grid.origin) * int(np.count_nonzero(counted))
    return (total + 2**63) % 2**64 - 2**63
