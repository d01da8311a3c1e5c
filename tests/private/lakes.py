"""Lakes: tables of table formats, made by their own writers, and Delta logs made by hand where no writer here can."""

from __future__ import annotations

import datetime as dt
import json
import struct
import uuid
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import load_catalog
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate
from pyiceberg.typedef import Record
from pyroaring import BitMap

from dp_dask.core.where import Between, Known, OneOf, Where
from dp_dask.private.filtered import Filtered
from dp_dask.private.sources import Source

Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def rows_of(
    source: Source, columns: list[str], texts: Iterable[str] = (), dates: Iterable[str] = ()
) -> tuple[list[tuple[Any, ...]], int]:
    """Return the pinned source's records, and how many it says there are."""
    found: list[tuple[Any, ...]] = []
    n_records = 0
    with source.pinned() as held:
        held.check(columns, frozenset(texts), frozenset(dates))
        for split in held.plan():
            for batch in held.read(split, columns, frozenset(texts), frozenset(dates)):
                n_records += batch.n_records
                found.extend(zip(*[batch.columns[column].to_pylist() for column in columns], strict=True))
    return found, n_records


def z85(data: bytes) -> str:
    data += b"\0" * (-len(data) % 4)
    words = (int.from_bytes(data[i : i + 4], "big") for i in range(0, len(data), 4))
    return "".join(Z85[word // 85**k % 85] for word in words for k in (4, 3, 2, 1, 0))


def bitmap(rows: Iterable[int]) -> bytes:
    """A RoaringBitmapArray in its portable form, of row numbers below 2^32."""
    return struct.pack("<IQI", 1681511377, 1, 0) + BitMap(rows).serialize()


def inline(rows: Iterable[int]) -> dict[str, Any]:
    """A deletion vector that stands in the log."""
    rows, data = list(rows), bitmap(rows)
    return {"storageType": "i", "pathOrInlineDv": z85(data), "sizeInBytes": len(data), "cardinality": len(rows)}


def beside(root: Path, rows: Iterable[int]) -> dict[str, Any]:
    """A deletion vector in a file of the table's folder."""
    rows, data, name = list(rows), bitmap(rows), uuid.uuid4()
    file = b"\1" + struct.pack(">i", len(data)) + data + struct.pack(">I", zlib.crc32(data))
    root.mkdir(parents=True, exist_ok=True)
    (root / f"deletion_vector_{name}.bin").write_bytes(file)
    told = {"storageType": "u", "pathOrInlineDv": z85(name.bytes), "offset": 1}
    return {**told, "sizeInBytes": len(data), "cardinality": len(rows)}


def column(name: str, kind: str, *, own: str = "", number: int = 0) -> dict[str, Any]:
    """A column of a Delta schema; ``own`` is its name in the files."""
    mapped = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": own} if own else {}
    return {"name": name, "type": kind, "nullable": True, "metadata": mapped}


def add(
    root: Path, name: str, table: pa.Table, *, values: dict[str, str | None] | None = None, vector: Any = None
) -> dict[str, Any]:
    """Write a file and return the action that adds it."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        pq.write_table(table, path)
    told = {"path": quote(name), "partitionValues": values or {}, "size": path.stat().st_size, "modificationTime": 1}
    told |= {"dataChange": True, "stats": json.dumps({"numRecords": len(table)})}
    return {"add": told | ({"deletionVector": vector} if vector is not None else {})}


def remove(added: dict[str, Any]) -> dict[str, Any]:
    told = added["add"]
    gone = {"path": told["path"], "deletionTimestamp": 2, "dataChange": True, "partitionValues": told["partitionValues"]}
    return {"remove": gone | ({"deletionVector": told["deletionVector"]} if "deletionVector" in told else {})}


def log(root: Path, at: int, actions: list[dict[str, Any]]) -> None:
    folder = root / "_delta_log"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{at:020}.json").write_text("\n".join(map(json.dumps, actions)))


def head(
    fields: list[dict[str, Any]], *, features: Iterable[str] = (), mode: str = "none", keys: Iterable[str] = ()
) -> list[Any]:
    """Return the actions that begin a table."""
    listed = sorted({*features, *(["columnMapping"] if mode != "none" else [])})
    mapping = {} if mode == "none" else {"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "99"}
    return [
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": listed, "writerFeatures": listed}},
        {
            "metaData": {
                "id": str(uuid.uuid4()),
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": fields}),
                "partitionColumns": list(keys),
                "configuration": mapping,
                "createdTime": 1,
            }
        },
    ]


def catalog(folder: Path) -> dict[str, str]:
    """The properties of a catalog in a file, as a pipeline file has them."""
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}


def iceberg(folder: Path, schema: pa.Schema, **options: Any) -> Any:
    """Make the table ns.people and return it, open for writing."""
    opened = load_catalog("default", **catalog(folder))
    opened.create_namespace_if_not_exists("ns")
    return opened.create_table("ns.people", schema=schema, **options)


class DeleteManifest(ManifestWriterV2):
    """A manifest of deletes, which pyiceberg reads and does not write."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


def delete(table: Any, rows: dict[str, list[int]], *, equality: bool = False) -> None:
    """Add a snapshot in which these rows of these files are deleted; with ``equality`` as if by values, which is not read."""
    parent, number = table.current_snapshot(), uuid.uuid4().int >> 66
    path = f"{table.location()}/data/{uuid.uuid4()}-deletes.parquet"
    pairs = sorted((name, row) for name, each in rows.items() for row in each)
    ids = [{"PARQUET:field_id": "2147483546"}, {"PARQUET:field_id": "2147483545"}]
    fields = [pa.field("file_path", pa.string(), False, ids[0]), pa.field("pos", pa.int64(), False, ids[1])]
    arrays = [pa.array([name for name, _ in pairs]), pa.array([row for _, row in pairs], pa.int64())]
    pq.write_table(pa.Table.from_arrays(arrays, schema=pa.schema(fields)), path.removeprefix("file://"))
    file = DataFile.from_args(
        content=DataFileContent.EQUALITY_DELETES if equality else DataFileContent.POSITION_DELETES,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=len(pairs),
        file_size_in_bytes=Path(path.removeprefix("file://")).stat().st_size,
        equality_ids=[1] if equality else None,
    )
    file.spec_id = table.spec().spec_id
    writer = DeleteManifest(
        table.spec(), table.schema(), table.io.new_output(f"{table.location()}/metadata/{number}-m0.avro"), number, "deflate"
    )
    with writer:
        writer.add_entry(
            ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED,
                snapshot_id=number,
                sequence_number=None,
                file_sequence_number=None,
                data_file=file,
            )
        )
    listed = f"{table.location()}/metadata/snap-{number}.avro"
    sequence = parent.sequence_number + 1
    with write_manifest_list(2, table.io.new_output(listed), number, parent.snapshot_id, sequence, "deflate") as manifests:
        manifests.add_manifests([*parent.manifests(table.io), writer.to_manifest_file()])
    told = Snapshot(
        snapshot_id=number,
        parent_snapshot_id=parent.snapshot_id,
        sequence_number=sequence,
        manifest_list=listed,
        summary=Summary(operation=Operation.DELETE),
        schema_id=table.schema().schema_id,
    )
    updates = (
        AddSnapshotUpdate(snapshot=told),
        SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=number),
    )
    table.catalog.commit_table(table, (), updates)
    table.refresh()


def many(rng: np.random.Generator, count: int) -> pa.Table:
    """Records of every type that a condition can be of, with nulls, NaN and infinities, in no order."""
    integers = rng.integers(-3, 4, count)
    floats = rng.choice([np.nan, np.inf, -np.inf, -2.0, 0.5, 3.0], count)

    def some(values: list, kind: pa.DataType) -> pa.Array:
        return pa.array([None if gone else value for value, gone in zip(values, rng.random(count) < 0.2, strict=True)], kind)

    days = [dt.date(2020, 1, 1) + dt.timedelta(days=int(i)) for i in integers]
    instants = [dt.datetime(2020, 1, 1, 23, 59, 59, 999_999, dt.UTC) + dt.timedelta(days=int(i)) for i in integers]
    return pa.table(
        {
            "row": np.arange(count, dtype=np.float64),
            "i": some(integers.tolist(), pa.int32()),
            "big": some([2**53 + int(i) for i in integers], pa.int64()),
            "f": some(floats.tolist(), pa.float64()),
            "b": some((integers > 0).tolist(), pa.bool_()),
            "d": some(days, pa.date32()),
            "t": some(instants, pa.timestamp("us", "UTC")),
            "s": some([f"text{i}" for i in integers], pa.string()),
        }
    )


def conditions(rng: np.random.Generator) -> list:
    low, high = sorted(rng.choice([-3.5, -2.0, 0.0, 0.5, 2.0, 3.0], 2).tolist())
    day = 18262 + int(rng.integers(-4, 5))
    return [
        OneOf("i", (float(rng.integers(-4, 5)), 0.5)),
        Between("i", low, None),
        Between("big", 2.0**53 + float(rng.integers(-4, 5)), None),
        Between("big", None, 2.0**53 + float(rng.integers(-4, 5))),
        OneOf("big", (2.0**53,)),
        Between("f", low, high),
        Between("f", None, high),
        Between("f", 1e300, None),
        OneOf("b", (1.0,)),
        Between("d", day, None, is_date=True),
        Between("t", day, day, is_date=True),
        OneOf("s", ("text1", "text-2")),
        Known("f"),
    ]


class Unpruned:
    """The same source, that leaves out nothing by itself."""

    def __init__(self, source):
        self.source = source

    def __getattr__(self, name):
        return getattr(self.source, name)

    def narrowed(self, _where):
        return self.source


def compare_narrowed(source: Source, rng: np.random.Generator, rounds: int = 1) -> int:
    """Ask for records under many conditions, two at a time, and assert that none is lost that meets them; how often any were."""
    pruned = 0
    for _ in range(rounds):
        for first in conditions(rng):
            others = conditions(rng)
            where = Where((first, others[int(rng.integers(len(others)))]))
            with source.pinned() as held:
                outcome: list[list[float]] = [[], []]
                for found, of in zip(outcome, (held, Unpruned(held)), strict=True):
                    filtered = Filtered(of, where)
                    for split in filtered.plan():
                        for batch in filtered.read(split, ["row"]):
                            found.extend(batch.columns["row"].to_pylist())
                assert sorted(outcome[0]) == sorted(outcome[1]), where
                narrowed = held.narrowed(where)
                whole, less = (sum(b.n_records for s in of.plan() for b in of.read(s, ["row"])) for of in (held, narrowed))
                pruned += less < whole
    return pruned
