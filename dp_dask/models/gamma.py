"""gamma(rate; shape known): positive amounts, density proportional to x^(shape - 1) exp(-rate x)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.cells import Spacing
from dp_dask.families import GammaFamily, check_positive

__all__ = ["plugin"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Gamma(GammaFamily):
    """Gamma with unknown rate (the inverse of its scale); ``shape`` is known."""

    shape: float

    spacing: ClassVar[Spacing | None] = None

    def __post_init__(self) -> None:
        check_positive("shape", self.shape, "the gamma distribution's known shape")

    @property
    def law_shape(self) -> float:
        """The shape."""
        return self.shape

    def statistic(self, x: Floats) -> Floats:
        """Return x itself."""
        return x

    def record(self, t: Floats) -> Floats:
        """Return t itself."""
        return t


plugin = Gamma
