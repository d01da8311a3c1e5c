"""StackedSum: tables of several columns side by side."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.privacy import Neighbours
from dp_dask.core.simulated import Simulated
from dp_dask.core.table_sum import TableSum

__all__ = ["StackedSum"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StackedSum:
    """The sums of several columns' tables; a null, or a value left out, contributes 0 to its own column's alone."""

    parts: tuple[TableSum, ...]
    count_weight: int = 0

    def __post_init__(self) -> None:
        if not self.parts or len(set(self.columns)) < len(self.parts):
            msg = "tables that are put side by side must be of different columns, one at least"
            raise ValueError(msg)
        if any(part.count_weight for part in self.parts) or self.count_weight < 0:
            msg = "tables that are put side by side share one count_weight, which must not be negative"
            raise ValueError(msg)

    @property
    def columns(self) -> tuple[str, ...]:
        """One column a table."""
        return tuple(part.column for part in self.parts)

    @property
    def units(self) -> tuple[float, ...]:
        """The tables' units."""
        return tuple(unit for part in self.parts for unit in part.units)

    @property
    def largest(self) -> int:
        """The largest magnitude in a table."""
        return max(part.largest for part in self.parts)

    def sensitivity(self, neighbours: Neighbours) -> int:
        """Return the largest L1 change of the released vector between neighbours, in grid units: the tables' added up.

        Proof: an L1 norm is the sum of its parts' norms, and a record may hold any values in different columns together, so
        that its parts attain their largest changes at once. The count is one more part, which moves by its weight.
        """
        weight = self.count_weight if neighbours is Neighbours.ADD_REMOVE else 0
        return weight + sum(part.sensitivity(neighbours) for part in self.parts)

    def squared_sensitivity(self, neighbours: Neighbours) -> int:
        """Return the square of the largest L2 change; as for ``sensitivity``, squared L2 norms add up likewise."""
        weight = self.count_weight if neighbours is Neighbours.ADD_REMOVE else 0
        return weight**2 + sum(part.squared_sensitivity(neighbours) for part in self.parts)

    def contributions(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the integers [record, coordinate] of values [record, column], NaN standing for a null."""
        return np.column_stack([part.contributions(values[:, j]) for j, part in enumerate(self.parts)])

    def totals_of(self, simulated: Simulated) -> NDArray[np.int64]:
        """Return the sums over each simulated data set [size, coordinate]."""
        return np.column_stack([part.totals_of(simulated) for part in self.parts])
