"""Priors of several parameters: independent ones, and the normal-inverse-gamma of a mean and a standard deviation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dp_dask.core.priors import FAR, TAIL, Prior

__all__ = ["Independent", "JointPrior", "NormalInverseGamma"]

Floats = NDArray[np.float64]


class JointPrior(Protocol):
    """A proper distribution of p parameters, with unconstrained coordinates for each."""

    @property
    def mean(self) -> Floats:
        """The prior means [p], NaN where there is none."""
        ...

    @property
    def sd(self) -> Floats:
        """The prior standard deviations [p], infinite where there is none."""
        ...

    def rvs(self, rng: np.random.Generator, size: int) -> Floats:
        """Draw parameters [size, p]."""
        ...

    def parameter(self, v: Floats) -> Floats:
        """Map unconstrained coordinates [k, p] to parameters [k, p]."""
        ...

    def coordinate(self, theta: Floats) -> Floats:
        """Map parameters [k, p] to unconstrained coordinates [k, p]."""
        ...

    def log_density(self, v: Floats) -> Floats:
        """Return the log density [k] of coordinates [k, p], normalised."""
        ...

    def coordinate_box(self) -> Floats:
        """Return, for each coordinate, the two ends [p, 2] between which all but a negligible part of the prior lies."""
        ...


@dataclass(frozen=True, slots=True)
class Independent:
    """Parameters that know nothing of each other, each with a prior of its own."""

    priors: tuple[Prior, ...]

    @property
    def mean(self) -> Floats:
        """The prior means."""
        return np.array([prior.mean for prior in self.priors])

    @property
    def sd(self) -> Floats:
        """The prior standard deviations."""
        return np.array([prior.sd for prior in self.priors])

    def rvs(self, rng: np.random.Generator, size: int) -> Floats:
        """Draw each parameter."""
        return np.stack([prior.rvs(rng, size) for prior in self.priors], axis=1)

    def parameter(self, v: Floats) -> Floats:
        """Map each coordinate."""
        return np.stack([prior.parameter(v[:, j]) for j, prior in enumerate(self.priors)], axis=1)

    def coordinate(self, theta: Floats) -> Floats:
        """Map each parameter."""
        return np.stack([prior.coordinate(theta[:, j]) for j, prior in enumerate(self.priors)], axis=1)

    def log_density(self, v: Floats) -> Floats:
        """Add up the log densities."""
        return np.sum([prior.log_density(v[:, j]) for j, prior in enumerate(self.priors)], axis=0)

    def coordinate_box(self) -> Floats:
        """Collect the ends."""
        return np.array([prior.coordinate_range() for prior in self.priors])


@dataclass(frozen=True, slots=True)
class NormalInverseGamma:
    """mu | sigma ~ Normal(mu, sigma / sqrt(kappa)), sigma^2 ~ InverseGamma(alpha, beta): conjugate to the normal distribution.

    ``kappa`` is worth so many records about the mean; the prior mean of sigma^2 is beta / (alpha - 1).
    """

    mu: float
    kappa: float
    alpha: float
    beta: float

    def __post_init__(self) -> None:
        if not math.isfinite(self.mu):
            msg = f"mu is {self.mu}; it must be a finite number"
            raise ValueError(msg)
        for name in ("kappa", "alpha", "beta"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                msg = f"{name} is {value}; it must be a positive finite number (an improper prior is not supported)"
                raise ValueError(msg)

    @property
    def mean(self) -> Floats:
        """The means of mu and sigma; that of sigma needs alpha above 1/2."""
        sigma = math.nan
        if self.alpha > 0.5:  # noqa: PLR2004
            sigma = math.sqrt(self.beta) * math.exp(float(special.gammaln(self.alpha - 0.5) - special.gammaln(self.alpha)))
        return np.array([self.mu, sigma])

    @property
    def sd(self) -> Floats:
        """The standard deviations of mu and sigma; both need alpha above 1."""
        if self.alpha <= 1:
            return np.array([math.inf, math.inf])
        variance = self.beta / (self.alpha - 1)
        return np.array([math.sqrt(variance / self.kappa), math.sqrt(max(variance - float(self.mean[1]) ** 2, 0))])

    def rvs(self, rng: np.random.Generator, size: int) -> Floats:
        """Draw sigma, then mu."""
        sigma = np.sqrt(self.beta / rng.gamma(self.alpha, 1, size))
        return np.stack([self.mu + sigma / math.sqrt(self.kappa) * rng.standard_normal(size), sigma], axis=1)

    @property
    def _stretch(self) -> float:
        """The distance from the mean beyond which mu's coordinate is logarithmic: its tails are those of a t distribution."""
        return 1.5 * math.sqrt(self.beta / (self.alpha * self.kappa))

    def parameter(self, v: Floats) -> Floats:
        """Return the mean plus a multiple of sinh of the first coordinate, and exp of the second."""
        return np.stack([self.mu + self._stretch * np.sinh(v[:, 0]), np.exp(v[:, 1])], axis=1)

    def coordinate(self, theta: Floats) -> Floats:
        """Return arsinh of the scaled distance of mu from its mean, and log(sigma)."""
        return np.stack([np.arcsinh((theta[:, 0] - self.mu) / self._stretch), np.log(theta[:, 1])], axis=1)

    def log_density(self, v: Floats) -> Floats:
        """Log density of the coordinates."""
        distance, log_sigma = self._stretch * np.sinh(v[:, 0]), v[:, 1]
        precision = np.exp(np.minimum(-2 * log_sigma, FAR))
        norm_sigma = math.log(2) + self.alpha * math.log(self.beta) - float(special.gammaln(self.alpha))
        of_sigma = norm_sigma - 2 * self.alpha * log_sigma - self.beta * precision
        norm = 0.5 * math.log(self.kappa / (2 * math.pi))
        slope = math.log(self._stretch) + np.log(np.cosh(v[:, 0]))
        return of_sigma + norm - log_sigma - 0.5 * self.kappa * distance**2 * precision + slope

    def coordinate_box(self) -> Floats:
        """Extreme quantiles of log sigma; of mu, a scaled t distribution with 2 alpha degrees of freedom, likewise."""
        shape = self.alpha
        low = math.log(max(float(special.gammaincinv(shape, TAIL)), math.exp(-FAR)))
        high = math.log(float(special.gammainccinv(shape, TAIL)))
        log_beta = math.log(self.beta)
        reach = float(special.stdtrit(2 * shape, TAIL))
        half = math.asinh(min(-reach, math.exp(FAR / 2)) / 1.5)
        return np.array([[-half, half], [(log_beta - high) / 2, (log_beta - low) / 2]])

    def update(self, n: int, total: float, squares: float) -> NormalInverseGamma:
        """Conjugate-Update with n records whose sum is ``total`` and whose squares sum to ``squares``."""
        kappa = self.kappa + n
        mean = (self.kappa * self.mu + total) / kappa
        about = squares - 2 * mean * total + n * mean * mean  # about the new mean, so that no digits are lost
        beta = self.beta + (about + self.kappa * (self.mu - mean) ** 2) / 2
        return NormalInverseGamma(mean, kappa, self.alpha + n / 2, beta)
