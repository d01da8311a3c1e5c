"""weibull(rate; k known): lifetimes, P(x > t) = exp(-rate t^k)."""

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
class Weibull(GammaFamily):
    """Weibull with known shape ``k``; x^k is exponential. The usual scale is rate^(-1 / k)."""

    k: float

    spacing: ClassVar[Spacing | None] = "even"

    def __post_init__(self) -> None:
        check_positive("k", self.k, "the Weibull distribution's known shape")

    @property
    def law_shape(self) -> float:
        """x^k is exponential."""
        return 1.0

    def statistic(self, x: Floats) -> Floats:
        """Return x^k."""
        return np.power(x, self.k)

    def record(self, t: Floats) -> Floats:
        """Return t^(1 / k)."""
        return np.power(t, 1 / self.k)


plugin = Weibull
