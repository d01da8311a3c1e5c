"""Simulator: from its name and what is known of its process in a pipeline file or a release."""

from __future__ import annotations

import dataclasses
from typing import Any

from dp_dask.core import plugins
from dp_dask.core.prior_kinds import Domain
from dp_dask.core.references import is_reference
from dp_dask.entries.build import Faults, build, check_keys, leaf, show
from dp_dask.public.guarded import Policy
from dp_dask.public.simulator_model import Renamed, SimulatorModel
from dp_dask.simulators import Simulator
from dp_dask.user_simulator import load_simulator

__all__ = ["SIMULATORS", "Handling", "known_of_simulator", "make_simulator"]

SIMULATORS = "dp_dask.simulators"
OF_USER = {"parameters": tuple[str, ...], "columns": tuple[str, ...], "domains": tuple[Domain, ...]}


@dataclasses.dataclass(frozen=True, slots=True)
class Handling:
    """What its columns are called in the data, what happens where it fails, and the seconds that one call may take."""

    rename: dict[str, str] = dataclasses.field(default_factory=dict)
    failures: Policy = "reject"
    time_out: float | None = None

    def __post_init__(self) -> None:
        if self.time_out is not None and not 0 < self.time_out < float("inf"):
            msg = f"time_out is {self.time_out}; give a positive number of seconds, or leave it out"
            raise ValueError(msg)


HANDLING = [field.name for field in dataclasses.fields(Handling)]


def known_of_simulator(name: str, path: str, faults: Faults) -> list[str] | None:
    """List the keys that a pipeline file may give a simulator; None where there is none of this name."""
    if is_reference(name):
        return [*OF_USER, *HANDLING]
    try:
        cls = plugins.load(SIMULATORS, name)
    except ValueError as error:
        faults.add(path, str(error))
        return None
    return [*(field.name for field in dataclasses.fields(cls)), *HANDLING]


def make_simulator(name: str, known: dict[str, Any], path: str, faults: Faults) -> SimulatorModel | None:
    """Make a simulator by name, or import the user's own, from what is known of it; None where there was a fault."""
    before = len(faults.problems)
    names = known_of_simulator(name, f"{path}.simulator", faults)
    if names is None:
        return None
    given = check_keys(known, path, names, (), faults)
    handling = build(Handling, {key: given[key] for key in HANDLING if key in given}, path, faults)
    own = {key: value for key, value in given.items() if key not in HANDLING}
    simulator = _of_user(name, own, path, faults) if is_reference(name) else _of_ours(name, own, path, faults)
    if simulator is None or handling is None or len(faults.problems) > before:
        return None
    plain = {name: getattr(handling if name in HANDLING else simulator, name) for name in given}
    if handling.rename:
        columns = _renamed(simulator, handling.rename, path, faults)
        if columns is None:
            return None
        simulator = Renamed(simulator, columns)
    return SimulatorModel(simulator=simulator, policy=handling.failures, time_out=handling.time_out, known=plain)


def _of_ours(name: str, own: dict[str, Any], path: str, faults: Faults) -> Simulator | None:
    made: Simulator | None = build(plugins.load(SIMULATORS, name), own, path, faults)
    return made


def _of_user(name: str, own: dict[str, Any], path: str, faults: Faults) -> Simulator | None:
    values = {key: leaf(OF_USER[key], value, f"{path}.{key}", faults) for key, value in own.items()}
    if None in values.values():
        return None
    try:
        return load_simulator(name, faults.folder, **values)
    except ValueError as error:
        faults.add(f"{path}.simulator", str(error))
        return None


def _renamed(simulator: Simulator, rename: dict[str, str], path: str, faults: Faults) -> tuple[str, ...] | None:
    columns = tuple(rename.get(column, column) for column in simulator.columns)
    unknown = [name for name in rename if name not in simulator.columns]
    if unknown or len(set(columns)) < len(columns):
        what = f"names {show(unknown[0])}" if unknown else "gives two columns one name"
        faults.add(f"{path}.rename", f"{what}; give SIMULATED: IN_THE_DATA for some of {', '.join(simulator.columns)}")
        return None
    return columns
