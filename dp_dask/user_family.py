"""A family of the user's own, from one file outside the package: ``model: mypackage.myfile:Family``.

The class says how a record is distributed: ``parameters``, ``support``, ``cdf(x, *parameters)`` and ``statistic(x)``, which is
one sum or a tuple of sums. ``domains``, ``sf``, ``log_density``, ``simulate``, ``spacing``, ``is_integer`` and ``natural_bounds``
are optional. A family of one parameter and one sum may give ``natural_parameter(theta)`` and ``log_partition(eta)``, and
``log_base_density(x)`` in place of ``log_density``, for moments by automatic differentiation (``dp_dask.log_partition``). Cells,
sensitivity, likelihood and calibration follow from these as for the families that ship; ``public.verify`` holds the parts
against each other.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_dask import log_partition
from dp_dask.core.bounds import Bounds
from dp_dask.core.joint_priors import Independent
from dp_dask.core.moments import PartialMoments
from dp_dask.core.references import import_object, is_reference

__all__ = ["ScalarFamily", "SeveralSums", "is_reference", "load_class", "wrap"]

Floats = NDArray[np.float64]
NEEDED = ("parameters", "support", "cdf", "statistic")
BISECTIONS = 80
PIECES = 512  # of the bounds, for rough moments
MOST_NUMBERS = 4096  # whole numbers inside the bounds that are added up one by one
FARTHEST_MEAN = 30.0  # widths of t inside the bounds, that its mean may lie off before differentiation loses its digits
FURTHEST = 1e12


def load_class(reference: str, folder: Path) -> type[Any]:
    """Import the class, with the pipeline file's folder on the path; raises ValueError where it is not there or not whole."""
    found = import_object(reference, folder, "module:Class")
    missing = [each for each in NEEDED if not hasattr(found, each)]
    if not isinstance(found, type) or missing:
        msg = f"{reference!r}: a family is a class with {', '.join(NEEDED)}; missing: {', '.join(missing) or 'the class'}"
        raise ValueError(msg)
    return found


def wrap(reference: str, folder: Path, family: Any) -> ScalarFamily | SeveralSums:
    """Fill in what the user's family leaves out; raises NotDifferentiableError for a log-partition that cannot be used."""
    middle = np.full(1, _somewhere(*map(float, family.support)))
    is_scalar = len(family.parameters) == 1 and not isinstance(family.statistic(middle), tuple | list)
    if any(hasattr(family, name) for name in ("log_partition", "natural_parameter", "log_base_density")):
        if not is_scalar:
            msg = "log_partition and natural_parameter serve families of one parameter and one sum; leave them out"
            raise log_partition.NotDifferentiableError(msg)
        log_partition.check(family)
    return (ScalarFamily if is_scalar else SeveralSums)(reference, folder, family)


class _Family:
    """What both kinds share."""

    prior_type = Independent

    def __init__(self, reference: str, folder: Path, family: Any) -> None:
        self.reference, self.folder, self.family = reference, folder, family
        self.parameters: tuple[str, ...] = tuple(family.parameters)
        self.domains = tuple(getattr(family, "domains", ("real",) * len(self.parameters)))
        self.support: tuple[float, float] = (float(family.support[0]), float(family.support[1]))
        self.is_integer = bool(getattr(family, "is_integer", False))
        self.spacing = getattr(family, "spacing", "even")
        bounds = getattr(family, "natural_bounds", None)
        self.natural_bounds = None if bounds is None else Bounds(*bounds)

    def cdf(self, x: Any, *theta: Floats) -> Floats:
        """The user's cdf."""
        return np.asarray(self.family.cdf(np.asarray(x, dtype=np.float64), *theta), dtype=np.float64)

    def sf(self, x: Any, *theta: Floats) -> Floats:
        """The user's survival function, 1 - cdf where there is none."""
        if hasattr(self.family, "sf"):
            return np.asarray(self.family.sf(np.asarray(x, dtype=np.float64), *theta), dtype=np.float64)
        return 1 - self.cdf(x, *theta)

    def _records(self, theta: tuple[Floats, ...], size: tuple[int, ...], rng: np.random.Generator) -> Floats:
        """The user's own records, or by bisection of the cdf."""
        if hasattr(self.family, "simulate"):
            return np.asarray(self.family.simulate(theta, size, rng), dtype=np.float64)
        u = rng.random(size)
        start, end = self.support
        low = np.full(size, max(start, -FURTHEST))
        high = np.full(size, min(end, FURTHEST))
        for _ in range(BISECTIONS):
            middle = _between(low, high)
            is_below = self.cdf(middle, *theta) < u
            low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
        return np.rint(high) if self.is_integer else high


class ScalarFamily(_Family):
    """One parameter, one sum."""

    def statistic(self, x: Floats) -> Floats:
        """The user's t(x)."""
        return np.asarray(self.family.statistic(np.asarray(x, dtype=np.float64)), dtype=np.float64)

    def simulate(self, theta: Any, n: int, rng: np.random.Generator) -> Floats:
        """n independent records."""
        return self._records((np.asarray(theta, dtype=np.float64),), (n,), rng)

    @property
    def has_log_partition(self) -> bool:
        """Whether the user's family gives its log-partition."""
        return hasattr(self.family, "log_partition")

    def partial_moments(self, theta: Floats, lower: float, upper: float, about: float, order: int = 2) -> PartialMoments:
        """Moments of t over [lower, upper]: by automatic differentiation where the family gives its log-partition.

        Else, and where the mean of t lies so far off that derivatives cancel, by the cdf: number by number for whole numbers,
        on 512 pieces otherwise, which is rough, and held to the exact cells where it matters.
        """
        theta = np.asarray(theta, dtype=np.float64)
        if not self.has_log_partition:
            return self.by_sums(theta, lower, upper, about, order)
        t = self.statistic(np.clip([lower, upper], max(self.support[0], -FURTHEST), min(self.support[1], FURTHEST)))
        first = np.ceil(lower) - 1 if self.is_integer else lower
        with np.errstate(all="ignore"):
            found, mean = log_partition.partial_moments(self.family, theta, first, upper, about, order)
            is_far = np.abs(mean - t.mean()) > FARTHEST_MEAN * max(float(np.ptp(t)), np.abs(t - about).max())
        is_far |= ~np.isfinite(found).all(axis=0)
        if is_far.any():
            rough = self.by_sums(theta[is_far], lower, upper, about, order)
            for row, values in zip(found, rough, strict=True):
                row[is_far] = values
        return PartialMoments(found)

    def by_sums(
        self, theta: Floats, lower: float, upper: float, about: float, order: int, pieces: int = PIECES
    ) -> PartialMoments:
        """The same by differences of the cdf."""
        a, b = max(lower, self.support[0], -FURTHEST), min(upper, self.support[1], FURTHEST)
        if self.is_integer and b - a < MOST_NUMBERS:
            x = np.arange(math.ceil(a), math.floor(b) + 1.0)
            ends = np.concatenate([x[:1] - 1, x])
        else:
            share = np.linspace(0, 1, pieces + 1)
            ends = a + (b - a) * share
            if a > 0 and b > 100 * a:
                ends = a * (b / a) ** share
            x = (ends[:-1] + ends[1:]) / 2
        p = np.diff(self.cdf(ends, theta[:, None]), axis=1)
        t = self.statistic(x) - about
        return PartialMoments(p @ t**k for k in range(order + 1))


class SeveralSums(_Family):
    """Several parameters or several sums."""

    def features(self, x: Floats, bounds: Bounds) -> Floats:
        """Return every coordinate of the user's statistic, mapped over the cells, whose ends are the bounds, to [-1, 1]."""
        del bounds
        found = self.family.statistic(x)
        rows = np.stack([np.asarray(row, dtype=np.float64) for row in (found if isinstance(found, tuple | list) else (found,))])
        low, high = rows.min(axis=1, keepdims=True), rows.max(axis=1, keepdims=True)
        return (rows - (low + high) / 2) / np.where(high > low, (high - low) / 2, 1.0)

    def simulate(self, theta: tuple[Floats, ...], size: tuple[int, ...], rng: np.random.Generator) -> Floats:
        """Independent records; the parameters broadcast against the size."""
        return self._records(theta, size, rng)


def _somewhere(start: float, end: float) -> float:
    """A point inside the support."""
    if np.isfinite(start) and np.isfinite(end):
        return (start + end) / 2
    if np.isfinite(start):
        return start + 1
    return end - 1 if np.isfinite(end) else 0.0


def _between(low: Floats, high: Floats) -> Floats:
    """The midpoint; of magnitudes far apart the geometric one, so that a wide support takes no more steps than a narrow one."""
    with np.errstate(all="ignore"):
        size = np.maximum(np.abs(low), np.abs(high))
        inner = np.maximum(np.minimum(np.abs(low), np.abs(high)), 1e-12)
        geometric = np.sign(low + high) * np.sqrt(size * inner)
        is_wide = (low * high >= 0) & (size > 100 * inner)
    return np.where(is_wide & (geometric > low) & (geometric < high), geometric, (low + high) / 2)
