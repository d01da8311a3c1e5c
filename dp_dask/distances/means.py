"""means: the weighted Euclidean distance between the clamped means of several columns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from dp_dask.core.bounds import Bounds, Outside
from dp_dask.core.cells import choose_cells
from dp_dask.core.of_sums import OfSums
from dp_dask.core.stacked_sum import StackedSum
from dp_dask.core.table_sum import TableSum, tabulate
from dp_dask.distances import ChooseBandwidth, bounds_of

__all__ = ["means", "plugin"]

UNITS = 2**12  # of the heaviest column's bounds


def means(columns: Mapping[str, Bounds], weights: Mapping[str, float], n: int, *, outside: Outside = Outside.CLAMP) -> OfSums:
    """Make sqrt(sum_j (weight_j (mean_j - mean*_j))^2), the means over n records of values held to their bounds.

    A record may itself be a summary of an observation, so that these are summary statistics with weights.

    Sensitivity: sqrt(sum_j (weight_j width_j)^2) / n where a record is replaced: every column's value may go from one bound to
    the other at once. Values are centred, so that it is half of that where one comes or goes, or is a null. Raises ValueError for
    weights that are not above 0, one for each column.
    """
    if not columns or set(weights) != set(columns) or not all(math.isfinite(each) and each > 0 for each in weights.values()):
        msg = f"weights are given for {', '.join(weights)}; give one above 0 for each of {', '.join(columns) or '(no columns)'}"
        raise ValueError(msg)
    widest = max(weights[name] * bounds.width for name, bounds in columns.items())
    unit = 2.0 ** math.floor(math.log2(widest / UNITS))
    parts = []
    for name, bounds in columns.items():
        cells = choose_cells(bounds, "even", is_integer=False, wanted=UNITS)
        t = weights[name] * cells.middles(bounds)[None]
        table, units, origins = tabulate(t, unit=unit, is_centred=outside is Outside.CLAMP)
        parts.append(
            TableSum(column=name, bounds=bounds, outside=outside, cells=cells, table=table, units=units, origins=origins)
        )
    return OfSums(statistic=StackedSum(parts=tuple(parts)), n=n, norm="l2")


@dataclass(frozen=True, slots=True)
class Means:
    """Columns, each with its bounds, and their weights."""

    columns: dict[str, tuple[float, float]]
    weights: dict[str, float]
    outside: Outside = Outside.CLAMP

    def make(self, n: int, _choose: ChooseBandwidth) -> OfSums:
        """Make the distance; raises ValueError as ``means`` does."""
        return means(bounds_of(self.columns), self.weights, n, outside=self.outside)


plugin = Means
