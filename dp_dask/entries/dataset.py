"""Dataset: which records, whom they are of and in which state, from the entry ``dataset`` of a pipeline file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dp_dask.core import plugins
from dp_dask.core.names import NAME, is_name
from dp_dask.core.slots import MARK
from dp_dask.core.unit import RECORD, UnitOfProtection
from dp_dask.core.where import Where
from dp_dask.entries.build import Faults, build, check_keys, leaf, show
from dp_dask.entries.unit import read_unit
from dp_dask.entries.where import read_where
from dp_dask.private.databases import OfDatabase
from dp_dask.private.filtered import Filtered
from dp_dask.private.sources import Source

__all__ = ["NONE", "SOURCES", "Dataset", "make_source", "read_dataset"]

SOURCES = "dp_dask.private.sources"
NO_VERSION = (
    'is missing; a database does not tell when its data changed: name their state, as version: "2026-01-31", and another one '
    "whenever they changed, because what was released of a version is released again, free of charge"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """The records; ``name`` or ``source`` is None where there was a fault."""

    name: str | None
    source: Source | None
    unit: UnitOfProtection
    passes: int
    version: str | None  # overrides the source's own state as the data version
    where: Where | None

    @property
    def filtered(self) -> Source | None:
        """The source of the records that meet the conditions."""
        return self.source if self.where is None or self.source is None else Filtered(self.source, self.where)


NONE = Dataset(name="-", source=None, unit=RECORD, passes=1, version=None, where=None)  # where a file has no such entry


def read_dataset(given: Any, faults: Faults) -> Dataset:
    """Read the entry; every fault is noted."""
    entry = check_keys(given, "dataset", ("name", "source", "unit", "version", "where"), ("name", "source", "unit"), faults)
    name = leaf(str, entry.get("name", "-"), "dataset.name", faults)
    if name is not None and not is_name(name):
        faults.add("dataset.name", f"is {show(name)}; use {NAME} only")
    unit, passes = read_unit(entry.get("unit", "record"), faults)
    version = leaf(str | None, entry.get("version"), "dataset.version", faults)
    if version is not None and version.startswith(MARK):
        faults.add("dataset.version", "begins with a character that no text holds; give plain text")
    source = make_source(entry["source"], faults) if "source" in entry else None
    if isinstance(source, OfDatabase):
        if not (version or source.has_state):
            faults.add("dataset.version", NO_VERSION)
        version = version and f"{version}\n{source.asked}"  # of another table, the same version is another state
    where = read_where(entry["where"], faults) if "where" in entry else None
    return Dataset(name=name, source=source, unit=unit, passes=passes, version=version, where=where)


def make_source(given: Any, faults: Faults) -> Any:
    """Make the source that ``kind`` names from the other keys; None where there was a fault."""
    path = "dataset.source"
    if not isinstance(given, dict) or not isinstance(given.get("kind"), str):
        faults.add(path, f"is {show(given)}; give a mapping with kind: {' or '.join(plugins.names(SOURCES))}")
        return None
    try:
        cls = plugins.load(SOURCES, given["kind"])
    except ValueError as error:
        faults.add(f"{path}.kind", str(error))
        return None
    return build(cls, {key: value for key, value in given.items() if key != "kind"}, path, faults)
