"""recordwise: the mean over records of a clipped distance between the i-th records of two data sets."""

from __future__ import annotations

from collections.abc import Sequence

from dp_dask.core.recordwise import Recordwise

__all__ = ["plugin"]


def recordwise(columns: Sequence[str], weights: Sequence[float], clip: float, n: int) -> Recordwise:
    """Make (1 / n) sum_i min(d(x_i, y_i), clip), d the Euclidean distance of weighted columns.

    Sensitivity: clip / n where a record is replaced; none under add_remove. Raises ValueError for weights, one for each column,
    or a clip that are not above 0.
    """
    return Recordwise(columns=tuple(columns), weights=tuple(weights), clip=clip, n=n)


plugin = recordwise
