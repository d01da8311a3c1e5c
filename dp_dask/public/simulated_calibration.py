"""Calibration of a whole inference through a simulator: ranks of prior truths in the posteriors of their simulated releases."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_dask.errors import InferenceError
from dp_dask.public.randomness import RANK_DRAWS, rank_among
from dp_dask.public.simulated import SimulatedObservation
from dp_dask.public.simulated_infer import infer_simulated
from dp_dask.public.tempering import Effort

__all__ = ["pseudo_release", "simulated_rank"]

Floats = NDArray[np.float64]
ATTEMPTS = 100


def pseudo_release(rng: np.random.Generator, like: SimulatedObservation, prior: Any) -> tuple[Floats, SimulatedObservation]:
    """Draw a truth [p] from the prior and simulate a release of it; where the simulator fails another truth is drawn.

    That is the law that the posterior is conditional on. Raises InferenceError where the simulator fails a hundred times, and
    ValueError where n is private and its prior flat.
    """
    for _ in range(ATTEMPTS):
        theta = np.atleast_1d(prior.rvs(rng, 1)[0])
        made = like.pseudo(rng, theta)
        if made is not None:
            return theta, made
    msg = f"the simulator failed at {ATTEMPTS} parameters of the prior one after the other; mend it or move the prior"
    raise InferenceError(msg)


def simulated_rank(
    rng: np.random.Generator, like: SimulatedObservation, prior: Any, engine: str = "auto", effort: Effort | None = None
) -> tuple[Floats, str]:
    """Return a truth's randomised rank [p] among 63 draws of its posterior, and the engine's name.

    Raises InferenceError where the engine does.
    """
    theta, pseudo = pseudo_release(rng, like, prior)
    inference = infer_simulated(rng, pseudo, prior, RANK_DRAWS, engine, effort=effort)
    return rank_among(rng, inference.draws, theta), inference.engine
