"""Failures: how many simulations of an inference failed, and the first of them, for whoever tells of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dp_dask.core.simulated import Failure

__all__ = ["Failures"]

MANY = 0.01  # of the simulations, above which the posterior is another one


@dataclass(frozen=True, slots=True)
class Failures:
    """Numbers of simulations, made and failed, and the first few failures: each with its row, theta [p] and reason."""

    simulated: int
    failed: int
    first: tuple[Failure, ...]

    @property
    def are_many(self) -> bool:
        """Whether more than 1 % failed, so that the posterior differs from one that knows no failure."""
        return self.failed > MANY * self.simulated

    def told(self, parameters: Sequence[str]) -> str:
        """Return the numbers, and where they are many the first failure and what follows for the posterior."""
        if not self.are_many:
            return self._counted
        return f"{self.with_first(parameters)}: the posterior is given that they succeed"

    def with_first(self, parameters: Sequence[str]) -> str:
        """Return the numbers, and the first failure with its theta where there is one."""
        if not self.first:
            return self._counted
        failure = self.first[0]
        at = ", ".join(f"{name} = {value:.6g}" for name, value in zip(parameters, failure.theta, strict=True))
        return f"{self._counted} (the first at {at}: {failure.reason})"

    @property
    def _counted(self) -> str:
        return f"{self.failed} of {self.simulated} simulations failed"
