"""Partitions: one-hot tables, whose sums are the numbers of records in bins."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.bounds import Bounds, Outside
from dp_dask.core.cells import Cells
from dp_dask.core.table_sum import TableSum

__all__ = ["edges_of", "is_partition", "make_partition"]

Floats = NDArray[np.float64]


def make_partition(column: str, bounds: Bounds, outside: Outside, cells: Cells, edges: Sequence[float] | Floats) -> TableSum:
    """Count the records between the inner edges, each moved to the nearest edge of a cell; raises ValueError for empty bins.

    A record is in one bin at most, so the L1 sensitivity is 2 where it is replaced and 1 where it is added or removed, however
    many bins there are; there the bins' sum stands for the count.
    """
    inner = np.asarray(edges, dtype=np.float64)
    if not (len(inner) and np.all(np.diff(inner) > 0) and bounds.lower < inner[0] and inner[-1] < bounds.upper):
        shown = ", ".join(f"{edge:g}" for edge in inner)
        msg = (
            f"edges are [{shown}]; give at least one, ascending, strictly inside the bounds [{bounds.lower:g}, {bounds.upper:g}]"
        )
        raise ValueError(msg)
    if cells.count == 1:
        msg = "the column has one cell only; give bounds that hold more than one value"
        raise ValueError(msg)
    after = np.searchsorted((cells.edges[:-1] + cells.edges[1:]) / 2, inner) + 1  # the first cell after the nearest edge
    bin_of = np.searchsorted(after, np.arange(cells.count), side="right")
    rows = (bin_of == np.arange(len(inner) + 1)[:, None]).astype(np.int64)
    if not rows.any(axis=1).all():
        msg = f"{len(inner) + 1} bins are more than {cells.count} cells can tell apart; give fewer edges"
        raise ValueError(msg)
    return TableSum(
        column=column,
        bounds=bounds,
        outside=outside,
        cells=cells,
        table=tuple(" ".join(map(str, row)) for row in rows.tolist()),
        units=(1.0,) * len(rows),
        origins=(0,) * len(rows),
    )


def is_partition(statistic: TableSum) -> bool:
    """Whether each record counts once, in one coordinate or in none."""
    rows = statistic.rows
    return bool(((rows == 0) | (rows == 1)).all() and (rows.sum(axis=0) <= 1).all()) and not statistic.count_weight


def edges_of(statistic: TableSum) -> Floats:
    """Return the inner edges [bins - 1] at which a partition's cells were put together."""
    bin_of = statistic.rows.argmax(axis=0)
    return statistic.cells.edges[np.flatnonzero(np.diff(bin_of))]
