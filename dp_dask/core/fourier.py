"""Fourier features: vectors whose dot product is the Gaussian kernel, which makes a mean discrepancy a distance of sums."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.simulated import Simulated

__all__ = ["TOLERANCE", "exact_mmd", "lattice", "lattice_features", "lattice_tail", "median_bandwidth", "product_lattice"]

Floats = NDArray[np.float64]
TOLERANCE = 1e-8
ROWS = 1024  # of a matrix of pairs, held at once
PAIRED = 1000  # records whose pairs a median is taken over


def lattice(width: float, bandwidth: float, tolerance: float = TOLERANCE) -> tuple[float, Floats]:
    """Return h and the weights w_0 .. w_J with sum_j w_j cos(j h r) = exp(-r^2 / (2 s^2)) for abs(r) <= width.

    With z = sqrt(2 log(1 / tolerance)) and period P = width + z s, h = 2 pi / P and w_j = 2 h s / sqrt(2 pi) exp(-(j h s)^2 / 2),
    half of it for j = 0. By Poisson's summation formula the sum over all j is the kernel repeated with period P, whose nearest
    repetition is below the tolerance, and J = ceil(z / (s h)) leaves out weights below it. Both widths are in x's units.
    """
    z = math.sqrt(2 * math.log(1 / tolerance))
    h = 2 * math.pi / (width + z * bandwidth)
    j = np.arange(math.ceil(z / (bandwidth * h)) + 1)
    weights = 2 * h * bandwidth / math.sqrt(2 * math.pi) * np.exp(-((j * h * bandwidth) ** 2) / 2)
    weights[0] /= 2
    return h, weights


def lattice_tail(width: float, bandwidth: float, tolerance: float = TOLERANCE) -> float:
    """Return a bound on the weights beyond the last: minus this is the least that the lattice's kernel can be.

    The sum over all frequencies is a sum of Gaussian densities, never negative. Each weight left out is at most q times the one
    before it, q the ratio of the first two, so they add up to at most the first over 1 - q.
    """
    h, weights = lattice(width, bandwidth, tolerance)
    step, last = h * bandwidth, len(weights) - 1
    first = 2 * step / math.sqrt(2 * math.pi) * math.exp(-(((last + 1) * step) ** 2) / 2)
    return first / -math.expm1(-(step**2) * (2 * last + 3) / 2)


def lattice_features(x: Floats, lower: float, width: float, bandwidth: float, tolerance: float = TOLERANCE) -> Floats:
    """Return the features [2 J + 1, k] of x [k]: sqrt(w_j) cos(j h (x - lower)) for j = 0 .. J, then the sines of j = 1 .. J.

    Powers of one exponential: their rounding grows with j and stays below 1e-13.
    """
    h, weights = lattice(width, bandwidth, tolerance)
    powers = np.empty((len(weights), len(x)), dtype=np.complex128)
    powers[0] = 1
    powers[1:] = np.exp(1j * h * (x - lower))
    np.cumprod(powers, axis=0, out=powers)
    powers *= np.sqrt(weights)[:, None]
    return np.concatenate([powers.real, powers.imag[1:]])


def product_lattice(widths: Floats, bandwidth: float, tolerance: float = TOLERANCE) -> tuple[Floats, Floats, float]:
    """Return frequencies [m, column], weights [m] and a lower bound for sum_m w_m cos(f_m . r) = exp(-|r|^2 / (2 s^2)).

    The product over columns of their lattices, of which one of each two opposite frequencies stands for both. The smallest
    weights are left out while they add up to the tolerance at most. A column's sum is at least minus its tail, and never larger
    in magnitude than at 0, so that the product, where it is negative, is at least minus one column's tail times the others'
    values at 0; what is left out is taken off too.
    """
    frequencies, weights, lowest = np.zeros((1, 0)), np.ones(1), []
    for width in widths:
        h, one_sided = lattice(float(width), bandwidth, tolerance)
        steps = np.arange(1 - len(one_sided), len(one_sided))
        halves = np.where(steps == 0, one_sided[np.abs(steps)], one_sided[np.abs(steps)] / 2)
        frequencies = np.column_stack([np.repeat(frequencies, len(steps), axis=0), np.tile(steps * h, len(weights))])
        weights = np.outer(weights, halves).reshape(-1)
        lowest.append(lattice_tail(float(width), bandwidth, tolerance) / float(one_sided.sum()))
    at_zero = float(weights.sum())
    middle = len(weights) // 2  # all frequencies 0; those after it are the opposites of those before
    frequencies, weights = frequencies[middle:], np.append(weights[middle], 2 * weights[middle + 1 :])
    order = np.argsort(-weights, kind="stable")
    kept = max(int(np.searchsorted(-np.cumsum(weights[order][::-1])[::-1], -tolerance)), 1)
    left_out = float(weights[order[kept:]].sum())
    return frequencies[order[:kept]], weights[order[:kept]], -max(lowest) * at_zero - left_out


def exact_mmd(x: Floats, y: Floats, bandwidth: float) -> float:
    """Return the distance between the mean embeddings of x [m, column] and y [k, column], over all pairs of records.

    Gretton et al. (2012), equation 5, whose square is the biased estimate: sqrt(mean k(x, x) + mean k(y, y) - 2 mean k(x, y)).
    """
    square = _mean_kernel(x, x, bandwidth) + _mean_kernel(y, y, bandwidth) - 2 * _mean_kernel(x, y, bandwidth)
    return math.sqrt(max(square, 0.0))


def _mean_kernel(x: Floats, y: Floats, bandwidth: float) -> float:
    total = 0.0
    for start in range(0, len(x), ROWS):
        square = np.zeros((len(x[start : start + ROWS]), len(y)))
        for a, b in zip(x[start : start + ROWS].T, y.T, strict=True):
            square += (a[:, None] - b) ** 2
        total += float(np.exp(square / (-2 * bandwidth**2)).sum())
    return total / (len(x) * len(y))


def median_bandwidth(rng: np.random.Generator, simulated: Simulated, columns: tuple[str, ...]) -> float:
    """Return the median distance between simulated records (Gretton et al. 2012, section 8); raises ValueError where it is 0.

    Of simulated records alone: a bandwidth is public, so one from the sensitive records would tell of them.
    """
    values = np.stack([simulated.values[name] for name in columns], axis=1)
    if len(values) > PAIRED:
        values = values[rng.choice(len(values), PAIRED, replace=False)]
    one, other = np.triu_indices(len(values), 1)
    bandwidth = float(np.median(np.linalg.norm(values[one] - values[other], axis=1))) if len(one) else 0.0
    if not (math.isfinite(bandwidth) and bandwidth > 0):
        msg = f"the median distance between simulated records is {bandwidth:g}; give a bandwidth above 0"
        raise ValueError(msg)
    return bandwidth
