"""CountsObservation: noisy counts of categories seen through the categorical model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dp_dask.core.categories import CategoryCounts
from dp_dask.public.noise_law import Gaussian, Laplace, Noisy

__all__ = ["CountsObservation"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CountsObservation(Noisy):
    """y = S + noise, S [K] the counts of n records in K categories, every noise of the same ``law`` and scale.

    Where n is private its prior is negative binomial with the Dirichlet's total as shape and mean ``expected_n``, proportional
    to n^(total - 1) where that is None.
    """

    model: Any
    statistic: CategoryCounts
    n: int | None
    scale: float
    y: tuple[int, ...]
    expected_n: float | None
    law: type[Laplace | Gaussian] = Laplace
