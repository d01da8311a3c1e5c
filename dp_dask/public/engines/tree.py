"""tree: the exact posterior of categories' probabilities where n is public.

The counts are drawn from their exact law given the noisy ones (``public.count_tree``), then p ~ Dirichlet(alpha + S): independent
draws, no alternation between the two.
"""

from __future__ import annotations

import numpy as np

from dp_dask.core.dirichlet import Dirichlet, dirichlet
from dp_dask.errors import InferenceError
from dp_dask.public.count_tree import draw_counts
from dp_dask.public.counts import CountsObservation
from dp_dask.public.engines import CHAINS, Inference

__all__ = ["plugin"]


def tree(rng: np.random.Generator, observation: CountsObservation, prior: Dirichlet, n_draws: int) -> Inference:
    """Draw independently from the exact posterior; raises InferenceError where n is private."""
    if observation.n is None:
        raise InferenceError("engine tree serves a public n only (neighbours: replace); use factorised, or auto")
    size = CHAINS * -(-n_draws // CHAINS)
    alpha = np.array(prior.alpha)
    counts = draw_counts(rng, np.array(observation.y), alpha, observation.scale, observation.n, size, observation.law)
    draws = dirichlet(rng, alpha + counts).reshape(CHAINS, -1, len(alpha))
    return Inference(engine="tree", reason="exact for categories with public n", draws=draws, error=0.0)


plugin = tree
