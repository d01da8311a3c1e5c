"""What Bernstein & Sheldon (2018) compare with, on simulated data alone: ``non_private``, ``naive`` and ``ops``.

``non_private`` and ``ops`` condition on exact sums, which no release holds; ``naive`` conditions on noisy ones as if they were
exact. None may stand for a posterior of real records: all take a simulated release with its secrets, which nothing but
``public.simulation`` makes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.priors import Prior
from dp_dask.errors import InferenceError
from dp_dask.public.dirichlet import dirichlet
from dp_dask.public.simplex import nearest_counts
from dp_dask.public.simulation import Pseudo, PseudoCounts

__all__ = ["naive", "naive_counts", "non_private", "non_private_counts"]

Floats = NDArray[np.float64]


def non_private(rng: np.random.Generator, pseudo: Pseudo, prior: Prior, n_draws: int) -> Floats:
    """Draw [draw] from the conjugate posterior given the records themselves."""
    return _update(rng, pseudo, prior, pseudo.total, n_draws)


def naive(rng: np.random.Generator, pseudo: Pseudo, prior: Prior, n_draws: int) -> Floats:
    """Draw [draw] from the conjugate posterior given the noisy sum, moved to the nearest that n records can have.

    Noise and bounds are ignored. Raises InferenceError where n is private.
    """
    like = pseudo.observation
    if like.n is None:
        msg = "naive serves a public n only"
        raise InferenceError(msg)
    valid = np.clip(like.y, like.n * like.low, like.n * like.high)
    return _update(rng, pseudo, prior, like.statistic.units[0] * float(valid + like.n * like.origin), n_draws)


def _update(rng: np.random.Generator, pseudo: Pseudo, prior: Prior, total: float, n_draws: int) -> Floats:
    model = pseudo.observation.model
    return model.draw(model.update(prior, pseudo.n, np.full(n_draws, total)), rng)


def non_private_counts(rng: np.random.Generator, pseudo: PseudoCounts, alpha: Floats, n_draws: int) -> Floats:
    """Draw [draw, K] from Dirichlet(alpha + S), S the exact counts."""
    return dirichlet(rng, np.tile(alpha + pseudo.counts, (n_draws, 1)))


def naive_counts(rng: np.random.Generator, pseudo: PseudoCounts, alpha: Floats, n_draws: int) -> Floats:
    """Draw [draw, K] from Dirichlet(alpha + y), y the noisy counts moved to the nearest that n records can have."""
    return dirichlet(rng, np.tile(alpha + nearest_counts(pseudo.y, pseudo.n), (n_draws, 1)))
