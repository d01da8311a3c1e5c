"""Measurements: all of a pipeline file, each by a model or through a simulator."""

from __future__ import annotations

from typing import Any, TypeVar

from dp_dask.core.names import NAME, is_name
from dp_dask.entries.build import Faults, show
from dp_dask.entries.measurement import Measurement, Privacy, make_measurement
from dp_dask.entries.selection_measurement import METHODS, SelectionMeasurement, make_selection
from dp_dask.entries.simulated_measurement import make_simulated

__all__ = ["make_measurements"]

T = TypeVar("T")
RELEASE = "release"
Made = tuple[list[Measurement], list[SelectionMeasurement]]


def make_measurements(given: Any, dataset: str | None, privacy: Privacy | None, faults: Faults) -> Made:
    """Make every measurement of the file, and every choice among simulations; what is wrong with one does not hide the next."""
    measured: list[Measurement] = []
    selected: list[SelectionMeasurement] = []
    if not isinstance(given, dict) or not given:
        faults.add("measurements", f"is {show(given)}; give at least one, as NAME: {{model: .., column: .., ..}}")
        return measured, selected
    for name, value in given.items():
        path = f"measurements.{name}"
        if not is_name(name):
            faults.add(path, f"the name may hold {NAME} only")
        arguments = (name, value, path, dataset or "", privacy, faults)
        if not (isinstance(value, dict) and "simulator" in value):
            measured += _some(make_measurement(*arguments))
        elif value.get("method", RELEASE) == RELEASE:
            measured += _some(make_simulated(*arguments))
        elif value["method"] in METHODS:
            selected += _some(make_selection(*arguments))
        else:
            faults.add(f"{path}.method", f"is {show(value['method'])}; give {RELEASE} (the default), {' or '.join(METHODS)}")
    return measured, selected


def _some(made: T | None) -> list[T]:
    return [] if made is None else [made]
