"""Unknowns: what is inferred through a simulator, theta and a private n, as unconstrained coordinates with a proper density."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dp_dask.errors import InferenceError
from dp_dask.public.simulated import SimulatedObservation

__all__ = ["Unknowns", "unknowns"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
FAR = 40.0  # nats, below which a geometric law is left out
MOST_N = 2**40


@dataclass(frozen=True, slots=True)
class Window:
    """P(n | noisy count) of whole numbers ``first`` .. : log probabilities [k], normalised."""

    first: int
    log_p: tuple[float, ...]

    def rvs(self, rng: np.random.Generator, size: int) -> Floats:
        """Draw n + U, U uniform in [0, 1): a continuous coordinate whose whole part is n."""
        p = np.exp(self.log_p)
        return self.first + rng.choice(len(p), size, p=p / p.sum()) + rng.random(size)

    def log_density(self, m: Floats) -> Floats:
        """Return the log density [k] of n + U."""
        place = np.floor(m) - self.first
        inside = (place >= 0) & (place < len(self.log_p))
        found = np.array(self.log_p)[np.where(inside, place, 0).astype(np.int64)]
        return np.where(inside, found, -np.inf)


@dataclass(frozen=True, slots=True)
class Geometric:
    """P(n) of whole numbers from 0 with mean ``expected``."""

    expected: float

    def rvs(self, rng: np.random.Generator, size: int) -> Floats:
        """Draw n + U."""
        return rng.geometric(1 / (self.expected + 1), size) - 1 + rng.random(size)

    def log_density(self, m: Floats) -> Floats:
        """Return the log density [k] of n + U."""
        n = np.floor(m)
        decay = math.log1p(1 / self.expected)
        inside = (n >= 0) & (n < MOST_N)
        return np.where(inside, -decay * np.where(inside, n, 0) - math.log1p(self.expected), -np.inf)


@dataclass(frozen=True, slots=True)
class Unknowns:
    """The coordinates w [k, q]: those of the prior, and last a private n's, n + U with U uniform in [0, 1)."""

    prior: Any
    is_scalar: bool
    law_of_n: Window | Geometric | None

    @property
    def n_private(self) -> int:
        """How many of the last coordinates are not theta's."""
        return int(self.law_of_n is not None)

    def rvs(self, rng: np.random.Generator, size: int) -> Floats:
        """Draw coordinates [size, q] from the prior."""
        v = np.asarray(self.prior.coordinate(self.prior.rvs(rng, size)), dtype=np.float64).reshape(size, -1)
        return v if self.law_of_n is None else np.append(v, self.law_of_n.rvs(rng, size)[:, None], axis=1)

    def log_density(self, w: Floats) -> Floats:
        """Return the prior's log density [k], normalised; -inf where it has none."""
        v = self._of_theta(w)
        with np.errstate(all="ignore"):
            found = np.asarray(self.prior.log_density(v[:, 0] if self.is_scalar else v), dtype=np.float64)
        if self.law_of_n is not None:
            found = found + self.law_of_n.log_density(w[:, -1])
        return np.where(np.isfinite(found), found, -np.inf)

    def theta(self, w: Floats) -> Floats:
        """Return the parameters [k, p]."""
        v = self._of_theta(w)
        with np.errstate(all="ignore"):
            return np.asarray(self.prior.parameter(v[:, 0] if self.is_scalar else v), dtype=np.float64).reshape(len(w), -1)

    def n(self, w: Floats) -> Ints | None:
        """Return a private n [k], None where there is none."""
        return None if self.law_of_n is None else np.floor(w[:, -1]).astype(np.int64)

    def _of_theta(self, w: Floats) -> Floats:
        return w[:, : w.shape[1] - self.n_private]


def unknowns(observation: SimulatedObservation, prior: Any) -> Unknowns:
    """Return what is to be inferred; raises InferenceError for a prior without coordinates.

    A private n enters by its law given the noisy count, prior times noise: it needs no further weight.
    """
    if not all(hasattr(prior, each) for each in ("rvs", "coordinate", "parameter", "log_density")):
        msg = f"{type(prior).__name__} has no density in unconstrained coordinates; a simulator needs such a prior"
        raise InferenceError(msg)
    is_scalar = len(observation.simulator.parameters) == 1
    if not observation.draws_n:
        return Unknowns(prior, is_scalar, None)
    if observation.count is None:
        return Unknowns(prior, is_scalar, Geometric(observation.expected_n or 0.0))
    weight, noise = observation.statistic.count_weight, observation.noise
    reach = noise.reach / weight
    first = max(math.floor(observation.count / weight - reach), 0)
    n = np.arange(first, max(math.ceil(observation.count / weight + reach), first) + 1)
    log_p = noise.decay(observation.count - weight * n.astype(np.float64))
    if observation.expected_n is not None:
        log_p = log_p - n * math.log1p(1 / observation.expected_n)
    log_p = log_p - special.logsumexp(log_p)
    return Unknowns(prior, is_scalar, Window(first, tuple(log_p.tolist())))
