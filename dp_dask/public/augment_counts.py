"""Exact data augmentation for categories (Ju, Awan, Gong & Rao 2022): every record's category is a latent variable."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.dirichlet import dirichlet

__all__ = ["chains"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
WARMUP = 10  # kept draws' worth of sweeps


def chains(
    rng: np.random.Generator, y: Ints, alpha: Floats, scale: float, n: int, n_draws: int, *, thin: int
) -> tuple[Floats, float]:
    """Run one chain for each vector of noisy counts y [chain, K] of n records.

    Returns probabilities [chain, draw, K] and the share of offers that were taken. A sweep draws p given the latent counts,
    Dirichlet(alpha + S), then offers each record in turn a category from p.
    """
    p = dirichlet(rng, np.tile(alpha, (len(y), 1)))
    labels = _offer(rng, p, n)
    gap = y - _counts(labels, len(alpha))
    draws = np.empty((len(y), n_draws, len(alpha)))
    n_taken = 0
    for sweep in range(-WARMUP * thin, n_draws * thin):
        p = dirichlet(rng, alpha + (y - gap))
        if sweep >= 0 and (sweep + 1) % thin == 0:
            draws[:, sweep // thin] = p
        taken = _refresh(rng, gap, labels, _offer(rng, p, n), scale)
        n_taken += taken if sweep >= 0 else 0
    return draws, n_taken / max(n_draws * thin * labels.size, 1)


def _refresh(rng: np.random.Generator, gap: Ints, labels: Ints, offered: Ints, scale: float) -> int:
    """Take or refuse each record's offered category in place, one record after the other; return how many were taken.

    ``gap`` [chain, K] is y - S. Moving a record from j to k changes the noise's log density in two cells by 1 / scale at most in
    each, which is the log of the Metropolis-Hastings ratio, because offers come from the model.
    """
    rows = np.arange(len(gap))
    allowed = scale * rng.standard_exponential(labels.T.shape)
    n_taken = 0
    for i in range(labels.shape[1]):
        j, k = labels[:, i], offered[:, i]
        before, after = gap[rows, j], gap[rows, k]
        worse = np.abs(before + 1) - np.abs(before) + np.abs(after - 1) - np.abs(after)
        is_taken = (j == k) | (worse <= allowed[i])
        moved = rows[is_taken & (j != k)]
        gap[moved, j[moved]] += 1
        gap[moved, k[moved]] -= 1
        labels[:, i] = np.where(is_taken, k, j)
        n_taken += int(is_taken.sum())
    return n_taken


def _offer(rng: np.random.Generator, p: Floats, n: int) -> Ints:
    """Draw n categories for each row of p [chain, K]."""
    ends = np.cumsum(p, axis=1)
    u = rng.random((len(p), n)) * ends[:, -1:]
    return np.stack([np.searchsorted(end, of_chain, side="right") for end, of_chain in zip(ends, u, strict=True)]).clip(
        max=p.shape[1] - 1
    )


def _counts(labels: Ints, n_categories: int) -> Ints:
    return np.stack([np.bincount(row, minlength=n_categories) for row in labels])
