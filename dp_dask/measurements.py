"""Measurements: all of a pipeline file, each by a model or through a simulator."""

from __future__ import annotations

from typing import Any

from dp_dask.build import Faults, show
from dp_dask.core.names import NAME, is_name
from dp_dask.measurement import Measurement, Privacy, make_measurement
from dp_dask.simulated_measurement import make_simulated

__all__ = ["make_measurements"]


def make_measurements(given: Any, dataset: str | None, privacy: Privacy | None, faults: Faults) -> list[Measurement]:
    """Make every measurement of the file; what is wrong with one does not hide the next."""
    if not isinstance(given, dict) or not given:
        faults.add("measurements", f"is {show(given)}; give at least one, as NAME: {{model: .., column: .., ..}}")
        return []
    made = []
    for name, value in given.items():
        path = f"measurements.{name}"
        if not is_name(name):
            faults.add(path, f"the name may hold {NAME} only")
        is_simulated = isinstance(value, dict) and "simulator" in value
        make = make_simulated if is_simulated else make_measurement
        measurement = make(name, value, path, dataset or "", privacy, faults)
        if measurement is not None:
            made.append(measurement)
    return made
