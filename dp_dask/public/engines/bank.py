"""bank: many simulations from the prior with fresh noise, the nearest in a learned summary of the release, and regression.

For any simulator, one history for each theta too. The summary is the posterior mean as a quadratic function of the noisy sums
(Fearnhead & Prangle 2012), and what lies between the nearest simulations and the release is adjusted by local linear
regression (Beaumont, Zhang & Balding 2002). Neither the bank nor the summary knows the release: they serve any number of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_dask.errors import InferenceError
from dp_dask.public.emulator import polynomial
from dp_dask.public.engines import CHAINS, Inference
from dp_dask.public.failures import Failures
from dp_dask.public.proposals import Weighted, effective_size
from dp_dask.public.simulated import SimulatedObservation
from dp_dask.public.simulations import Problem, Simulations
from dp_dask.public.tempering import Effort
from dp_dask.public.unknowns import unknowns

__all__ = ["Bank", "conclude", "is_near", "make_bank", "nearest", "plugin"]

Floats = NDArray[np.float64]
NEAREST = 0.01  # of the simulations
LEAST = 500
PENALTY = 1e-6  # of the features' own squares
FARTHEST = 3.0  # residual sd of the unknowns, from the release to the nearest simulation


@dataclass(frozen=True, slots=True)
class Bank:
    """Simulations from the prior [k], and a summary [q] of noisy sums that was learned from them."""

    problem: Problem
    made: Simulations  # those that are of use
    failures: Failures  # of all
    scale: float  # of arcsinh
    centre: Floats  # of its values
    sd: Floats
    coefficients: Floats  # [features, q]
    summaries: Floats  # [k, q], of the simulations with fresh noise
    spread: Floats  # [q], of the unknowns about their summaries

    def summarise(self, noisy: Floats) -> Floats:
        """Return the summaries [m, q] of noisy sums [m, d]."""
        return polynomial((np.arcsinh(noisy / self.scale) - self.centre) / self.sd, 2) @ self.coefficients

    def gaps(self, released: Floats) -> tuple[Floats, Floats]:
        """Return the simulations' summaries less that of a release [k, q], and their lengths [k] in units of ``spread``."""
        gap = self.summaries - self.summarise(released[None])
        return gap, np.sqrt(((gap / self.spread) ** 2).sum(axis=1))


def bank(rng: np.random.Generator, observation: SimulatedObservation, prior: Any, n_draws: int) -> Inference:
    """Draw from the posterior given the learned summary of the release: approximate, and wider where the bank is thin."""
    return conclude(rng, make_bank(rng, observation, prior, Effort().bank), n_draws)


def make_bank(rng: np.random.Generator, observation: SimulatedObservation, prior: Any, size: int) -> Bank:
    """Simulate ``size`` data sets from the prior, add noise and learn the summary by ridge regression.

    Raises InferenceError where too few of them are of use.
    """
    observation.check_whole("bank")
    problem = Problem.of(rng, observation, unknowns(observation, prior))
    all_made = problem.generation(0, size)
    usable = all_made.is_whole & np.isfinite(all_made.w).all(axis=1)
    made = Simulations(all_made.w[usable], all_made.sums[usable], usable[usable])
    if len(made.w) < 2 * LEAST:
        failed = all_made.failures.with_first(observation.simulator.parameters)
        msg = f"only {len(made.w)} simulations from the prior are of use; {failed}; mend the simulator or move the prior"
        raise InferenceError(msg)
    noise = observation.noise
    scale = max(2 * noise.scale, 1.0)
    features = np.arcsinh((made.sums + noise.draw(rng, made.sums.size).reshape(made.sums.shape)) / scale)
    centre, sd = features.mean(axis=0), features.std(axis=0)
    sd[sd == 0] = 1
    x = polynomial((features - centre) / sd, 2)
    middle = made.w.mean(axis=0)
    gram = x.T @ x
    coefficients = np.linalg.solve(gram + np.diag(PENALTY * np.diag(gram) + np.finfo(float).tiny), x.T @ (made.w - middle))
    coefficients[0] += middle
    summaries = x @ coefficients
    spread = np.sqrt(((made.w - summaries) ** 2).mean(axis=0))
    return Bank(problem, made, all_made.failures, scale, centre, sd, coefficients, summaries, spread)


def conclude(rng: np.random.Generator, made: Bank, n_draws: int) -> Inference:
    """Draw for the bank's own release; raises InferenceError where it lies far from all simulations."""
    size = CHAINS * -(-n_draws // CHAINS)
    observation = made.problem.observation
    if not is_near(made, observation.released):
        msg = f"the release lies more than {FARTHEST:g} sd from every simulation of the prior; give a prior nearer to the release"
        raise InferenceError(msg)
    found = nearest(made, observation.released)
    w = found.draw(rng, size)
    draws = made.problem.unknowns.theta(w).reshape(CHAINS, size // CHAINS, -1)
    predicted = made.problem.predicted(rng, made.made.sums, w)
    exact = effective_size(observation.noise.decay(observation.released - made.made.sums).sum(axis=1))
    reason = (
        f"the nearest {len(found.w)} simulations of the prior by a learned summary, with local regression; "
        f"{exact:.0f} effective at lambda = 1; {made.failures.told(observation.simulator.parameters)}"
    )
    return Inference(engine="bank", reason=reason, draws=draws, error=None, predicted=predicted, failures=made.failures)


def is_near(made: Bank, released: Floats) -> bool:
    """Whether a release [d] lies among the simulations, by the learned summary."""
    return bool(made.gaps(released)[1].min() <= FARTHEST)


def nearest(made: Bank, released: Floats, without: int | None = None) -> Weighted:
    """Return the unknowns of the nearest simulations [k, q], moved along their regression to the release, and their weights.

    The simulation ``without`` is left out.
    """
    gap, distance = made.gaps(released)
    if without is not None:
        distance[without] = np.inf
    k = min(max(LEAST, round(NEAREST * len(distance))), len(distance) - 2)
    order = np.argpartition(distance, k)
    reach, near = distance[order[k]], order[:k]
    weight = np.maximum(1 - (distance[near] / reach) ** 2, 1e-12)
    x = np.concatenate([np.ones((k, 1)), gap[near]], axis=1)
    root = np.sqrt(weight)[:, None]
    slopes, *_ = np.linalg.lstsq(root * x, root * made.made.w[near], rcond=None)
    return Weighted(made.made.w[near] - gap[near] @ slopes[1:], np.log(weight))


plugin = bank
