"""negative_binomial(p; r known): failures before the r-th success."""

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
from dp_dask.families import LARGEST_MEAN, check_positive

__all__ = ["plugin"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class NegativeBinomial:
    """P(x) = C(x + r - 1, x) p^r (1 - p)^x, x = 0, 1, ..; ``r`` is known and need not be whole."""

    r: float

    parameters: ClassVar[tuple[str, ...]] = ("p",)
    spacing: ClassVar[Spacing | None] = None
    is_integer: ClassVar[bool] = True
    support: ClassVar[tuple[float, float]] = (0, math.inf)
    natural_bounds: ClassVar[Bounds | None] = None
    prior_type: ClassVar[type[Beta]] = Beta
    domains: ClassVar[tuple[Domain, ...]] = ("probability",)

    def __post_init__(self) -> None:
        check_positive("r", self.r, "the number of successes that are waited for")

    def cdf(self, x: Floats | float, theta: Floats) -> Floats:
        """The regularised incomplete beta function I_p(r, x + 1)."""
        k = np.floor(x)
        return np.where(k < 0, 0.0, special.betainc(self.r, np.maximum(k, 0) + 1, theta))

    def sf(self, x: Floats | float, theta: Floats) -> Floats:
        """I_(1 - p)(x + 1, r)."""
        k = np.floor(x)
        return np.where(k < 0, 1.0, special.betainc(np.maximum(k, 0) + 1, self.r, 1 - theta))

    def statistic(self, x: Floats) -> Floats:
        """Return x itself."""
        return x

    def partial_moments(self, theta: Floats, lower: float, upper: float, about: float, order: int = 2) -> PartialMoments:
        """E[x (x - 1) .. (x - k + 1); .] is r (r + 1) .. (r + k - 1) (q / p)^k P(x' in .), x' with r + k, shifted by k."""
        a, b = math.ceil(max(lower, 0)), upper if math.isinf(upper) else math.floor(upper)
        factorial = []
        for k in range(order + 1):
            other = NegativeBinomial(self.r + k)
            below = other.cdf(b - k, theta) - other.cdf(a - k - 1, theta)
            above = other.sf(a - k - 1, theta) - other.sf(b - k, theta)
            moment = np.maximum(np.where(other.cdf(b - k, theta) < 0.5, below, above), 0)  # noqa: PLR2004
            for j in range(k):  # one factor at a time: (q / p)^k may overflow
                moment = moment * (self.r + j) * ((1 - theta) / theta)
            factorial.append(moment)
        return from_factorial(factorial).shifted(-about)

    def update(self, prior: Beta, n: Any, total: Any) -> tuple[Any, Any]:
        """Beta(alpha + n r, beta + S)."""
        return prior.alpha + n * self.r, prior.beta + total

    def draw(self, hyper: tuple[Any, Any], rng: np.random.Generator) -> Floats:
        """Draw from the beta distribution."""
        return np.asarray(rng.beta(*hyper))

    def simulate(self, theta: Floats | float, n: int, rng: np.random.Generator) -> Floats:
        """n independent counts, as a gamma mixture of Poisson ones: numpy's own sampler refuses a small p."""
        with np.errstate(divide="ignore"):
            means = rng.gamma(self.r, (1 - np.asarray(theta)) / theta, n)
        return rng.poisson(np.minimum(means, LARGEST_MEAN)).astype(np.float64)


plugin = NegativeBinomial
