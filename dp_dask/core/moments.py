"""PartialMoments: the moments of a statistic over a part of its records."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["PartialMoments"]

Floats = NDArray[np.float64]


class PartialMoments(NamedTuple):
    """P(x in [a, b]), E[x - c; x in [a, b]] and E[(x - c)^2; x in [a, b]], each with theta's shape."""

    probability: Floats
    first: Floats
    second: Floats

    def shifted(self, distance: float | Floats) -> PartialMoments:
        """Return the same moments about a point ``distance`` below."""
        p, m1, m2 = self
        return PartialMoments(p, m1 + distance * p, m2 + distance * (2 * m1 + distance * p))
