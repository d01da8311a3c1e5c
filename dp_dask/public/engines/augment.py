"""augment: exact data-augmentation MCMC of Ju, Awan, Gong & Rao (2022), with every record as a latent variable.

A sweep draws theta given latent records by Conjugate-Update, then offers each record in turn a new value from the model given
theta. Its cost grows with n, and chains mix slowly: a cross-check of the other engines for n up to a thousand.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.priors import Prior
from dp_dask.errors import InferenceError
from dp_dask.public import augment_counts, gibbs_counts
from dp_dask.public.counts import CountsObservation
from dp_dask.public.engines import CHAINS, Inference, thinning
from dp_dask.public.noise_law import Laplace
from dp_dask.public.observation import Observation

__all__ = ["chains", "plugin", "refresh"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
WARMUP = 10  # kept draws' worth of sweeps
LONGEST_THIN = 200
MOST_OFFERS = 3e7  # some minutes
ADVISED, MOST_RECORDS = 10**3, 10**5


def augment(rng: np.random.Generator, observation: Observation | CountsObservation, prior: Any, n_draws: int) -> Inference:
    """Run four chains, thinned by the autocorrelation time that the release's share of information predicts."""
    predicted = _thinning(observation, prior)
    thin = min(predicted, LONGEST_THIN)
    offers = (observation.n or 0) * thin * (WARMUP + -(-n_draws // CHAINS))
    if offers > MOST_OFFERS:
        msg = f"engine augment would make {offers:.0e} offers to each chain, at most {MOST_OFFERS:.0e} are allowed; use auto"
        raise InferenceError(msg)
    y = np.array([observation.y] * CHAINS, dtype=np.int64)
    draws, rate = chains(rng, observation, prior, y, -(-n_draws // CHAINS), thin=thin)
    slow = f" (its chains need {predicted} to forget: look at ESS)" if thin < predicted else ""
    many = "; n is above a thousand: prefer auto" if (observation.n or 0) > ADVISED else ""
    reason = f"asked for, a cross-check for n up to {ADVISED}; every {thin}th sweep kept{slow}, {rate:.0%} of offers taken{many}"
    return Inference(engine="augment", reason=reason, draws=draws, error=None)


def chains(
    rng: np.random.Generator,
    observation: Observation | CountsObservation,
    prior: Any,
    y: Ints,
    n_draws: int,
    *,
    thin: int,
) -> tuple[Floats, float]:
    """Run one chain for each noisy sum y [chain], in grid units, or counts y [chain, K], all else as in the observation.

    Returns draws [chain, draw, parameter] and the share of offers that were taken. Raises InferenceError for a private n, a
    prior that is not conjugate, more than 1e5 records, or records that float64 cannot hold.
    """
    n = _check(observation, prior)
    if isinstance(observation, CountsObservation):
        return augment_counts.chains(rng, y, np.array(prior.alpha), observation.scale, n, n_draws, thin=thin)
    draws, rate = _of_sums(rng, observation, prior, y, n, n_draws, thin=thin)
    return draws[:, :, None], rate


def _of_sums(
    rng: np.random.Generator, observation: Observation, prior: Prior, y: Ints, n: int, n_draws: int, *, thin: int
) -> tuple[Floats, float]:
    model = observation.model
    theta = prior.rvs(rng, len(y))
    records, contributions = _offer(rng, observation, theta, n)
    draws = np.empty((len(y), n_draws))
    n_taken = 0
    for sweep in range(-WARMUP * thin, n_draws * thin):
        total = records.sum(axis=1)
        if not np.isfinite(total).all():
            msg = "a latent record is beyond float64: the prior reaches parameters that no record can be drawn from; use auto"
            raise InferenceError(msg)
        theta = model.draw(model.update(prior, n, total), rng)
        if sweep >= 0 and (sweep + 1) % thin == 0:
            draws[:, sweep // thin] = theta
        offered, steps = _offer(rng, observation, theta, n)
        steps -= contributions
        is_taken = refresh(rng, y - contributions.sum(axis=1), steps, observation.scale)
        records = np.where(is_taken, offered, records)
        contributions += np.where(is_taken, steps, 0)
        n_taken += int(is_taken.sum()) if sweep >= 0 else 0
    return draws, n_taken / max(n_draws * thin * contributions.size, 1)


def refresh(rng: np.random.Generator, gap: Ints, steps: Ints, scale: float) -> NDArray[np.bool_]:
    """Take or refuse each record's offered ``steps`` [chain, record], one record after the other; ``gap`` [chain] is y - S.

    An offer that moves S by c' - c is taken with probability min(1, exp((abs(y - S) - abs(y - S - c' + c)) / scale)), the
    Metropolis-Hastings ratio, because offers come from the model and the proposal density cancels against it. Theorem (Ju et
    al. 2022, section 3): where the scale is sensitivity / epsilon, every offer is taken with probability exp(-epsilon) at
    least. Proof: abs(c' - c) is at most the sensitivity, and the noise's log density has slope 1 / scale at most.
    """
    is_taken = np.empty(steps.shape, dtype=np.bool_)
    allowed = scale * rng.standard_exponential(steps.T.shape)
    for i, step in enumerate(steps.T):
        moved = gap - step
        is_taken[:, i] = np.abs(moved) - np.abs(gap) <= allowed[i]
        gap = np.where(is_taken[:, i], moved, gap)
    return is_taken


def _offer(rng: np.random.Generator, observation: Observation, theta: Floats, n: int) -> tuple[Floats, Ints]:
    """Draw n records from the model for each theta; return their statistics and contributions [chain, record]."""
    shape = (len(theta), n)
    with np.errstate(over="ignore", divide="ignore"):  # what overflows is refused by name
        x = observation.model.simulate(np.repeat(theta, n), len(theta) * n, rng)
    return observation.model.statistic(x).reshape(shape), observation.statistic.contributions(x).reshape(shape)


def _thinning(observation: Observation | CountsObservation, prior: Any) -> int:
    n = _check(observation, prior)
    if isinstance(observation, CountsObservation):
        return gibbs_counts.thinning(np.array(prior.alpha), observation.scale, n)
    return thinning(observation, prior)


def _check(observation: Observation | CountsObservation, prior: Any) -> int:
    """Return the public n."""
    n = observation.n
    if observation.law is not Laplace:
        msg = f"engine augment was published for Laplace noise, and this release has {observation.law.name} noise; use auto"
    elif n is None:
        msg = "engine augment serves a public n only (neighbours: replace); use auto"
    elif n > MOST_RECORDS:
        msg = f"engine augment keeps every record as a variable: n is {n}, at most {MOST_RECORDS} are allowed; use auto"
    elif not isinstance(prior, observation.model.prior_type):
        msg = f"engine augment needs the conjugate prior {observation.model.prior_type.__name__}; use auto"
    else:
        return n
    raise InferenceError(msg)


plugin = augment
