"""g_and_k(a, b, g, k): a normal variable bent by skewness g and kurtosis k; its density has no closed form."""

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
class GAndK:
    """x = a + b (1 + c tanh(g z / 2)) (1 + z^2)^k z with z standard normal (Rayner & MacGillivray 2002, equation 1).

    ``c``, 0.8 by convention, is known; x rises with z for every g and k >= 0 where c <= 0.83.
    """

    c: float = 0.8

    parameters: ClassVar[tuple[str, ...]] = ("a", "b", "g", "k")
    domains: ClassVar[tuple[Domain, ...]] = ("real", "positive", "real", "positive")
    columns: ClassVar[tuple[str, ...]] = ("x",)
    decides_n: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not 0 <= self.c <= 0.83:  # noqa: PLR2004
            msg = f"c is {self.c}; it must be between 0 and 0.83, else x need not rise with z"
            raise ValueError(msg)

    def simulate(self, theta: Floats, n: Size, rng: np.random.Generator) -> Simulated:
        """Transform standard normal variables."""
        check_theta(theta, self.parameters, self.domains)
        counts = record_counts(n, len(theta))
        z = rng.standard_normal(counts.sum())
        return Simulated(counts, {"x": self.quantile(np.repeat(theta, counts, axis=0), z)})

    def quantile(self, theta: Floats, z: Floats) -> Floats:
        """The quantile [..] at the standard normal quantile z [..] for theta [.., 4]."""
        a, b, g, k = np.moveaxis(theta, -1, 0)
        return a + b * (1 + self.c * np.tanh(g * z / 2)) * np.exp(k * np.log1p(z * z)) * z


plugin = GAndK
