"""Sums of simulated data sets: the statistics of records, of many data sets at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.bounds import Bounds, Outside
from dp_dask.core.cells import Cells
from dp_dask.core.fourier_sum import FourierSum
from dp_dask.core.simulated import Simulated
from dp_dask.core.stacked_sum import StackedSum
from dp_dask.core.table_sum import TableSum

__all__ = ["count_cells", "sum_simulated"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
AT_ONCE = 2**22  # numbers held


def sum_simulated(statistic: TableSum | StackedSum | FourierSum, simulated: Simulated) -> Ints:
    """Return the statistic's sum over each data set [size, coordinate], to the last digit as over records."""
    if isinstance(statistic, StackedSum):
        return np.column_stack([sum_simulated(part, simulated) for part in statistic.parts])
    if isinstance(statistic, FourierSum):
        return _sum_waves(statistic, simulated)
    return statistic.totals(simulated.values[statistic.column], simulated.counts)


def count_cells(simulated: Simulated, column: str, bounds: Bounds, outside: Outside, cells: Cells) -> Floats:
    """Return the number of records in each cell [size, cell]: as in ``TableSum`` one outside is moved or not counted."""
    values, dataset = simulated.values[column], simulated.dataset
    low, high = bounds.lower, bounds.upper
    if outside is Outside.TRUNCATE:
        inside = (values >= low) & (values <= high)
        values, dataset = values[inside], dataset[inside]
    place = dataset * cells.count + cells.find(np.clip(values, low, high))
    counts = np.bincount(place, minlength=simulated.size * cells.count)
    return counts.reshape(simulated.size, cells.count).astype(np.float64)


def _sum_waves(statistic: FourierSum, simulated: Simulated) -> Ints:
    values = np.stack([simulated.values[name] for name in statistic.columns], axis=1)
    sums = np.zeros((simulated.size, len(statistic.units)), dtype=np.int64)
    step = max(AT_ONCE // len(statistic.units), 1)
    for start in range(0, len(values), step):
        dataset = simulated.dataset[start : start + step]
        first = np.flatnonzero(np.diff(dataset, prepend=-1))
        sums[dataset[first]] += np.add.reduceat(statistic.contributions(values[start : start + step]), first, axis=0)
    return sums
