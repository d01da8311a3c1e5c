"""GammaFamily: what the families whose statistic t(x) is gamma-distributed have in common.

If t(x) ~ Gamma(shape, rate) with a known shape, the sum over n records is Gamma(n shape, rate), and a gamma prior on the
rate is conjugate. A family adds its statistic, the statistic's inverse and its support.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dp_dask.core.bounds import Bounds
from dp_dask.core.cells import Spacing
from dp_dask.core.moments import PartialMoments
from dp_dask.core.prior_kinds import Domain
from dp_dask.core.priors import Gamma

__all__ = ["LARGEST_MEAN", "GammaFamily", "check_positive"]

Floats = NDArray[np.float64]
LARGEST_MEAN = 1e15  # of a simulated count: numpy's Poisson sampler ends near 2^63


def check_positive(name: str, value: float, meaning: str) -> None:
    """Raise ValueError unless a known parameter is a positive finite number."""
    if not (np.isfinite(value) and value > 0):
        msg = f"{name} is {value}; it must be {meaning}, a positive finite number"
        raise ValueError(msg)


class GammaFamily(ABC):
    """One-parameter family with t(x) ~ Gamma(law_shape, rate), t monotone on the support."""

    __slots__ = ()

    parameters: ClassVar[tuple[str, ...]] = ("rate",)
    spacing: ClassVar[Spacing | None]
    is_integer: ClassVar[bool] = False
    support: ClassVar[tuple[float, float]] = (0, np.inf)
    natural_bounds: ClassVar[Bounds | None] = None
    prior_type: ClassVar[type[Gamma]] = Gamma
    domains: ClassVar[tuple[Domain, ...]] = ("positive",)
    is_increasing: ClassVar[bool] = True

    @property
    @abstractmethod
    def law_shape(self) -> float:
        """The known shape of t's gamma law."""

    @abstractmethod
    def statistic(self, x: Floats) -> Floats:
        """Return t(x)."""

    @abstractmethod
    def record(self, t: Floats) -> Floats:
        """Return the x of a t."""

    def cdf(self, x: Floats | float, theta: Floats) -> Floats:
        """P(t <= t(x)), or P(t >= t(x)) where t falls."""
        z = self._scaled(x, theta)
        return _below(self.law_shape, z) if self.is_increasing else _above(self.law_shape, z)

    def sf(self, x: Floats | float, theta: Floats) -> Floats:
        """P(t > t(x)), or P(t < t(x)) where t falls."""
        z = self._scaled(x, theta)
        return _above(self.law_shape, z) if self.is_increasing else _below(self.law_shape, z)

    def _scaled(self, x: Floats | float, theta: Floats) -> Floats:
        with np.errstate(divide="ignore"):
            t = self.statistic(np.maximum(np.asarray(x, dtype=np.float64), self.support[0]))
        return theta * np.maximum(t, 0)

    def partial_moments(self, theta: Floats, lower: float, upper: float, about: float, order: int = 2) -> PartialMoments:
        """E[t^k; a <= t <= b] = Gamma(s + k) / Gamma(s) / rate^k (P(s + k, rate b) - P(s + k, rate a)), s the shape."""
        with np.errstate(divide="ignore"):
            ends = self.statistic(np.array([max(lower, self.support[0]), max(upper, self.support[0])]))
        a, b = (theta * max(float(t), 0.0) for t in (ends if self.is_increasing else ends[::-1]))
        moments = []
        for k in range(order + 1):
            shape = self.law_shape + k
            # In the tail where both terms are small.
            below = special.gammainc(shape, b) - special.gammainc(shape, a)
            above = special.gammaincc(shape, a) - special.gammaincc(shape, b)
            moment = np.where(a < shape, below, above)
            for j in range(k):  # one factor at a time: rate^k may underflow
                moment = moment * (self.law_shape + j) / theta
            moments.append(moment)
        return PartialMoments(moments).shifted(-about)

    def update(self, prior: Gamma, n: Any, total: Any) -> tuple[Any, Any]:
        """Gamma(alpha + n shape, beta + S)."""
        return prior.alpha + n * self.law_shape, prior.beta + total

    def draw(self, hyper: tuple[Any, Any], rng: np.random.Generator) -> Floats:
        """Draw from the gamma distribution."""
        shape, rate = hyper
        return np.asarray(rng.gamma(shape, 1 / rate))

    def simulate(self, theta: Floats | float, n: int, rng: np.random.Generator) -> Floats:
        """n independent records."""
        return self.record(rng.gamma(self.law_shape, 1 / theta, n))


def _below(shape: float, z: Floats) -> Floats:
    """The regularised incomplete gamma function; of shapes 1 and 1/2 by functions that are ten times as fast."""
    if shape == 1:
        return -np.expm1(-z)
    return special.erf(np.sqrt(z)) if shape == 0.5 else special.gammainc(shape, z)  # noqa: PLR2004


def _above(shape: float, z: Floats) -> Floats:
    """Its complement."""
    if shape == 1:
        return np.exp(-z)
    return special.erfc(np.sqrt(z)) if shape == 0.5 else special.gammaincc(shape, z)  # noqa: PLR2004
