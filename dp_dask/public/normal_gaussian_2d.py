"""The density of two sums, normal, plus Gaussian noise; over a public number of records, or one that a noisy count tells."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dp_dask.errors import InferenceError
from dp_dask.public.noise_law import Gaussian
from dp_dask.public.private_count_2d import NODES, gauss

__all__ = ["log_density", "log_density_private"]

Floats = NDArray[np.float64]
SMOOTH = 1.5  # of the width in n of noise density times p(y | n): the longest panel
MOST_NODES = 2**14
PAIRS = 2**18  # held at once


def log_density(y: Floats, mean: Floats, covariance: Floats, scale: float) -> Floats:
    """Return log p(y) [..] of y [2] = S + Z, S ~ N(mean [.., 2], covariance [.., 2, 2]), Z ~ N(0, scale^2), up to a constant."""
    a, b = covariance[..., 0, 0] + scale**2, covariance[..., 1, 1] + scale**2
    c = covariance[..., 0, 1]
    d, e = y[0] - mean[..., 0], y[1] - mean[..., 1]
    rest = b - c * c / a  # of the second coordinate given the first: positive, as the noise's share of b is
    z = e - c / a * d
    return np.asarray(-0.5 * (d * d / a + z * z / rest + np.log(a) + np.log(rest)))


def log_density_private(
    y: Floats, y0: float, weight: float, m: Floats, v: Floats, scale: float, expected_n: float | None
) -> Floats:
    """Return log sum over n of pi(n) exp(-(y0 - weight n)^2 / (2 scale^2)) p(y | n) [k], up to a constant.

    p(y | n) is the density of N(n m, n v + scale^2): y [2], m [k, 2], v [k, 2, 2], the mean and covariance of one record,
    all in one unit. pi is geometric with mean ``expected_n``, flat where that is None. The sum is over every n that
    noise and prior leave any weight, by Gauss quadrature for sums on panels over which the terms hardly bend. Raises
    InferenceError where the count's weight is so small against m that it would take more than 16,384 nodes.
    """
    noise = Gaussian(scale)
    log_g = 0.0 if expected_n is None else -math.log1p(1 / expected_n)
    middle = max(y0 / weight + (scale / weight) ** 2 * log_g, 0.0)
    first, last = max(math.floor(middle - noise.reach / weight), 0), math.ceil(middle + noise.reach / weight)
    longest = SMOOTH * scale / max(weight, float(np.abs(m).max(initial=0.0)))
    if (last - first) / max(longest, NODES) * NODES > MOST_NODES:
        msg = (
            f"the count's weight {weight:.3g} is so small against the other sums that n cannot be summed out; "
            "release with a larger count weight"
        )
        raise InferenceError(msg)
    nodes, log_weights = [], []
    at = first
    while at <= last:
        length = max(int(min(longest, at / 2)), NODES)  # p(y | n) bends in proportion to n, too
        n, log_quadrature = gauss(length)
        nodes.append(at + n)
        log_weights.append(log_quadrature)
        at += length
    n = np.concatenate(nodes)
    log_weight = np.concatenate(log_weights) + n * log_g + noise.decay(y0 - weight * n, y0 - weight * middle)
    found = np.empty(len(m))
    for rows in np.array_split(np.arange(len(m)), max(-(-len(m) * len(n) // PAIRS), 1)):
        terms = log_density(y, n[:, None] * m[rows, None], n[:, None, None] * v[rows, None], scale)
        found[rows] = np.logaddexp.reduce(log_weight + terms, axis=1)
    return found
