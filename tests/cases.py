"""Cases: every model with a vague prior and sensible bounds, and releases simulated from them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dp_dask.core import plugins
from dp_dask.core.bounds import Bounds, Outside
from dp_dask.core.grid import Grid, choose_grid
from dp_dask.core.priors import Beta, Gamma, Normal
from dp_dask.core.privacy import Neighbours
from dp_dask.core.statistic import BoundedSum
from dp_dask.public.observation import Observation


@dataclass(frozen=True)
class Case:
    name: str
    known: dict[str, float]
    prior: Any
    bounds: Bounds
    theta: tuple[float, ...]  # unremarkable and extreme parameters

    @property
    def model(self) -> Any:
        return plugins.load("dp_dask.models", self.name)(**self.known)


CASES = [
    Case("bernoulli", {}, Beta(1, 1), Bounds(0, 1), (0.3, 1e-6, 0.999)),
    Case("exponential", {}, Gamma(1, 0.25), Bounds(0.0063, 0.9222), (1.5, 0.02, 60.0)),
    Case("geometric", {}, Beta(1, 1), Bounds(0, 30), (0.2, 0.003, 0.98)),
    Case("normal", {"sigma": 1.5}, Normal(0, 2), Bounds(-4, 5), (0.4, -7.0, 9.0)),
    Case("poisson", {}, Gamma(1, 0.1), Bounds(0, 37), (4.0, 0.01, 80.0)),
]
IDS = [case.name for case in CASES]


def statistic(
    case: Case,
    *,
    outside: Outside = Outside.CLAMP,
    neighbours: Neighbours = Neighbours.REPLACE,
    epsilon: float = 1.0,
    n: int | None = 20,
    grid: Grid | None = None,
) -> BoundedSum:
    grid = grid or choose_grid(
        case.bounds, outside=outside, neighbours=neighbours, is_integer=case.model.is_integer, epsilon=epsilon, n=n
    )
    weight = 0 if neighbours is Neighbours.REPLACE else max(1, round(grid.largest / 2))
    return BoundedSum(column="x", bounds=case.bounds, outside=outside, grid=grid, count_weight=weight)


def observation(
    case: Case,
    *,
    n: int,
    epsilon: float,
    outside: Outside = Outside.CLAMP,
    neighbours: Neighbours = Neighbours.REPLACE,
    grid: Grid | None = None,
    y: int = 0,
    count: int | None = None,
    expected_n: float | None = None,
) -> Observation:
    """Return an observation like a release of these records; y and count are for ``simulate`` to replace."""
    made = statistic(case, outside=outside, neighbours=neighbours, epsilon=epsilon, n=n, grid=grid)
    is_public = neighbours is Neighbours.REPLACE
    return Observation(
        model=case.model,
        statistic=made,
        n=n if is_public else None,
        scale=made.sensitivity(neighbours) / epsilon,
        y=y,
        count=None if is_public else (made.count_weight * n if count is None else count),
        expected_n=None if is_public else expected_n,
    )


def laplace_pmf(k: np.ndarray, scale: float) -> np.ndarray:
    """The discrete Laplace law, written down anew for the tests."""
    a = math.exp(-1 / scale)
    return (1 - a) / (1 + a) * a ** np.abs(k)
