"""poisson(rate): counts, P(x = k) = exp(-rate) rate^k / k!."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dp_dask.core.bounds import Bounds
from dp_dask.core.cells import Spacing
from dp_dask.core.moments import PartialMoments, from_factorial
from dp_dask.core.prior_kinds import Domain
from dp_dask.core.priors import Gamma
from dp_dask.families import LARGEST_MEAN

__all__ = ["plugin"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Poisson:
    """Counts with mean and variance ``rate``."""

    parameters: ClassVar[tuple[str, ...]] = ("rate",)
    spacing: ClassVar[Spacing | None] = None
    is_integer: ClassVar[bool] = True
    support: ClassVar[tuple[float, float]] = (0, math.inf)
    natural_bounds: ClassVar[Bounds | None] = None
    prior_type: ClassVar[type[Gamma]] = Gamma
    domains: ClassVar[tuple[Domain, ...]] = ("positive",)

    def cdf(self, x: Floats | float, theta: Floats) -> Floats:
        """Q(floor(x) + 1, rate), the upper incomplete gamma ratio."""
        k = np.floor(x)
        return np.where(k < 0, 0.0, special.gammaincc(np.maximum(k, 0) + 1, theta))

    def sf(self, x: Floats | float, theta: Floats) -> Floats:
        """P(floor(x) + 1, rate), the lower incomplete gamma ratio."""
        k = np.floor(x)
        return np.where(k < 0, 1.0, special.gammainc(np.maximum(k, 0) + 1, theta))

    def _between(self, theta: Floats, a: float, b: float) -> Floats:
        """P(a <= x <= b), subtracting in the tail where both terms are small."""
        up_to = self.cdf(b, theta)
        if a <= 0:
            return up_to
        return np.where(up_to < 0.5, up_to - self.cdf(a - 1, theta), self.sf(a - 1, theta) - self.sf(b, theta))  # noqa: PLR2004

    def statistic(self, x: Floats) -> Floats:
        """Return x itself."""
        return x

    def partial_moments(self, theta: Floats, lower: float, upper: float, about: float, order: int = 2) -> PartialMoments:
        """Factorial moments: E[(x)_k; a <= x <= b] = rate^k P(a - k <= x <= b - k), stepped in k by two probabilities."""
        a = math.ceil(max(lower, 0.0))
        b = math.floor(upper) if math.isfinite(upper) else math.inf
        if b < a:
            return PartialMoments([np.zeros_like(theta)] * (order + 1))
        inside, factorial = self._between(theta, a, b), []
        for k in range(order + 1):
            moment = np.maximum(inside, 0)
            for _ in range(k):  # one factor at a time: theta^k may overflow
                moment = moment * theta
            factorial.append(moment)
            inside = inside + _pmf(a - k - 1, theta) - _pmf(b - k, theta)
        return from_factorial(factorial).shifted(-about)

    def update(self, prior: Gamma, n: Any, total: Any) -> tuple[Any, Any]:
        """Gamma(alpha + S, beta + n)."""
        return prior.alpha + total, prior.beta + n

    def draw(self, hyper: tuple[Any, Any], rng: np.random.Generator) -> Floats:
        """Draw from the gamma distribution."""
        shape, rate = hyper
        return np.asarray(rng.gamma(shape, 1 / rate))

    def simulate(self, theta: Floats | float, n: int, rng: np.random.Generator) -> Floats:
        """n independent counts."""
        return rng.poisson(np.minimum(theta, LARGEST_MEAN), n).astype(np.float64)


def _pmf(k: float, theta: Floats) -> Any:
    """P(x = k); 0 below 0 and at infinity."""
    if not 0 <= k < math.inf:
        return 0.0
    return np.exp(k * np.log(theta) - theta - math.lgamma(k + 1))


plugin = Poisson
