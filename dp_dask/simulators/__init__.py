"""Simulators: one a file; a file's name is its name in the pipeline file.

A simulator draws data sets given parameters, many at once, and knows neither privacy nor any record: a model whose likelihood
need not be known. To add one is to add a file whose ``plugin`` is a frozen dataclass with the members of ``Simulator``; its
fields are what is known of the process.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.prior_kinds import Domain
from dp_dask.core.simulated import Simulated, Size

__all__ = ["Simulated", "Simulator", "Size"]

Floats = NDArray[np.float64]


class Simulator(Protocol):
    """A law of data sets that can be drawn from.

    One whose parameters have a joint prior of their own, constrained say, tells its class by ``prior_type``.
    One that must be made ready on a worker (compiled, say) may have a method ``prepare()``, which no time-out counts.
    """

    @property
    def parameters(self) -> tuple[str, ...]:
        """The parameters' names, in theta's order."""
        ...

    @property
    def domains(self) -> tuple[Domain, ...]:
        """Where each parameter can lie."""
        ...

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of a record's columns."""
        ...

    @property
    def decides_n(self) -> bool:
        """Does its own course decide the number of records, so that n must be None?"""
        ...

    def simulate(self, theta: Floats, n: Size, rng: np.random.Generator) -> Simulated:
        """Draw one data set for each row of theta [B, p]; raises ValueError for a theta or an n that it has no law for."""
        ...
