"""Replays: the release path on data sets of which one record is changed, added or removed.

Under ``replace`` every two of a record's values are neighbours, under ``add_remove`` the records with and without it.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dp_dask.audit import examples, records
from dp_dask.audit.replay import Trace, replay
from dp_dask.config import Pipeline, load
from dp_dask.core.privacy import Neighbours
from dp_dask.private.filtered import Filtered
from dp_dask.progress import Progress

__all__ = ["Replayed", "pipeline_of", "replays", "trace_of"]

WITHOUT = "without the record"
PASSES = (("parquet", "sums"), ("parquet", "choices"), ("parquet", "where"), ("csv", "few"))
WHERE = {"positive": {"from": 1, "to": 9}, "colour": ["a", "b"], "week": {"is": "known"}}
EXTREMES = (
    "small",
    "large",
    "between",
    "beyond the bounds",
    "null",
    "small and large in turn",
)  # of which distances are looked at


@dataclass(frozen=True, slots=True)
class Replayed:
    """All data sets of one source and relation, by what the one record was, through the same pipeline."""

    about: str
    pipeline: Pipeline
    traces: Mapping[str, Trace]

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Every two that are neighbours."""
        if self.pipeline.neighbours is Neighbours.REPLACE:
            return list(itertools.combinations(self.traces, 2))
        return [(WITHOUT, name) for name in self.traces if name != WITHOUT]


def replays(client: Any, folder: Path, seed: int, progress: Progress) -> list[Replayed]:
    """Replay every data set under both relations: all sums and all choices on Parquet files, a few of them on text files."""
    found = []
    wanted = [(*each, neighbours) for neighbours in Neighbours for each in PASSES if _is_asked(each[1], neighbours)]
    for i, (kind, what, neighbours) in enumerate(wanted):
        own = folder / str(i)
        own.mkdir()
        made = examples.pipeline_file(records.source(kind, own / "data"), neighbours)
        if what == "where":
            made["dataset"]["where"] = WHERE
        pipeline = pipeline_of(made, own)
        pipeline = replace(pipeline, measurements=(*pipeline.measurements, *examples.bands(pipeline)))
        values: dict[str, Any] = {} if neighbours is Neighbours.REPLACE else {WITHOUT: None}
        if what == "sums":
            pipeline, values = replace(pipeline, selections=()), values | records.VALUES
        elif what == "choices":
            pipeline, values = replace(pipeline, measurements=()), values | {name: records.VALUES[name] for name in EXTREMES}
        elif what == "where":
            pipeline, values = examples.few(pipeline), values | records.VALUES
        else:
            ordinary = {name: records.VALUES[name] for name in ("small", "large")}
            pipeline, values = examples.few(pipeline), values | records.CSV_LINES | ordinary
        traces = {
            name: trace_of(kind, pipeline, client, own / str(j), seed, record) for j, (name, record) in enumerate(values.items())
        }
        about = f"{neighbours}, {kind}" + (f", {what}" if what in {"choices", "where"} else "")
        found.append(Replayed(about, pipeline, traces))
        progress("replaying", i + 1, len(wanted))
    return found


def pipeline_of(made: Mapping[str, Any], folder: Path) -> Pipeline:
    """Write a pipeline file and load it."""
    file = folder / "pipeline.yaml"
    file.write_text(json.dumps(made), encoding="utf-8")
    return load(file)


def _is_asked(what: str, neighbours: Neighbours) -> bool:
    """Conditions on records go with a private n alone."""
    return what != "where" or neighbours is Neighbours.ADD_REMOVE


def trace_of(kind: str, pipeline: Pipeline, client: Any, folder: Path, seed: int, record: Any) -> Trace:
    """Write the records, one of them as given, and replay them."""
    folder.mkdir()
    records.write(kind, folder / "data", seed, record)
    return replay(replace(pipeline, source=_at(pipeline.source, folder / "data")), client, folder)


def _at(source: Any, folder: Path) -> Any:
    """Return the same source of another folder."""
    if isinstance(source, Filtered):
        return replace(source, source=_at(source.source, folder))
    return replace(source, path=folder)
