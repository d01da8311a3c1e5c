"""Normal scores: coordinates in which a prior of any shape is standard normal, for grids that two priors share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import interpolate, special

from dp_dask.core.priors import Prior

__all__ = ["FURTHEST", "NormalScores"]

Floats = NDArray[np.float64]
FURTHEST = 11.0  # scores to either side: 2e-28 of the prior lies beyond
POINTS = 8001


@dataclass(frozen=True)
class NormalScores:
    """z with theta = F^-1(Phi(z)), F the prior's distribution function, to about 1e-6 of z.

    Densities are those of the very map that ``parameter`` makes, so that they are right whatever its accuracy.
    """

    prior: Prior

    def parameter(self, z: Floats) -> Floats:
        """Map z to the parameter; what lies beyond float64 is held at its end."""
        return self.prior.parameter(np.clip(self._coordinate(z), *self.prior.coordinate_range()))

    def scores(self, theta: Floats) -> Floats:
        """Map the parameter to z, what lies beyond the furthest ones or outside the support to those."""
        steps = np.linspace(-FURTHEST, FURTHEST, POINTS)
        low, high = self.prior.parameter(np.array(self.prior.coordinate_range()))
        return np.asarray(np.interp(self.prior.coordinate(np.clip(theta, low, high)), self._coordinate(steps), steps))

    def log_density(self, z: Floats) -> Floats:
        """Log density of z, about that of the standard normal distribution."""
        return self.prior.log_density(self._coordinate(z)) + np.log(self._slope(np.clip(z, *self._ends)))

    def _coordinate(self, z: Floats) -> Floats:
        """Return the prior's own coordinate at z, linear beyond the scores that float64 tells apart."""
        inside = np.clip(z, *self._ends)
        return np.asarray(self._map(inside) + self._slope(inside) * (z - inside))

    @property
    def _ends(self) -> tuple[float, float]:
        return float(self._map.x[0]), float(self._map.x[-1])

    @cached_property
    def _map(self) -> interpolate.PchipInterpolator:
        """Interpolate the prior's own coordinate as a function of z, from the sums of its density on either side."""
        v = np.linspace(*self.prior.coordinate_range(), POINTS)
        density = np.exp(self.prior.log_density(v))
        parts = (density[1:] + density[:-1]) / 2
        below, above = np.cumsum(parts), np.cumsum(parts[::-1])[::-1]
        is_low = below[:-1] < below[-1] / 2
        z = np.where(is_low, special.ndtri(below[:-1] / below[-1]), -special.ndtri(above[1:] / below[-1]))
        kept = np.isfinite(z) & (np.abs(z) <= FURTHEST)
        kept[kept] &= np.diff(z[kept], prepend=-np.inf) > 0
        return interpolate.PchipInterpolator(z[kept], v[1:-1][kept])

    @cached_property
    def _slope(self) -> interpolate.PPoly:
        return self._map.derivative()
