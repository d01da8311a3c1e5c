"""factorised: the exact posterior of categories' probabilities where n is private.

A Dirichlet prior of the probabilities and a negative binomial one of n make the categories' rates independent gamma variables, so
that every noisy count is its own small problem (``public.count_cells``).
"""

from __future__ import annotations

import numpy as np

from dp_dask.core.dirichlet import Dirichlet, dirichlet
from dp_dask.errors import InferenceError
from dp_dask.public.count_cells import draw_counts_private
from dp_dask.public.counts import CountsObservation
from dp_dask.public.engines import CHAINS, Inference

__all__ = ["plugin"]


def factorised(rng: np.random.Generator, observation: CountsObservation, prior: Dirichlet, n_draws: int) -> Inference:
    """Draw independently from the exact posterior; raises InferenceError where n is public."""
    if observation.n is not None:
        raise InferenceError("engine factorised serves a private n only (neighbours: add_remove); use tree, or auto")
    size = CHAINS * -(-n_draws // CHAINS)
    alpha = np.array(prior.alpha)
    rate = 0.0 if observation.expected_n is None else float(alpha.sum()) / observation.expected_n
    counts = draw_counts_private(rng, np.array(observation.y), alpha, observation.scale, rate, size, observation.law)
    draws = dirichlet(rng, alpha + counts).reshape(CHAINS, -1, len(alpha))
    return Inference(engine="factorised", reason="exact for categories with private n", draws=draws, error=0.0)


plugin = factorised
