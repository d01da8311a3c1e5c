"""synthetic: a normal law of the simulated sums, emulated around the posterior, plus the release's noise exactly.

For sums over many records, whose law is nearly normal and changes smoothly with theta: there it reaches what no weighing of
simulations can, a noise much narrower than the spread of the sums. It is refused where its own simulations contradict it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_dask.errors import InferenceError
from dp_dask.public.emulator import Emulator, emulate
from dp_dask.public.engines import CHAINS, Inference
from dp_dask.public.proposals import Normal, StudentT, Weighted, normalised
from dp_dask.public.simulated import SimulatedObservation
from dp_dask.public.simulations import FROM_PRIOR, PREDICTED
from dp_dask.public.synthetic_likelihood import sample
from dp_dask.public.tempering import INFLATION, Cloud, Effort, first_cloud, temper, told

__all__ = ["Fitted", "conclude", "plugin", "refine", "trusted"]

Floats = NDArray[np.float64]
ROUNDS = 8  # of fits, each after a generation around the last posterior
SETTLED, SETTLED_SD = 0.1, 0.05  # posterior sd that the mean moves by, and the log of the sd's own change
MOVES, MOVES_SD = 0.5, 0.2  # the same where few of the records are simulated: the mean's own error, which is counted, moves it
MOST_BIAS = 0.2  # of the predictive sd of y
MOST_ERROR = 0.5  # variance of the emulated mean's error, of that of the sums: above, more is simulated if it may be
ERRORS = 3.0  # standard errors of the bias that are taken off it where few of the records are simulated
MOST_SKEWNESS, MOST_KURTOSIS, MOST_VARIATION = 0.5, 1.0, 0.5  # of y given theta
MOST_FAILURES = 0.01  # of the simulations near the posterior
FROM_POSTERIOR = 1_000.0  # effective draws


@dataclass(frozen=True, slots=True)
class Fitted:
    """The last emulator and the posterior drawn with it, with all simulations, and what speaks against them."""

    cloud: Cloud
    emulator: Emulator
    posterior: Weighted
    doubts: tuple[str, ...]


def synthetic(rng: np.random.Generator, observation: SimulatedObservation, prior: Any, n_draws: int) -> Inference:
    """Draw from the posterior; raises InferenceError where the simulations contradict a normal law or its emulation."""
    effort = Effort()
    cloud = temper(first_cloud(rng, observation, prior, effort.per_generation), effort)
    return conclude(rng, trusted(rng, cloud, effort, n_draws), n_draws)


def trusted(rng: np.random.Generator, cloud: Cloud, effort: Effort, n_draws: int) -> Fitted:
    """Refine; raises InferenceError where there is nothing to fit, or anything speaks against what is fitted."""
    fitted = refine(rng, cloud, effort, n_draws)
    if fitted.doubts:
        msg = f"engine synthetic does not fit this simulator: {'; '.join(fitted.doubts)}; use engine tempered or bank, or auto"
        raise InferenceError(msg)
    return fitted


def conclude(rng: np.random.Generator, fitted: Fitted, n_draws: int) -> Inference:
    """Draw by the weights."""
    size = CHAINS * -(-n_draws // CHAINS)
    problem, w = fitted.cloud.problem, fitted.posterior.draw(rng, size)
    draws = problem.unknowns.theta(w).reshape(CHAINS, size // CHAINS, -1)
    of_prior = fitted.cloud.of_prior
    if problem.observation.each is not None:
        of_prior = problem.whole.at(rng, problem.unknowns.rvs(rng, PREDICTED)).sums
    predicted = problem.predicted(rng, of_prior, w)
    reason = f"a normal law of the sums, emulated around the posterior; {told(fitted.cloud)}"
    failures = fitted.cloud.made.failures
    return Inference(engine="synthetic", reason=reason, draws=draws, error=None, predicted=predicted, failures=failures)


def refine(rng: np.random.Generator, cloud: Cloud, effort: Effort, n_draws: int) -> Fitted:
    """Fit and draw, simulate a generation around what was drawn, and again until the posterior settles.

    That is when it moves no more and rests on enough simulations. Raises InferenceError where there is nothing to fit.
    """
    noise, factor = cloud.problem.observation.noise, cloud.problem.observation.factor
    settled = (SETTLED, SETTLED_SD) if factor == 1 else (MOVES, MOVES_SD)
    around = Normal.of(*cloud.moments())
    emulator, posterior = _fit(rng, cloud, around, n_draws)
    for _ in range(ROUNDS):
        last = Normal.of(*posterior.moments())
        cloud = cloud.extended(StudentT(last.centre, math.sqrt(INFLATION) * last.root))
        bias = _bias(cloud, emulator, last)
        emulator, posterior = _fit(rng, cloud, last, n_draws)
        is_settled = _is_settled(last, Normal.of(*posterior.moments()), *settled)
        error = factor * emulator.leverage(last.centre[None])[0]
        if is_settled and emulator.size >= effort.emulating and error <= MOST_ERROR:
            break
    doubts = _doubts(emulator, noise.continuous_variance, *bias)
    if not is_settled:
        doubts = (*doubts, f"the posterior still moves after {ROUNDS} generations around it")
    return Fitted(cloud, emulator, posterior, doubts)


def _fit(rng: np.random.Generator, cloud: Cloud, around: Normal, n_draws: int) -> tuple[Emulator, Weighted]:
    observation = cloud.problem.observation
    emulator = emulate(cloud, around)
    wanted = max(FROM_POSTERIOR, 2.0 * n_draws)
    return emulator, sample(rng, emulator, observation.released, observation.noise, cloud.problem.unknowns, wanted)


def _is_settled(last: Normal, now: Normal, most: float, most_sd: float) -> bool:
    last_sd, sd = (np.sqrt((each.root**2).sum(axis=1)) for each in (last, now))
    moved = np.abs(now.centre - last.centre) / sd
    return bool(moved.max() < most and np.abs(np.log(sd / last_sd)).max() < most_sd)


def _bias(cloud: Cloud, emulator: Emulator, posterior: Normal) -> tuple[Floats, float]:
    """Return the emulated mean's error [d] over the posterior, in the last generation, which it was not fitted to.

    And what of its own variance is due to chance, in units of a simulated sum's, where that counts.
    """
    fresh = slice(cloud.size - cloud.each, None)
    w = cloud.made.w[fresh]
    of_proposal = math.log(1 - FROM_PRIOR) + cloud.proposals[-1].log_density(w)
    drawn_from = np.logaddexp(math.log(FROM_PRIOR) + cloud.log_prior[fresh], of_proposal)
    usable = cloud.made.is_whole[fresh] & np.isfinite(cloud.log_prior[fresh])
    weight = normalised(np.where(usable, posterior.log_density(w) - drawn_from, -np.inf))
    by_chance = 0.0
    if emulator.spread is not None:
        by_chance = float((weight**2).sum() + emulator.leverage(posterior.centre[None])[0])
    return np.asarray(weight @ (cloud.made.sums[fresh] - emulator.mean(w))), by_chance


def _doubts(emulator: Emulator, noise_variance: float, bias: Floats, by_chance: float) -> tuple[str, ...]:
    """Return what the simulations hold against a normal law with these moments, for y and not for its sums: noise covers much."""
    variance = emulator.variance
    total = variance + noise_variance
    share = variance / total
    excess = np.maximum(np.abs(bias) - ERRORS * np.sqrt(by_chance * emulator.factor * variance), 0)
    found = {
        "the emulated mean misses by {:.2g} predictive sd": (excess / np.sqrt(total), MOST_BIAS),
        "the sums' skewness is {:.2g}": (np.abs(emulator.skewness) * share**1.5, MOST_SKEWNESS),
        "the sums' excess kurtosis is {:.2g}": (np.abs(emulator.kurtosis) * share**2, MOST_KURTOSIS),
        "the sums' variance varies by {:.2g} of itself over the posterior": (emulator.variation * share, MOST_VARIATION),
    }
    doubts = tuple(f"{text.format(value.max())} (at most {most})" for text, (value, most) in found.items() if value.max() > most)
    if emulator.failures > MOST_FAILURES:  # the normal law is of those that succeed, wherever that is
        doubts = (*doubts, f"{emulator.failures:.2g} of the simulations near the posterior failed (at most {MOST_FAILURES})")
    return doubts


plugin = synthetic
