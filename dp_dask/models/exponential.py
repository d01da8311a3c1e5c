"""exponential(rate): waiting times, density rate exp(-rate x) for x >= 0."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dp_dask.core.bounds import Bounds
from dp_dask.core.cells import Spacing
from dp_dask.core.moments import PartialMoments
from dp_dask.core.prior_kinds import Domain
from dp_dask.core.priors import Gamma

__all__ = ["plugin"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Exponential:
    """P(x > t) = exp(-rate t)."""

    parameters: ClassVar[tuple[str, ...]] = ("rate",)
    spacing: ClassVar[Spacing | None] = None
    is_integer: ClassVar[bool] = False
    support: ClassVar[tuple[float, float]] = (0, math.inf)
    natural_bounds: ClassVar[Bounds | None] = None
    prior_type: ClassVar[type[Gamma]] = Gamma
    domains: ClassVar[tuple[Domain, ...]] = ("positive",)

    def cdf(self, x: Floats | float, theta: Floats) -> Floats:
        """1 - exp(-rate x)."""
        return -np.expm1(-theta * np.maximum(x, 0))

    def sf(self, x: Floats | float, theta: Floats) -> Floats:
        """exp(-rate x)."""
        return np.exp(-theta * np.maximum(x, 0))

    def statistic(self, x: Floats) -> Floats:
        """Return x itself."""
        return x

    def partial_moments(self, theta: Floats, lower: float, upper: float, about: float, order: int = 2) -> PartialMoments:
        """Memoryless: E[(x - a)^k; a <= x <= b] = exp(-rate a) k! / rate^k P(k + 1, rate (b - a)), P incomplete gamma."""
        a = max(lower, 0.0)
        if upper < a:
            return PartialMoments([np.zeros_like(theta)] * (order + 1))
        z = theta * (upper - a)
        moments = []
        for k in range(order + 1):
            moment = np.exp(-theta * a) * special.gammainc(k + 1, z)
            for j in range(k):  # one factor at a time: theta^k may underflow
                moment = moment * (j + 1) / theta
            moments.append(moment)
        return PartialMoments(moments).shifted(a - about)

    def update(self, prior: Gamma, n: Any, total: Any) -> tuple[Any, Any]:
        """Gamma(alpha + n, beta + S)."""
        return prior.alpha + n, prior.beta + total

    def draw(self, hyper: tuple[Any, Any], rng: np.random.Generator) -> Floats:
        """Draw from the gamma distribution."""
        shape, rate = hyper
        return np.asarray(rng.gamma(shape, 1 / rate))

    def simulate(self, theta: Floats | float, n: int, rng: np.random.Generator) -> Floats:
        """n independent waiting times."""
        return rng.exponential(1 / theta, n)


plugin = Exponential
