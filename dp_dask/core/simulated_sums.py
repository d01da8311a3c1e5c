"""Counts of simulated records by cell, of many data sets at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.bounds import Bounds, Outside
from dp_dask.core.cells import Cells
from dp_dask.core.simulated import Simulated

__all__ = ["count_cells"]

Floats = NDArray[np.float64]


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
