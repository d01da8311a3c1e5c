"""geometric(p): failures before the first success, x = 0, 1, 2, .."""

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
from dp_dask.core.priors import Beta

__all__ = ["plugin"]

Floats = NDArray[np.float64]
LARGEST = 1 - 2.0**-53


@dataclass(frozen=True, slots=True)
class Geometric:
    """P(x = k) = p (1 - p)^k."""

    parameters: ClassVar[tuple[str, ...]] = ("p",)
    spacing: ClassVar[Spacing | None] = None
    is_integer: ClassVar[bool] = True
    support: ClassVar[tuple[float, float]] = (0, math.inf)
    natural_bounds: ClassVar[Bounds | None] = None
    prior_type: ClassVar[type[Beta]] = Beta
    domains: ClassVar[tuple[Domain, ...]] = ("probability",)

    def cdf(self, x: Floats | float, theta: Floats) -> Floats:
        """1 - (1 - p)^(floor(x) + 1)."""
        return -np.expm1(np.maximum(np.floor(x) + 1, 0) * _log_q(theta))

    def sf(self, x: Floats | float, theta: Floats) -> Floats:
        """(1 - p)^(floor(x) + 1)."""
        return np.exp(np.maximum(np.floor(x) + 1, 0) * _log_q(theta))

    def statistic(self, x: Floats) -> Floats:
        """Return x itself."""
        return x

    def partial_moments(self, theta: Floats, lower: float, upper: float, about: float, order: int = 2) -> PartialMoments:
        """Memoryless, with factorial moments E[(y)_k; y <= R] = k! (q / p)^k I_p(k + 1, R - k + 1), I incomplete beta."""
        a = math.ceil(max(lower, 0.0))
        r = math.floor(upper) - a if math.isfinite(upper) else math.inf
        if r < 0:
            return PartialMoments([np.zeros_like(theta)] * (order + 1))

        def inside(k: int) -> Any:
            if r < k:
                return 0.0
            return special.betainc(k + 1, r - k + 1, theta) if math.isfinite(r) else 1.0

        odds = (1 - theta) / theta
        factorial = []
        for k in range(order + 1):
            moment = np.exp(a * _log_q(theta)) * inside(k)
            for j in range(k):  # one factor at a time: odds^k may overflow
                moment = moment * (j + 1) * odds
            factorial.append(moment)
        return from_factorial(factorial).shifted(a - about)

    def update(self, prior: Beta, n: Any, total: Any) -> tuple[Any, Any]:
        """Beta(alpha + n, beta + S)."""
        return prior.alpha + n, prior.beta + total

    def draw(self, hyper: tuple[Any, Any], rng: np.random.Generator) -> Floats:
        """Draw from the beta distribution."""
        return np.asarray(rng.beta(*hyper))

    def simulate(self, theta: Floats | float, n: int, rng: np.random.Generator) -> Floats:
        """n independent counts, by inversion so that no small p overflows an integer."""
        return np.floor(-rng.standard_exponential(n) / _log_q(theta))


def _log_q(theta: Any) -> Any:
    """Return log(1 - p); a p that float64 rounds to 1 counts as the number before it."""
    return np.log1p(-np.minimum(theta, LARGEST))


plugin = Geometric
