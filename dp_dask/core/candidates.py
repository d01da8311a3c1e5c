"""CandidateBatch: simulated data sets that are to be compared with the records, in the form that a distance compares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.simulated import Failure

__all__ = ["CandidateBatch"]


@dataclass(frozen=True, slots=True, eq=False)
class CandidateBatch:
    """Candidates ``first``, ``first + 1``, ..: public, whatever is done with them.

    ``data`` holds their sums [B, coordinate] in whole numbers or, where a distance compares record by record, their records
    [B, n, column]; zeros for one that failed. ``failures`` tells of those, by their rows in the batch.
    """

    first: int
    data: NDArray[Any]
    failures: tuple[Failure, ...]

    @property
    def is_whole(self) -> NDArray[np.bool_]:
        """Which candidates [B] were simulated."""
        whole = np.ones(len(self.data), dtype=np.bool_)
        whole[[failure.row for failure in self.failures]] = False
        return whole
