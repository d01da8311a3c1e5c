"""Recordwise: the mean over records of a clipped distance between the i-th records of two data sets."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.privacy import Neighbours

__all__ = ["Recordwise"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
LEVELS = 2**12  # steps of one record's distance
AT_ONCE = 2**22  # numbers held


@dataclass(frozen=True, slots=True, kw_only=True)
class Recordwise:
    """rho = (1 / n) sum_i min(d(x_i, y_i), clip), d the Euclidean distance of weighted columns, in whole steps.

    A step is clip / (4096 n). Park, Vinaroz & Jitkrittum (2021, section 5) compare outbreaks so. It is no function of a sum:
    it must be evaluated beside the sensitive records, which keep their order.
    """

    columns: tuple[str, ...]
    weights: tuple[float, ...]
    clip: float
    n: int

    def __post_init__(self) -> None:
        numbers = (*self.weights, self.clip)
        if not self.columns or len(self.weights) != len(self.columns) or not all(math.isfinite(w) and w > 0 for w in numbers):
            msg = f"clip is {self.clip:g} and weights {list(self.weights)}; give numbers above 0, one weight for each column"
            raise ValueError(msg)
        if self.n < 1:
            msg = f"n is {self.n}; it must be at least 1"
            raise ValueError(msg)

    @property
    def step(self) -> float:
        """What one step is worth."""
        return self.clip / (LEVELS * self.n)

    def sensitivity(self, neighbours: Neighbours) -> int:
        """Return 4096 steps, clip / n, where a record is replaced; raises ValueError for add_remove.

        Proof: records are compared by their places, so replacing one changes one term of the sum, which lies between 0 and 4096
        whatever the values are, null or infinite ones included. A record that comes or goes moves all after it to other places,
        and every term may change.
        """
        if neighbours is Neighbours.ADD_REMOVE:
            msg = (
                "records compared by their places have no useful bound under add_remove; use neighbours: replace with a public n"
            )
            raise ValueError(msg)
        return LEVELS

    def between(self, simulated: Floats, observed: Floats) -> Ints:
        """Return the steps [B] between data sets [B, n, column] and one [n, column]; a null is at the clip's distance.

        Raises ValueError for another number of records than n.
        """
        if simulated.shape[1:] != observed.shape or observed.shape != (self.n, len(self.columns)):
            msg = f"data sets must have n = {self.n} records of {len(self.columns)} columns to be compared record by record"
            raise ValueError(msg)
        weights = np.array(self.weights)
        sums = [np.zeros(0, dtype=np.int64)]
        step = max(AT_ONCE // observed.size, 1)
        with np.errstate(all="ignore"):
            for start in range(0, len(simulated), step):
                distance = np.sqrt((((simulated[start : start + step] - observed) * weights) ** 2).sum(axis=2))
                levels = np.minimum(np.where(np.isnan(distance), math.inf, distance) / self.clip, 1) * LEVELS
                sums.append(np.floor(levels).astype(np.int64).sum(axis=1))
        return np.concatenate(sums)
