"""pareto(alpha; m known): amounts above m with a power tail, P(x > t) = (m / t)^alpha."""

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
class Pareto(GammaFamily):
    """Pareto with unknown tail index ``alpha``; the smallest possible value ``m`` is known."""

    m: float

    parameters: ClassVar[tuple[str, ...]] = ("alpha",)
    spacing: ClassVar[Spacing | None] = "octave"

    def __post_init__(self) -> None:
        check_positive("m", self.m, "the smallest value that a record can have")

    @property
    def law_shape(self) -> float:
        """log(x / m) is exponential."""
        return 1.0

    def statistic(self, x: Floats) -> Floats:
        """Return log(x / m), 0 below m."""
        return np.log(np.maximum(x, self.m) / self.m)

    def record(self, t: Floats) -> Floats:
        """Return m exp(t), infinite beyond float64."""
        with np.errstate(over="ignore"):
            return self.m * np.exp(t)


plugin = Pareto
