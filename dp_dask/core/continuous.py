"""Continuous: any continuous distribution of scipy.stats as a prior."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.coordinates import Coordinate, choose_coordinate
from dp_dask.core.priors import TAIL

__all__ = ["SCIPY", "Continuous", "from_scipy"]

Floats = NDArray[np.float64]
SCIPY = "scipy"  # the kind of a prior that was given as a distribution of scipy.stats
STEPS = 45  # bisections of the range: to 1e-10 of its width or better
POINTS = 8001
MOST_MISSED = 1e-3  # of the density's integral
LEAST_HELD = 1e-9  # of the prior, beyond float64


@dataclass(frozen=True, slots=True, repr=False)
class Continuous:
    """A prior made of a frozen continuous distribution, ``Continuous(scipy.stats.lognorm(1.0))``.

    ``kind`` and ``arguments`` are how a pipeline file names it; ``support`` is given where scipy's own is rounded. Raises
    ValueError for a distribution that is not proper, and for one whose density cannot be integrated in float64.
    """

    distribution: Any = field(compare=False)
    kind: str = ""
    arguments: tuple[tuple[str, float | str], ...] = ()
    support: tuple[float, float] = (math.nan, math.nan)
    _coordinate: Coordinate = field(init=False, compare=False)
    _range: tuple[float, float] = field(init=False, compare=False)
    _moments: tuple[float, float] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        if not self.kind:
            object.__setattr__(self, "kind", SCIPY)
            object.__setattr__(self, "arguments", _arguments(self.distribution))
        frozen = self.distribution
        with np.errstate(all="ignore"):
            first, median, third = map(float, frozen.ppf([0.4, 0.5, 0.6]))
            if math.isnan(self.support[0]):
                lower, upper = frozen.support()
                object.__setattr__(self, "support", (float(lower), float(upper)))
            if not (math.isfinite(median) and self.support[0] <= first < third <= self.support[1]):
                msg = f"{self} is no proper distribution that float64 can hold; look at its parameters"
                raise ValueError(msg)
            object.__setattr__(self, "_coordinate", choose_coordinate(*self.support, (first, median, third)))
            object.__setattr__(self, "_range", self._find_range())
        object.__setattr__(self, "_moments", self._integrate())

    def __repr__(self) -> str:
        return f"{self.kind}({', '.join(f'{name}={value}' for name, value in self.arguments)})"

    @property
    def mean(self) -> float:
        """The prior mean: infinite on a half line, NaN on the whole line, where there is none."""
        return self._moments[0]

    @property
    def sd(self) -> float:
        """The prior standard deviation, infinite where there is none."""
        return self._moments[1]

    def rvs(self, rng: np.random.Generator, size: int) -> Floats:
        """Draw parameters."""
        return np.clip(self.distribution.rvs(size=size, random_state=rng), *self.support)

    def parameter(self, v: Floats) -> Floats:
        """Map the coordinate to the parameter."""
        return self._coordinate.parameter(v)

    def coordinate(self, theta: Floats) -> Floats:
        """Map the parameter to the coordinate."""
        return self._coordinate.coordinate(theta)

    def log_density(self, v: Floats) -> Floats:
        """Log density of the parameter and log of its slope."""
        with np.errstate(all="ignore"):
            theta = np.clip(self._coordinate.parameter(v), *self.distribution.support())
            return np.asarray(self.distribution.logpdf(theta)) + self._coordinate.log_slope(v)

    def coordinate_range(self) -> tuple[float, float]:
        """Coordinates of the extreme quantiles, or float64 ends."""
        return self._range

    def _find_range(self) -> tuple[float, float]:
        """Bisect both tails: scipy's own quantiles of 1e-30 are rounded to an end for some families."""
        first, last = self._coordinate.ends
        found = []
        for tail, is_lower in ((self.distribution.cdf, True), (self.distribution.sf, False)):
            outer, inner = (first, last) if is_lower else (last, first)
            for _ in range(STEPS):
                middle = (outer + inner) / 2
                if tail(self._coordinate.parameter(np.array(middle))) < TAIL:
                    outer = middle
                else:
                    inner = middle
            found.append(outer)
        return found[0], found[1]

    def _integrate(self) -> tuple[float, float]:
        """Return mean and sd; ValueError unless the density integrates to 1, next to nothing of it beyond float64.

        On a finite interval both are integrated here, as scipy's lose their digits in a narrow one; elsewhere they are scipy's.
        """
        v = np.linspace(*self._range, POINTS)
        with np.errstate(all="ignore"):
            theta = self._coordinate.parameter(v)
            beyond = float(self.distribution.cdf(theta[0]) + self.distribution.sf(theta[-1]))
            density = np.exp(self.log_density(v))
            mass = float(np.trapezoid(density, v))
            if not (beyond <= LEAST_HELD and abs(mass - 1) <= MOST_MISSED):
                msg = (
                    f"{self}: a part of the prior lies closer to an end, or farther out, than float64 can tell; "
                    "kind: beta and kind: gamma hold more of it than distributions of scipy.stats"
                )
                raise ValueError(msg)
            if math.isfinite(self.support[0]) and math.isfinite(self.support[1]):
                mean = float(density @ theta / density.sum())
                return mean, float(np.sqrt(density @ (theta - mean) ** 2 / density.sum()))
            mean, sd = float(self.distribution.mean()), float(self.distribution.std())
        is_line = math.isinf(self.support[0]) and math.isinf(self.support[1])
        return math.nan if is_line and not math.isfinite(mean) else mean, sd if math.isfinite(sd) else math.inf


def _arguments(frozen: Any) -> tuple[tuple[str, float | str], ...]:
    """Name a frozen distribution and its numbers; raises ValueError for anything else."""
    from scipy import stats  # noqa: PLC0415  (half a second of imports)

    family = getattr(frozen, "dist", None)
    if not isinstance(family, stats.rv_continuous):
        msg = f"a prior must be a frozen continuous distribution such as scipy.stats.lognorm(1.0), not {frozen!r}"
        raise ValueError(msg)  # noqa: TRY004  (the message reaches who wrote the prior, as all others of priors do)
    shapes, loc, scale = family._parse_args(*frozen.args, **frozen.kwds)  # noqa: SLF001  (the only way to name them)
    values = dict(zip(_shape_names(family), shapes, strict=True)) | {"loc": loc, "scale": scale}
    if any(np.ndim(value) for value in values.values()):
        msg = f"a prior must be one distribution; {family.name} was given arrays"
        raise ValueError(msg)
    return (("name", family.name), *((name, float(value)) for name, value in values.items()))


def _shape_names(family: Any) -> list[str]:
    """Return the names of a scipy distribution's shape parameters."""
    return [name.strip() for name in family.shapes.split(",")] if family.shapes else []


def from_scipy(name: str, numbers: Mapping[str, float]) -> Any:
    """Freeze the distribution of scipy.stats with this name; raises ValueError for a name or numbers that it does not know."""
    from scipy import stats  # noqa: PLC0415  (half a second of imports)

    family = getattr(stats, name, None)
    if not isinstance(family, stats.rv_continuous):
        msg = f"{name!r} is no continuous distribution of scipy.stats; such are lognorm, invgauss, skewnorm"
        raise ValueError(msg)  # noqa: TRY004
    names = [*_shape_names(family), "loc", "scale"]
    missing = [shape for shape in names[:-2] if shape not in numbers]
    unknown = [given for given in numbers if given not in names]
    if missing or unknown:
        told = f"missing: {', '.join(missing) or 'none'}, unknown: {', '.join(unknown) or 'none'}"
        msg = f"scipy.stats.{name} takes {', '.join(names)}; {told}"
        raise ValueError(msg)
    return family(**numbers)
