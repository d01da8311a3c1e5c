"""gamma_shape_rate(shape, rate): positive amounts with unknown shape and rate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dp_dask.core.bounds import Bounds
from dp_dask.core.cells import Spacing
from dp_dask.core.joint_priors import Independent
from dp_dask.core.prior_kinds import Domain

__all__ = ["plugin"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class GammaShapeRate:
    """Density proportional to x^(shape - 1) exp(-rate x); statistic (log x, x), each mapped by the bounds to [-1, 1]."""

    parameters: ClassVar[tuple[str, ...]] = ("shape", "rate")
    domains: ClassVar[tuple[Domain, ...]] = ("positive", "positive")
    spacing: ClassVar[Spacing] = "octave"
    is_integer: ClassVar[bool] = False
    support: ClassVar[tuple[float, float]] = (0, math.inf)
    natural_bounds: ClassVar[Bounds | None] = None
    has_slow_cdf: ClassVar[bool] = True
    prior_type: ClassVar[type[Independent]] = Independent

    def cdf(self, x: Floats, shape: Floats, rate: Floats) -> Floats:
        """The regularised incomplete gamma function."""
        return special.gammainc(shape, rate * np.maximum(x, 0))

    def sf(self, x: Floats, shape: Floats, rate: Floats) -> Floats:
        """Its complement."""
        return special.gammaincc(shape, rate * np.maximum(x, 0))

    def log_density(self, x: Floats, shape: Floats, rate: Floats) -> Floats:
        """The gamma log density."""
        return shape * np.log(rate) - special.gammaln(shape) + (shape - 1) * np.log(x) - rate * x

    def features(self, x: Floats, bounds: Bounds) -> Floats:
        """Return log x and x, each mapped by its bounds to [-1, 1]."""
        low, high = math.log(bounds.lower), math.log(bounds.upper)
        log_x = (np.log(x) - (low + high) / 2) / ((high - low) / 2)
        return np.stack([log_x, (x - (bounds.lower + bounds.upper) / 2) / (bounds.width / 2)])

    def simulate(self, theta: tuple[Floats, ...], size: tuple[int, ...], rng: np.random.Generator) -> Floats:
        """Independent amounts; what underflows is the smallest positive number."""
        shape, rate = theta
        return np.maximum(rng.standard_gamma(shape, size) / rate, 5e-324)


plugin = GammaShapeRate
