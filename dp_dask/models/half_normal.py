"""half_normal(precision): magnitudes of a normal variable with mean 0, precision 1 / sigma^2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.cells import Spacing
from dp_dask.families import GammaFamily

__all__ = ["plugin"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class HalfNormal(GammaFamily):
    """Half-normal; x^2 / 2 is gamma-distributed with shape 1/2 and rate 1 / sigma^2."""

    parameters: ClassVar[tuple[str, ...]] = ("precision",)
    spacing: ClassVar[Spacing | None] = "even"

    @property
    def law_shape(self) -> float:
        """x^2 / 2 is half a chi-square."""
        return 0.5

    def statistic(self, x: Floats) -> Floats:
        """Return x^2 / 2."""
        return x * x / 2

    def record(self, t: Floats) -> Floats:
        """Return sqrt(2 t)."""
        return np.sqrt(2 * t)


plugin = HalfNormal
