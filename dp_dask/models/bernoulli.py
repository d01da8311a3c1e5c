"""bernoulli(p): records are 0 or 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.bounds import Bounds
from dp_dask.core.cells import Spacing
from dp_dask.core.moments import PartialMoments
from dp_dask.core.prior_kinds import Domain
from dp_dask.core.priors import Beta

__all__ = ["plugin"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Bernoulli:
    """P(x = 1) = p."""

    parameters: ClassVar[tuple[str, ...]] = ("p",)
    spacing: ClassVar[Spacing | None] = None
    is_integer: ClassVar[bool] = True
    support: ClassVar[tuple[float, float]] = (0, 1)
    natural_bounds: ClassVar[Bounds | None] = Bounds(0, 1)
    prior_type: ClassVar[type[Beta]] = Beta
    domains: ClassVar[tuple[Domain, ...]] = ("probability",)

    def cdf(self, x: Floats | float, theta: Floats) -> Floats:
        """0 below 0, 1 - p below 1, else 1."""
        return np.where(x < 0, 0.0, np.where(x < 1, 1 - theta, 1.0))

    def sf(self, x: Floats | float, theta: Floats) -> Floats:
        """1 below 0, p below 1, else 0."""
        return np.where(x < 0, 1.0, np.where(x < 1, theta, 0.0))

    def statistic(self, x: Floats) -> Floats:
        """Return x itself."""
        return x

    def partial_moments(self, theta: Floats, lower: float, upper: float, about: float, order: int = 2) -> PartialMoments:
        """Two terms."""
        zero = (1 - theta) * (lower <= 0 <= upper)
        one = theta * (lower <= 1 <= upper)
        return PartialMoments([zero + one, *[one] * order]).shifted(-about)

    def update(self, prior: Beta, n: Any, total: Any) -> tuple[Any, Any]:
        """Beta(alpha + S, beta + n - S)."""
        return prior.alpha + total, prior.beta + n - total

    def draw(self, hyper: tuple[Any, Any], rng: np.random.Generator) -> Floats:
        """Draw from the beta distribution."""
        return np.asarray(rng.beta(*hyper))

    def simulate(self, theta: Floats | float, n: int, rng: np.random.Generator) -> Floats:
        """n independent coins."""
        return (rng.random(n) < theta).astype(np.float64)


plugin = Bernoulli
