"""Coordinates: smooth increasing maps of the real line onto the support of a parameter."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dp_dask.core.priors import FAR

__all__ = ["Above", "Below", "Between", "Coordinate", "Identity", "Line", "choose_coordinate"]

Floats = NDArray[np.float64]
SD = 1.97  # of a normal distribution, in units of the distance between its quantiles of 0.4 and 0.6


class Coordinate(Protocol):
    """A parameter as a function of its unconstrained coordinate v."""

    @property
    def ends(self) -> tuple[float, float]:
        """The coordinates beyond which float64 holds neither the parameter nor its density."""
        ...

    def parameter(self, v: Floats) -> Floats:
        """Map v to the parameter."""
        ...

    def coordinate(self, theta: Floats) -> Floats:
        """Map the parameter to v: infinite at an end, NaN outside the support."""
        ...

    def log_slope(self, v: Floats) -> Floats:
        """Log of the parameter's derivative."""
        ...


@dataclass(frozen=True, slots=True)
class Identity:
    """theta = v."""

    @property
    def ends(self) -> tuple[float, float]:
        """The numbers whose squares float64 holds."""
        return -math.exp(FAR / 2), math.exp(FAR / 2)

    def parameter(self, v: Floats) -> Floats:
        """Return v itself."""
        return v

    def coordinate(self, theta: Floats) -> Floats:
        """Return theta itself."""
        return theta

    def log_slope(self, v: Floats) -> Floats:
        """Return zeros."""
        return np.zeros_like(v)


@dataclass(frozen=True, slots=True)
class Line:
    """theta = centre + scale sinh(v): the identity near the centre, logarithmic in the tails, however heavy they are."""

    centre: float
    scale: float

    @property
    def ends(self) -> tuple[float, float]:
        """Half of the exponents: densities square their argument."""
        return -FAR / 2, FAR / 2

    def parameter(self, v: Floats) -> Floats:
        """Centre + scale sinh(v)."""
        return self.centre + self.scale * np.sinh(v)

    def coordinate(self, theta: Floats) -> Floats:
        """asinh((theta - centre) / scale)."""
        return np.arcsinh((theta - self.centre) / self.scale)

    def log_slope(self, v: Floats) -> Floats:
        """log(scale cosh(v))."""
        size = np.abs(v)
        return math.log(self.scale / 2) + size + np.log1p(np.exp(-2 * size))


@dataclass(frozen=True, slots=True)
class Above:
    """theta = end + exp(v)."""

    end: float

    @property
    def ends(self) -> tuple[float, float]:
        """All exponents."""
        return -FAR, FAR

    def parameter(self, v: Floats) -> Floats:
        """End + exp(v)."""
        return self.end + np.exp(v)

    def coordinate(self, theta: Floats) -> Floats:
        """Log of the distance to the end."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.log(theta - self.end)

    def log_slope(self, v: Floats) -> Floats:
        """Return v."""
        return v


@dataclass(frozen=True, slots=True)
class Below:
    """theta = end - exp(-v)."""

    end: float

    @property
    def ends(self) -> tuple[float, float]:
        """All exponents."""
        return -FAR, FAR

    def parameter(self, v: Floats) -> Floats:
        """End - exp(-v)."""
        return self.end - np.exp(-v)

    def coordinate(self, theta: Floats) -> Floats:
        """Minus the log of the distance to the end."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return -np.log(self.end - theta)

    def log_slope(self, v: Floats) -> Floats:
        """Return -v."""
        return -v


@dataclass(frozen=True, slots=True)
class Between:
    """theta = lower + (upper - lower) expit(v), measured from the nearer end."""

    lower: float
    upper: float

    @property
    def ends(self) -> tuple[float, float]:
        """The exponents that the distance to an end can take."""
        far = FAR + min(math.log(self.upper - self.lower), 0)
        return -far, far

    def parameter(self, v: Floats) -> Floats:
        """The scaled logistic function."""
        distance = (self.upper - self.lower) * special.expit(-np.abs(v))
        return np.where(v < 0, self.lower + distance, self.upper - distance)

    def coordinate(self, theta: Floats) -> Floats:
        """The scaled logit."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.log(theta - self.lower) - np.log(self.upper - theta)

    def log_slope(self, v: Floats) -> Floats:
        """log(width expit(v) expit(-v))."""
        return math.log(self.upper - self.lower) + special.log_expit(v) + special.log_expit(-v)


def choose_coordinate(lower: float, upper: float, middle: tuple[float, float, float]) -> Coordinate:
    """Choose by which ends of the support are finite; the quantiles of 0.4, 0.5 and 0.6 place the coordinate of the whole line.

    Quartiles would not do: a t distribution with a fifth of a degree of freedom has them far out in its tails.
    """
    if math.isfinite(lower) and math.isfinite(upper):
        return Between(lower, upper)
    if math.isfinite(lower):
        return Above(lower)
    if math.isfinite(upper):
        return Below(upper)
    below, median, above = middle
    return Line(median, (above - below) * SD)
