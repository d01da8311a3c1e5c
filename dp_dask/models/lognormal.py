"""lognormal(mu, sigma): positive amounts whose logarithm is normal, both its mean and its spread unknown."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dp_dask.core.bounds import Bounds
from dp_dask.core.cells import Spacing
from dp_dask.core.joint_priors import NormalInverseGamma
from dp_dask.core.prior_kinds import Domain

__all__ = ["plugin"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Lognormal:
    """log(x) ~ Normal(mu, sigma); statistic (z, z^2) of z, log(x) mapped by the bounds to [-1, 1]."""

    parameters: ClassVar[tuple[str, ...]] = ("mu", "sigma")
    domains: ClassVar[tuple[Domain, ...]] = ("real", "positive")
    spacing: ClassVar[Spacing] = "octave"
    is_integer: ClassVar[bool] = False
    support: ClassVar[tuple[float, float]] = (0, math.inf)
    natural_bounds: ClassVar[Bounds | None] = None
    prior_type: ClassVar[type[NormalInverseGamma]] = NormalInverseGamma

    def cdf(self, x: Floats, mu: Floats, sigma: Floats) -> Floats:
        """Phi((log x - mu) / sigma)."""
        return special.ndtr((_log(x) - mu) / sigma)

    def sf(self, x: Floats, mu: Floats, sigma: Floats) -> Floats:
        """Phi((mu - log x) / sigma)."""
        return special.ndtr((mu - _log(x)) / sigma)

    def log_density(self, x: Floats, mu: Floats, sigma: Floats) -> Floats:
        """The lognormal log density."""
        z = (_log(x) - mu) / sigma
        return -0.5 * z * z - np.log(sigma) - 0.5 * math.log(2 * math.pi) - _log(x)

    def features(self, x: Floats, bounds: Bounds) -> Floats:
        """Return z and z^2, z the logarithm mapped by its bounds to [-1, 1]."""
        low, high = math.log(bounds.lower), math.log(bounds.upper)
        z = (np.log(x) - (low + high) / 2) / ((high - low) / 2)
        return np.stack([z, z * z])

    def statistic(self, x: Floats) -> Floats:
        """Return log(x) and its square, unmapped: what the conjugate update takes."""
        log_x = _log(x)
        return np.stack([log_x, log_x * log_x])

    def update(self, prior: NormalInverseGamma, n: int, total: Floats) -> NormalInverseGamma:
        """Conjugate-Update with the sums of ``statistic`` over n records."""
        return prior.update(n, float(total[0]), float(total[1]))

    def simulate(self, theta: tuple[Floats, ...], size: tuple[int, ...], rng: np.random.Generator) -> Floats:
        """Independent amounts."""
        mu, sigma = theta
        with np.errstate(over="ignore"):
            return np.exp(mu + sigma * rng.standard_normal(size))


def _log(x: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        return np.log(np.maximum(x, 0))


plugin = Lognormal
