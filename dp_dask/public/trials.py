"""Trials: methods of inference held against the truth, and against the posterior without privacy, on simulated releases.

A trial is a model with its prior at one n and one epsilon. It draws truths from the prior, simulates a release of each, and lets
any method draw from its posterior: all methods see the same releases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.priors import Prior
from dp_dask.errors import InferenceError
from dp_dask.public import baselines, gibbs_counts
from dp_dask.public.count_tree import draw_counts
from dp_dask.public.dirichlet import dirichlet
from dp_dask.public.engines import augment, gibbs, thinning
from dp_dask.public.infer import infer
from dp_dask.public.mmd import squared_mmd
from dp_dask.public.observation import Observation
from dp_dask.public.ops import ops, ops_counts
from dp_dask.public.simulation import Pseudo, PseudoCounts, simulate, simulate_counts

__all__ = ["METHODS", "CountsTrial", "Outcome", "ScalarTrial", "Trial", "join", "outcome"]

Floats = NDArray[np.float64]
METHODS = ("non_private", "exact", "augment", "gibbs", "naive", "ops")
GIBBS_WARMUP = 10  # kept draws' worth of sweeps


class Trial(Protocol):
    """One model, prior, n and epsilon."""

    @property
    def parameters(self) -> tuple[str, ...]:
        """The parameters' names."""
        ...

    @property
    def prior_sd(self) -> Floats:
        """The prior sd of each parameter."""
        ...

    def truths(self, rng: np.random.Generator, size: int) -> Floats:
        """Draw parameters [size, parameter] from the prior."""
        ...

    def simulate(self, rng: np.random.Generator, truths: Floats) -> Sequence[Any]:
        """Simulate one release of each truth."""
        ...

    def draw(self, method: str, rng: np.random.Generator, pseudos: Sequence[Any], n_draws: int) -> Floats:
        """Draw [release, draw, parameter] by a method; raises InferenceError where the method does not serve the model."""
        ...


@dataclass(frozen=True, slots=True)
class ScalarTrial:
    """A model of one parameter, released as one sum."""

    like: Observation
    prior: Prior

    @property
    def parameters(self) -> tuple[str, ...]:
        """The model's one."""
        return self.like.model.parameters

    @property
    def prior_sd(self) -> Floats:
        """The prior sd."""
        return np.array([self.prior.sd])

    def truths(self, rng: np.random.Generator, size: int) -> Floats:
        """Draw from the prior."""
        return self.prior.rvs(rng, size)[:, None]

    def simulate(self, rng: np.random.Generator, truths: Floats) -> Sequence[Pseudo]:
        """Simulate records, sum and noise."""
        return [simulate(rng, self.like, float(theta)) for theta in truths[:, 0]]

    def draw(self, method: str, rng: np.random.Generator, pseudos: Sequence[Pseudo], n_draws: int) -> Floats:
        """Draw by one of METHODS; those that run chains take one a release, all at once."""
        if method in ("augment", "gibbs"):
            return self._chains(method, rng, pseudos, n_draws)[:, :, None]
        each = {"exact": _exact, "naive": baselines.naive, "non_private": baselines.non_private, "ops": ops}[method]
        return np.stack([each(rng, pseudo, self.prior, n_draws) for pseudo in pseudos])[:, :, None]

    def _chains(self, method: str, rng: np.random.Generator, pseudos: Sequence[Pseudo], n_draws: int) -> Floats:
        y = np.array([pseudo.observation.y for pseudo in pseudos])
        thin = thinning(self.like, self.prior)
        if method == "augment":
            return augment.chains(rng, self.like, self.prior, y, n_draws, thin=thin)[0]
        return gibbs.chains(rng, self.like, self.prior, y.astype(np.float64), n_draws, thin=thin, warmup=GIBBS_WARMUP * thin)


def _exact(rng: np.random.Generator, pseudo: Pseudo, prior: Prior, n_draws: int) -> Floats:
    return infer(rng, pseudo.observation, prior, n_draws).draws.ravel()[:n_draws]


@dataclass(frozen=True, slots=True)
class CountsTrial:
    """Probabilities of K categories with a Dirichlet prior, released as noisy counts of n records."""

    alpha: tuple[float, ...]
    n: int
    epsilon: float

    sensitivity: ClassVar[int] = 2  # a record that is replaced leaves one count and joins another

    @property
    def parameters(self) -> tuple[str, ...]:
        """p[1] to p[K]."""
        return tuple(f"p[{k + 1}]" for k in range(len(self.alpha)))

    @property
    def prior_sd(self) -> Floats:
        """sqrt(m (1 - m) / (A + 1)) with m the prior mean and A the Dirichlet's total."""
        alpha = np.array(self.alpha)
        mean = alpha / alpha.sum()
        return np.sqrt(mean * (1 - mean) / (alpha.sum() + 1))

    def truths(self, rng: np.random.Generator, size: int) -> Floats:
        """Draw from the Dirichlet."""
        return dirichlet(rng, np.tile(self.alpha, (size, 1)))

    def simulate(self, rng: np.random.Generator, truths: Floats) -> Sequence[PseudoCounts]:
        """Simulate counts and noise."""
        return [simulate_counts(rng, p, self.n, self.sensitivity / self.epsilon) for p in truths]

    def draw(self, method: str, rng: np.random.Generator, pseudos: Sequence[PseudoCounts], n_draws: int) -> Floats:
        """Draw by one of METHODS but augment, which serves models of one parameter."""
        alpha = np.array(self.alpha)
        if method == "augment":
            msg = "augment serves models of one parameter only"
            raise InferenceError(msg)
        if method == "gibbs":
            y = np.stack([pseudo.y for pseudo in pseudos])
            return gibbs_counts.chains(rng, y, alpha, self.sensitivity / self.epsilon, self.n, n_draws)
        each = {
            "exact": _exact_counts,
            "naive": baselines.naive_counts,
            "non_private": baselines.non_private_counts,
            "ops": ops_counts,
        }[method]
        return np.stack([each(rng, pseudo, alpha, n_draws) for pseudo in pseudos])


def _exact_counts(rng: np.random.Generator, pseudo: PseudoCounts, alpha: Floats, n_draws: int) -> Floats:
    return dirichlet(rng, alpha + draw_counts(rng, pseudo.y, alpha, pseudo.scale, pseudo.n, n_draws))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a method did on some simulated releases: the truths' ranks and its distance from the non-private posterior."""

    ranks: Floats  # [release, parameter], uniform where the posterior is right
    squared_mmd: Floats  # [release]


def outcome(trial: Trial, method: str, seed: tuple[int, ...], size: int, n_draws: int) -> Outcome | str:
    """Simulate ``size`` releases and let one method draw from the posterior of each; return why where it refuses.

    The seed decides truths, releases and the non-private draws alike for all methods. A rank is that of the truth among the
    draws, ties and gaps broken at random: u = (rank + U) / (draws + 1).
    """
    rng = np.random.default_rng([*seed, 0])
    truths = trial.truths(rng, size)
    pseudos = trial.simulate(rng, truths)
    reference = trial.draw("non_private", rng, pseudos, n_draws)
    own = np.random.default_rng([*seed, 1, *method.encode()])
    try:
        draws = trial.draw(method, own, pseudos, n_draws)
    except InferenceError as error:
        return str(error)
    ties = 1 + np.sum(draws == truths[:, None], axis=1)
    below = np.sum(draws < truths[:, None], axis=1)
    ranks = (below + own.random(truths.shape) * ties) / (n_draws + 1)
    distances = [squared_mmd(x, y, trial.prior_sd) for x, y in zip(draws, reference, strict=True)]
    return Outcome(ranks, np.array(distances))


def join(parts: Sequence[Outcome | str]) -> Outcome | str:
    """Put batches together; a method that refuses one release refuses them all."""
    served = [part for part in parts if isinstance(part, Outcome)]
    refused = [part for part in parts if isinstance(part, str)]
    if refused:
        return refused[0]
    return Outcome(np.concatenate([p.ranks for p in served]), np.concatenate([p.squared_mmd for p in served]))
