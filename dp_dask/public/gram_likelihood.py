"""The likelihood of noisy Gram matrices, given the noise's own variances: normal, by the central limit theorem."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.gram import GramSum
from dp_dask.core.wishart import NormalInverseWishart
from dp_dask.errors import InferenceError
from dp_dask.public.gram_moments import clamped_moments
from dp_dask.public.noise_law import Gaussian, Laplace, Noisy

__all__ = ["Count", "GramObservation", "Releases", "State", "log_likelihood", "releases"]

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
JITTER = 1e-9  # of each variance, so that no rounding makes the covariance indefinite
SMALLEST_VARIANCE = 1e-12  # of the noise's, so that S keeps a law where every record is clamped
LARGEST_COUNT = 2.0**53
CHUNK = 2**19  # numbers worked on at a time: they stay in the cache


@dataclass(frozen=True, slots=True, kw_only=True)
class GramObservation(Noisy):
    """y = S + noise, with S the sum of the contributions of n records; all in grid units.

    ``scale`` is that of the noise's ``law`` in each of the K entries. Where n is private, ``count`` is
    count_weight * n + noise and the prior of n is geometric with mean ``expected_n``, flat where that is None.
    """

    statistic: GramSum
    n: int | None
    scale: float
    y: tuple[int, ...]
    count: int | None = None
    expected_n: float | None = None
    model: Any = None  # whose parameters are reported
    law: type[Laplace | Gaussian] = Laplace

    def __post_init__(self) -> None:
        if len(self.y) != self.statistic.size:
            msg = f"{len(self.y)} noisy sums for {len(self.statistic.columns)} columns; there must be {self.statistic.size}"
            raise InferenceError(msg)
        if (self.n is None) is (self.count is None) or (self.n is None and self.statistic.count_weight < 1):
            msg = "either n is public, or it is private and its noisy count, with a weight, is given"
            raise InferenceError(msg)


class State(NamedTuple):
    """What is known at coordinates [k, P]: log prior [k], mean [k, K] and covariance [k, K, K] of S over the noise's scale."""

    log_prior: Floats
    mean: Floats
    covariance: Floats


class Count(NamedTuple):
    """A private n as one more coordinate x: n = floor(middle + spread * x), a whole number; x with a negative n has no density.

    ``law`` is that of the noise. Arrays by release: ``noisy`` and ``scale`` are the noisy count and its noise in records,
    ``log_g`` the log of the geometric prior's ratio; ``middle`` and ``spread`` are about the mean and sd of n given its noisy
    count alone.
    """

    law: type[Laplace | Gaussian]
    noisy: Floats
    scale: Floats
    log_g: Floats
    middle: Floats
    spread: Floats

    def number(self, x: Floats, of: Indices) -> Floats:
        """Return n at coordinates x [k] of the releases ``of`` [k]."""
        return np.floor(np.maximum(self.middle[of] + self.spread[of] * x, 0))

    def log_density(self, x: Floats, of: Indices) -> Floats:
        """Return log P(noisy count | n) P(n), up to a constant."""
        n = self.number(x, of)
        log_p = n * self.log_g[of] + self.law(1.0).decay((self.noisy[of] - n) / self.scale[of])
        return np.where(self.middle[of] + self.spread[of] * x < 0, -np.inf, log_p)

    def folded(self, x: Floats, of: Indices) -> Floats:
        """Return x, or its mirror image where n would be negative: a place to start from."""
        return (np.abs(self.middle[of] + self.spread[of] * x) - self.middle[of]) / self.spread[of]


@dataclass(frozen=True, slots=True, kw_only=True)
class Releases:
    """Releases of one statistic under one prior: y [release, K] in units of its scale [release]; n [release], or its count.

    ``law`` is that of the noise, the same in all.
    """

    statistic: GramSum
    prior: NormalInverseWishart
    y: Floats
    scale: Floats
    n: Floats
    count: Count | None
    law: type[Laplace | Gaussian]

    @property
    def omega(self) -> float:
        """The noise's variance in units of its scale's square; under Laplace noise the mean of its mixture."""
        return self.law(1.0).continuous_variance

    def state(self, phi: Floats, of: Indices) -> State:
        """Return prior and law of S at coordinates phi [k, P] of the releases ``of`` [k]."""
        size = self.prior.size
        log_prior = self.prior.log_density(phi[:, :size])
        n = self.numbers(phi, of)
        if self.count is not None:
            log_prior = log_prior + self.count.log_density(phi[:, -1], of)
        c = len(self.statistic.columns)
        mean, root = self.prior.mean_and_root(phi[:, :size])
        mu = np.empty((len(phi), self.statistic.size))
        sigma = np.empty((*mu.shape, self.statistic.size))
        step = max(CHUNK // (512 * self.statistic.size), 1)
        for start in range(0, len(phi), step):
            some = slice(start, start + step)
            # Rounding to cells adds one twelfth of their width's square to each variance (Sheppard).
            mu[some], sigma[some] = clamped_moments(mean[some], root[some], rounding=1 / (12 * self.statistic.unit))
        i, j = np.triu_indices(c)
        mu[:, c:][:, i == j] -= self.statistic.centre / self.statistic.unit
        scale = self.scale[of] / self.statistic.unit
        mu *= (n / scale)[:, None]
        sigma *= (n / scale**2)[:, None, None]
        diagonal = np.diagonal(sigma, axis1=1, axis2=2)
        sigma += (JITTER * diagonal + SMALLEST_VARIANCE)[:, :, None] * np.eye(self.statistic.size)
        return State(log_prior, mu, sigma)

    def numbers(self, phi: Floats, of: Indices) -> Floats:
        """Return the number of records [k]."""
        return self.n[of] if self.count is None else self.count.number(phi[:, -1], of)

    def folded(self, phi: Floats, of: Indices) -> Floats:
        """Return phi, any private n in it made non-negative."""
        if self.count is None:
            return phi
        return np.concatenate([phi[:, :-1], self.count.folded(phi[:, -1], of)[:, None]], axis=1)

    def prior_draws(self, rng: np.random.Generator, size: int) -> Floats:
        """Draw coordinates [size, P], that of a private n about as its noisy count alone has it."""
        draws = self.prior.rvs(rng, size)
        return draws if self.count is None else np.concatenate([draws, rng.standard_normal((size, 1))], axis=1)


def releases(observations: Sequence[GramObservation], prior: NormalInverseWishart) -> Releases:
    """Stack observations; raises InferenceError unless they are of one statistic, all of public or all of private n."""
    statistic = observations[0].statistic
    law, is_private = observations[0].law, observations[0].n is None
    if any(each.statistic != statistic or each.law is not law or (each.n is None) != is_private for each in observations):
        msg = "releases inferred together must be of one statistic and one noise, all with a public or all with a private n"
        raise InferenceError(msg)
    if len(prior.m0) != len(statistic.columns):
        msg = f"the prior is of {len(prior.m0)} columns, the release of {len(statistic.columns)}; give one that fits"
        raise InferenceError(msg)
    scale = np.array([each.scale for each in observations])
    return Releases(
        statistic=statistic,
        prior=prior,
        y=np.array([each.y for each in observations], dtype=np.float64) / scale[:, None],
        scale=scale,
        n=np.array([float(each.n or 0) for each in observations]),
        count=Count(law, *map(np.array, zip(*map(_count, observations), strict=True))) if is_private else None,
        law=law,
    )


def log_likelihood(state: State, y: Floats, omega: Floats) -> Floats:
    """Return log N(y; mean, covariance + diag omega) [k] up to a constant; y and omega [k, K] in units of the noise's scale."""
    root = np.linalg.cholesky(state.covariance + omega[:, None, :] * np.eye(y.shape[1]))
    z = np.linalg.solve(root, (y - state.mean)[:, :, None])[:, :, 0]
    return -0.5 * (z * z).sum(axis=1) - np.log(np.diagonal(root, axis1=1, axis2=2)).sum(axis=1)


def _count(observation: GramObservation) -> tuple[float, float, float, float, float]:
    """Return the fields of Count, middle and spread by summing over n, or over as many of them as tell."""
    weight = observation.statistic.count_weight
    noisy, scale = (observation.count or 0) / weight, observation.scale / weight
    log_g = 0.0 if observation.expected_n is None else -math.log1p(1 / observation.expected_n)
    noise = observation.law(scale)
    top = max(noisy, 0.0) + noise.reach
    if top > LARGEST_COUNT:
        msg = (
            f"a noisy count of {noisy:.3g} +- {scale:.3g} records is beyond what can be counted; release it with a larger epsilon"
        )
        raise InferenceError(msg)
    n = np.unique(np.floor(np.concatenate([np.linspace(0, top, 2**14), np.linspace(max(noisy - noise.reach, 0), top, 2**14)])))
    log_weight = n * log_g + noise.decay(noisy - n)
    weights = np.exp(log_weight - log_weight.max()) * np.gradient(np.append(n, n[-1] + 1))[:-1]
    weights /= weights.sum()
    middle = float(weights @ n)
    return noisy, scale, log_g, middle, max(math.sqrt(float(weights @ (n - middle) ** 2)), 0.5)
