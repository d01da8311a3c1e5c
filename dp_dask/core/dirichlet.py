"""The Dirichlet prior, and draws that stay right for tiny concentrations."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dp_dask.errors import InferenceError

__all__ = ["Dirichlet", "dirichlet"]

Floats = NDArray[np.float64]
SMALLEST = 1e-300


def dirichlet(rng: np.random.Generator, alpha: Floats) -> Floats:
    """Draw probabilities [..., K], independently for each alpha [..., K]; the last axis adds up to 1.

    Gamma variables are drawn in logs: where alpha < 1, Gamma(alpha) = Gamma(alpha + 1) U^(1 / alpha) (Marsaglia & Tsang 2000,
    section 6), which could underflow to 0 in every cell at once. Raises InferenceError unless every alpha is in [1e-300, inf).
    """
    if not (np.isfinite(alpha).all() and (alpha >= SMALLEST).all()):
        msg = f"alpha from {alpha.min():g} to {alpha.max():g}: every one must be finite and at least {SMALLEST:g}"
        raise InferenceError(msg)
    is_small = alpha < 1
    log_gamma = np.log(rng.standard_gamma(alpha + is_small))
    log_gamma[is_small] -= rng.standard_exponential(int(is_small.sum())) / alpha[is_small]
    log_gamma -= log_gamma.max(axis=-1, keepdims=True)
    p = np.exp(log_gamma, out=log_gamma)
    p /= p.sum(axis=-1, keepdims=True)
    return p


@dataclass(frozen=True, slots=True)
class Dirichlet:
    """Dirichlet(alpha) on the probabilities of K categories."""

    alpha: tuple[float, ...]

    def __post_init__(self) -> None:
        if not all(math.isfinite(value) and value > 0 for value in self.alpha):
            msg = (
                "alpha must be positive finite numbers, one for each category or one for all (an improper prior is not supported)"
            )
            raise ValueError(msg)

    @property
    def mean(self) -> Floats:
        """alpha / its sum."""
        alpha = np.array(self.alpha)
        return alpha / alpha.sum()

    @property
    def sd(self) -> Floats:
        """The standard deviation of each probability."""
        return np.sqrt(self.mean * (1 - self.mean) / (1 + sum(self.alpha)))

    def rvs(self, rng: np.random.Generator, size: int) -> Floats:
        """Draw probabilities [size, K]."""
        return dirichlet(rng, np.broadcast_to(np.array(self.alpha), (size, len(self.alpha))))

    def parameter(self, v: Floats) -> Floats:
        """Map log ratios to the last category, v [k, K - 1], to probabilities [k, K]."""
        return np.exp(self._log_probabilities(v))

    def coordinate(self, theta: Floats) -> Floats:
        """Map probabilities [k, K] to log ratios to the last category [k, K - 1]."""
        log_p = np.log(np.maximum(theta, SMALLEST))
        return log_p[:, :-1] - log_p[:, -1:]

    def log_density(self, v: Floats) -> Floats:
        """Log density [k] of the log ratios, normalised: the slope of the map is the product of all K probabilities."""
        alpha = np.array(self.alpha)
        norm = float(special.gammaln(alpha.sum()) - special.gammaln(alpha).sum())
        return self._log_probabilities(v) @ alpha + norm

    @staticmethod
    def _log_probabilities(v: Floats) -> Floats:
        return special.log_softmax(np.append(v, np.zeros((len(v), 1)), axis=1), axis=1)
