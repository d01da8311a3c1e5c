"""histogram: half the sum of absolute differences between the proportions in bins, the total variation distance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dp_dask.core.bounds import Bounds, Outside
from dp_dask.core.cells import choose_cells
from dp_dask.core.of_sums import OfSums
from dp_dask.core.partition import make_partition
from dp_dask.distances import ChooseBandwidth

__all__ = ["histogram", "plugin"]

CELLS = 2**11


def histogram(
    column: str,
    bounds: Bounds,
    edges: Sequence[float],
    n: int,
    *,
    outside: Outside = Outside.CLAMP,
    is_integer: bool = False,
) -> OfSums:
    """Make the total variation distance between the shares of n records between the inner edges.

    Sensitivity: 1 / n where a record is replaced: one count falls by 1 and another rises by 1, and half of 2 is 1. Where one
    comes or goes 1 / (2 n). Raises ValueError for edges that make no bins.
    """
    cells = choose_cells(bounds, "even", is_integer=is_integer, wanted=CELLS)
    statistic = make_partition(column, bounds, outside, cells, edges)
    return OfSums(statistic=statistic, n=n, norm="l1", scale=0.5)


@dataclass(frozen=True, slots=True)
class Histogram:
    """One column, its bounds and the inner edges of its bins."""

    column: str
    bounds: tuple[float, float]
    edges: tuple[float, ...]
    outside: Outside = Outside.CLAMP
    integer: bool = False

    def make(self, n: int, _choose: ChooseBandwidth) -> OfSums:
        """Make the distance; raises ValueError as ``histogram`` does."""
        return histogram(self.column, Bounds(*self.bounds), self.edges, n, outside=self.outside, is_integer=self.integer)


plugin = Histogram
