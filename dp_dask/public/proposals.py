"""Proposals of importance sampling: multivariate t distributions, and the effective number of weighted draws."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, special

__all__ = ["Normal", "StudentT", "Weighted", "effective_size", "fit", "moments", "normalised"]

Floats = NDArray[np.float64]
DEGREES = 5.0
RIDGE = 1e-9  # of each variance, so that a covariance of few draws has a root


@dataclass(frozen=True, slots=True)
class Normal:
    """A normal law of centre [q] and covariance root root' [q, q], root lower triangular."""

    centre: Floats
    root: Floats

    @classmethod
    def of(cls, centre: Floats, covariance: Floats) -> Normal:
        """Make it from a covariance matrix, with a ridge of 1e-9."""
        ridge = RIDGE * np.maximum(np.diag(covariance), 1e-300)
        return cls(centre, np.asarray(np.linalg.cholesky(covariance + np.diag(ridge)), dtype=np.float64))

    def whiten(self, w: Floats) -> Floats:
        """Return u [k, q] with w = centre + root u."""
        return np.asarray(linalg.solve_triangular(self.root, (w - self.centre).T, lower=True).T)

    def draw(self, rng: np.random.Generator, size: int) -> Floats:
        """Draw [size, q]."""
        return self.centre + rng.standard_normal((size, len(self.centre))) @ self.root.T

    def log_density(self, w: Floats) -> Floats:
        """Return the log density [k]."""
        squares = (self.whiten(w) ** 2).sum(axis=1)
        return -0.5 * squares - np.log(np.diag(self.root)).sum() - 0.5 * len(self.centre) * math.log(2 * math.pi)


@dataclass(frozen=True, slots=True)
class StudentT(Normal):
    """A multivariate t law with 5 degrees of freedom and the scale matrix root root'."""

    def draw(self, rng: np.random.Generator, size: int) -> Floats:
        """Draw [size, q]."""
        normal = rng.standard_normal((size, len(self.centre))) @ self.root.T
        return self.centre + normal / np.sqrt(rng.chisquare(DEGREES, size) / DEGREES)[:, None]

    def log_density(self, w: Floats) -> Floats:
        """Return the log density [k]."""
        q = len(self.centre)
        norm = special.gammaln((DEGREES + q) / 2) - special.gammaln(DEGREES / 2) - 0.5 * q * math.log(DEGREES * math.pi)
        squares = (self.whiten(w) ** 2).sum(axis=1)
        return np.asarray(norm - np.log(np.diag(self.root)).sum() - (DEGREES + q) / 2 * np.log1p(squares / DEGREES))


def normalised(log_weight: Floats) -> Floats:
    """Return weights [k] that add up to 1; at least one log weight must be finite."""
    weight = np.exp(log_weight - log_weight.max())
    return np.asarray(weight / weight.sum())


def effective_size(log_weight: Floats) -> float:
    """Return (sum w)^2 / sum w^2, 0 where no weight is left."""
    if not np.isfinite(log_weight.max(initial=-np.inf)):
        return 0.0
    return float(1 / (normalised(log_weight) ** 2).sum())


def moments(w: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """Return the mean [q] and the covariance [q, q] of weighted draws."""
    mean = weight @ w
    d = w - mean
    return mean, (weight[:, None] * d).T @ d


def fit(w: Floats, log_weight: Floats, inflation: float) -> StudentT:
    """Return the t law around the weighted mean, with ``inflation`` times the weighted covariance."""
    mean, covariance = moments(w, normalised(log_weight))
    root = Normal.of(mean, inflation * covariance).root
    return StudentT(mean, root)


@dataclass(frozen=True, slots=True)
class Weighted:
    """Unknowns [k, q] with log weights [k]."""

    w: Floats
    log_weight: Floats

    @property
    def size(self) -> float:
        """The effective number of draws."""
        return effective_size(self.log_weight)

    def moments(self) -> tuple[Floats, Floats]:
        """Return mean [q] and covariance [q, q]."""
        return moments(self.w, normalised(self.log_weight))

    def draw(self, rng: np.random.Generator, size: int) -> Floats:
        """Draw [size, q] by the weights."""
        return self.w[rng.choice(len(self.w), size, p=normalised(self.log_weight))]
