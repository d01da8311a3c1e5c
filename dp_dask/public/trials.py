"""Trials: methods of inference held against the truth, and against the posterior without privacy, on simulated releases.

A trial is a model with its prior at one n and one epsilon: truths are drawn from the prior, a release of each is simulated, and
any method may draw from its posterior. All methods see the same releases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_dask.errors import InferenceError
from dp_dask.public import gibbs_counts
from dp_dask.public.baselines import naive, non_private
from dp_dask.public.counts import CountsObservation
from dp_dask.public.engines import augment, gibbs, thinning
from dp_dask.public.infer import infer
from dp_dask.public.mmd import squared_mmd
from dp_dask.public.noise_law import Laplace
from dp_dask.public.observation import Observation
from dp_dask.public.ops import ops
from dp_dask.public.simulation import Pseudo, simulate

__all__ = ["METHODS", "Outcome", "Trial", "join", "outcome"]

Floats = NDArray[np.float64]
METHODS = ("non_private", "exact", "augment", "gibbs", "naive", "ops")
GIBBS_WARMUP = 10  # kept draws' worth of sweeps


@dataclass(frozen=True, slots=True)
class Trial:
    """A model, through what its release would be at one n and one epsilon, and its prior, of finite variance."""

    like: Observation | CountsObservation
    prior: Any

    @property
    def parameters(self) -> tuple[str, ...]:
        """The parameters' names."""
        found: tuple[str, ...] = self.like.model.parameters
        return found

    def draw(self, method: str, rng: np.random.Generator, pseudos: Sequence[Pseudo], n_draws: int) -> Floats:
        """Draw [release, draw, parameter] by one of METHODS; chains are run for all releases at once.

        Raises InferenceError where the method does not serve the model, the prior or the noise.
        """
        if method in ("augment", "gibbs", "ops") and self.like.law is not Laplace:
            msg = f"{method} serves Laplace noise, and this release has {self.like.law.name} noise"
            raise InferenceError(msg)
        if method in ("augment", "gibbs"):
            return self._chains(method, rng, np.array([pseudo.observation.y for pseudo in pseudos]), n_draws)
        each = {"exact": _exact, "naive": naive, "non_private": non_private, "ops": ops}[method]
        return np.stack([each(rng, pseudo, self.prior, n_draws) for pseudo in pseudos])

    def _chains(self, method: str, rng: np.random.Generator, y: NDArray[np.int64], n_draws: int) -> Floats:
        like, prior = self.like, self.prior
        if not isinstance(prior, like.model.prior_type):
            msg = f"{method} needs the conjugate prior {like.model.prior_type.__name__}"
            raise InferenceError(msg)
        if isinstance(like, CountsObservation):
            alpha = np.array(prior.alpha)
            if method == "augment":
                thin = gibbs_counts.thinning(alpha, like.scale, like.n or 0)
                return augment.chains(rng, like, prior, y, n_draws, thin=thin)[0]
            return gibbs_counts.chains(rng, y, alpha, like.scale, like.n or 0, n_draws)
        thin = thinning(like, prior)
        if method == "augment":
            return augment.chains(rng, like, prior, y, n_draws, thin=thin)[0]
        return gibbs.chains(rng, like, prior, y.astype(np.float64), n_draws, thin=thin, warmup=GIBBS_WARMUP * thin)[:, :, None]


def _exact(rng: np.random.Generator, pseudo: Pseudo, prior: Any, n_draws: int) -> Floats:
    draws = infer(rng, pseudo.observation, prior, n_draws).draws
    return draws.reshape(-1, draws.shape[-1])[:n_draws]


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
    truths = trial.prior.rvs(rng, size).reshape(size, -1)
    pseudos = [simulate(rng, trial.like, theta if theta.size > 1 else float(theta[0]), trial.prior) for theta in truths]
    reference = trial.draw("non_private", rng, pseudos, n_draws)
    own = np.random.default_rng([*seed, 1, *method.encode()])
    try:
        draws = trial.draw(method, own, pseudos, n_draws)
    except InferenceError as error:
        return str(error)
    ties = 1 + np.sum(draws == truths[:, None], axis=1)
    below = np.sum(draws < truths[:, None], axis=1)
    ranks = (below + own.random(truths.shape) * ties) / (n_draws + 1)
    distances = [squared_mmd(x, y, np.atleast_1d(trial.prior.sd)) for x, y in zip(draws, reference, strict=True)]
    return Outcome(ranks, np.array(distances))


def join(parts: Sequence[Outcome | str]) -> Outcome | str:
    """Put batches together; a method that refuses one release refuses them all."""
    served = [part for part in parts if isinstance(part, Outcome)]
    refused = [part for part in parts if isinstance(part, str)]
    if refused:
        return refused[0]
    return Outcome(np.concatenate([p.ranks for p in served]), np.concatenate([p.squared_mmd for p in served]))
