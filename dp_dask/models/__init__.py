"""Models: one exponential family a file; a file's name is its name in the pipeline file.

A model says how one record is distributed given its parameters, and nothing about privacy: bounds, grid
and noise are laid over it by ``public.observation``. To add a model is to add a file whose ``plugin`` is a
frozen dataclass with the members of ``Model`` (one parameter) or ``JointModel`` (several); its fields are the model's
known parameters. The law tests find it by themselves.
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.bounds import Bounds
from dp_dask.core.cells import Spacing
from dp_dask.core.moments import PartialMoments
from dp_dask.core.prior_kinds import Domain

__all__ = ["JointModel", "Model", "PartialMoments", "Spacing"]

Floats = NDArray[np.float64]


class Model(Protocol):
    """One-parameter exponential family with sufficient statistic t(x)."""

    parameters: ClassVar[tuple[str, ...]]  # its one parameter's name in the posterior
    spacing: ClassVar[Spacing | None]  # of the cells that t is tabulated on; None where t(x) = x, summed as it is
    is_integer: ClassVar[bool]  # do records take whole numbers only?
    support: ClassVar[tuple[float, float]]  # where records can lie; may be infinite
    natural_bounds: ClassVar[Bounds | None]  # the bounds where the support is finite, else None
    prior_type: ClassVar[type[Any]]  # the conjugate prior
    domains: ClassVar[tuple[Domain, ...]]  # where its parameter can lie

    def cdf(self, x: Floats | float, theta: Floats) -> Floats:
        """P(record <= x), shapes broadcast; accurate where it is small."""
        ...

    def sf(self, x: Floats | float, theta: Floats) -> Floats:
        """P(record > x), shapes broadcast; accurate where it is small."""
        ...

    def statistic(self, x: Floats) -> Floats:
        """Return t(x), monotone or with one turn inside the support, shape kept."""
        ...

    def partial_moments(self, theta: Floats, lower: float, upper: float, about: float, order: int = 2) -> PartialMoments:
        """Moments of t about a point over the records in the closed interval [lower, upper], which may be infinite."""
        ...

    def update(self, prior: Any, n: Any, total: Any) -> Any:
        """Conjugate-Update: the posterior's hyperparameters after n records with sum of t ``total``; arrays allowed."""
        ...

    def draw(self, hyper: Any, rng: np.random.Generator) -> Floats:
        """Draw theta once for each entry of the hyperparameters that ``update`` returned."""
        ...

    def simulate(self, theta: Floats | float, n: int, rng: np.random.Generator) -> Floats:
        """Draw n records, all of one theta or each of its own [n]."""
        ...


class JointModel(Protocol):
    """Family with several parameters and a statistic of several coordinates."""

    parameters: ClassVar[tuple[str, ...]]
    is_integer: ClassVar[bool]
    support: ClassVar[tuple[float, float]]
    natural_bounds: ClassVar[Bounds | None]
    prior_type: ClassVar[type[Any]]
    domains: ClassVar[tuple[Domain, ...]]  # where each parameter can lie
    spacing: ClassVar[Spacing]

    def cdf(self, x: Floats, *theta: Floats) -> Floats:
        """P(record <= x), shapes broadcast; accurate where it is small."""
        ...

    def sf(self, x: Floats, *theta: Floats) -> Floats:
        """P(record > x), shapes broadcast; accurate where it is small."""
        ...

    def features(self, x: Floats, bounds: Bounds) -> Floats:
        """Return the statistic [coordinate, x], every coordinate mapped by the public bounds to [-1, 1] or a part of it."""
        ...

    def simulate(self, theta: tuple[Floats, ...], size: tuple[int, ...], rng: np.random.Generator) -> Floats:
        """Draw records; the parameters broadcast against ``size``."""
        ...
