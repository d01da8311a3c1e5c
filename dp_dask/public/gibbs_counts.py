"""Bernstein & Sheldon's (2018) Gibbs sampler for the Dirichlet-multinomial, as published; a baseline, see ``engines.gibbs``."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.dirichlet import dirichlet
from dp_dask.public.simplex import nearest_counts

__all__ = ["chains", "thinning"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
SLOWNESS = 5.0  # sweeps between draws kept, for each unit of the predicted autocorrelation time
WARMUP = 10  # kept draws' worth of sweeps
SMALLEST = 1e-9  # of the noise scale: |y - S| counts as at least this; and of a probability's weight


def chains(rng: np.random.Generator, y: Ints, alpha: Floats, scale: float, n: int, n_draws: int) -> Floats:
    """Run one chain for each vector of noisy counts y [chain, K] of n records; return probabilities [chain, draw, K].

    The counts are normal by the central limit theorem, N(n p, n (diag p - p p')), the noise a normal of random variance, and p
    given the counts is Dirichlet(alpha + S), S moved to the nearest counts that n records can have. Every k-th sweep is kept, k
    predicted from the information that the release holds at the prior mean.
    """
    thin = thinning(alpha, scale, n)
    p = dirichlet(rng, np.tile(alpha, (len(y), 1)))
    counts = n * p
    draws = np.empty((len(y), n_draws, len(alpha)))
    for sweep in range(-WARMUP * thin, n_draws * thin):
        # 1 / omega | S ~ InverseGaussian(1 / (b |y - S|), 1 / b^2), noise | omega ~ N(0, omega)
        distance = np.maximum(np.abs(y - counts), SMALLEST * scale)
        omega = 1 / rng.wald(1 / (scale * distance), scale**-2)
        counts = _counts(rng, y, p, omega, n)
        p = dirichlet(rng, alpha + nearest_counts(counts, n))
        if sweep >= 0 and (sweep + 1) % thin == 0:
            draws[:, sweep // thin] = p
    return draws


def _counts(rng: np.random.Generator, y: Ints, p: Floats, omega: Floats, n: int) -> Floats:
    """Draw S given p and y = S + N(0, omega): a prior draw, corrected by its residual (Matheron's rule).

    The covariance of y is diag(n p + omega) - n p p', inverted by Sherman & Morrison: O(K) a chain.
    """
    root = np.sqrt(n * p)
    z = root * rng.standard_normal(p.shape)
    drawn = n * p + z - p * z.sum(axis=1, keepdims=True)  # has covariance n (diag p - p p')
    residual = y - drawn - np.sqrt(omega) * rng.standard_normal(p.shape)
    inverse = 1 / (n * p + omega)
    weighted = inverse * p
    left = (p * omega * inverse).sum(axis=1, keepdims=True)  # 1 - n p' diag(n p + omega)^-1 p, without cancellation
    solved = inverse * residual + n * weighted * (weighted * residual).sum(axis=1, keepdims=True) / left
    return drawn + n * p * (solved - (p * solved).sum(axis=1, keepdims=True))


def thinning(alpha: Floats, scale: float, n: int) -> int:
    """Return sweeps between kept draws, as ``engines.thinning``: n + A + 1 over n / (1 + r) + A + 1, r the noise's share."""
    total = float(alpha.sum())
    p = float(alpha.min()) / total
    r = 2 * scale**2 / max(n * p * (1 - p), 1e-300)
    return math.ceil(SLOWNESS * (n + total + 1) / (n / (1 + r) + total + 1))
