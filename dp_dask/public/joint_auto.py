"""Choose the engine of a release of several sums: the normal approximation where its error is small, else an exact one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dp_dask.errors import InferenceError
from dp_dask.public.engines import Inference, clt_grid, kernel_is, lattice_inside
from dp_dask.public.joint import JointObservation

__all__ = ["infer_jointly"]

FEW = 30  # records: below, S is judged less like a normal variable than its skewness says
SMALL, SMALL_WHERE_FEW = 0.02, 0.005  # total variation


def infer_jointly(rng: np.random.Generator, observation: JointObservation, prior: Any, n_draws: int) -> Inference:
    """Take clt_grid where its error estimate is small, else an exact engine, else clt_grid with its estimate told.

    The exact engine is lattice_inside where records inside are counted and it is affordable, kernel_is elsewhere.
    """
    if len(observation.y) != 2:  # noqa: PLR2004
        return kernel_is.plugin(rng, observation, prior, n_draws)
    near = clt_grid.plugin(rng, observation, prior, n_draws)
    error = near.error or 0.0
    limit = SMALL_WHERE_FEW if observation.n_guess < FEW else SMALL
    if error <= limit:
        return _told(near, f"the normal approximation of the sums moves about {error:.4f} of probability")
    is_counted = observation.statistic.inside_weight > 0 and len(observation.model.parameters) == 1
    for engine in (lattice_inside, kernel_is) if is_counted else (kernel_is,):
        try:
            exact = engine.plugin(rng, observation, prior, n_draws)
        except InferenceError:
            continue
        return _told(
            exact, f"clt_grid's error estimate {error:.3f} is above {limit}; {exact.reason.partition('; ')[2]}".rstrip("; ")
        )
    return _told(near, f"the normal approximation moves about {error:.3f} of probability; an exact engine would take too long")


def _told(inference: Inference, reason: str) -> Inference:
    return replace(inference, reason=reason)
