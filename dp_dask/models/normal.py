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
from dp_dask.core.priors import Normal as NormalPrior

__all__ = ["plugin"]

Floats = NDArray[np.float64]


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

    def partial_moments(self, theta: Floats, lower: float, upper: float, about: float) -> PartialMoments:
        """With z = (x - mu) / sigma: Phi, E[z] = phi(a) - phi(b), E[z^2] = Phi + a phi(a) - b phi(b)."""
        a, b = (lower - theta) / self.sigma, (upper - theta) / self.sigma
        near = np.where(a > 0, special.ndtr(-a) - special.ndtr(-b), special.ndtr(b) - special.ndtr(a))
        phi_a, phi_b = _density(a), _density(b)
        first = self.sigma * (phi_a - phi_b)
        second = self.sigma**2 * (near + _product(a, phi_a) - _product(b, phi_b))
        return PartialMoments(near, first, second).shifted(theta - about)

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


def _product(z: Floats, density: Floats) -> Floats:
    """Return z phi(z), 0 at infinity."""
    return np.where(np.isfinite(z), z, 0.0) * density


plugin = Normal
