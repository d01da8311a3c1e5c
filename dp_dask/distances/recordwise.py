"""recordwise: the mean over records of a clipped distance between the i-th records of two data sets."""

from __future__ import annotations

from dataclasses import dataclass

from dp_dask.core.recordwise import Recordwise
from dp_dask.distances import ChooseBandwidth

__all__ = ["plugin"]


@dataclass(frozen=True, slots=True)
class RecordwiseOptions:
    """Columns with their weights, and the distance that two records are apart at most.

    The sensitivity, clip / n where a record is replaced, is proven in ``core.recordwise``.
    """

    weights: dict[str, float]
    clip: float

    def make(self, n: int, _choose: ChooseBandwidth) -> Recordwise:
        """Make the distance; raises ValueError as ``Recordwise`` does."""
        names = tuple(sorted(self.weights))  # the same question in another order is the same request
        return Recordwise(columns=names, weights=tuple(self.weights[name] for name in names), clip=self.clip, n=n)


plugin = RecordwiseOptions
