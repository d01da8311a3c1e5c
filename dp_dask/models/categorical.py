"""categorical(p_1 .. p_K): each record is in one of a public list of categories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.dirichlet import Dirichlet

__all__ = ["plugin"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Categorical:
    """P(record is in category k) = p_k, over ``categories``, texts or whole numbers as the column has them."""

    categories: tuple[str, ...] | tuple[int, ...]

    prior_type: ClassVar[type[Dirichlet]] = Dirichlet

    @property
    def parameters(self) -> tuple[str, ...]:
        """One probability a category."""
        return tuple(f"p[{category}]" for category in self.categories)

    def expand_prior(self, given: Any) -> Any:
        """Let one number stand for all categories, and a mapping name them."""
        alpha = given.get("alpha") if isinstance(given, dict) else None
        if isinstance(alpha, dict) and list(map(str, alpha)) == list(map(str, self.categories)):
            return {**given, "alpha": list(alpha.values())}
        if alpha is None or isinstance(alpha, list | tuple | dict):
            return given
        return {**given, "alpha": [alpha] * len(self.categories)}

    def update(self, prior: Dirichlet, counts: NDArray[np.int64]) -> Floats:
        """Dirichlet(alpha + S), shapes [.., K]."""
        return np.asarray(prior.alpha) + counts

    def simulate(self, theta: Floats, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw the counts [K] of n independent records."""
        return rng.multinomial(n, theta / theta.sum())


plugin = Categorical
