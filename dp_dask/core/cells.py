"""Cells: a public partition of the bounds, in which a value is found by exact operations alone.

A statistic such as log(x) differs in its last digit between mathematical libraries, hence between workers. So a
record is only looked up: comparison, scaling by a power of two and rounding give the same cell on every machine, and the
statistic's integers stand in a table that the coordinator made.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.bounds import Bounds
from dp_dask.core.grid import MAX_INDEX

__all__ = ["Cells", "Spacing", "choose_cells"]

Floats = NDArray[np.float64]
Spacing = Literal["even", "octave"]
MANTISSA = 52  # bits of a float64 below its exponent
MOST = 2**16
LARGEST_EXPONENT = 1000  # below, a power of two is a normal float64: multiplying by it is exact, and faster than ldexp


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """``count`` cells, numbered from 0.

    even: cell i holds the values that ``rint(x / 2^exponent)`` takes to ``first + i``. octave: the cells halve each other's
    width towards zero, 2^(52 - exponent) of them between a number and its double: cell i holds the positive
    values whose bits, shifted right by ``exponent``, are ``first + i`` (a float64's bits grow with its value).
    """

    spacing: Spacing
    exponent: int
    first: int
    count: int

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MOST:
            msg = f"{self.count} cells; give from 1 to {MOST}"
            raise ValueError(msg)

    def find(self, values: Floats) -> NDArray[np.int64]:
        """Return the cell of each value, which must lie inside the bounds."""
        if self.spacing == "octave":
            raw = (np.ascontiguousarray(values, dtype=np.float64).view(np.int64) >> self.exponent) - self.first
        else:
            is_float = abs(self.exponent) < LARGEST_EXPONENT
            scaled = values * 2.0**-self.exponent if is_float else np.ldexp(values, -self.exponent)
            raw = np.rint(scaled, out=scaled).astype(np.int64)
            raw -= self.first
        return np.clip(raw, 0, self.count - 1, out=raw)

    @property
    def edges(self) -> Floats:
        """Where each cell but the last ends and the next begins."""
        indices = self.first + np.arange(self.count - 1, dtype=np.int64)
        if self.spacing == "octave":
            return ((indices + 1) << self.exponent).view(np.float64)
        return np.ldexp(indices + 0.5, self.exponent)

    def middles(self, bounds: Bounds) -> Floats:
        """A value inside each cell and the bounds: what the cell's records count as."""
        indices = self.first + np.arange(self.count, dtype=np.int64)
        if self.spacing == "even":
            return np.clip(np.ldexp(indices.astype(np.float64), self.exponent), bounds.lower, bounds.upper)
        ends = np.concatenate([[bounds.lower], self.edges, [bounds.upper]])
        return np.clip((ends[:-1] + ends[1:]) / 2, bounds.lower, bounds.upper)


def choose_cells(bounds: Bounds, spacing: Spacing, *, is_integer: bool, wanted: int) -> Cells:
    """Cover the bounds with about ``wanted`` cells; raises ValueError where their spacing cannot.

    A column of whole numbers gets a cell for each number, up to four times what is wanted.
    """
    if spacing == "octave":
        if bounds.lower <= 0:
            msg = f"the lower bound is {bounds.lower:g}; this statistic needs one above 0"
            raise ValueError(msg)
        octaves = math.log2(bounds.upper / bounds.lower)
        bits = min(max(round(math.log2(wanted / octaves)), 0), 20)
        exponent = MANTISSA - bits
        ends = np.array([bounds.lower, bounds.upper]).view(np.int64) >> exponent
        return Cells(spacing="octave", exponent=exponent, first=int(ends[0]), count=int(ends[1] - ends[0]) + 1)
    exponent = math.ceil(math.log2(bounds.width / wanted))
    if is_integer:
        exponent = 0 if bounds.width <= 4 * wanted else max(exponent, 0)
    unit = 2.0**exponent
    first = round(bounds.lower / unit)
    if max(abs(bounds.lower), abs(bounds.upper)) / unit > MAX_INDEX:
        msg = "the bounds lie too far from zero for their width; subtract a public constant from the column first"
        raise ValueError(msg)
    return Cells(spacing="even", exponent=exponent, first=first, count=round(bounds.upper / unit) - first + 1)
