"""Priors: one-parameter distributions in PyMC's parametrisation, each with its unconstrained coordinate.

A prior knows the coordinate in which its parameter is unbounded (log for a rate, logit for a probability):
grids are laid there, because a posterior is near-symmetric there at every n.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import special

__all__ = ["Beta", "Gamma", "Normal", "Prior"]

Floats = NDArray[np.float64]
TAIL = 1e-30  # grids begin at the prior's quantiles of this probability: 11.5 sd of a normal one
FAR = 690.0  # exp(-FAR) is still a normal float
LEAST_SHAPE = 0.04  # below, more than 1e-12 of the prior lies beyond FAR


class Prior(Protocol):
    """A proper distribution of one parameter."""

    @property
    def mean(self) -> float:
        """The prior mean of the parameter."""
        ...

    @property
    def sd(self) -> float:
        """The prior standard deviation of the parameter."""
        ...

    def rvs(self, rng: np.random.Generator, size: int) -> Floats:
        """Draw ``size`` parameters."""
        ...

    def parameter(self, v: Floats) -> Floats:
        """Map the unconstrained coordinate to the parameter."""
        ...

    def coordinate(self, theta: Floats) -> Floats:
        """Map the parameter to the unconstrained coordinate."""
        ...

    def log_density(self, v: Floats) -> Floats:
        """Return the log density of the coordinate, normalised."""
        ...

    def coordinate_range(self) -> tuple[float, float]:
        """Return the coordinates between which all but 2e-30 of the prior lies, or float64 ends."""
        ...


def _check_positive(**values: float) -> None:
    for name, value in values.items():
        if not (math.isfinite(value) and value > 0):
            msg = f"{name} is {value}; it must be a positive finite number (an improper prior is not supported)"
            raise ValueError(msg)


def _check_within_floats(**shapes: float) -> None:
    for name, value in shapes.items():
        if value < LEAST_SHAPE:
            msg = f"{name} is {value}; below {LEAST_SHAPE} a part of the prior lies closer to the end than float64 can tell"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class Beta:
    """Beta(alpha, beta) on a probability."""

    alpha: float
    beta: float

    def __post_init__(self) -> None:
        _check_positive(alpha=self.alpha, beta=self.beta)
        _check_within_floats(alpha=self.alpha, beta=self.beta)

    @property
    def mean(self) -> float:
        """alpha / (alpha + beta)."""
        return self.alpha / (self.alpha + self.beta)

    @property
    def sd(self) -> float:
        """The standard deviation of the probability."""
        total = self.alpha + self.beta
        return math.sqrt(self.mean * (self.beta / total) / (total + 1))

    def rvs(self, rng: np.random.Generator, size: int) -> Floats:
        """Draw probabilities."""
        return rng.beta(self.alpha, self.beta, size)

    def parameter(self, v: Floats) -> Floats:
        """expit(v)."""
        return special.expit(v)

    def coordinate(self, theta: Floats) -> Floats:
        """logit(theta)."""
        return special.logit(theta)

    def log_density(self, v: Floats) -> Floats:
        """Log density of the logit, stable at both ends."""
        log_p, log_q = special.log_expit(v), special.log_expit(-v)
        return self.alpha * log_p + self.beta * log_q - special.betaln(self.alpha, self.beta)

    def coordinate_range(self) -> tuple[float, float]:
        """Logits of the extreme quantiles, by bisection: scipy's betaincinv(1000, 1e9, 1e-9) is above the median."""
        ends = []
        for a, b in ((self.alpha, self.beta), (self.beta, self.alpha)):  # of p, then of 1 - p
            low, high = -FAR, FAR
            for _ in range(60):
                middle = (low + high) / 2
                if special.betainc(a, b, special.expit(middle)) < TAIL:
                    low = middle
                else:
                    high = middle
            ends.append(low)
        return ends[0], -ends[1]


@dataclass(frozen=True, slots=True)
class Gamma:
    """Gamma(alpha, beta) on a rate; ``beta`` is the rate of the gamma distribution, not its scale."""

    alpha: float
    beta: float

    def __post_init__(self) -> None:
        _check_positive(alpha=self.alpha, beta=self.beta)
        _check_within_floats(alpha=self.alpha)

    @property
    def mean(self) -> float:
        """alpha / beta."""
        return self.alpha / self.beta

    @property
    def sd(self) -> float:
        """sqrt(alpha) / beta."""
        return math.sqrt(self.alpha) / self.beta

    def rvs(self, rng: np.random.Generator, size: int) -> Floats:
        """Draw rates."""
        return rng.gamma(self.alpha, 1 / self.beta, size)

    def parameter(self, v: Floats) -> Floats:
        """exp(v)."""
        return np.exp(v)

    def coordinate(self, theta: Floats) -> Floats:
        """log(theta)."""
        return np.log(theta)

    def log_density(self, v: Floats) -> Floats:
        """Log density of the log rate."""
        norm = self.alpha * math.log(self.beta) - special.gammaln(self.alpha)
        return self.alpha * v - self.beta * np.exp(v) + norm

    def coordinate_range(self) -> tuple[float, float]:
        """Logs of the extreme quantiles; the lower by P(a, x) ~ x^a / gamma(a + 1) where x underflows."""
        low = (math.log(TAIL) + float(special.gammaln(self.alpha + 1))) / self.alpha
        exact = float(special.gammaincinv(self.alpha, TAIL))
        if exact > 0:
            low = math.log(exact)
        high = math.log(float(special.gammainccinv(self.alpha, TAIL)))
        shift = math.log(self.beta)
        return max(low - shift, -FAR), min(high - shift, FAR)


@dataclass(frozen=True, slots=True)
class Normal:
    """Normal(mu, sigma) on a mean; ``sigma`` is the standard deviation."""

    mu: float
    sigma: float

    def __post_init__(self) -> None:
        if not math.isfinite(self.mu):
            msg = f"mu is {self.mu}; it must be a finite number"
            raise ValueError(msg)
        _check_positive(sigma=self.sigma)

    @property
    def mean(self) -> float:
        """The prior mean."""
        return self.mu

    @property
    def sd(self) -> float:
        """The prior standard deviation."""
        return self.sigma

    def rvs(self, rng: np.random.Generator, size: int) -> Floats:
        """Draw means."""
        return rng.normal(self.mu, self.sigma, size)

    def parameter(self, v: Floats) -> Floats:
        """Return v itself."""
        return v

    def coordinate(self, theta: Floats) -> Floats:
        """Return theta itself."""
        return theta

    def log_density(self, v: Floats) -> Floats:
        """Log density of the mean."""
        z = (v - self.mu) / self.sigma
        return -0.5 * z * z - math.log(self.sigma) - 0.5 * math.log(2 * math.pi)

    def coordinate_range(self) -> tuple[float, float]:
        """11.5 standard deviations to either side."""
        return self.mu - 11.5 * self.sigma, self.mu + 11.5 * self.sigma
