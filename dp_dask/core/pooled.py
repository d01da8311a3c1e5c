"""Pooled: a hierarchical prior, the groups' parameters drawn from one normal distribution whose mean and sd are unknown.

On the parameter's unconstrained coordinate, v = theta on the real line, log(theta) of a positive one, logit(theta) of a
probability, v_g ~ Normal(mu, tau^2), with priors of mu and tau (Gelman et al. 2013, Bayesian Data Analysis, chapter 5).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import interpolate, special

from dp_dask.core.coordinates import Above, Between, Coordinate, Identity, Line
from dp_dask.core.joint_priors import Independent
from dp_dask.core.prior_kinds import Domain
from dp_dask.core.priors import Prior

__all__ = ["Pooled", "PooledGroups"]

Floats = NDArray[np.float64]
SCALES: dict[Domain, Coordinate] = {"real": Identity(), "positive": Above(0.0), "probability": Between(0.0, 1.0)}
WORDS: dict[Domain, str] = {"real": "", "positive": "log_", "probability": "logit_"}
REACH = 11.5  # sd of the groups' normal distribution on each side: 1e-30 of it lies beyond
CELLS, POINTS = 512, 1025  # of mu and tau each; of the table of one group's density
SHARP = 0.02  # of the prior's width: narrower features of one group's density are blurred
FALLEN = 14.0  # nats by which the integrand of a moment must have fallen at either end
LEAST_HELD = 1e-9  # of the prior, beyond float64
LEAST_CELL = 1e-13  # of the prior of tau


@dataclass(frozen=True, repr=False)
class Pooled:
    """What the hierarchy says of one group before the others are seen; ``mean`` and ``sd`` are the priors of mu and tau.

    Raises ValueError where a part of it lies beyond float64.
    """

    domain: Domain
    mean_prior: Prior
    sd_prior: Prior

    def __post_init__(self) -> None:
        low, high = self.scale.ends
        if self._span[0] >= low and self._span[1] <= high:
            return
        mu, of_mu, _ = _cells(self.mean_prior)
        tau, of_tau, _ = _cells(self.sd_prior)
        beyond = special.ndtr((low - mu[:, None]) / tau) + special.ndtr((mu[:, None] - high) / tau)
        if float(of_mu @ beyond @ of_tau) > LEAST_HELD:
            msg = (
                f"{self}: a part of the groups' prior lies closer to an end, or farther out, than float64 can tell; "
                "give mean and sd priors with lighter tails, such as normal and half_normal"
            )
            raise ValueError(msg)

    def __repr__(self) -> str:
        return f"pooled(mean={self.mean_prior}, sd={self.sd_prior})"

    @property
    def scale(self) -> Coordinate:
        """The coordinate on which the groups are normally distributed."""
        return SCALES[self.domain]

    def name(self, parameter: str) -> str:
        """Return the name of a parameter's coordinate, such as log_rate."""
        return WORDS[self.domain] + parameter

    @property
    def hyper(self) -> Independent:
        """The joint prior of (mu, tau)."""
        return Independent((self.mean_prior, self.sd_prior))

    @property
    def mean(self) -> float:
        """The prior mean of one group's parameter, NaN or infinite where there is none."""
        if self.domain == "real":
            return self.mean_prior.mean
        if self.domain == "positive":
            return self._power(1)
        theta, weights = self._nodes
        return float(weights @ theta)

    @property
    def sd(self) -> float:
        """The prior standard deviation of one group's parameter, infinite where there is none."""
        if self.domain == "real":
            return math.hypot(self.mean_prior.sd, self.sd_prior.mean, self.sd_prior.sd)
        if self.domain == "positive":
            square = self._power(2)
            return math.sqrt(max(square - self._power(1) ** 2, 0.0)) if math.isfinite(square) else math.inf
        theta, weights = self._nodes
        return float(np.sqrt(weights @ (theta - weights @ theta) ** 2))

    def rvs(self, rng: np.random.Generator, size: int) -> Floats:
        """Draw parameters, each of a hierarchy of its own."""
        return PooledGroups(self, 1).rvs(rng, size)[:, 2]

    def unconstrained(self, u: Floats) -> Floats:
        """Map the coordinate u of this prior's grids to v, on which the groups are normally distributed."""
        return np.clip(self._line.parameter(u), *self.scale.ends)

    def parameter(self, u: Floats) -> Floats:
        """Map u, v stretched in its tails, to the parameter."""
        return self.scale.parameter(self.unconstrained(u))

    def coordinate(self, theta: Floats) -> Floats:
        """Map the parameter to u."""
        return self._line.coordinate(self.scale.coordinate(theta))

    def log_density(self, u: Floats) -> Floats:
        """Log density of u, normalised, the density of v convolved with a normal one of about 2 % of its width.

        A hierarchy's own posterior does not depend on it: there it is but the measure of each group's grid.
        """
        return np.asarray(self._table(np.clip(u, *self.coordinate_range())))

    def coordinate_range(self) -> tuple[float, float]:
        """Coordinates beyond the extreme quantiles."""
        low, high = self._line.coordinate(np.clip(np.array(self._span), *self.scale.ends))
        return float(low), float(high)

    @cached_property
    def _span(self) -> tuple[float, float]:
        lowest, highest = self.mean_prior.parameter(np.array(self.mean_prior.coordinate_range()))
        widest = REACH * float(self.sd_prior.parameter(np.array(self.sd_prior.coordinate_range()[1])))
        return float(lowest) - widest, float(highest) + widest

    @cached_property
    def _line(self) -> Line:
        quartiles = []
        for prior in (self.mean_prior, self.sd_prior):
            theta, weights, _ = _cells(prior)
            quartiles.append(np.interp([0.25, 0.5, 0.75], np.cumsum(weights), theta))
        of_mu, of_tau = quartiles
        return Line(float(of_mu[1]), math.hypot(of_mu[2] - of_mu[0], of_tau[1]))

    @cached_property
    def _table(self) -> interpolate.CubicSpline:
        """Sum normal densities over the cells of mu and tau."""
        mu, of_mu, width = _cells(self.mean_prior)
        tau, of_tau, _ = _cells(self.sd_prior)
        u = np.linspace(*self.coordinate_range(), POINTS)
        v, scale = self._line.parameter(u), self._line.scale
        blur = np.hypot(0.6 * width, max(SHARP, 2 * float(u[1] - u[0])) * scale)
        is_narrow = tau < SHARP / 2 * scale
        counts = ~is_narrow & (of_tau > LEAST_CELL)
        parts = [(0.0, float(of_tau[is_narrow].sum())), *zip(tau[counts], of_tau[counts], strict=True)]
        density = np.zeros(POINTS)
        for one, weight in parts:
            sd = np.hypot(blur, one)
            density += weight * (np.exp(-0.5 * ((v[:, None] - mu) / sd) ** 2) @ (of_mu / sd))
        log_v = np.log(np.maximum(density, np.finfo(np.float64).tiny)) - 0.5 * math.log(2 * math.pi)
        return interpolate.CubicSpline(u, log_v + self._line.log_slope(u))

    @property
    def _nodes(self) -> tuple[Floats, Floats]:
        u = np.linspace(*self.coordinate_range(), POINTS)
        weights = np.exp(self.log_density(u))
        return self.parameter(u), weights / weights.sum()

    def _power(self, k: int) -> float:
        """E theta^k = E exp(k mu) E exp(k^2 tau^2 / 2) where v is log(theta)."""
        with np.errstate(over="ignore"):
            of_mean = _expect(self.mean_prior, lambda mu: k * mu)
            return float(of_mean * _expect(self.sd_prior, lambda tau: k * k * tau * tau / 2))


@dataclass(frozen=True)
class PooledGroups:
    """The joint prior of mu, tau and the parameters of all groups, in this order."""

    pooled: Pooled
    n_groups: int

    def __str__(self) -> str:
        return str(self.pooled)

    @property
    def mean(self) -> Floats:
        """The prior means."""
        one = self.pooled
        return np.array([one.mean_prior.mean, one.sd_prior.mean, *[one.mean] * self.n_groups])

    @property
    def sd(self) -> Floats:
        """The prior standard deviations."""
        one = self.pooled
        return np.array([one.mean_prior.sd, one.sd_prior.sd, *[one.sd] * self.n_groups])

    def rvs(self, rng: np.random.Generator, size: int) -> Floats:
        """Draw mu and tau, then each group's parameter [size, 2 + groups]."""
        hyper, scale = self.pooled.hyper.rvs(rng, size), self.pooled.scale
        v = hyper[:, :1] + hyper[:, 1:] * rng.standard_normal((size, self.n_groups))
        return np.hstack([hyper, scale.parameter(np.clip(v, *scale.ends))])


def _cells(prior: Prior) -> tuple[Floats, Floats, Floats]:
    """Cut the prior's coordinate into equal cells; return their parameters, probabilities and widths as parameters."""
    edges = np.linspace(*prior.coordinate_range(), CELLS + 1)
    middles = (edges[:-1] + edges[1:]) / 2
    weights = np.exp(prior.log_density(middles))
    return prior.parameter(middles), weights / weights.sum(), np.diff(prior.parameter(edges))


def _expect(prior: Prior, exponent: Callable[[Floats], Floats]) -> float:
    """Return E exp(exponent(parameter)), infinite where the prior's tail beyond its extreme quantiles would decide it."""
    v = np.linspace(*prior.coordinate_range(), POINTS)
    log_terms = prior.log_density(v) + exponent(prior.parameter(v))
    top = log_terms.max()
    if not top < math.inf or max(log_terms[0], log_terms[-1]) > top - FALLEN:
        return math.inf
    return float(np.trapezoid(np.exp(log_terms - top), v) * np.exp(top))
