"""Cases: every model with a vague prior and sensible bounds, and releases simulated from them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np

from dp_dask.core import plugins
from dp_dask.core.bounds import Bounds, Outside
from dp_dask.core.cells import choose_cells
from dp_dask.core.grid import Grid
from dp_dask.core.joint_priors import Independent, NormalInverseGamma
from dp_dask.core.priors import Beta, Gamma, Normal
from dp_dask.core.privacy import Neighbours
from dp_dask.core.release import Request
from dp_dask.core.statistic import BoundedSum
from dp_dask.core.table_sum import TableSum, make_table
from dp_dask.entries.measurement import Privacy, make_statistic
from dp_dask.public.joint import JointObservation
from dp_dask.public.noise_law import Gaussian
from dp_dask.public.observation import Observation
from dp_dask.public.observe import planned


@dataclass(frozen=True)
class Case:
    name: str
    known: dict[str, float]
    prior: Any
    bounds: Bounds
    theta: tuple[Any, ...]  # unremarkable and extreme parameters

    @property
    def model(self) -> Any:
        return plugins.load("dp_dask.models", self.name)(**self.known)


CASES = [
    Case("bernoulli", {}, Beta(1, 1), Bounds(0, 1), (0.3, 1e-6, 0.999)),
    Case("exponential", {}, Gamma(1, 0.25), Bounds(0.0063, 0.9222), (1.5, 0.02, 60.0)),
    Case("geometric", {}, Beta(1, 1), Bounds(0, 30), (0.2, 0.003, 0.98)),
    Case("gamma", {"shape": 3.0}, Gamma(1, 1), Bounds(0.5, 9), (1.0, 0.02, 40.0)),
    Case("half_normal", {}, Gamma(1, 1), Bounds(0.1, 3), (1.0, 0.01, 200.0)),
    Case("inverse_gamma", {"alpha": 3.0}, Gamma(1, 1), Bounds(0.05, 2), (1.0, 0.03, 20.0)),
    Case("laplace", {"location": 1.0}, Gamma(1, 1), Bounds(-2, 5), (1.0, 0.05, 30.0)),
    Case("negative_binomial", {"r": 2.5}, Beta(1, 1), Bounds(0, 20), (0.3, 0.01, 0.97)),
    Case("normal", {"sigma": 1.5}, Normal(0, 2), Bounds(-4, 5), (0.4, -7.0, 9.0)),
    Case("pareto", {"m": 2.0}, Gamma(1, 1), Bounds(2, 40), (1.0, 0.3, 30.0)),
    Case("poisson", {}, Gamma(1, 0.1), Bounds(0, 37), (4.0, 0.01, 80.0)),
    Case("rayleigh", {}, Gamma(1, 1), Bounds(0.2, 4), (1.0, 0.01, 100.0)),
    Case("weibull", {"k": 1.7}, Gamma(1, 1), Bounds(0.1, 3), (1.0, 0.02, 40.0)),
]
IDS = [case.name for case in CASES]
JOINT_CASES = [
    Case("beta", {}, Independent((Gamma(2, 0.5), Gamma(2, 0.5))), Bounds(0.02, 0.98), ((2.0, 3.0), (0.2, 0.3), (40.0, 9.0))),
    Case(
        "gamma_shape_rate", {}, Independent((Gamma(2, 1), Gamma(2, 2))), Bounds(0.05, 12), ((2.0, 1.0), (0.3, 0.1), (30.0, 9.0))
    ),
    Case("lognormal", {}, NormalInverseGamma(0, 0.3, 3, 3), Bounds(0.02, 50), ((0.3, 1.0), (-3.0, 0.2), (4.0, 3.0))),
    Case("normal_mu_sigma", {}, NormalInverseGamma(0, 0.1, 2, 2), Bounds(-9, 9), ((0.4, 1.2), (-8.0, 0.3), (3.0, 9.0))),
]
# Bounds beyond which about 1 % of the records lie, with a prior that knows the parameter's magnitude as their choice does.
SENSIBLE = [
    Case("bernoulli", {}, Beta(1, 1), Bounds(0, 1), ()),
    Case("exponential", {}, Gamma(8, 2), Bounds(0, 1.2), ()),
    Case("poisson", {}, Gamma(8, 1), Bounds(0, 16), ()),
]
JOINT_IDS = [case.name for case in JOINT_CASES]
BY_NAME = {case.name: case for case in [*CASES, *JOINT_CASES]}


def statistic(
    case: Case,
    *,
    outside: Outside = Outside.CLAMP,
    neighbours: Neighbours = Neighbours.REPLACE,
    epsilon: float = 1.0,
    n: int | None = 20,
    grid: Grid | int | None = None,
) -> BoundedSum | TableSum:
    """The statistic that a pipeline file would get; on another grid, or with a table of so many cells, where one is given."""
    if isinstance(grid, int):
        cells = choose_cells(case.bounds, case.model.spacing, is_integer=False, wanted=grid)
        t = case.model.statistic(cells.middles(case.bounds))[None]
        table, units, origins = make_table(t, n_units=grid // 2, is_centred=outside is Outside.CLAMP)
        made = TableSum(column="x", bounds=case.bounds, outside=outside, cells=cells, table=table, units=units, origins=origins)
        weight = 0 if neighbours is Neighbours.REPLACE else max(1, made.largest // 2)
        return replace(made, count_weight=weight)
    if grid is not None:
        weight = 0 if neighbours is Neighbours.REPLACE else max(1, round(grid.largest / 2))
        return BoundedSum(column="x", bounds=case.bounds, outside=outside, grid=grid, count_weight=weight)
    is_public = neighbours is Neighbours.REPLACE
    privacy = Privacy(neighbours, n if is_public else None, None if is_public or n is None else float(n))
    return make_statistic(case.model, "x", case.bounds, outside, privacy, epsilon)


def observation(
    case: Case,
    *,
    n: int,
    epsilon: float,
    outside: Outside = Outside.CLAMP,
    neighbours: Neighbours = Neighbours.REPLACE,
    grid: Grid | int | None = None,
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


def gaussian(like: Any, rho: float) -> Any:
    """The same observation under the Gaussian noise of a request of rho."""
    neighbours = Neighbours.ADD_REMOVE if like.n is None else Neighbours.REPLACE
    scale = math.sqrt(like.statistic.squared_sensitivity(neighbours) / (2 * rho))
    return replace(like, law=Gaussian, scale=scale)


def joint_observation(
    case: Case,
    *,
    n: int,
    epsilon: float,
    outside: Outside = Outside.CLAMP,
    neighbours: Neighbours = Neighbours.REPLACE,
) -> JointObservation:
    """An observation of several sums like that of a pipeline, without data; expects n records where n is private."""
    is_public = neighbours is Neighbours.REPLACE
    made = statistic(case, outside=outside, neighbours=neighbours, epsilon=epsilon, n=n)
    request = Request(
        dataset="d", statistic=made, neighbours=neighbours, n=n if is_public else None, epsilon=Decimal(str(epsilon))
    )
    return planned(request, case.model, None if is_public else float(n))


def gaussian_pmf(k: np.ndarray, scale: float) -> np.ndarray:
    """The discrete Gaussian law, written down anew for the tests, up to a constant."""
    return np.exp(-((np.asarray(k) / scale) ** 2) / 2)


def laplace_pmf(k: np.ndarray, scale: float) -> np.ndarray:
    """The discrete Laplace law, written down anew for the tests."""
    a = math.exp(-1 / scale)
    return (1 - a) / (1 + a) * a ** np.abs(k)
