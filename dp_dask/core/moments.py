"""PartialMoments: the moments of a statistic over a part of its records."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["PartialMoments", "from_factorial"]

Floats = NDArray[np.float64]


class PartialMoments(tuple[Any, ...]):
    """E[(x - c)^k; x in [a, b]] for k = 0, 1, .. up to an order, each with theta's shape."""

    __slots__ = ()

    @property
    def first(self) -> Floats:
        """E[x - c; x in [a, b]]."""
        return np.asarray(self[1])

    @property
    def second(self) -> Floats:
        """E[(x - c)^2; x in [a, b]]."""
        return np.asarray(self[2])

    def shifted(self, distance: float | Floats) -> PartialMoments:
        """Return the same moments about a point ``distance`` below."""
        orders = range(len(self))
        return PartialMoments(sum(math.comb(k, j) * distance ** (k - j) * self[j] for j in range(k + 1)) for k in orders)


def from_factorial(factorial: Sequence[Any]) -> PartialMoments:
    """Return moments about 0 from E[(x)_k; x in [a, b]], k = 0, 1, .., by the Stirling numbers of the second kind."""
    moments, stirling = [], [1]
    for k in range(len(factorial)):
        moments.append(sum(s * f for s, f in zip(stirling, factorial[: k + 1], strict=True)))
        stirling = [j * s + before for j, (s, before) in enumerate(zip([*stirling, 0], [0, *stirling], strict=True))]
    return PartialMoments(moments)
