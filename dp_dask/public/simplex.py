"""The nearest counts that n records can have: Euclidean projection onto a scaled simplex."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["nearest_counts"]

Floats = NDArray[np.float64]


def nearest_counts(y: NDArray[Any], n: int) -> Floats:
    """Return the vectors [..., K] nearest to y [..., K] whose entries are not negative and add up to n.

    The projection is max(y - shift, 0), the shift found from the sorted entries (Duchi et al. 2008, figure 1).
    """
    falling = -np.sort(-y.astype(np.float64), axis=-1)
    size = np.arange(1, y.shape[-1] + 1)
    shifts = (falling.cumsum(axis=-1) - n) / size
    kept = np.maximum((falling > shifts).sum(axis=-1, keepdims=True), 1)
    return np.maximum(y - np.take_along_axis(shifts, kept - 1, axis=-1), 0)
