"""inverse_gamma(beta; alpha known): positive amounts whose inverse is gamma-distributed."""

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
class InverseGamma(GammaFamily):
    """Inverse gamma with unknown scale ``beta``, the rate of 1 / x; the shape ``alpha`` is known."""

    alpha: float

    parameters: ClassVar[tuple[str, ...]] = ("beta",)
    spacing: ClassVar[Spacing | None] = "octave"
    is_increasing: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_positive("alpha", self.alpha, "the inverse gamma distribution's known shape")

    @property
    def law_shape(self) -> float:
        """The shape."""
        return self.alpha

    def statistic(self, x: Floats) -> Floats:
        """Return 1 / x."""
        return 1 / x

    def record(self, t: Floats) -> Floats:
        """Return 1 / t."""
        return 1 / t


plugin = InverseGamma
