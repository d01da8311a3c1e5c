"""Exact, independent draws of a histogram from its noisy counts, where the total n is private: the cells are independent.

A Dirichlet(alpha) prior of the probabilities and a negative binomial prior of n, of shape sum(alpha) and mean sum(alpha) / rate,
are independent intensities lambda_k ~ Gamma(alpha_k, rate) with s_k ~ Poisson(lambda_k). So each cell's count depends on its own
noisy count alone.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dp_dask.errors import InferenceError
from dp_dask.public.count_law import check, tables
from dp_dask.public.count_law_gaussian import make_law
from dp_dask.public.noise_law import Gaussian, Laplace

__all__ = ["draw_counts_private"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
CUT = 46.0  # nats below a cell's largest weight at which its table ends
LARGEST = 2.0**52  # a count that float64 still tells from the next
MOST_ENTRIES = 2**25  # of one cell's table


def draw_counts_private(
    rng: np.random.Generator,
    y: Ints,
    alpha: Floats,
    scale: float,
    rate: float,
    n_draws: int,
    law: type[Laplace | Gaussian] = Laplace,
) -> Ints:
    """Draw the counts S [n_draws, K] independently from p(S | y), exactly, for private n.

    P(s_k | y_k) ~ Gamma(alpha_k + s) / (s! Gamma(alpha_k)) (1 + rate)^(-s) P(noise = y_k - s): y [K] is S plus independent
    noise of that law and scale, alpha [K] the Dirichlet prior, and the prior of n is negative binomial with mean
    sum(alpha) / rate. At rate = 0 that prior is improper, n^(sum(alpha) - 1) for large n, and the posterior still proper. Raises
    InferenceError for arguments outside these ranges and where a cell's law is too wide to tabulate.
    """
    check(y, alpha, scale)
    if not (math.isfinite(rate) and rate >= 0):
        msg = f"rate {rate:g}: sum(alpha) / (expected n) must be 0 or more and finite"
        raise InferenceError(msg)
    tilt = math.log1p(rate)
    bound = (_gaussian_bound if law is Gaussian else _laplace_bound)(y, alpha, scale, tilt)
    if not bound.max() <= LARGEST:
        msg = f"counts up to {bound.max():.2g} are possible; at most {LARGEST:.2g} can be told apart: release with less noise"
        raise InferenceError(msg)
    made = make_law(y, np.ceil(bound).astype(np.int64), alpha, scale, tilt, law)
    low, high = made.windows(CUT)
    if (widest := int((high - low).max()) + 1) > MOST_ENTRIES:
        msg = f"a cell needs a table of {widest:.2g} counts; at most {MOST_ENTRIES:.2g} fit in memory: release with less noise"
        raise InferenceError(msg)
    counts = np.empty((len(y), n_draws), dtype=np.int64)
    for cell, weights in tables(made, low, high):
        cdf = np.cumsum(weights)
        counts[cell] = low[cell] + np.searchsorted(cdf[:-1], rng.random(n_draws) * cdf[-1], side="right")
    return counts.T


def _laplace_bound(y: Ints, alpha: Floats, scale: float, tilt: float) -> Floats:
    """Return a count [K] beyond which there is nothing.

    From where the rising factor has lost half of the fall, weights fall by at least half of it a count.
    """
    fall = 1 / scale + tilt
    with np.errstate(over="ignore"):
        return np.asarray(np.maximum(np.maximum(y, 0), (alpha - 1) / np.expm1(fall / 2)) + 2 * CUT / fall + 2)


def _gaussian_bound(y: Ints, alpha: Floats, scale: float, _tilt: float) -> Floats:
    """Return a count [K] beyond which there is nothing.

    d counts above c = max(y, 0) the log weight is by d (d / (2 scale^2) - a) lower than at c, at least, with
    a = max((alpha - 1) / (c + 1), 0): the rising factor's slope is (alpha - 1) / (s + 1) at most.
    """
    centre = np.maximum(y, 0)
    rise = scale**2 * np.maximum((alpha - 1) / (centre + 1), 0)
    return np.asarray(centre + rise + np.sqrt(rise**2 + 2 * CUT * scale**2) + 2)
