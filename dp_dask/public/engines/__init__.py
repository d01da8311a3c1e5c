"""Engines: one way to compute p(theta | release) a file; a file's name is its name in the pipeline file.

An engine is a pure function ``(rng, observation, prior, n_draws) -> Inference``. ``public.infer`` adds ``auto``, which
chooses one by its error estimate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.priors import Prior
from dp_dask.public.grid import GridPosterior, Guide
from dp_dask.public.normal_laplace import log_density
from dp_dask.public.observation import Observation
from dp_dask.public.plane import PlanePosterior

__all__ = ["CHAINS", "Engine", "Inference", "guide", "independent"]

Floats = NDArray[np.float64]
CHAINS = 4
SMALLEST_VARIANCE = 1e-12  # of the noise's, so that a normal part always exists


@dataclass(frozen=True, slots=True, kw_only=True)
class Inference:
    """Draws of the parameters [chain, draw, parameter] and how they were made."""

    engine: str
    reason: str
    draws: Floats
    error: float | None  # estimated total variation distance to the exact posterior; None where unknown
    grid: GridPosterior | PlanePosterior | None = None  # the tabulated posterior, where the engine makes one


class Engine(Protocol):
    """Draw from p(theta | release)."""

    def __call__(self, rng: np.random.Generator, observation: Observation, prior: Prior, n_draws: int) -> Inference:
        """Return ``n_draws`` draws in four chains; raises InferenceError where the engine cannot serve the model."""
        ...


def independent(
    rng: np.random.Generator, posterior: GridPosterior, n_draws: int, *, engine: str, reason: str, error: float
) -> Inference:
    """Draw independently from a tabulated posterior; the chains are for the tools that expect some."""
    draws = posterior.draw(rng, CHAINS * -(-n_draws // CHAINS)).reshape(CHAINS, -1, 1)
    return Inference(engine=engine, reason=reason, draws=draws, error=error, grid=posterior)


def guide(observation: Observation) -> Guide:
    """Return the plain normal-Laplace likelihood on closed-form moments: rough at small n, sound in the far tails.

    Where n is private it is known to about scale / weight records either way, which moves S by the mean.
    """
    scale, y, n = observation.scale, observation.y, observation.n_guess
    n_sd = 0.0 if observation.n is not None else math.sqrt(2) * scale / observation.statistic.count_weight

    def spread(theta: Floats) -> tuple[Floats, Floats]:
        mean, variance = observation.quick_moments(theta)
        return n * mean, variance * (n + n_sd) + (mean * n_sd) ** 2 + SMALLEST_VARIANCE * scale**2

    def log_likelihood(mean: Floats, variance: Floats) -> Floats:
        return log_density(y - mean, np.sqrt(variance), scale)

    return Guide(moments=spread, log_density=log_likelihood, noise=2 * scale**2)
