"""The density of a normal plus a Laplace variable, and its derivatives, in forms that never overflow or cancel."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import special

__all__ = ["branches", "cdf", "log_density", "tilted"]

Floats = NDArray[np.float64]
ROOT_HALF = math.sqrt(0.5)
FARTHEST = -25.0  # erfcx overflows below -26.6; erfc is 2 there to every digit


def branches(z: Floats, sd: Floats, scale: float) -> tuple[Floats, Floats]:
    """Return the logs of A and B, whose sum is the density at z of N(0, sd^2) + Laplace(scale).

    A = exp(-z / b) exp(s^2 / 2b^2) Phi(z / s - s / b) / 2b, B the same at -z. The textbook product of an exponential and
    Phi loses everything for large s / b or |z| / s; this form is finite and right over 1e-6..1e12
    (measured). Raises nothing; sd must be positive.
    """
    return _branch(z, sd, scale), _branch(-z, sd, scale)


def log_density(z: Floats, sd: Floats, scale: float | Floats) -> Floats:
    """Return the log density at z of N(0, sd^2) + Laplace(scale); shapes broadcast."""
    h, q = np.abs(z) / sd, sd / scale
    return _log_sum(h, q, *_terms(h, q)) - np.log(4 * scale)


def tilted(z: Floats, sd: Floats, scale: float | Floats) -> tuple[Floats, Floats]:
    """Return the log density and psi = (A - B) / (A + B), in -1..1, with -psi / scale its derivative in z."""
    h, q = np.abs(z) / sd, sd / scale
    near, far = _terms(h, q)
    psi = np.where(z < 0, -1.0, 1.0) * (near - far) / (near + far)
    return _log_sum(h, q, near, far) - np.log(4 * scale), psi


def _terms(h: Floats, q: Floats) -> tuple[Floats, Floats]:
    """Return A and B at |z|, both times 4 b exp(h^2 / 2), A clipped where B no longer counts."""
    return special.erfcx(np.maximum((q - h) * ROOT_HALF, FARTHEST)), special.erfcx((q + h) * ROOT_HALF)


def _log_sum(h: Floats, q: Floats, near: Floats, far: Floats) -> Floats:
    with np.errstate(over="ignore", invalid="ignore"):
        is_near = (q - h) * ROOT_HALF > FARTHEST
        return np.where(is_near, np.log(near + far) - 0.5 * h * h, q * (0.5 * q - h) + math.log(2))


def cdf(z: Floats, sd: Floats, scale: float) -> Floats:
    """Return P(N(0, sd^2) + Laplace(scale) <= z), with a small relative error in the lower tail too; shapes broadcast.

    Since b^2 f' = F - Phi(z / s) for the density f = A + B of ``branches``, and b f' = B - A, F = Phi(z / s) + b (B - A).
    """
    lower = -np.abs(z)
    log_a, log_b = branches(lower, sd, scale)
    tail = np.maximum(special.ndtr(lower / sd) + scale * (np.exp(log_b) - np.exp(log_a)), 0)
    return np.where(z <= 0, tail, 1 - tail)


def _branch(z: Floats, sd: Floats, scale: float) -> Floats:
    h, q = z / sd, sd / scale
    x = (q - h) / math.sqrt(2)
    with np.errstate(all="ignore"):
        right = -0.5 * h * h + np.log(special.erfcx(np.maximum(x, -5)))
        left = 0.5 * q * q - z / scale + np.log(special.erfc(np.minimum(x, 0)))
    return np.where(x > -5, right, left) - math.log(4 * scale)  # noqa: PLR2004
