"""beta(alpha, beta): shares between 0 and 1 with both shapes unknown."""

from __future__ import annotations

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
class Beta:
    """Density proportional to x^(alpha - 1) (1 - x)^(beta - 1); statistic (log x, log(1 - x)), mapped to [-1, 1]."""

    parameters: ClassVar[tuple[str, ...]] = ("alpha", "beta")
    domains: ClassVar[tuple[Domain, ...]] = ("positive", "positive")
    spacing: ClassVar[Spacing] = "even"
    is_integer: ClassVar[bool] = False
    support: ClassVar[tuple[float, float]] = (0, 1)
    natural_bounds: ClassVar[Bounds | None] = None
    has_slow_cdf: ClassVar[bool] = True
    prior_type: ClassVar[type[Independent]] = Independent

    def cdf(self, x: Floats, alpha: Floats, beta: Floats) -> Floats:
        """The regularised incomplete beta function."""
        return special.betainc(alpha, beta, np.clip(x, 0, 1))

    def sf(self, x: Floats, alpha: Floats, beta: Floats) -> Floats:
        """Its complement."""
        return special.betainc(beta, alpha, 1 - np.clip(x, 0, 1))

    def log_density(self, x: Floats, alpha: Floats, beta: Floats) -> Floats:
        """The beta log density."""
        return (alpha - 1) * np.log(x) + (beta - 1) * np.log1p(-x) - special.betaln(alpha, beta)

    def features(self, x: Floats, bounds: Bounds) -> Floats:
        """Return log x and log(1 - x), each mapped by its bounds to [-1, 1]; the bounds must lie inside (0, 1)."""
        if not 0 < bounds.lower < bounds.upper < 1:
            msg = f"[{bounds.lower:g}, {bounds.upper:g}]: log(x) and log(1 - x) need bounds inside (0, 1), such as [0.01, 0.99]"
            raise ValueError(msg)
        return np.stack([_scaled(np.log(x)), _scaled(np.log1p(-x))])

    def simulate(self, theta: tuple[Floats, ...], size: tuple[int, ...], rng: np.random.Generator) -> Floats:
        """Independent shares."""
        alpha, beta = theta
        return rng.beta(np.broadcast_to(alpha, size), np.broadcast_to(beta, size))


def _scaled(t: Floats) -> Floats:
    """Map a monotone coordinate over the cells, whose ends are the bounds, to [-1, 1]."""
    low, high = np.min(t), np.max(t)
    return (t - (low + high) / 2) / ((high - low) / 2)


plugin = Beta
