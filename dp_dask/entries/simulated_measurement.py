"""SimulatedMeasurement: a posterior through a simulator, from its entry in the pipeline file."""

from __future__ import annotations

from typing import Any

from dp_dask.core.bounds import Outside
from dp_dask.core.cluster_bands import ClusterBands
from dp_dask.core.grid import MAX_PRIVATE_RECORDS, check_headroom
from dp_dask.core.privacy import Neighbours
from dp_dask.core.table_sum import TableSum
from dp_dask.entries.build import Faults, check_keys, leaf
from dp_dask.entries.loss import read_loss
from dp_dask.entries.measurement import Measurement, Privacy, make_request, read_bounds
from dp_dask.entries.prior import make_prior
from dp_dask.entries.simulator import known_of_simulator, make_simulator
from dp_dask.entries.summary import Clusters, Setting, make_summary, read_summary
from dp_dask.entries.unit import check_unit
from dp_dask.errors import InferenceError
from dp_dask.public.simulator_model import SimulatorModel

__all__ = ["make_simulated"]

KEYS = ("simulator", "method", "prior", "epsilon", "rho", "column", "summary")
OF_NUMBERS = ("bounds", "outside", "integer")


def make_simulated(
    name: str, given: dict[str, Any], path: str, dataset: str, privacy: Privacy | None, faults: Faults
) -> Measurement | None:
    """Make one measurement by ``method: release``; None where there was a fault."""
    before = len(faults.problems)
    simulator = leaf(str, given["simulator"], f"{path}.simulator", faults)
    known = None if simulator is None else known_of_simulator(simulator, f"{path}.simulator", faults)
    if known is None:
        return None
    is_of_clusters = isinstance(given.get("summary"), dict) and given["summary"].get("kind") == "clusters"
    of_numbers = () if is_of_clusters else OF_NUMBERS
    needed = ("prior", "column") if is_of_clusters else ("prior", "column", "bounds")
    values = check_keys(given, path, [*KEYS, *of_numbers, *known], needed, faults)
    model = make_simulator(simulator, {key: values[key] for key in known if key in values}, path, faults)
    column = leaf(str, values.get("column", ""), f"{path}.column", faults)
    outside = leaf(Outside, values.get("outside", "clamp"), f"{path}.outside", faults)
    is_integer = leaf(bool, values.get("integer", False), f"{path}.integer", faults)
    bounds = read_bounds(values["bounds"], None, f"{path}.bounds", faults) if "bounds" in values else None
    loss = read_loss(values, path, faults, is_delta_known=privacy is None or privacy.delta is not None)
    summary = read_summary(values.get("summary", "auto"), f"{path}.summary", faults)
    prior = None
    if model is not None:
        prior = make_prior(model, values["prior"], f"{path}.prior", faults) if "prior" in values else None
        if column is not None and "column" in values:
            _check_columns((column,), model, path, faults)
    if model is not None and privacy is not None:
        _check_n(model.simulator.decides_n, privacy, path, faults)
    if len(faults.problems) > before or privacy is None or model is None or loss is None or summary is None:
        return None
    setting = None
    try:
        if isinstance(summary, Clusters):
            statistic: TableSum | ClusterBands = summary.made(column)
            _check_columns(statistic.columns, model, path, faults)
        elif bounds is not None:
            setting = Setting(
                model=model,
                prior=prior,
                column=column,
                bounds=bounds,
                outside=outside,
                is_integer=is_integer,
                neighbours=privacy.neighbours,
                n=privacy.n if privacy.n is not None else _guess(privacy),
            )
            statistic = make_summary(summary, setting, privacy.unit.for_a_record(loss))
        check_headroom(statistic.largest, MAX_PRIVATE_RECORDS if privacy.n is None else max(privacy.n, 1))
    except (ValueError, InferenceError) as error:
        faults.add(f"{path}.summary", str(error))
        return None
    check_unit(privacy.unit, statistic, name, faults, is_integer=is_integer)
    if len(faults.problems) > before:
        return None
    request = make_request(dataset, statistic, privacy, loss)
    return Measurement(name=name, model_name=simulator, model=model, prior=prior, request=request, setting=setting)


def _check_columns(columns: tuple[str, ...], model: SimulatorModel, path: str, faults: Faults) -> None:
    made = model.simulator.columns
    for column in columns:
        if column not in made:
            faults.add(f"{path}.column", f"is {column!r}; the simulator makes {', '.join(made)} (see rename)")


def _guess(privacy: Privacy) -> int | None:
    return None if privacy.expected_records is None else max(round(privacy.expected_records), 1)


def _check_n(decides_n: bool, privacy: Privacy, path: str, faults: Faults) -> None:  # noqa: FBT001
    if decides_n and privacy.neighbours is Neighbours.REPLACE:
        told = "decides by its own course how many records there are, so that their number tells of the parameters"
        faults.add(f"{path}.simulator", f"{told}; use privacy.neighbours: add_remove")
    if not decides_n and privacy.n is None and privacy.expected_records is None:
        told = "a simulator needs a number of records; under add_remove it is private: give a public guess, the mean of its prior"
        faults.add("privacy.expected_records", told)
