"""Calibration: does the posterior hold the truth as often as it says? Simulation-based.

theta0 from the prior, records from the model, a fresh release, its posterior; u = the rank of theta0 in it. The u
are uniform exactly when the posterior is right (``public.uniformity``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_dask.public.gram_likelihood import GramObservation
from dp_dask.public.gram_simulation import gram_ranks
from dp_dask.public.grid import GridPosterior
from dp_dask.public.infer import infer
from dp_dask.public.observe import AnyObservation
from dp_dask.public.randomness import RANK_DRAWS, rank_among
from dp_dask.public.simulated import SimulatedObservation
from dp_dask.public.simulated_calibration import simulated_rank, simulated_ranks
from dp_dask.public.simulation import simulate
from dp_dask.public.tempering import Effort

__all__ = ["rank", "ranks"]

Floats = NDArray[np.float64]


def ranks(
    seed: np.random.SeedSequence, like: AnyObservation, prior: Any, n: int, engine: str, effort: Effort | None = None
) -> Floats:
    """Return ``n`` ranks of truths in their posteriors [n, parameter], all from one seed; ``effort`` is for simulators."""
    rng = np.random.default_rng(seed)
    if isinstance(like, GramObservation):
        return gram_ranks(rng, like, prior, n)
    if isinstance(like, SimulatedObservation):
        return simulated_ranks(rng, like, prior, n, engine, effort)
    u = np.empty((n, len(like.model.parameters)))
    for i in range(n):
        u[i] = rank(rng, like, prior, engine)[0]
    return u


def rank(rng: np.random.Generator, like: AnyObservation, prior: Any, engine: str) -> tuple[Floats, str]:
    """Simulate one truth and a release like this one; return the truth's randomised rank [parameter], and the engine's name.

    A tabulated posterior gives the rank among infinitely many draws, another the rank among 63 of them, ties and gaps broken
    at random: u = (rank + U) / 64. Raises InferenceError where the engine does.
    """
    if isinstance(like, SimulatedObservation):
        return simulated_rank(rng, like, prior, engine)
    theta = np.atleast_1d(prior.rvs(rng, 1)[0])
    pseudo = simulate(rng, like, theta, prior).observation
    inference = infer(rng, pseudo, prior, RANK_DRAWS, engine)
    if isinstance(inference.grid, GridPosterior):
        u = np.array([inference.grid.cdf(float(theta[0]))])
    elif inference.grid is not None:
        v = prior.coordinate(theta[None])[0]  # each coordinate grows with its own parameter
        u = np.array([inference.grid.cdf(float(value), axis) for axis, value in enumerate(v)])
    else:
        u = rank_among(rng, inference.draws, theta)
    return u, inference.engine
