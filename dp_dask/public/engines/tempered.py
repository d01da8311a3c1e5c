"""tempered: simulated data sets weighed by the release's own noise, exact where enough of them come close to the release.

Where the noise is too narrow for that, it is taken lambda times as wide: the posterior is then that of a noisier release.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dp_dask.public.engines import CHAINS, Inference
from dp_dask.public.proposals import normalised
from dp_dask.public.simulated import SimulatedObservation
from dp_dask.public.tempering import Cloud, Effort, first_cloud, temper, told

__all__ = ["conclude", "plugin"]


def tempered(rng: np.random.Generator, observation: SimulatedObservation, prior: Any, n_draws: int) -> Inference:
    """Draw from the exact posterior, or where lambda stays above 1 from that under noise so much wider."""
    effort = Effort()
    return conclude(rng, temper(first_cloud(rng, observation, prior, effort.per_generation), effort), n_draws)


def conclude(rng: np.random.Generator, cloud: Cloud, n_draws: int) -> Inference:
    """Draw particles by their weights; raises InferenceError where they are of too few records."""
    cloud.problem.observation.check_whole("tempered")
    size = CHAINS * -(-n_draws // CHAINS)
    chosen = rng.choice(cloud.size, size, p=normalised(cloud.log_weight(cloud.multiple)))
    draws = cloud.problem.unknowns.theta(cloud.made.w[chosen]).reshape(CHAINS, size // CHAINS, -1)
    predicted = cloud.problem.predicted(rng, cloud.of_prior, cloud.made.w[chosen])
    is_exact = cloud.multiple == 1
    what = "exact" if is_exact else "conservative: the posterior under noise lambda times as wide"
    return Inference(
        engine="tempered",
        reason=f"{what}; {told(cloud)}",
        draws=draws,
        error=0.0 if is_exact else None,
        predicted=predicted,
        failures=cloud.made.failures,
    )


plugin = tempered
