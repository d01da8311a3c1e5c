"""Tempering: adaptive importance sampling of theta and simulated sums, by the release's own noise made wider as needed.

A particle is a theta and the sums S of one data set simulated with it; the noise's probability of y - S is an unbiased likelihood
(Wilkinson 2013; Gong 2022). Noise much narrower than the spread of S leaves hardly a particle with a weight, so particles are
weighed by noise of lambda times the scale, lambda falling towards 1 as the proposals close in. All generations are kept, and
weighed against the mixture of all that they were drawn from (Owen & Zhou 2000; Cornuet, Marin, Mira & Robert 2012), the prior
among it. At lambda = 1 the weighted particles are the exact posterior.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dp_dask.errors import InferenceError, LimitError
from dp_dask.public.noise_law import Gaussian
from dp_dask.public.proposals import StudentT, effective_size, fit, moments, normalised
from dp_dask.public.simulated import SimulatedObservation
from dp_dask.public.simulations import FROM_PRIOR, Problem, Simulations
from dp_dask.public.unknowns import unknowns

__all__ = ["INFLATION", "Cloud", "Effort", "first_cloud", "temper", "told"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
INFLATION = 1.3  # of the covariance, in a proposal
PATIENCE, STALLED = 4, 0.9  # generations, after which lambda - 1 must fall below so much of its last value
BISECTIONS, DOUBLINGS = 40, 8
CHECKED = 5_000  # draws from the prior, and as many from a t law like it
MOST_ERROR = 0.02  # of the prior's total probability, and six standard errors


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is simulated: a generation, all of tempering, a bank; and the effective numbers that are enough.

    ``adapting`` decides lambda, at ``wanted`` tempering ends, and ``emulating`` is for the moments of a synthetic likelihood: the
    relative error of its sd is 1 / sqrt(2 emulating), 0.8 %.
    """

    per_generation: int = 5_000
    adapting: float = 250.0
    wanted: float = 4_000.0
    emulating: float = 8_000.0
    most: int = 100_000
    bank: int = 100_000

    @classmethod
    def of(cls, simulations: int) -> Effort:
        """Return the effort that simulates about so many data sets for each engine that is tried."""
        return cls(per_generation=min(max(simulations // 8, 500), 5_000), most=simulations, bank=simulations)


@dataclass(frozen=True, slots=True)
class Cloud:
    """All particles [k] of generations of equal size, and the multiple lambda of the noise's scale that they are weighed by."""

    problem: Problem
    proposals: tuple[StudentT, ...]  # of all generations but the first, which is of the prior
    made: Simulations
    log_prior: Floats
    log_proposals: Floats  # of the sum of the proposals' densities
    multiple: float
    stopped: str = ""  # why, where a limit of simulations ended it

    @property
    def size(self) -> int:
        """The number of simulations."""
        return len(self.log_prior)

    @property
    def each(self) -> int:
        """The number of simulations of one generation."""
        return self.size // (1 + len(self.proposals))

    @property
    def of_prior(self) -> Ints:
        """The sums [k, d] of the first generation, of prior draws, but for those that failed."""
        return self.made.sums[: self.each][self.made.is_whole[: self.each]]

    @property
    def log_mixture(self) -> Floats:
        """The log density [k] of what all particles together were drawn from."""
        later, total = len(self.proposals), 1 + len(self.proposals)
        of_prior = math.log((1 + FROM_PRIOR * later) / total) + self.log_prior
        return np.logaddexp(of_prior, math.log((1 - FROM_PRIOR) / total) + self.log_proposals)

    def log_ratio(self, log_density: Floats) -> Floats:
        """Return the log weights [k] that make the particles draws from a density of w, given that the simulator succeeds."""
        usable = self.made.is_whole & np.isfinite(self.log_prior)
        with np.errstate(invalid="ignore"):
            return np.where(usable, log_density - self.log_mixture, -np.inf)

    def log_fit(self, released: Floats, multiple: float) -> Floats:
        """Return the log density [k] of the noise that each particle leaves to a release [d], 0 at its mode."""
        observation = self.problem.observation
        power = 2 if observation.law is Gaussian else 1
        return np.asarray(observation.noise.decay(released - self.made.sums).sum(axis=1) / multiple**power)

    def log_weight(self, multiple: float) -> Floats:
        """Return the log weights [k] of the posterior under noise of ``multiple`` times the scale."""
        return self.log_ratio(self.log_prior) + self.log_fit(self.problem.observation.released, multiple)

    @property
    def exact_size(self) -> float:
        """The effective number of particles under the release's own noise."""
        return effective_size(self.log_weight(1.0))

    def moments(self) -> tuple[Floats, Floats]:
        """Return mean [q] and covariance [q, q] at the cloud's multiple."""
        return moments(self.made.w, normalised(self.log_weight(self.multiple)))

    def extended(self, proposal: StudentT) -> Cloud:
        """Simulate one more generation, and weigh every particle against all that they were drawn from."""
        more = self.problem.generation(1 + len(self.proposals), self.each, proposal)
        of_old = np.logaddexp(self.log_proposals, proposal.log_density(self.made.w))
        proposals = (*self.proposals, proposal)
        of_new = np.logaddexp.reduce([each.log_density(more.w) for each in proposals])
        return replace(
            self,
            proposals=proposals,
            made=Simulations.join([self.made, more]),
            log_prior=np.append(self.log_prior, self.problem.unknowns.log_density(more.w)),
            log_proposals=np.append(of_old, of_new),
        )


def first_cloud(rng: np.random.Generator, observation: SimulatedObservation, prior: object, size: int) -> Cloud:
    """Simulate a generation from the prior; raises InferenceError for a prior whose density does not integrate to 1."""
    asked = unknowns(observation, prior)
    problem = Problem.of(rng, observation, asked)
    _check_normalised(rng, asked.rvs, asked.log_density)
    made = problem.generation(0, size)
    return Cloud(problem, (), made, asked.log_density(made.w), np.full(size, -np.inf), math.inf)


def temper(cloud: Cloud, effort: Effort) -> Cloud:
    """Add generations until the particles are exact and as many as wanted, or lambda falls no more, or the effort is spent.

    A limit of simulations ends it with the generations that are whole; what is lost is told, and lambda is theirs.
    Raises InferenceError where so many simulations fail that nothing can be learned.
    """
    cloud = _weighed(cloud, effort)
    while cloud.size + cloud.each <= effort.most:
        if cloud.exact_size >= effort.wanted:
            break
        last = cloud.multiple
        try:
            extended = cloud.extended(fit(cloud.made.w, cloud.log_weight(last), INFLATION))
        except LimitError as error:
            return replace(cloud, stopped=str(error))
        cloud = _weighed(extended, effort)
        if len(cloud.proposals) >= PATIENCE and cloud.multiple > max(1 + STALLED * (last - 1), 1.0):
            break
    return cloud


def _weighed(cloud: Cloud, effort: Effort) -> Cloud:
    """Take the smallest multiple at which the effective number of particles is the one for adapting, by bisection."""
    released, base = cloud.problem.observation.released, cloud.log_ratio(cloud.log_prior)
    if effective_size(base) < effort.adapting:
        failed = cloud.made.failures.with_first(cloud.problem.observation.simulator.parameters)
        msg = f"only {effective_size(base):.0f} simulations are of use; {failed}; mend the simulator or move the prior"
        raise InferenceError(msg)
    exact = cloud.log_fit(released, 1.0)
    power = 2 if cloud.problem.observation.law is Gaussian else 1

    def enough(log_multiple: float) -> bool:
        return effective_size(base + exact * math.exp(-power * log_multiple)) >= effort.adapting

    if enough(0.0):
        return replace(cloud, multiple=1.0)
    low, high = 0.0, 1.0
    for _ in range(DOUBLINGS):
        if enough(high):
            break
        low, high = high, 2 * high
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return replace(cloud, multiple=math.exp(high))


def _check_normalised(
    rng: np.random.Generator, rvs: Callable[[np.random.Generator, int], Floats], log_density: Callable[[Floats], Floats]
) -> None:
    """Raise InferenceError unless the density is that of the draws: a factor would move weight between the generations.

    Draws of half the density, half a t law like it have the mean weight p / (p / 2 + t / 2) = 1, between 0 and 2.
    """
    of_prior = rvs(rng, CHECKED)
    of_prior = of_prior[np.isfinite(of_prior).all(axis=1)]
    like = fit(of_prior, np.zeros(len(of_prior)), INFLATION)
    w = np.concatenate([of_prior, like.draw(rng, CHECKED)])
    log_p = log_density(w)
    with np.errstate(invalid="ignore"):
        weight = np.exp(log_p - np.logaddexp(log_p, like.log_density(w)) + math.log(2))
    weight = np.where(np.isfinite(log_p), weight, 0.0)
    error = float(weight.std()) / math.sqrt(len(w))
    if abs(weight.mean() - 1) > MOST_ERROR + 6 * error:
        msg = (
            f"the prior's density adds up to about {weight.mean():.3g} against its own draws; "
            "an importance sampler needs a normalised one (log_density, in the unconstrained coordinates)"
        )
        raise InferenceError(msg)


def told(cloud: Cloud) -> str:
    """Return how exact the cloud is, and what it took."""
    exact = "lambda = 1" if cloud.multiple == 1 else f"lambda = {cloud.multiple:.3g}"
    failed = cloud.made.failures.told(cloud.problem.observation.simulator.parameters)
    stopped = f"; stopped early: {cloud.stopped}" if cloud.stopped else ""
    return f"{exact}, {cloud.exact_size:.0f} effective particles at lambda = 1{stopped}; {failed}"
