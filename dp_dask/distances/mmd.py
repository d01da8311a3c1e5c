"""mmd: the maximum mean discrepancy of one column with a Gaussian kernel, by lattice Fourier features."""

from __future__ import annotations

from dataclasses import dataclass

from dp_dask.core.bounds import Bounds, Outside
from dp_dask.core.cells import choose_cells
from dp_dask.core.fourier import TOLERANCE, lattice_features
from dp_dask.core.of_sums import OfSums
from dp_dask.core.table_sum import MOST_COORDINATES, TableSum, make_table
from dp_dask.distances import ChooseBandwidth

__all__ = ["mmd", "plugin"]

CELLS = 2**11
UNITS = 2**12  # of the widest feature


def mmd(
    column: str,
    bounds: Bounds,
    bandwidth: float,
    n: int,
    *,
    outside: Outside = Outside.CLAMP,
    is_integer: bool = False,
    tolerance: float = TOLERANCE,
) -> OfSums:
    """Make ||mu(Y) - mu(Y*)||, mu the mean over n records of features whose dot product is exp(-(x - x')^2 / (2 bandwidth^2)).

    Sensitivity: found from the table itself over all pairs of cells. By ||phi - phi'||^2 = k(x, x) + k(x', x') - 2 k(x, x') <= 2,
    since the kernel is never negative, it is about sqrt(2) / n where a record is replaced, not the 2 / n of the triangle
    inequality (Park, Vinaroz & Jitkrittum 2021, lemma 3.1), and 1 / n where one comes or goes. Raises ValueError for a
    bandwidth that is not above 0 or needs too many features.
    """
    least = bounds.width / (MOST_COORDINATES / 3)
    if not bandwidth >= least:
        msg = f"bandwidth is {bandwidth:g}; give at least {least:g}, the width of the bounds over {MOST_COORDINATES / 3:.0f}"
        raise ValueError(msg)
    cells = choose_cells(bounds, "even", is_integer=is_integer, wanted=CELLS)
    features = lattice_features(cells.middles(bounds), bounds.lower, bounds.width, bandwidth, tolerance)
    table, units, origins = make_table(features, n_units=UNITS, is_centred=False)
    statistic = TableSum(column=column, bounds=bounds, outside=outside, cells=cells, table=table, units=units, origins=origins)
    return OfSums(statistic=statistic, n=n, norm="l2")


@dataclass(frozen=True, slots=True)
class Mmd:
    """One column and its bounds; without a bandwidth that of the median heuristic, on simulated records."""

    column: str
    bounds: tuple[float, float]
    bandwidth: float | None = None
    outside: Outside = Outside.CLAMP
    integer: bool = False

    def make(self, n: int, choose: ChooseBandwidth) -> OfSums:
        """Make the distance; raises ValueError as ``mmd`` does."""
        bandwidth = choose((self.column,)) if self.bandwidth is None else self.bandwidth
        return mmd(self.column, Bounds(*self.bounds), bandwidth, n, outside=self.outside, is_integer=self.integer)


plugin = Mmd
