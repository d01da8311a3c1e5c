"""OfSums: a distance between data sets that is a function of their sums, so that the sensitive records are reduced once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.fourier_sum import FourierSum
from dp_dask.core.grid import check_headroom
from dp_dask.core.privacy import Neighbours
from dp_dask.core.stacked_sum import StackedSum
from dp_dask.core.table_sum import TableSum

__all__ = ["OfSums"]

Ints = NDArray[np.int64]
EXACT = 2**61  # of a sum of squares in int64


@dataclass(frozen=True, slots=True, kw_only=True)
class OfSums:
    """The whole number nearest below ||S - S*||, S and S* the sums of two data sets: the distance in steps of ``step``.

    n: the records of a data set, a public number (under add_remove a public scale, whatever the records are).
    """

    statistic: TableSum | StackedSum | FourierSum
    n: int
    norm: Literal["l1", "l2"]
    scale: float = 1.0

    def __post_init__(self) -> None:
        if self.n < 1 or not (math.isfinite(self.scale) and self.scale > 0):
            msg = f"n is {self.n} and scale {self.scale:g}; n must be at least 1 and the scale above 0"
            raise ValueError(msg)
        if len(set(self.statistic.units)) > 1 or self.statistic.count_weight:
            msg = "a distance needs coordinates of one unit, and no count beside them"
            raise ValueError(msg)
        check_headroom(self.statistic.largest * len(self.statistic.units), self.n)

    @property
    def step(self) -> float:
        """What one step is worth: the distance between mean values, times ``scale``, is the steps times this."""
        return self.scale * self.statistic.units[0] / self.n

    def sensitivity(self, neighbours: Neighbours) -> int:
        """Return the most steps by which neighbouring S* can change the distance to any one data set.

        Theorem: it is D, the statistic's sensitivity in the norm, rounded up to a whole number. Proof: by the triangle inequality
        a = ||S - S*|| and a' = ||S - S*'|| differ by at most ||S* - S*'|| <= D; and where a <= a' <= a + D <= a + ceil(D),
        floor(a) <= floor(a') <= floor(a) + ceil(D). The floors are computed exactly, so no rounding is left out.
        """
        if self.norm == "l1":
            return self.statistic.sensitivity(neighbours)
        square = self.statistic.squared_sensitivity(neighbours)
        root = math.isqrt(square)
        return root + (root * root < square)

    def between(self, sums: Ints, observed: Ints) -> Ints:
        """Return the steps [B] between sums [B, coordinate] and one data set's [coordinate]."""
        moved = sums - observed
        if self.norm == "l1":
            return np.abs(moved).sum(axis=1)
        if not moved.size:
            return np.zeros(len(moved), dtype=np.int64)
        largest = int(np.abs(moved).max())
        if largest**2 * moved.shape[1] >= EXACT:
            return np.array([math.isqrt(sum(each * each for each in row)) for row in moved.tolist()], dtype=np.int64)
        square = (moved * moved).sum(axis=1)
        root = np.sqrt(square.astype(np.float64)).astype(np.int64)
        root -= root * root > square
        return root + ((root + 1) ** 2 <= square)
