"""normal(mu; sigma known): measurements around an unknown mean."""

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
from dp_dask.core.priors import Normal as NormalPrior

__all__ = ["plugin"]

Floats = NDArray[np.float64]
FARTHEST = 40.0  # standard deviations: beyond, the density is 0 in float64


@dataclass(frozen=True, slots=True)
class Normal:
    """Normal with unknown mean; ``sigma`` is the known standard deviation of a record."""

    sigma: float

    parameters: ClassVar[tuple[str, ...]] = ("mu",)
    spacing: ClassVar[Spacing | None] = None
    is_integer: ClassVar[bool] = False
    support: ClassVar[tuple[float, float]] = (-math.inf, math.inf)
    natural_bounds: ClassVar[Bounds | None] = None
    prior_type: ClassVar[type[NormalPrior]] = NormalPrior
    domains: ClassVar[tuple[Domain, ...]] = ("real",)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.sigma) and self.sigma > 0):
            msg = f"sigma is {self.sigma}; it must be the positive, finite standard deviation of a record"
            raise ValueError(msg)

    def cdf(self, x: Floats | float, theta: Floats) -> Floats:
        """Phi((x - mu) / sigma)."""
        return special.ndtr((x - theta) / self.sigma)

    def sf(self, x: Floats | float, theta: Floats) -> Floats:
        """Phi((mu - x) / sigma)."""
        return special.ndtr((theta - x) / self.sigma)

    def statistic(self, x: Floats) -> Floats:
        """Return x itself."""
        return x

    def partial_moments(self, theta: Floats, lower: float, upper: float, about: float, order: int = 2) -> PartialMoments:
        """With z = (x - mu) / sigma, by parts: E[z^k] = (k - 1) E[z^(k - 2)] + a^(k - 1) phi(a) - b^(k - 1) phi(b)."""
        a = np.clip((lower - theta) / self.sigma, -FARTHEST, FARTHEST)
        b = np.clip((upper - theta) / self.sigma, -FARTHEST, FARTHEST)
        near = np.where(a > 0, special.ndtr(-a) - special.ndtr(-b), special.ndtr(b) - special.ndtr(a))
        phi_a, phi_b = _density(a), _density(b)
        moments = [near]
        for k in range(1, order + 1):
            before = (k - 1) * moments[k - 2] if k > 1 else 0.0
            moments.append(before + a ** (k - 1) * phi_a - b ** (k - 1) * phi_b)
        scaled = PartialMoments(self.sigma**k * moment for k, moment in enumerate(moments))
        return scaled.shifted(theta - about)

    def update(self, prior: NormalPrior, n: Any, total: Any) -> tuple[Any, Any]:
        """Precisions add: 1 / sd^2 = 1 / prior.sigma^2 + n / sigma^2."""
        precision = prior.sigma**-2 + n / self.sigma**2
        mean = (prior.mu * prior.sigma**-2 + total / self.sigma**2) / precision
        return mean, precision**-0.5

    def draw(self, hyper: tuple[Any, Any], rng: np.random.Generator) -> Floats:
        """Draw from the normal distribution."""
        return np.asarray(rng.normal(*hyper))

    def simulate(self, theta: Floats | float, n: int, rng: np.random.Generator) -> Floats:
        """n independent measurements."""
        return rng.normal(theta, self.sigma, n)


def _density(z: Floats) -> Floats:
    return np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)


plugin = Normal
