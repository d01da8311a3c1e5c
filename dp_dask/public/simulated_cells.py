"""Simulated cells: the records of each simulated data set by the column's cell, from which every table's sum follows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.bounds import Bounds, Outside
from dp_dask.core.cells import Cells
from dp_dask.core.simulated import Simulated
from dp_dask.core.simulated_sums import count_cells
from dp_dask.public.guarded import guarded
from dp_dask.simulators import Simulator

__all__ = ["Column", "Counted", "simulate_counts"]

Floats = NDArray[np.float64]
AT_ONCE = 2**19  # records held
DATA_SETS = 1024  # simulated by one call


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """The one column that is summarised: its bounds, what becomes of a record outside them, and its cells."""

    name: str
    bounds: Bounds
    outside: Outside
    cells: Cells

    def count(self, simulated: Simulated) -> Floats:
        """Return the number of records in each cell [data set, cell]; as of ``TableSum``, one outside is moved or not counted."""
        return count_cells(simulated, self.name, self.bounds, self.outside, self.cells)


@dataclass(frozen=True, slots=True, eq=False)
class Counted:
    """Simulated data sets: theta [T, p], the records in each cell [T, cell], and those of the whole data set [T]."""

    theta: Floats
    counts: Floats
    sizes: Floats


def simulate_counts(rng: np.random.Generator, simulator: Simulator, theta: Floats, n: int | None, column: Column) -> Counted:
    """Simulate one data set for each row of theta [T, p] and count it; data sets that fail are left out."""
    step = DATA_SETS if n is None else min(max(AT_ONCE // max(n, 1), 1), DATA_SETS)
    theta_kept, counts, sizes = [], [], []
    for start in range(0, len(theta), step):
        rows = theta[start : start + step]
        made = guarded(simulator, rows, n, rng, policy="reject")
        whole = made.is_whole
        theta_kept.append(rows[whole])
        counts.append(column.count(made.simulated)[whole])
        sizes.append(made.simulated.counts[whole].astype(np.float64))
    return Counted(np.concatenate(theta_kept), np.concatenate(counts), np.concatenate(sizes))
