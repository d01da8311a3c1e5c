"""What leaves the records: a statistic is a bounded map of a record to integers; Total is its sum over some of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.bounds import Bounds, Outside
from dp_dask.core.grid import Grid
from dp_dask.core.privacy import Neighbours

__all__ = ["BoundedSum", "Statistic", "Total"]


class Statistic(Protocol):
    """A bounded map of one record to a vector of integers, and how far one record can move its sum."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read."""
        ...

    @property
    def units(self) -> tuple[float, ...]:
        """What one grid unit of each coordinate is worth."""
        ...

    @property
    def count_weight(self) -> int:
        """The grid units that each record adds to the released count; 0 where no count is released."""
        ...

    @property
    def largest(self) -> int:
        """The largest magnitude of one coordinate of a contribution."""
        ...

    def sensitivity(self, neighbours: Neighbours) -> int:
        """Return the largest L1 change of the released vector between neighbours, in grid units."""
        ...

    def squared_sensitivity(self, neighbours: Neighbours) -> int:
        """Return the square of its largest L2 change."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundedSum:
    """The sum over records of one column's value on a grid, with the weighted count where n is private.

    A valid record inside the bounds contributes ``c(x) = clip(rint(x / unit), lower, upper) - origin``. One
    outside is first moved to the nearest bound (clamp) or contributes 0 (truncate); a null or NaN
    contributes 0. ``count_weight`` is 0 where n is public, else the grid units that each record, null or
    not, adds to the released count.
    """

    column: str
    bounds: Bounds
    outside: Outside
    grid: Grid
    count_weight: int = 0

    def __post_init__(self) -> None:
        if self.count_weight < 0:
            msg = f"count_weight is {self.count_weight}; it must not be negative"
            raise ValueError(msg)

    @property
    def columns(self) -> tuple[str, ...]:
        """The one column."""
        return (self.column,)

    @property
    def units(self) -> tuple[float, ...]:
        """The grid's unit."""
        return (self.grid.unit,)

    @property
    def largest(self) -> int:
        """The largest magnitude of a contribution."""
        return self.grid.largest

    def sensitivity(self, neighbours: Neighbours) -> int:
        """Return the largest L1 change of the released vector between neighbours, in grid units.

        Theorem: with C = {0} u {c(x)} contained in the integers [low, high], the sum moves by at most
        ``high - low`` when one record is replaced, and (count, sum) by at most ``weight + max |c|`` when one is
        added or removed. Proof: the sum is over records, so all terms but one cancel; what is left is
        c(x) - c(x') with both in C, respectively (weight, c(x)). The clip puts every contribution into
        [low, high] whatever the floating-point unit did before it, and 0 is in that interval by
        its definition, which covers nulls and truncated records (Bernstein & Sheldon's code
        omits the 0).
        """
        if neighbours is Neighbours.REPLACE:
            return self.grid.high - self.grid.low
        return self.count_weight + self.grid.largest

    def squared_sensitivity(self, neighbours: Neighbours) -> int:
        """Return the square of the largest L2 change of the released vector between neighbours, in grid units.

        Theorem: it is ``(high - low)^2`` where a record is replaced and ``weight^2 + max |c|^2`` where one is added or removed.
        Proof: the change is that of ``sensitivity``, one number c(x) - c(x') respectively the vector (weight, c(x)).
        """
        if neighbours is Neighbours.REPLACE:
            return (self.grid.high - self.grid.low) ** 2
        return self.count_weight**2 + self.grid.largest**2

    def contributions(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return c(x) for each value, NaN standing for a null; the definition that the fast kernels are held to."""
        grid = self.grid
        with np.errstate(all="ignore"):
            cells = np.clip(np.rint(values / grid.unit), grid.lower, grid.upper) - grid.origin
        counts = ~np.isnan(values)
        if self.outside is Outside.TRUNCATE:
            counts &= (values >= self.bounds.lower) & (values <= self.bounds.upper)
        return np.where(counts, cells, 0).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Total:
    """The sums of several statistics over the same records, one after the other, and how many records there were."""

    sums: tuple[int, ...]
    n_records: int

    def __add__(self, other: Total) -> Total:
        sums = tuple(a + b for a, b in zip(self.sums, other.sums, strict=True))
        return Total(sums, self.n_records + other.n_records)
