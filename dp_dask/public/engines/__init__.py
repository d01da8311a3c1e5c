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
from dp_dask.public.failures import Failures
from dp_dask.public.grid import GridPosterior
from dp_dask.public.joint import JointObservation
from dp_dask.public.observation import Observation
from dp_dask.public.plane import PlanePosterior
from dp_dask.public.zoom import Guide

__all__ = ["CHAINS", "Engine", "Inference", "first_guide", "guide", "independent", "landmarks", "thinning"]

Floats = NDArray[np.float64]
CHAINS = 4
SLOWNESS = 5.0  # sweeps between draws kept, for each unit of the autocorrelation time that ``thinning`` predicts
OCTAVES = 60  # from the bounds outwards, in which places of interest are laid
STEP = 1e-4  # of the prior's sd, over which means are differentiated
SMALLEST_VARIANCE = 1e-12  # of the noise's, so that a normal part always exists


@dataclass(frozen=True, slots=True)
class Predicted:
    """Simulated sums [k, d]: of prior draws, of posterior draws, and of data sets at the posterior mean alone."""

    prior: Floats
    posterior: Floats
    at_mean: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Inference:
    """Draws of the parameters [chain, draw, parameter] and how they were made."""

    engine: str
    reason: str
    draws: Floats
    error: float | None  # estimated total variation distance to the exact posterior; None where unknown
    grid: GridPosterior | PlanePosterior | None = None  # the tabulated posterior, where the engine makes one
    predicted: Predicted | None = None  # simulated sums, where the release is seen through a simulator
    failures: Failures | None = None  # of simulations, where a simulator stands for the model
    checked: str = ""  # what its self-check found


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
    """Return the likelihood of a normal sum plus noise on closed-form moments: rough at small n, sound in the far tails.

    Where n is private it is known to about scale / weight records either way, which moves S by the mean.
    """
    noise, y, n = observation.noise, observation.y, observation.n_guess
    n_sd = observation.n_sd

    def spread(theta: Floats) -> tuple[Floats, Floats]:
        mean, variance = observation.quick_moments(theta)
        return n * mean, variance * (n + n_sd) + (mean * n_sd) ** 2 + SMALLEST_VARIANCE * noise.scale**2

    def log_likelihood(mean: Floats, variance: Floats) -> Floats:
        return noise.log_density(y - mean, np.sqrt(variance))

    return Guide(
        moments=spread,
        log_density=log_likelihood,
        noise=noise.continuous_variance,
        y=float(y),
        landmarks=landmarks(observation),
    )


def first_guide(observation: JointObservation) -> Guide:
    """Return a rough likelihood of one parameter from the first sum alone."""
    y, noise, n = np.array(observation.y, dtype=np.float64), observation.noise, observation.n_guess
    n_sd = observation.n_sd

    def spread(theta: Floats) -> tuple[Floats, Floats]:
        mean, covariance = observation.moments(theta[:, None])
        variance = np.maximum(covariance[:, 0, 0], 0) * (n + n_sd) + (mean[:, 0] * n_sd) ** 2
        return n * mean[:, 0], variance + SMALLEST_VARIANCE * noise.scale**2

    # The first sum leads the zoom: what it leaves open is kept, and the second one decides there.
    return Guide(
        moments=spread,
        log_density=lambda mean, variance: noise.log_density(y[0] - mean, np.sqrt(variance)),
        noise=noise.continuous_variance,
        y=float(y[0]),
        landmarks=landmarks(observation),
    )


def landmarks(observation: Observation | JointObservation) -> Floats:
    """Return parameters, denser towards the bounds, where the one parameter is any real number: a location, as a rule.

    Records of locations far outside the bounds all fall on one side: what is truncated tells of the parameter in a place that
    may be a billionth as wide as the prior.
    """
    if tuple(observation.model.domains) != ("real",):
        return np.empty(0)
    bounds = observation.statistic.bounds
    steps = bounds.width * 2.0 ** np.arange(-4, OCTAVES)
    return (bounds.lower + bounds.upper) / 2 + np.concatenate([-steps[::-1], steps])


def thinning(observation: Observation, prior: Prior) -> int:
    """Return the sweeps after which a sampler that draws theta and the data in turn has forgotten where it was, n being public.

    Its rate is the share of the posterior's information that the data hold and the release does not (Liu, Wong & Kong 1994). With
    information n m'^2 / v of the data and (n c')^2 / (n v_c + 2 scale^2) of the release, at the prior mean, and the prior's own
    1 / sd^2 added to both, the autocorrelation time is about their ratio; m and v are the mean and variance of a record's
    statistic, c and v_c those of its contribution.
    """
    n, sd = observation.n or 0, prior.sd
    theta = prior.mean + STEP * sd * np.array([-1.0, 0.0, 1.0])
    _, first, second = observation.model.partial_moments(theta, -math.inf, math.inf, 0.0)
    mean, variance = observation.quick_moments(theta)
    of_data = n * ((first[2] - first[0]) / (2 * STEP * sd)) ** 2 / max(float(second[1] - first[1] ** 2), 1e-300)
    slope = n * (mean[2] - mean[0]) / (2 * STEP * sd)
    of_release = slope**2 / (n * variance[1] + 2 * observation.scale**2)
    ratio = (of_data + sd**-2) / (of_release + sd**-2)
    return math.ceil(SLOWNESS * max(float(ratio), 1.0))
