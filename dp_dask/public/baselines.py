"""What Bernstein & Sheldon (2018) compare with, on simulated data alone: ``non_private`` and ``naive`` (and ``public.ops``).

``non_private`` and ``ops`` condition on exact sums, which no release holds; ``naive`` conditions on noisy ones as if they were
exact. None may stand for a posterior of real records: all take a simulated release with its secrets, which nothing but
``public.simulation`` makes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.dirichlet import Dirichlet
from dp_dask.errors import InferenceError
from dp_dask.public.counts import CountsObservation
from dp_dask.public.non_private import non_private as tabulated
from dp_dask.public.observation import Observation
from dp_dask.public.simplex import nearest_counts
from dp_dask.public.simulation import Pseudo

__all__ = ["naive", "non_private"]

Floats = NDArray[np.float64]


def non_private(rng: np.random.Generator, pseudo: Pseudo, prior: Any, n_draws: int) -> Floats:
    """Draw [draw, parameter] from the posterior given the records themselves, one sum or counts."""
    return _given(rng, pseudo, prior, pseudo.total, n_draws)


def naive(rng: np.random.Generator, pseudo: Pseudo, prior: Any, n_draws: int) -> Floats:
    """Draw [draw, parameter] from the posterior given the noisy sums, moved to the nearest that n records can have.

    Noise and bounds are ignored. Raises InferenceError where n is private.
    """
    like = pseudo.observation
    if like.n is None:
        msg = "naive serves a public n only"
        raise InferenceError(msg)
    if isinstance(like, CountsObservation):
        return _given(rng, pseudo, prior, nearest_counts(np.array(like.y), like.n), n_draws)
    valid = np.clip(like.y, like.n * like.low, like.n * like.high)
    return _given(rng, pseudo, prior, like.statistic.units[0] * float(valid + like.n * like.origin), n_draws)


def _given(rng: np.random.Generator, pseudo: Pseudo, prior: Any, total: Any, n_draws: int) -> Floats:
    """Draw from the posterior given what the records' statistic sums to: Conjugate-Update, or a table for another prior."""
    like = pseudo.observation
    if isinstance(like, CountsObservation):
        return Dirichlet(tuple(like.model.update(prior, total))).rvs(rng, n_draws)
    if not isinstance(like, Observation):
        msg = "baselines serve one sum, or counts"
        raise InferenceError(msg)
    if not isinstance(prior, like.model.prior_type):
        return tabulated(prior, like.model, pseudo.n, total).draw(rng, n_draws)[:, None]
    return like.model.draw(like.model.update(prior, pseudo.n, np.full(n_draws, total)), rng)[:, None]
