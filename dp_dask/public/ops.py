"""ops: one-posterior sampling, whose privacy is the posterior's own spread; a baseline for simulated data.

Theorem (the exponential mechanism of McSherry & Talwar 2007; for posteriors Dimitrakakis et al. 2014 and Wang, Fienberg &
Smola 2015, theorem 1). Let theta range over a public set Theta and let one record, replaced by another, change the log
likelihood by a function of theta whose range over Theta is R at most. Then ONE draw from the density proportional to
``prior(theta) likelihood(theta)^rho`` on Theta is (rho R)-differentially private. Proof: the exponent changes by g, rho times
a function of range R; the log density changes by g - log E[exp(g)], and log E[exp(g)] lies between the smallest and the
largest g; so the change is rho R at most. (Bounding |log p| by B gives R = 4 B, the temperature of Wang et al.)

Theta is needed because log p is unbounded near the ends of the parameter space. L draws cost L times as much: many draws from
this law, as taken here to compare it, show what the one that may be released is drawn from.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.dirichlet import Dirichlet
from dp_dask.core.priors import Prior
from dp_dask.errors import InferenceError
from dp_dask.public.counts import CountsObservation
from dp_dask.public.grid import Cells, GridPosterior
from dp_dask.public.observation import Observation
from dp_dask.public.simulation import Pseudo

__all__ = ["law", "ops", "temperature", "temperature_counts"]

Floats = NDArray[np.float64]
OUTSIDE = 0.01  # of the prior on each side of Theta
N_CELLS = 2**12
SMALLEST_SHARE = 0.04  # of 1 / K: probabilities in Theta are at least this
BLOCK, MOST_BLOCKS = 2**14, 500


def ops(rng: np.random.Generator, pseudo: Pseudo, prior: Any, n_draws: int) -> Floats:
    """Draw [draw, parameter] from the law of which one draw is as private as the simulated release.

    That is epsilon = sensitivity / scale. Raises InferenceError for a private n, a prior that is not conjugate, and a release of
    neither one sum nor counts.
    """
    like = pseudo.observation
    if like.n is None:
        msg = "ops serves a public n only"
    elif not isinstance(prior, like.model.prior_type):
        msg = f"ops needs the conjugate prior {like.model.prior_type.__name__}"
    elif isinstance(like, CountsObservation):
        return _of_counts(rng, pseudo, prior, n_draws)
    elif isinstance(like, Observation) and pseudo.exact is not None:
        return law(like, prior, pseudo.exact).draw(rng, n_draws)[:, None]
    else:
        msg = "ops serves one sum, or counts"
    raise InferenceError(msg)


def law(observation: Observation, prior: Prior, exact: int) -> GridPosterior:
    """Return the density of one draw, given the exact sum of the contributions, tabulated on Theta.

    Theta holds the middle 98 % of the prior; n is public.
    """
    n = observation.n or 0
    theta = _theta(prior)
    rho = temperature(observation, prior, theta)
    total = observation.statistic.units[0] * (exact + n * observation.origin)
    density = _posterior(observation, prior, rho * n, rho * total).log_density(theta.middle)
    weights = np.exp(density - density.max())
    return GridPosterior(prior, theta, weights / weights.sum())


def temperature(observation: Observation, prior: Prior, theta: Cells) -> float:
    """Return rho = epsilon / R, at most 1.

    In an exponential family the log likelihood's change is the natural parameter eta(theta) times what the record moves the sum
    by, up to a constant; eta is monotone, so its range is that between the ends of Theta. The conjugate posteriors of one
    record at either end of the contributions give it.
    """
    unit = observation.statistic.units[0]
    sensitivity = observation.high - observation.low
    ends = theta.middle[[0, -1]]
    low, high = (unit * (c + observation.origin) for c in (observation.low, observation.high))
    change = _posterior(observation, prior, 1, high).log_density(ends) - _posterior(observation, prior, 1, low).log_density(ends)
    return min(sensitivity / observation.scale / float(abs(change[1] - change[0])), 1.0)


def _theta(prior: Prior) -> Cells:
    """Return equal cells over the coordinates between which the middle 98 % of the prior lies."""
    low, high = prior.coordinate_range()
    edges = np.linspace(low, high, N_CELLS + 1)
    share = np.cumsum(np.exp(prior.log_density((edges[1:] + edges[:-1]) / 2)))
    start, end = np.interp([OUTSIDE, 1 - OUTSIDE], share / share[-1], edges[1:])
    return Cells(np.array([start]), np.array([end])).split(N_CELLS)


def _posterior(observation: Observation, prior: Prior, n: float, total: float) -> Prior:
    made: Prior = type(prior)(*map(float, observation.model.update(prior, n, total)))
    return made


def _of_counts(rng: np.random.Generator, pseudo: Pseudo, prior: Dirichlet, n_draws: int) -> Floats:
    """Draw [draw, K] from Dirichlet(alpha + rho S) where every probability is at least 0.04 / K, by rejection.

    Raises InferenceError where fewer than one proposal in some 10^5 is taken.
    """
    sensitivity = 2  # a record that is replaced leaves one count and joins another
    floor, rho = temperature_counts(len(prior.alpha), sensitivity / pseudo.observation.scale)
    tempered = Dirichlet(tuple(np.array(prior.alpha) + rho * pseudo.total))
    taken: list[Floats] = []
    for _ in range(MOST_BLOCKS):
        p = tempered.rvs(rng, BLOCK)
        taken.append(p[(p >= floor).all(axis=1)])
        if sum(map(len, taken)) >= n_draws:
            return np.concatenate(taken)[:n_draws]
    msg = f"ops: hardly any draw of this posterior has all probabilities above {floor:g}"
    raise InferenceError(msg)


def temperature_counts(n_cells: int, epsilon: float) -> tuple[float, float]:
    """Return the smallest probability a in Theta, and rho = epsilon / R.

    Moving a record from cell i to j changes the log likelihood by log(p_j / p_i), between plus and minus log(b / a), with
    b = 1 - (K - 1) a the largest probability in Theta: R = 2 log(b / a).
    """
    floor = SMALLEST_SHARE / n_cells
    return floor, min(epsilon / (2 * math.log((1 - (n_cells - 1) * floor) / floor)), 1.0)
