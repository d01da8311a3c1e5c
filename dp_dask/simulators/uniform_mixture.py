"""uniform_mixture(p_1 .. p_m): a mixture of uniform distributions side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.dirichlet import Dirichlet
from dp_dask.core.prior_kinds import Domain
from dp_dask.core.simulated import Simulated, Size, check_theta, record_counts

__all__ = ["plugin"]

Floats = NDArray[np.float64]
MOST = 1000
ROUNDING = 1e-9  # by which probabilities may miss the sum of 1


@dataclass(frozen=True, slots=True)
class UniformMixture:
    """Record x ~ sum_i p_i Uniform[i - 1, i), i = 1 .. components: the toy of Park, Vinaroz & Jitkrittum (2021, section 5).

    Records are exchangeable, so a data set is drawn by one multinomial and comes in the components' order.
    """

    components: int = 5

    columns: ClassVar[tuple[str, ...]] = ("x",)
    prior_type: ClassVar[type[Dirichlet]] = Dirichlet
    decides_n: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not 2 <= self.components <= MOST:  # noqa: PLR2004
            msg = f"components is {self.components}; a mixture has at least 2, and at most {MOST} here"
            raise ValueError(msg)

    @property
    def parameters(self) -> tuple[str, ...]:
        """One probability a component."""
        return tuple(f"p[{i}]" for i in range(1, self.components + 1))

    @property
    def domains(self) -> tuple[Domain, ...]:
        """Probabilities; a row must add up to 1."""
        return tuple("probability" for _ in range(self.components))

    def simulate(self, theta: Floats, n: Size, rng: np.random.Generator) -> Simulated:
        """Draw the components' counts, then a uniform for each record."""
        check_theta(theta, self.parameters, self.domains)
        total = theta.sum(axis=1, keepdims=True)
        if np.any(np.abs(total - 1) > ROUNDING):
            msg = f"probabilities add up to {total.flat[np.abs(total - 1).argmax()]}; they must add up to 1"
            raise ValueError(msg)
        counts = record_counts(n, len(theta))
        of_component = rng.multinomial(counts, theta / total)
        x = np.repeat(np.tile(np.arange(self.components, dtype=np.float64), len(theta)), of_component.reshape(-1))
        x += rng.random(len(x))
        return Simulated(counts, {"x": x})


plugin = UniformMixture
