"""gibbs: Bernstein & Sheldon's 2018 sampler as published; a baseline, not calibrated in general.

It alternates the sum given theta and the release (normal by the central limit theorem) with theta given the sum by
Conjugate-Update, although the sum was not drawn from its exact law. Measured for truncated models at n = 1,000, epsilon 1:
posterior sd 0.191 where the true one is 0.293.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.bounds import Outside
from dp_dask.core.priors import Prior
from dp_dask.errors import InferenceError
from dp_dask.public.engines import CHAINS, Inference, thinning
from dp_dask.public.noise_law import Laplace
from dp_dask.public.observation import Observation

__all__ = ["chains", "plugin"]

Floats = NDArray[np.float64]
WARMUP = 500
LONGEST_THIN = 1000


def gibbs(rng: np.random.Generator, observation: Observation, prior: Prior, n_draws: int) -> Inference:
    """Run four chains, thinned by the autocorrelation time that the release's share of information predicts."""
    _check(observation, prior)
    y = np.full(CHAINS, float(observation.y))
    thin = min(thinning(observation, prior), LONGEST_THIN)
    draws = chains(rng, observation, prior, y, -(-n_draws // CHAINS), thin=thin, warmup=WARMUP + 20 * thin)
    slow = "" if thin < LONGEST_THIN else " (its chains mix more slowly than that: look at ESS)"
    reason = f"asked for; every {thin}th sweep kept{slow}; the published method is not calibrated in general"
    return Inference(engine="gibbs", reason=reason, draws=draws[:, :, None], error=None)


def chains(
    rng: np.random.Generator, observation: Observation, prior: Prior, y: Floats, n_draws: int, *, thin: int, warmup: int
) -> Floats:
    """Run one chain for each noisy sum y [chain], in grid units, all else as in the observation; return [chain, draw]."""
    _check(observation, prior)
    theta = prior.rvs(rng, len(y))
    inside = np.zeros(len(y))
    draws = np.empty((len(y), n_draws))
    for sweep in range(-warmup, n_draws * thin):
        theta, inside = _sweep(rng, observation, prior, y, theta, inside)
        if sweep >= 0 and (sweep + 1) % thin == 0:
            draws[:, sweep // thin] = theta
    return draws


def _sweep(
    rng: np.random.Generator, observation: Observation, prior: Prior, y: Floats, theta: Floats, inside: Floats
) -> tuple[Floats, Floats]:
    """One sweep: omega given the inside sum; the sections' sums given theta and omega; theta given their total.

    Returns theta and the inside sum, in the units of the statistic.
    """
    model, statistic = observation.model, observation.statistic
    n, unit, bounds = observation.n or 0, statistic.units[0], statistic.bounds
    scale = observation.scale * unit
    released = unit * (y + n * observation.origin)
    start, end = model.support if model.spacing is None else (0.0, math.inf)  # of t
    gap = 1.0 if model.is_integer else 0.0
    mean, variance = _section(observation, theta, bounds.lower, bounds.upper)
    # 1 / omega | S ~ InverseGaussian(1 / (b |y - S|), 1 / b^2), noise | omega ~ N(0, omega)
    distance = np.maximum(np.abs(released - inside), 1e-8 * scale)
    omega = 1 / rng.wald(1 / (scale * distance), scale**-2)
    gain = variance / (variance + omega)
    inside = rng.normal(mean + gain * (released - mean), np.sqrt(gain * omega))
    total = inside
    for low, high in ((model.support[0], bounds.lower - gap), (bounds.upper + gap, model.support[1])):
        if low < high or (model.is_integer and low == high):
            m, v = _section(observation, theta, low, high)
            total = total + rng.normal(m, np.sqrt(v))
    total = np.clip(total, n * start if n else 0, n * end if n else 0)  # what n records can sum to
    return model.draw(model.update(prior, n, total), rng), inside


def _section(observation: Observation, theta: Floats, low: float, high: float) -> tuple[Floats, Floats]:
    """Mean and variance of the sum of the records in a section: n p mu, n p Sigma + n p (1 - p) mu^2."""
    n = observation.n or 0
    _, first, second = observation.model.partial_moments(theta, low, high, 0.0)
    return n * first, n * np.maximum(second - first**2, 0) + 1e-300


def _check(observation: Observation, prior: Prior) -> None:
    model, bounds = observation.model, observation.statistic.bounds
    covers = bounds.lower <= model.support[0] and bounds.upper >= model.support[1]
    if observation.law is not Laplace:
        msg = f"engine gibbs was published for Laplace noise, and this release has {observation.law.name} noise; use auto"
    elif observation.n is None:
        msg = "engine gibbs serves a public n only (neighbours: replace); use auto"
    elif observation.statistic.outside is Outside.CLAMP and not covers:
        msg = "engine gibbs serves truncated statistics only, as published (outside: truncate); use auto"
    elif not isinstance(prior, model.prior_type):
        msg = f"engine gibbs needs the conjugate prior {model.prior_type.__name__}; use auto"
    else:
        return
    raise InferenceError(msg)


plugin = gibbs
