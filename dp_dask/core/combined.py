"""Combined: the records of a person made one, exactly and in any order: of each measured column the mean or the sum."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.bounds import Bounds, Outside
from dp_dask.core.fourier_sum import FourierSum
from dp_dask.core.gram import GramSum
from dp_dask.core.stacked_sum import StackedSum
from dp_dask.core.statistic import BoundedSum
from dp_dask.core.table_sum import TableSum
from dp_dask.core.unit import Combine

__all__ = ["Combined", "combined", "measured"]

LEVELS = 2**22  # of a value: 2^40 records of one person add up to less than 2^63


@dataclass(frozen=True, slots=True)
class Combined:
    """One column's value for a person: the mean of the records' values, each held to ``bounds``, or their sum.

    For a sum the bounds are widened to hold 0. A null or NaN is left out, and of nothing but these it is NaN. Each value is
    ``offset`` and a whole number of units, a power of two of about 2^-22 of the bounds: integers are added up, and divided once.
    """

    column: str
    bounds: Bounds
    combine: Combine

    @property
    def ends(self) -> tuple[float, float]:
        """Between which each record's value is held."""
        lower, upper = self.bounds.lower, self.bounds.upper
        return (lower, upper) if self.combine == "mean" else (min(lower, 0.0), max(upper, 0.0))

    @property
    def offset(self) -> float:
        """What the integer 0 stands for."""
        return self.ends[0] if self.combine == "mean" else 0.0

    @property
    def unit(self) -> float:
        """What one integer step is worth."""
        lower, upper = self.ends
        largest = upper - lower if self.combine == "mean" else max(-lower, upper)
        return 2.0 ** math.ceil(math.log2(largest / LEVELS))

    def cells(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return each value's integer, at most 2^22 in magnitude, and 0 for NaN."""
        held = np.clip(np.where(np.isnan(values), self.offset, values), *self.ends)
        return np.clip(np.rint((held - self.offset) / self.unit), -LEVELS, LEVELS).astype(np.int64)

    def values(self, sums: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return each person's value from the integers added up and how many there were."""
        divided = sums / np.maximum(counts, 1) if self.combine == "mean" else sums.astype(np.float64)
        return np.where(counts > 0, self.offset + divided * self.unit, np.nan)


def measured(statistic: Any) -> tuple[tuple[str, Bounds], ...]:
    """Return the columns whose values a statistic takes from a combined record, with their bounds.

    Raises ValueError for one that cannot be of a combined record: of categories or groups, of which there is no mean or sum, or
    one that leaves records outside the bounds out, which a mean hides.
    """
    parts = statistic.parts if isinstance(statistic, StackedSum) else (statistic,)
    if isinstance(statistic, GramSum | FourierSum):
        return tuple(zip(statistic.columns, statistic.bounds, strict=True))
    if not all(isinstance(part, BoundedSum | TableSum) for part in parts):
        msg = (
            f"combine: {', '.join(statistic.columns)}: categories and groups have no mean and no sum over the records of a "
            "person; give max_records in place of combine"
        )
        raise ValueError(msg)
    if any(part.outside is Outside.TRUNCATE for part in parts):
        msg = "combine holds every record to the bounds, so that none is outside: give outside: clamp, or max_records"
        raise ValueError(msg)
    return tuple((part.column, part.bounds) for part in parts)


def combined(statistic: Any, combine: Combine) -> tuple[Combined, ...]:
    """Return what a person's record is for a statistic, column by column; raises ValueError as ``measured`` does."""
    return tuple(Combined(column, bounds, combine) for column, bounds in measured(statistic))
