"""Models: one exponential family a file; a file's name is its name in the pipeline file.

A model says how one record is distributed given its parameter theta, and nothing about privacy: bounds, grid
and noise are laid over it by ``public.observation``. To add a model is to add a file whose ``plugin`` is a
frozen dataclass with the members of ``Model``; its fields are the model's known parameters. The law tests
find it by themselves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.bounds import Bounds

__all__ = ["Model", "PartialMoments", "from_factorial"]

Floats = NDArray[np.float64]


class PartialMoments(tuple[Any, ...]):
    """E[(x - c)^k; x in [a, b]] for k = 0, 1, .. up to an order, each with theta's shape."""

    __slots__ = ()

    @property
    def first(self) -> Floats:
        """E[x - c; x in [a, b]]."""
        return np.asarray(self[1])

    @property
    def second(self) -> Floats:
        """E[(x - c)^2; x in [a, b]]."""
        return np.asarray(self[2])

    def shifted(self, distance: float | Floats) -> PartialMoments:
        """Return the same moments about a point ``distance`` below."""
        orders = range(len(self))
        return PartialMoments(sum(math.comb(k, j) * distance ** (k - j) * self[j] for j in range(k + 1)) for k in orders)


def from_factorial(factorial: Sequence[Any]) -> PartialMoments:
    """Return moments about 0 from E[(x)_k; x in [a, b]], k = 0, 1, .., by the Stirling numbers of the second kind."""
    moments, stirling = [], [1]
    for k in range(len(factorial)):
        moments.append(sum(s * f for s, f in zip(stirling, factorial[: k + 1], strict=True)))
        stirling = [j * s + before for j, (s, before) in enumerate(zip([*stirling, 0], [0, *stirling], strict=True))]
    return PartialMoments(moments)


class Model(Protocol):
    """One-parameter exponential family with sufficient statistic x."""

    parameter: ClassVar[str]  # its name in the posterior
    is_integer: ClassVar[bool]  # do records take whole numbers only?
    support: ClassVar[tuple[float, float]]  # where records can lie; may be infinite
    natural_bounds: ClassVar[Bounds | None]  # the bounds where the support is finite, else None
    prior_type: ClassVar[type[Any]]  # the conjugate prior

    def cdf(self, x: Floats | float, theta: Floats) -> Floats:
        """P(record <= x), shapes broadcast; accurate where it is small."""
        ...

    def sf(self, x: Floats | float, theta: Floats) -> Floats:
        """P(record > x), shapes broadcast; accurate where it is small."""
        ...

    def partial_moments(self, theta: Floats, lower: float, upper: float, about: float, order: int = 2) -> PartialMoments:
        """Moments about a point over the closed interval [lower, upper], in closed form; ends may be infinite."""
        ...

    def update(self, prior: Any, n: Any, total: Any) -> Any:
        """Conjugate-Update: the posterior's hyperparameters after n records with sum ``total``; arrays allowed."""
        ...

    def draw(self, hyper: Any, rng: np.random.Generator) -> Floats:
        """Draw theta once for each entry of the hyperparameters that ``update`` returned."""
        ...

    def simulate(self, theta: float, n: int, rng: np.random.Generator) -> Floats:
        """Draw n records."""
        ...
