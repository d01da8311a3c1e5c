"""Config: a pipeline file to validated values; every fault at once, each with its path."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from dp_dask.clusters import Cluster
from dp_dask.core import plugins
from dp_dask.core.names import NAME, is_name
from dp_dask.core.of_sums import OfSums
from dp_dask.core.privacy import Loss, Neighbours, Unit
from dp_dask.core.release import Request
from dp_dask.core.schedule import Schedule
from dp_dask.core.selected import SelectionRequest
from dp_dask.core.slots import MARK
from dp_dask.core.unit import RECORD, UnitOfProtection
from dp_dask.core.where import Where
from dp_dask.entries import strict_yaml
from dp_dask.entries.build import Faults, build, check_keys, leaf, show
from dp_dask.entries.cluster import make_cluster
from dp_dask.entries.measurement import Measurement
from dp_dask.entries.measurements import make_measurements
from dp_dask.entries.selection_measurement import SelectionMeasurement
from dp_dask.entries.unit import Privacy, Relation, read_unit
from dp_dask.entries.where import read_where
from dp_dask.errors import ConfigError
from dp_dask.private.databases import OfDatabase
from dp_dask.private.filtered import Filtered
from dp_dask.private.reduce import columns_of
from dp_dask.private.sources import Source
from dp_dask.public.infer import AUTO, check_engine
from dp_dask.public.simulated_infer import SIMULATED
from dp_dask.public.tempering import Effort

__all__ = [
    "FEWEST_DRAWS",
    "FEWEST_SIMULATIONS",
    "MOST_DRAWS",
    "MOST_SIMULATIONS",
    "SIMULATIONS",
    "SOURCES",
    "Inference",
    "Pipeline",
    "load",
    "read",
]

SOURCES = "dp_dask.private.sources"
CLUSTER_VARIABLE = "DP_DASK_CLUSTER"
FEWEST_DRAWS, MOST_DRAWS = 100, 10**7
NO_VERSION = (
    'is missing; a database does not tell when its data changed: name their state, as version: "2026-01-31", and another one '
    "whenever they changed, because what was released of a version is released again, free of charge"
)
SIMULATIONS, FEWEST_SIMULATIONS, MOST_SIMULATIONS = Effort().most, 2_000, 10**8


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A whole pipeline file, validated."""

    dataset: str
    source: Source
    version: str | None  # overrides the source's own state as the data version
    protects: UnitOfProtection
    passes: int  # over the data, each with a part of the persons
    neighbours: Neighbours
    n: int | None
    expected_n: float | None
    delta: Decimal | None
    measurements: tuple[Measurement, ...]
    selections: tuple[SelectionMeasurement, ...]
    n_draws: int
    engine: str
    simulations: int
    seconds: float | None
    cluster: Cluster  # where records are read
    simulation_cluster: Cluster | None  # where data sets are simulated and posteriors made, where it is another one
    ledger: str
    output: Path
    schedule: Schedule | None = None  # when scheduled runs are due

    @property
    def simulates_on(self) -> Cluster:
        """The cluster that sees no record."""
        return self.simulation_cluster or self.cluster

    @property
    def losses(self) -> list[Loss]:
        """What the measurements ask for, equal requests counted once."""
        distinct: list[Request | SelectionRequest] = []
        for request in self.requests:
            if request not in distinct:
                distinct.append(request)
        return [request.loss for request in distinct]

    @property
    def requests(self) -> list[Request | SelectionRequest]:
        """All that is asked of the records: sums, then choices."""
        return [*(m.request for m in self.measurements), *(s.request for s in self.selections)]

    @property
    def columns(self) -> tuple[list[str], frozenset[str]]:
        """The columns that are read of the records, and which of them hold texts."""
        return _columns(self.protects, self.measurements, self.selections)

    @property
    def unit(self) -> Unit:
        """The unit in which all that is asked for has a price."""
        return Unit.RHO if any(loss.unit is Unit.RHO for loss in self.losses) else Unit.EPSILON


@dataclass(frozen=True, slots=True)
class Inference:
    """How many draws, by which engine, and how many data sets may be simulated for each engine that needs some."""

    draws: int = 4000
    engine: str = AUTO
    simulations: int = SIMULATIONS
    seconds: float | None = None  # after which no more are begun

    def __post_init__(self) -> None:
        if not FEWEST_DRAWS <= self.draws <= MOST_DRAWS:
            msg = f"draws is {self.draws}; give a number from {FEWEST_DRAWS} to {MOST_DRAWS}"
            raise ValueError(msg)
        if not FEWEST_SIMULATIONS <= self.simulations <= MOST_SIMULATIONS:
            msg = f"simulations is {self.simulations}; give a number from {FEWEST_SIMULATIONS} to {MOST_SIMULATIONS}"
            raise ValueError(msg)
        if self.seconds is not None and not 0 < self.seconds < float("inf"):
            msg = f"seconds is {self.seconds}; give a positive number, or leave it out"
            raise ValueError(msg)
        check_engine(self.engine)


def load(path: Path, **replaced: Any) -> Pipeline:
    """Read and validate a pipeline file; ``replaced`` are top-level keys to use in place of the file's.

    Raises ConfigError with every fault. Reads no record and opens no ledger.
    """
    given, faults = read(path, **replaced)
    pipeline = _pipeline(given, faults)
    if pipeline is None or faults.problems:
        raise ConfigError(faults.problems)
    return pipeline


def read(path: Path, **replaced: Any) -> tuple[Any, Faults]:
    """Parse a file, with other values for the top-level keys in ``replaced``; return it and where its faults are gathered.

    The environment's DP_DASK_CLUSTER stands in for the file's cluster too.
    """
    kind = ""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        kind = f"cannot be read ({error.strerror}); give the path of a pipeline file"
    except UnicodeDecodeError:
        kind = "is not UTF-8 text; give the path of a pipeline file"
    if kind:
        raise ConfigError.of(str(path), kind)
    faults = Faults(path.resolve().parent)
    given = strict_yaml.parse(text, path.name)
    if isinstance(given, dict):
        if os.environ.get(CLUSTER_VARIABLE):
            given["cluster"] = os.environ[CLUSTER_VARIABLE]
        given.update(replaced)
    return given, faults


def _pipeline(given: Any, faults: Faults) -> Pipeline | None:
    keys = ("dataset", "privacy", "measurements", "inference", "cluster", "simulation_cluster", "ledger", "output", "schedule")
    top = check_keys(given, "", keys, ("dataset", "privacy", "measurements", "ledger"), faults)
    dataset = check_keys(top.get("dataset", {}), "dataset", ("name", "source", "unit", "version", "where"), (), faults)
    for key in ("name", "source", "unit"):
        if "dataset" in top and key not in dataset:
            faults.add(f"dataset.{key}", "is missing; it has no default, write it down")
    name = leaf(str, dataset.get("name", "-"), "dataset.name", faults)
    if name is not None and not is_name(name):
        faults.add("dataset.name", f"is {show(name)}; use {NAME} only")
    unit, passes = read_unit(dataset.get("unit", "record"), faults)
    version = leaf(str | None, dataset.get("version"), "dataset.version", faults)
    if version is not None and version.startswith(MARK):
        faults.add("dataset.version", "begins with a character that no text holds; give plain text")
    source = _plugin(SOURCES, dataset["source"], "dataset.source", faults) if "source" in dataset else None
    if isinstance(source, OfDatabase):
        if not (version or source.has_state):
            faults.add("dataset.version", NO_VERSION)
        version = version and f"{version}\n{source.asked}"  # of another table, the same version is another state
    where = read_where(dataset["where"], faults) if "where" in dataset else None
    relation = build(Relation, top["privacy"], "privacy", faults) if "privacy" in top else None
    privacy = None if relation is None else _protecting(unit, relation, faults)
    inference = build(Inference, top.get("inference", {}), "inference", faults)
    cluster = make_cluster(top.get("cluster", "local"), faults)
    path = "simulation_cluster"
    simulation_cluster = make_cluster(top[path], faults, path) if path in top else None
    ledger = _ledger(top["ledger"], faults) if "ledger" in top else None
    output = leaf(Path, top.get("output", "runs"), "output", faults)
    schedule = build(Schedule, top["schedule"], "schedule", faults) if "schedule" in top else None
    measurements, selections = (
        make_measurements(top["measurements"], name, privacy, faults) if "measurements" in top else ([], [])
    )
    if where is not None and _is_served(where, privacy, measurements, selections, faults):
        measurements = [replace(m, request=replace(m.request, where=where)) for m in measurements]
        selections = [replace(s, request=replace(s.request, where=where)) for s in selections]
    if inference is not None:
        _check_engine(inference.engine, measurements, faults)
    if faults.problems or source is None or privacy is None or inference is None or ledger is None:
        return None
    return Pipeline(
        dataset=name,
        source=source if where is None else Filtered(source, where),
        version=version,
        protects=unit,
        passes=passes,
        neighbours=privacy.neighbours,
        n=privacy.n,
        expected_n=privacy.expected_records,
        delta=privacy.delta,
        measurements=tuple(measurements),
        selections=tuple(selections),
        n_draws=inference.draws,
        engine=inference.engine,
        simulations=inference.simulations,
        seconds=inference.seconds,
        cluster=cluster,
        simulation_cluster=simulation_cluster,
        ledger=ledger,
        output=output,
        schedule=schedule,
    )


def _protecting(unit: UnitOfProtection, relation: Relation, faults: Faults) -> Privacy:
    fault = unit.fault(relation.neighbours)
    if fault:
        faults.add("dataset.unit", fault)
        unit = RECORD  # to find what else is wrong
    return Privacy(relation.neighbours, relation.n, relation.expected_records, relation.delta, unit)


def _columns(
    unit: UnitOfProtection, measurements: Sequence[Measurement], selections: Sequence[SelectionMeasurement]
) -> tuple[list[str], frozenset[str]]:
    distances = [choice.request.distance for choice in selections]
    of_sums = [distance.statistic for distance in distances if isinstance(distance, OfSums)]
    columns, texts = columns_of([*(m.request.statistic for m in measurements), *of_sums], unit)
    by_record = {column for distance in distances if not isinstance(distance, OfSums) for column in distance.columns}
    return sorted({*columns, *by_record}), texts


def _is_served(
    where: Where,
    privacy: Privacy | None,
    measurements: Sequence[Measurement],
    selections: Sequence[SelectionMeasurement],
    faults: Faults,
) -> bool:
    before = len(faults.problems)
    if privacy is not None and privacy.neighbours is Neighbours.REPLACE:
        told = "which records meet a condition is private, and so is their number: use neighbours: add_remove, without n"
        faults.add("dataset.where", f"does not go with neighbours: replace; {told}")
    columns, texts = _columns(RECORD if privacy is None else privacy.unit, measurements, selections)
    fault = where.fault(set(columns) - texts, texts)
    if fault:
        faults.add("dataset.where", fault)
    return len(faults.problems) == before


def _plugin(folder: str, given: Any, path: str, faults: Faults) -> Any:
    """Make the source that ``kind`` names from the other keys."""
    if not isinstance(given, dict) or not isinstance(given.get("kind"), str):
        faults.add(path, f"is {show(given)}; give a mapping with kind: {' or '.join(plugins.names(folder))}")
        return None
    try:
        cls = plugins.load(folder, given["kind"])
    except ValueError as error:
        faults.add(f"{path}.kind", str(error))
        return None
    return build(cls, {key: value for key, value in given.items() if key != "kind"}, path, faults)


def _check_engine(engine: str, measurements: list[Measurement], faults: Faults) -> None:
    """Refuse an engine that serves models alone, or simulators alone, where the other is asked for."""
    for m in measurements:
        if engine != AUTO and (engine in SIMULATED) is not m.is_simulated:
            what = "a simulator" if m.is_simulated else "a model"
            faults.add("inference.engine", f"is {engine!r}, which does not serve {what} as of {m.name}; use auto")


def _ledger(value: Any, faults: Faults) -> str | None:
    """Check the form of the URL and make a relative SQLite path start at the file's folder."""
    text = leaf(str, value, "ledger", faults)
    if text is None:
        return None
    try:
        url = sa.make_url(text)
    except (sa.exc.ArgumentError, ValueError):
        faults.add("ledger", "is not a database URL; use sqlite:///FILE or postgresql+psycopg://USER@HOST/DATABASE")
        return None
    if url.get_backend_name() == "sqlite":
        if not url.database or url.database == ":memory:":
            faults.add("ledger", "a ledger must outlive the run; give a file: sqlite:///ledger.db")
            return None
        url = url.set(database=str(faults.folder / url.database))
    return url.render_as_string(hide_password=False)
