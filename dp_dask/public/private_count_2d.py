"""The density of two noisy sums over a private number of records, of which only a noisy count is known.

Sums over n are taken by Gauss quadrature for sums: m nodes on a panel of N integers are exact for polynomials of degree
2 m - 1 in n, and are the integers themselves where N <= m.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh_tridiagonal

from dp_dask.errors import InferenceError
from dp_dask.public.normal_laplace import log_density as log_density_1d
from dp_dask.public.normal_laplace_2d import LEAST_SD, log_density

__all__ = ["NODES", "gauss", "log_density_private"]

Floats = NDArray[np.float64]
NODES = 8
MOST_NODES = 4096
WINDOW = 40.0  # nats that prior times noise density of the count may fall
NEGLIGIBLE = 16.0  # nats below the best term
PANELS = ((2.0, 2.0), (6.0, 4.0), (14.0, 8.0), (math.inf, 14.0))  # up to so many nats fallen, a panel may lose so many
SMOOTH = 2.0  # a panel moves the mean of y by at most this many of its scales
PAIRS = 2**18  # held at once


def log_density_private(
    y: Floats, y0: float, weight: float, m: Floats, v: Floats, scale: float, expected_n: float | None
) -> Floats:
    """Return log sum over n of pi(n) exp(-|y0 - weight n| / scale) p(y | n) [k], up to a constant that knows no parameter.

    p(y | n) is the density of N(n m, n v) plus two independent Laplace(scale) variables: y [2], m [k, 2], v [k, 2, 2], the
    mean and covariance of one record, all in one unit. pi is geometric with mean ``expected_n``, flat where that is None.
    Relative error 1e-6 typically, 2e-3 at most where p(y | n) has kinks between nodes (measured). Raises InferenceError
    where the count's weight is so small against m that more than 4096 values of n would be needed.
    """
    m, v = np.asarray(m, dtype=np.float64), np.asarray(v, dtype=np.float64)
    log_g = 0.0 if expected_n is None else -math.log1p(1 / expected_n)
    peak = max(y0 / weight, 0.0)
    sd = np.sqrt(peak * np.maximum(np.diagonal(v, axis1=1, axis2=2), 0))
    with np.errstate(all="ignore"):  # a mean may be 0, or nearly: then n hardly matters
        smooth = SMOOTH * (np.maximum(sd, scale) / np.abs(m)).min(axis=1)
    # One set of nodes for all parameters whose p(y | n) is about as smooth in n.
    group = np.floor(np.log2(np.clip(smooth, NODES, 1e15))).astype(np.intp)
    out = np.empty(len(m))
    for of in np.unique(group):
        n, log_weight = _nodes(y0, weight / scale, weight, log_g, 2.0**of)
        members = np.flatnonzero(group == of)
        for rows in np.array_split(members, -(-len(members) * len(n) // PAIRS)):
            out[rows] = _sum(y, n, log_weight, m[rows], v[rows], scale)
    return out


def _sum(y: Floats, n: Floats, log_weight: Floats, m: Floats, v: Floats, scale: float) -> Floats:
    """Sum the terms that may matter: p(y | n) is at most each coordinate's density times the other noise's largest one."""
    bound = log_weight
    for j in range(2):
        sd = np.maximum(np.sqrt(n * np.maximum(v[:, j, j], 0)[:, None]), LEAST_SD * scale)
        bound = np.minimum(bound, log_weight + log_density_1d(y[j] - n * m[:, [j]], sd, scale) - math.log(2 * scale))
    rows = np.arange(len(m))
    best = bound.argmax(axis=1)
    least = log_weight[best] + log_density(y, n[best, None] * m, n[best, None, None] * v, scale)
    row, column = np.nonzero(bound >= least[:, None] - NEGLIGIBLE)
    terms = np.full(bound.shape, -np.inf)
    terms[row, column] = log_weight[column] + log_density(y, n[column, None] * m[row], n[column, None, None] * v[row], scale)
    terms[rows, best] = least
    return np.asarray(np.logaddexp.reduce(terms, axis=1), dtype=np.float64)


def _nodes(y0: float, rate: float, weight: float, log_g: float, smooth: float) -> tuple[Floats, Floats]:
    """Return nodes n and log(quadrature weight x pi(n) x noise density of the count) for each.

    log of pi times noise is linear on each side of y0 / weight, with a kink there, where panels end.
    """
    kink = max(math.floor(y0 / weight) + 1, 0)  # the first n above it
    right, left = log_g - rate, log_g + rate
    panels = _walk(kink, 1, right, smooth, math.inf, 0.0)
    if kink > 0 and left >= 0:
        panels += _walk(kink, -1, -left, smooth, 0, 0.0)
    elif kink > 0:
        below = _walk(0, 1, left, smooth, kink, 0.0)
        panels = below + _walk(kink, 1, right, smooth, math.inf, -left * kink)
    if len(panels) * NODES > MOST_NODES:
        msg = (
            f"the count's weight {weight:.3g} is so small against the other sums that n cannot be summed out; "
            "release with a larger count weight"
        )
        raise InferenceError(msg)
    n = np.concatenate([start + gauss(length)[0] for start, length in panels])
    log_quadrature = np.concatenate([gauss(length)[1] for _, length in panels])
    order = np.argsort(n)
    n, log_quadrature = n[order], log_quadrature[order]
    return n, log_quadrature + n * log_g - np.abs(y0 - weight * n) * (rate / weight)


def _walk(start: int, step: int, slope: float, smooth: float, end: float, fallen: float) -> list[tuple[int, int]]:
    """Return panels (first n, length) from start on, to ``end`` or until the weight has fallen 40 nats at ``slope`` an n.

    p(y | n) changes with n in proportion too, so that near n = 0 panels are short.
    """
    panels: list[tuple[int, int]] = []
    at = start
    while fallen <= WINDOW and (at - end) * step < 0 and len(panels) * NODES <= MOST_NODES:
        nats = next(lost for up_to, lost in PANELS if fallen < up_to)
        length = min(nats / max(-slope, 1e-12), smooth, max(at / 2, NODES))
        whole = max(int(min(length, 2**50)), NODES)
        if math.isfinite(end):
            whole = min(whole, int(abs(end - at)))
        panels.append((at if step > 0 else at - whole, whole))
        at += step * whole
        fallen += -slope * whole
    return panels


@cache
def gauss(length: int) -> tuple[Floats, Floats]:
    """Return nodes in 0..length-1 and log weights of Gauss quadrature for sums over those integers.

    Discrete Chebyshev polynomials: alpha = (N - 1) / 2, beta_j = j^2 (N^2 - j^2) / (4 (4 j^2 - 1)) (Gautschi 2004, table 1.2).
    """
    if length <= NODES:
        return np.arange(length, dtype=np.float64), np.zeros(length)
    j = np.arange(1.0, NODES)
    beta = j**2 * (1 - (j / length) ** 2) / (4 * (4 * j**2 - 1))
    x, vectors = eigh_tridiagonal(np.zeros(NODES), np.sqrt(beta))
    return (length - 1) / 2 + length * x, np.log(length * vectors[0] ** 2)
