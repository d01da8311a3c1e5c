"""sir(R0, infectious_days): an epidemic in a closed population, of which cases are reported with their week."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.prior_kinds import Domain
from dp_dask.core.simulated import Simulated, Size, check_theta, refuse_size

__all__ = ["plugin"]

Floats = NDArray[np.float64]
WEEK = 7


@dataclass(frozen=True, slots=True)
class Sir:
    """Chain binomial in steps of a day (Lekone & Finkenstaedt 2006, without their latent class), population N.

    New infections ~ Binomial(S, 1 - exp(-R0 I / (D N))), recoveries ~ Binomial(I, 1 - exp(-1 / D)), D = infectious_days; each new
    infection is reported with probability ``reported``. A record is a reported case, its week 0 .. weeks - 1. The ``infected`` of
    day 0 are not reported.
    """

    population: int
    infected: int
    weeks: int
    reported: float = 1.0

    parameters: ClassVar[tuple[str, ...]] = ("R0", "infectious_days")
    domains: ClassVar[tuple[Domain, ...]] = ("positive", "positive")
    columns: ClassVar[tuple[str, ...]] = ("week",)
    decides_n: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 < self.infected <= self.population:
            msg = f"infected is {self.infected}; it must be between 1 and the population of {self.population}"
            raise ValueError(msg)
        if self.weeks < 1:
            msg = f"weeks is {self.weeks}; it must be at least 1"
            raise ValueError(msg)
        if not 0 < self.reported <= 1:
            msg = f"reported is {self.reported}; it must be a probability above 0"
            raise ValueError(msg)

    def simulate(self, theta: Floats, n: Size, rng: np.random.Generator) -> Simulated:
        """Step all epidemics together, then thin each week's new infections to the reported ones."""
        refuse_size(n, "an epidemic")
        check_theta(theta, self.parameters, self.domains)
        reproduction, days = theta.T
        recovery = -np.expm1(-1 / days)
        contact = reproduction / (days * self.population)
        susceptible = np.full(len(theta), self.population - self.infected)
        infected = np.full(len(theta), self.infected)
        weekly = np.zeros((len(theta), self.weeks), dtype=np.int64)
        for day in range(WEEK * self.weeks):
            new = rng.binomial(susceptible, -np.expm1(-contact * infected))
            infected = infected + new - rng.binomial(infected, recovery)
            susceptible = susceptible - new
            weekly[:, day // WEEK] += new
        cases = rng.binomial(weekly, self.reported)
        week = np.repeat(np.tile(np.arange(self.weeks, dtype=np.float64), len(theta)), cases.reshape(-1))
        return Simulated(cases.sum(axis=1), {"week": week})


plugin = Sir
