"""clt_chain: sums, squares and products of several columns by the central limit theorem, their noise exactly.

The form of ``clt_grid`` for many sums: the noise is normal or a scale mixture of normal variables, so that given the scales the
release is normal with S summed out, and theta moves against that same likelihood (``public.gram_posterior``). Its draws come in
chains: effective sizes and R-hat tell whether they have mixed.
"""

from __future__ import annotations

import numpy as np

from dp_dask.public.engines import Inference
from dp_dask.public.gram_likelihood import GramObservation
from dp_dask.public.gram_posterior import CHAINS, draw_posteriors
from dp_dask.public.gram_report import GramPrior, reported

__all__ = ["plugin"]

FEW = 100  # records: below, the normal law of products of clamped columns is not to be relied on at large epsilon


def clt_chain(rng: np.random.Generator, observation: GramObservation, prior: GramPrior, n_draws: int) -> Inference:
    """Draw from the posterior in chains; raises InferenceError where they do not mix."""
    enough = max(n_draws, CHAINS * (CHAINS + 1))  # what reads draws expects more of them than chains
    made = draw_posteriors(rng, [observation], prior.wishart, enough)[0]
    n = observation.n if observation.n is not None else float(np.median(made.n))
    few = "; few records: the sums may not be normal" if n < FEW else ""
    return Inference(
        engine="clt_chain",
        reason=f"chains on the collapsed likelihood, {made.ess:.0f} effective draws, R-hat {made.r_hat:.3f}{few}",
        draws=reported(observation.model, observation.statistic, made.m, made.v),
        error=None,
    )


plugin = clt_chain
