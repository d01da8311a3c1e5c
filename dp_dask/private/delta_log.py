"""Delta log: what the log of a Delta Lake table says of one version, read by deltalake."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from dp_dask.errors import SourceError
from dp_dask.private.lake import import_extra

__all__ = ["Table", "kept_records", "open_table", "opened"]

DELETIONS = "deletionVectors"
FEATURES = {DELETIONS, "columnMapping", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "variantType"}  # of readers
MAPPINGS = ("none", "name", "id")


@dataclass(frozen=True, slots=True)
class Table:
    """What the log says of one version."""

    root: Path
    at: int
    id: str
    schema: pa.Schema
    stored: dict[str, tuple[str, int | None]]  # by column, its name in the files and its field id
    by_id: bool
    has_ranges: bool  # the log's statistics go by the columns' own names
    has_deletions: bool
    keys: tuple[str, ...]
    adds: pa.Table  # a row for each file
    rows: dict[str, int]  # by file, its row there


@lru_cache(maxsize=4)  # a worker reads the log once, not for each task
def opened(path: Path, at: int, table_id: str) -> Table:
    """Return what the log says of a version of the table of this id; SourceError where another one is there."""
    table = open_table(path, at)
    if table.id != table_id:
        msg = f"{path}: another table has taken this one's place while it was read; run again"
        raise SourceError(msg)
    return table


def open_table(path: Path, at: int | None) -> Table:
    """Read the log; raises SourceError for what is not there, cannot be read, or asks for what this source does not have."""
    root = path.resolve()
    if "%" in str(root):
        msg = f"{path}: a % in a folder's name is read as a code by deltalake, which would open another folder; rename it"
        raise SourceError(msg)
    table, adds = _load(path, root, at)
    schema = pa.schema(table.schema().to_arrow())
    metadata, features = table.metadata(), set(table.protocol().reader_features or ())
    mode = metadata.configuration.get("delta.columnMapping.mode", "none")
    keys = tuple(metadata.partition_columns)
    names = [unquote(name).removeprefix("file://") for name in adds["path"].to_pylist()]
    fault = ""
    if features - FEATURES:
        fault = f"the table needs the reader feature {', '.join(sorted(features - FEATURES))}, which this source does not have"
    elif mode not in MAPPINGS:
        fault = f"its columns are mapped by {mode!r}; known: {', '.join(MAPPINGS)}"
    elif len(set(names)) < len(names) or any("://" in name for name in names):
        fault = "its log names a file twice, or files on another file system; copy the table in whole"
    elif any(pa.types.is_binary(schema.field(key).type) for key in keys):
        fault = "it is partitioned by a binary column, which writers encode in different ways; partition by a text"
    if fault:
        msg = f"{path}: {fault}"
        raise SourceError(msg)
    fields = json.loads(table.schema().to_json())["fields"]
    told = {each["name"]: each["metadata"] if mode != "none" else {} for each in fields}
    own, number = "delta.columnMapping.physicalName", "delta.columnMapping.id"
    return Table(
        root=root,
        at=table.version(),
        id=str(metadata.id),
        schema=schema,
        stored={name: (mapped.get(own, name), mapped.get(number)) for name, mapped in told.items()},
        by_id=mode == "id",
        has_ranges=mode == "none",
        has_deletions=DELETIONS in features,
        keys=keys,
        adds=adds.combine_chunks(),
        rows={name: row for row, name in enumerate(names)},
    )


def _load(path: Path, root: Path, at: int | None) -> tuple[Any, pa.Table]:
    """Open the table and list its files. No text of the engine's is passed on but a feature's name: it may quote a value."""
    deltalake = import_extra("deltalake", "delta")
    wanted = "the newest version" if at is None else f"version {at}"
    try:
        table = deltalake.DeltaTable(root, version=at)
        return table, pa.table(table.get_add_actions())
    except deltalake.exceptions.TableNotFoundError:
        fault = "no Delta table; give the folder that holds _delta_log"
    except (deltalake.exceptions.DeltaError, OSError, ValueError, OverflowError) as error:
        feature = re.search(r"Feature '([\w-]+)' is not supported", str(error))
        if feature:
            fault = f"the table needs the reader feature {feature[1]}, which this source does not have"
        elif "catalog-managed" in str(error):
            fault = "the table is managed by a catalog, and what its folder holds may not be its newest version"
        else:
            fault = f"{wanted} of this Delta table cannot be read; give the number of one that is kept in _delta_log"
    msg = f"{path}: {fault}"
    raise SourceError(msg)


@lru_cache(maxsize=2)
def kept_records(path: Path, at: int, table_id: str) -> Mapping[str, pa.BooleanArray]:
    """Return which records of each file that has lost some are still there."""
    table = opened(path, at, table_id)
    deltalake = import_extra("deltalake", "delta")
    fault = ""
    masks: dict[str, pa.BooleanArray] = {}
    try:
        for batch in pa.RecordBatchReader.from_stream(deltalake.DeltaTable(path, version=at).deletion_vectors()):
            for uri, kept in zip(batch.column(0), batch.column(1), strict=True):
                masks[unquote(uri.as_py()).removeprefix("file://")] = kept.values
    except (deltalake.exceptions.DeltaError, pa.ArrowException, OSError, ValueError):
        fault = "the deletion vectors cannot be read"
    if not fault and not masks.keys() <= {str(table.root / name) for name in table.rows}:
        fault = "a deletion vector belongs to no file"  # it must never be passed over: the deleted would come back
    if fault:
        msg = f"{path}: {fault}; nothing was read"
        raise SourceError(msg)
    return masks
