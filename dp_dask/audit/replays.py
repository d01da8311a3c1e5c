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
from dp_dask.progress import Progress

__all__ = ["Replayed", "pipeline_of", "replays", "trace_of"]

WITHOUT = "without the record"
PASSES = (("parquet", "sums"), ("parquet", "choices"), ("csv", "few"))
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
    wanted = [(*each, neighbours) for neighbours in Neighbours for each in PASSES]
    for i, (kind, what, neighbours) in enumerate(wanted):
        own = folder / str(i)
        own.mkdir()
        pipeline = pipeline_of(examples.pipeline_file(records.source(kind, own / "data"), neighbours), own)
        pipeline = replace(pipeline, measurements=(*pipeline.measurements, *examples.bands(neighbours)))
        values: dict[str, Any] = {} if neighbours is Neighbours.REPLACE else {WITHOUT: None}
        if what == "sums":
            pipeline, values = replace(pipeline, selections=()), values | records.VALUES
        elif what == "choices":
            pipeline, values = replace(pipeline, measurements=()), values | {name: records.VALUES[name] for name in EXTREMES}
        else:
            pipeline, values = (
                examples.few(pipeline),
                values | records.CSV_LINES | {n: records.VALUES[n] for n in ("small", "large")},
            )
        traces = {name: trace_of(pipeline, client, own / str(j), seed, record) for j, (name, record) in enumerate(values.items())}
        about = f"{neighbours}, {kind}" + (", choices" if what == "choices" else "")
        found.append(Replayed(about, pipeline, traces))
        progress("replaying", i + 1, len(wanted))
    return found


def pipeline_of(made: Mapping[str, Any], folder: Path) -> Pipeline:
    """Write a pipeline file and load it."""
    file = folder / "pipeline.yaml"
    file.write_text(json.dumps(made), encoding="utf-8")
    return load(file)


def trace_of(pipeline: Pipeline, client: Any, folder: Path, seed: int, record: Any) -> Trace:
    """Write the records, one of them as given, and replay them; a source of text has a delimiter."""
    folder.mkdir()
    kind = "csv" if hasattr(pipeline.source, "delimiter") else "parquet"
    records.write(kind, folder / "data", seed, record)
    own: Any = pipeline.source
    return replay(replace(pipeline, source=replace(own, path=folder / "data")), client, folder)
