"""Maximum mean discrepancy between posteriors, from their draws."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["squared_mmd"]

Floats = NDArray[np.float64]


def squared_mmd(x: Floats, y: Floats, bandwidth: Floats) -> float:
    """Return the unbiased estimate of MMD^2 between the laws of x [m, parameter] and y [k, parameter]; may be negative.

    Gretton et al. (2012), equation 3, with the Gaussian kernel exp(-|(x - y) / bandwidth|^2 / 2), one bandwidth a parameter. A
    bandwidth from the prior keeps estimates comparable between releases and methods; one from the data would not.
    """
    x, y = x / bandwidth, y / bandwidth
    m, k = len(x), len(y)
    within_x = (_kernel(x, x).sum() - m) / (m * (m - 1))
    within_y = (_kernel(y, y).sum() - k) / (k * (k - 1))
    return float(within_x + within_y - 2 * _kernel(x, y).mean())


def _kernel(x: Floats, y: Floats) -> Floats:
    distance = np.zeros((len(x), len(y)))
    for a, b in zip(x.T, y.T, strict=True):
        distance += (a[:, None] - b) ** 2
    return np.exp(-distance / 2)
