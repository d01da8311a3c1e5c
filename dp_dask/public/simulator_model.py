"""SimulatorModel: a simulator as a pipeline file asks for it, in the place of a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.joint_priors import Independent
from dp_dask.core.prior_kinds import Domain
from dp_dask.core.simulated import Simulated, Size
from dp_dask.public.guarded import Call, Policy, call_here
from dp_dask.public.isolated import Isolated
from dp_dask.simulators import Simulator

__all__ = ["Renamed", "SimulatorModel"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Renamed:
    """A simulator whose columns bear the names that they have in the data, ``columns``, in its own order."""

    simulator: Simulator
    columns: tuple[str, ...]

    @property
    def parameters(self) -> tuple[str, ...]:
        """The simulator's."""
        return self.simulator.parameters

    @property
    def domains(self) -> tuple[Domain, ...]:
        """The simulator's."""
        return self.simulator.domains

    @property
    def decides_n(self) -> bool:
        """As the simulator does."""
        return self.simulator.decides_n

    def prepare(self) -> None:
        """Make the simulator ready."""
        getattr(self.simulator, "prepare", lambda: None)()

    def simulate(self, theta: Floats, n: Size, rng: np.random.Generator) -> Simulated:
        """Simulate, and rename."""
        made = self.simulator.simulate(theta, n, rng)
        values = {new: made.values[old] for old, new in zip(self.simulator.columns, self.columns, strict=True)}
        return Simulated(made.counts, values)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatorModel:
    """A simulator, what happens where it fails (``guarded``), and seconds for one call, None for no limit.

    ``known`` are the entries of the pipeline file that it was made from.
    """

    simulator: Simulator
    policy: Policy = "reject"
    time_out: float | None = None
    known: Mapping[str, Any] = field(default_factory=dict)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The parameters' names."""
        return self.simulator.parameters

    @property
    def domains(self) -> tuple[Domain, ...]:
        """Where each parameter can lie."""
        return self.simulator.domains

    @property
    def prior_type(self) -> type:
        """The simulator's own joint prior, where it has one."""
        found: type = getattr(self._own, "prior_type", Independent)
        return found

    @property
    def code(self) -> str:
        """The digest of the user's own code; empty for a simulator that ships."""
        return str(getattr(self._own, "source", ""))

    @property
    def _own(self) -> Any:
        """The simulator under its own names."""
        return self.simulator.simulator if isinstance(self.simulator, Renamed) else self.simulator

    @property
    def call(self) -> Call:
        """How the simulator is called: here, or where it has a time-out in a process of its own."""
        return call_here if self.time_out is None else Isolated(self.time_out)
