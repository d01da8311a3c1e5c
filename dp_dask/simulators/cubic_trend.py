"""cubic_trend(a0, a1, a2, a3): a cubic polynomial of the day, without noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.prior_kinds import Domain
from dp_dask.core.simulated import Simulated, Size, check_theta, record_counts

__all__ = ["plugin"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class CubicTrend:
    """y_t = a0 + a1 t + a2 t^2 + a3 t^3 on days t = 0 .. n - 1, an epidemic curve (Park, Vinaroz & Jitkrittum 2021, section 5).

    A record is a day, so privacy of a record is privacy of a day's count and not of a patient.
    """

    parameters: ClassVar[tuple[str, ...]] = ("a0", "a1", "a2", "a3")
    domains: ClassVar[tuple[Domain, ...]] = ("real",) * 4
    columns: ClassVar[tuple[str, ...]] = ("day", "y")
    decides_n: ClassVar[bool] = False

    def simulate(self, theta: Floats, n: Size, rng: np.random.Generator) -> Simulated:
        """Evaluate the polynomial by Horner's rule."""
        del rng
        check_theta(theta, self.parameters, self.domains)
        counts = record_counts(n, len(theta))
        dataset = np.repeat(np.arange(len(theta)), counts)
        day = np.arange(len(dataset)) - (np.cumsum(counts) - counts)[dataset]
        a0, a1, a2, a3 = theta.T[:, dataset]
        return Simulated(counts, {"day": day.astype(np.float64), "y": a0 + day * (a1 + day * (a2 + day * a3))})


plugin = CubicTrend
