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
from dp_dask.core.of_sums import OfSums
from dp_dask.core.privacy import Loss, Neighbours, Unit
from dp_dask.core.release import Request
from dp_dask.core.schedule import Schedule
from dp_dask.core.selected import SelectionRequest
from dp_dask.core.unit import RECORD, UnitOfProtection
from dp_dask.core.where import Where
from dp_dask.entries import strict_yaml
from dp_dask.entries.build import Faults, build, check_keys, leaf
from dp_dask.entries.cluster import make_cluster
from dp_dask.entries.dataset import NONE, read_dataset
from dp_dask.entries.measurement import Measurement
from dp_dask.entries.measurements import make_measurements
from dp_dask.entries.selection_measurement import SelectionMeasurement
from dp_dask.entries.unit import Privacy, Relation
from dp_dask.errors import ConfigError
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
    "Inference",
    "Pipeline",
    "load",
    "read",
]

CLUSTER_VARIABLE = "DP_DASK_CLUSTER"
FEWEST_DRAWS, MOST_DRAWS = 100, 10**7
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
    dataset = read_dataset(top["dataset"], faults) if "dataset" in top else NONE
    source, where = dataset.filtered, dataset.where
    relation = build(Relation, top["privacy"], "privacy", faults) if "privacy" in top else None
    privacy = None if relation is None else _protecting(dataset.unit, relation, faults)
    inference = build(Inference, top.get("inference", {}), "inference", faults)
    cluster = make_cluster(top.get("cluster", "local"), faults)
    path = "simulation_cluster"
    simulation_cluster = make_cluster(top[path], faults, path) if path in top else None
    ledger = _ledger(top["ledger"], faults) if "ledger" in top else None
    if ledger is not None and sa.make_url(ledger).database == str(getattr(dataset.source, "path", "")):
        faults.add("ledger", "is the file that the records are in; keep the ledger in a file of its own")
    output = leaf(Path, top.get("output", "runs"), "output", faults)
    schedule = build(Schedule, top["schedule"], "schedule", faults) if "schedule" in top else None
    measurements, selections = (
        make_measurements(top["measurements"], dataset.name, privacy, faults) if "measurements" in top else ([], [])
    )
    if where is not None and _is_served(where, privacy, measurements, selections, faults):
        measurements = [replace(m, request=replace(m.request, where=where)) for m in measurements]
        selections = [replace(s, request=replace(s.request, where=where)) for s in selections]
    if inference is not None:
        _check_engine(inference.engine, measurements, faults)
    if faults.problems or dataset.name is None or source is None or privacy is None or inference is None or ledger is None:
        return None
    return Pipeline(
        dataset=dataset.name,
        source=source,
        version=dataset.version,
        protects=dataset.unit,
        passes=dataset.passes,
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
