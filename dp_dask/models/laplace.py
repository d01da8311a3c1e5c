"""laplace(rate; location known): two-sided errors, density rate / 2 exp(-rate |x - location|)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.cells import Spacing
from dp_dask.core.moments import PartialMoments
from dp_dask.families import GammaFamily

__all__ = ["plugin"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Laplace(GammaFamily):
    """Laplace with unknown rate, the inverse of its scale; the location is known, and |x - location| is exponential."""

    location: float

    spacing: ClassVar[Spacing | None] = "even"
    support: ClassVar[tuple[float, float]] = (-math.inf, math.inf)

    def __post_init__(self) -> None:
        if not math.isfinite(self.location):
            msg = f"location is {self.location}; it must be a finite number"
            raise ValueError(msg)

    @property
    def law_shape(self) -> float:
        """|x - location| is exponential."""
        return 1.0

    def statistic(self, x: Floats) -> Floats:
        """Return |x - location|."""
        return np.abs(x - self.location)

    def record(self, t: Floats) -> Floats:
        """Return the upper of the two x of a t."""
        return self.location + t

    def cdf(self, x: Floats | float, theta: Floats) -> Floats:
        """exp(rate (x - location)) / 2 below the location."""
        return self._lower_tail(np.asarray(x, dtype=np.float64) - self.location, theta)

    def sf(self, x: Floats | float, theta: Floats) -> Floats:
        """exp(-rate (x - location)) / 2 above the location."""
        return self._lower_tail(self.location - np.asarray(x, dtype=np.float64), theta)

    def _lower_tail(self, distance: Floats, theta: Floats) -> Floats:
        tail = np.exp(-theta * np.abs(distance)) / 2
        return np.where(distance <= 0, tail, 1 - tail)

    def partial_moments(self, theta: Floats, lower: float, upper: float, about: float, order: int = 2) -> PartialMoments:
        """Half of the exponential's moments over each side's share of the interval."""
        low, high = lower - self.location, upper - self.location
        sides = [
            GammaFamily.partial_moments(self, theta, self.location + max(a, 0.0), self.location + b, about, order)
            for a, b in ((low, high), (-high, -low))
            if b > 0
        ]
        return PartialMoments(sum(parts, np.zeros_like(theta)) / 2 for parts in zip(*sides, strict=True))

    def simulate(self, theta: Floats | float, n: int, rng: np.random.Generator) -> Floats:
        """n independent errors around the location."""
        return rng.laplace(self.location, 1 / theta, n)


plugin = Laplace
