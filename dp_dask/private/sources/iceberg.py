"""iceberg: one snapshot of an Iceberg table, by its catalog (extra ``iceberg``).

A task opens the catalog again where it runs: what is sent to it names properties and files, and no credential. Records are
read by pyiceberg, by field id, without those that positional deletes or deletion vectors mark; the columns of one file are in
memory at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlsplit

import pyarrow as pa

from dp_dask.core.where import Where
from dp_dask.errors import SourceError
from dp_dask.private import listing
from dp_dask.private.iceberg_filter import pushed
from dp_dask.private.lake import check_columns, import_extra
from dp_dask.private.sources import Batch, Look, Source, Split, here

__all__ = ["plugin"]

SECRETS = re.compile(
    r"pass(word|wd|phrase)|secret|token|credential|authorization|(access|account|api|private|shared)[-_.]?key|connection[-_.]?string"
    r"|sas",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Iceberg:
    """The table ``table`` (``namespace.name``) of a catalog, at its newest snapshot or the one of the id ``snapshot``.

    ``catalog`` holds properties as pyiceberg takes them (``type``, ``uri``, ``warehouse``), and ``name`` (``default``). The
    newest snapshot is read in the table's present schema, one that is asked for in its own.
    """

    catalog: dict[str, str]
    table: str
    at: int | None = field(default=None, metadata={"key": "snapshot"})

    keeps_places: ClassVar[bool] = False  # writers put records where their values belong

    def __post_init__(self) -> None:
        for name, value in self.catalog.items():
            url = urlsplit(value)
            if SECRETS.search(name) or url.password or any(SECRETS.search(key) for key, _ in parse_qsl(url.query)):
                msg = (
                    f"catalog: {name!r} looks like a secret, which would be sent to every task; set it where the workers run, as "
                    f"{_variable(self.catalog, name)} or in .pyiceberg.yaml"
                )
                raise ValueError(msg)
            if value.startswith("sqlite:///") and not value.startswith("sqlite:////"):
                msg = f"catalog: {name!r} is a relative path, but workers have folders of their own; write sqlite:////PATH"
                raise ValueError(msg)
        if "." not in self.table:
            msg = f"table is {self.table!r}; give its namespace and its name, as sales.orders"
            raise ValueError(msg)

    @property
    def snapshot(self) -> str:
        """None yet."""
        return ""

    def pinned(self, look: Look = here) -> AbstractContextManager[Source]:
        """Give the snapshot that is the newest now, or the one that was asked for; snapshots do not change."""
        return nullcontext(look(partial(self._held, Where(()))))

    def narrowed(self, where: Where) -> Source:
        """Leave out files by their partition values, and by the manifests' ranges of integers, texts, dates and instants."""
        return self._held(where)

    def plan(self) -> list[Split]:
        """List the snapshot's files; a file is read by one task."""
        return self._held(Where(())).plan()

    def version(self) -> str:
        """The table's id, the snapshot's and the schema's, none of which ever means anything else."""
        return self._held(Where(())).version()

    def schema(self) -> pa.Schema:
        """The table's columns."""
        return self._held(Where(())).schema()

    def check(self, columns: list[str], texts: frozenset[str] = frozenset(), dates: frozenset[str] = frozenset()) -> None:
        """Look the columns up in the table's schema."""
        check_columns(self.table, self.schema(), columns, texts, dates)

    def read(
        self, split: Split, columns: list[str], texts: frozenset[str] = frozenset(), dates: frozenset[str] = frozenset()
    ) -> Iterator[Batch]:
        """Stream the files of the split."""
        return self._held(Where(())).read(split, columns, texts, dates)

    def _held(self, where: Where) -> Source:
        table = _load(self.catalog, self.table)
        metadata = table.metadata
        newest = metadata.current_snapshot()
        snapshot, schema_id = newest, metadata.current_schema_id
        if self.at is not None:
            snapshot = metadata.snapshot_by_id(self.at)
            if snapshot is None:  # pyiceberg reads no records there
                known = "none yet" if newest is None else f"the newest is {newest.snapshot_id}"
                msg = f"{self.table}: no snapshot {self.at} is kept ({known}); give another id, or none"
                raise SourceError(msg)
            schema_id = schema_id if snapshot.schema_id is None else snapshot.schema_id
        return _Held(
            catalog=self.catalog,
            table=self.table,
            at=None if snapshot is None else snapshot.snapshot_id,
            schema_id=schema_id,
            table_id=str(metadata.table_uuid),
            where=where,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held(Iceberg):
    """One snapshot of one table, or the table that has none yet."""

    schema_id: int
    table_id: str
    where: Where

    @property
    def snapshot(self) -> str:
        return "iceberg without a snapshot" if self.at is None else f"iceberg snapshot {self.at}"

    def plan(self) -> list[Split]:
        table = self._table()
        scan = self._scan(table, self._row_filter(table))
        visitors = import_extra("pyiceberg.expressions.visitors", "iceberg")
        schemas = import_extra("pyiceberg.schema", "iceberg")
        files = []
        for name, task in sorted(_tasks(self._scan(table), self.table).items()):
            keys = table.metadata.specs()[task.file.spec_id].partition_type(table.metadata.schema())
            condition = scan.partition_filters[task.file.spec_id]
            may_meet = visitors.expression_evaluator(schemas.Schema(*keys.fields), condition, case_sensitive=True)
            # By partition values alone: ranges are of values, and the number of tasks is shown.
            if may_meet(task.file.partition):
                files.append(listing.File(name, task.file.file_size_in_bytes, 0))
        return listing.pack(files, can_cut=False) if files else [Split(0, ())]

    def version(self) -> str:
        self._table()
        return f"iceberg {self.table_id} snapshot {self.at} schema {self.schema_id}"

    def schema(self) -> pa.Schema:
        return self._arrow_schema(self._table())

    def read(
        self, split: Split, columns: list[str], texts: frozenset[str] = frozenset(), dates: frozenset[str] = frozenset()
    ) -> Iterator[Batch]:
        table = self._table()
        check_columns(self.table, self._arrow_schema(table), columns, texts, dates)
        reader, schemas = import_extra("pyiceberg.io.pyarrow", "iceberg"), import_extra("pyiceberg.schema", "iceberg")
        fields = [each for each in self._schema(table).fields if each.name in columns]
        scan = reader.ArrowScan(
            table.metadata, table.io, schemas.Schema(*fields), import_extra("pyiceberg.expressions", "iceberg").AlwaysTrue()
        )
        tasks = _planned(self)
        for part in split.parts:
            if part.path in tasks:
                yield from _read(scan, tasks[part.path], part.path, columns)

    def _held(self, where: Where) -> Source:
        every = Where((*self.where.conditions, *where.conditions))
        return replace(self, where=every)

    def _table(self) -> Any:
        table = _load(self.catalog, self.table)
        if str(table.metadata.table_uuid) != self.table_id:
            msg = f"{self.table}: another table has taken this one's place while it was read; run again"
            raise SourceError(msg)
        if self.at is not None and table.metadata.snapshot_by_id(self.at) is None:
            msg = f"{self.table}: snapshot {self.at} was removed while it was read; run again"
            raise SourceError(msg)
        return table

    def _arrow_schema(self, table: Any) -> pa.Schema:
        return import_extra("pyiceberg.io.pyarrow", "iceberg").schema_to_pyarrow(self._schema(table), include_field_ids=False)

    def _schema(self, table: Any) -> Any:
        return table.metadata.schema_by_id(self.schema_id)

    def _scan(self, table: Any, row_filter: Any = None) -> Any:
        return table.scan(snapshot_id=self.at, **({} if row_filter is None else {"row_filter": row_filter}))

    def _row_filter(self, table: Any) -> Any:
        """Return the part of the conditions that pyiceberg surely looks at as we do, as an expression of its own."""
        expressions = import_extra("pyiceberg.expressions", "iceberg")
        found = expressions.AlwaysTrue()
        if self.schema_id == table.metadata.current_schema_id:  # names in a filter are those of the present schema
            for condition in self.where.conditions:
                kind = next((str(each.field_type) for each in self._schema(table).fields if each.name == condition.column), "")
                for each in pushed(expressions, condition, kind):
                    found = expressions.And(found, each)
        return found


def _variable(catalog: dict[str, str], name: str) -> str:
    parts = ["PYICEBERG", "CATALOG", catalog.get("name", "default"), name.replace(".", "__").replace("-", "_")]
    return "__".join(["_".join(parts[:1]) + "_" + parts[1], *parts[2:]]).upper()


def _load(catalog: dict[str, str], name: str) -> Any:
    """Open the table. No text of the catalog's is passed on: it may hold what a property holds."""
    catalogs = import_extra("pyiceberg.catalog", "iceberg")
    fault = ""
    try:
        own = {key: value for key, value in catalog.items() if key != "name"}
        # A catalog in SQL is only read here, and not made where there is none.
        return catalogs.load_catalog(catalog.get("name", "default"), **{"init_catalog_tables": "false"} | own).load_table(name)
    except catalogs.NoSuchTableError:
        fault = "the catalog has no such table; give namespace.name, and the catalog's name where it is not default"
    except Exception as error:  # noqa: BLE001  (each kind of catalog has errors of its own)
        fault = f"the catalog cannot be opened or read ({type(error).__name__}); check its properties here and on the workers"
    msg = f"{name}: {fault}"
    raise SourceError(msg)


@lru_cache(maxsize=4)
def _planned_by(catalog: tuple[tuple[str, str], ...], held: tuple[Any, ...]) -> dict[str, Any]:
    table_name, at, schema_id, table_id, where = held
    source = _Held(catalog=dict(catalog), table=table_name, at=at, schema_id=schema_id, table_id=table_id, where=where)
    table = source._table()  # noqa: SLF001
    return _tasks(source._scan(table, source._row_filter(table)), table_name)  # noqa: SLF001


def _planned(source: _Held) -> dict[str, Any]:
    """Return the files that may hold a record that meets the conditions; a worker reads manifests once, not for each task."""
    held = (source.table, source.at, source.schema_id, source.table_id, source.where)
    return _planned_by(tuple(sorted(source.catalog.items())), held)


def _tasks(scan: Any, table: str) -> dict[str, Any]:
    """Return pyiceberg's tasks by the names of their files."""
    fault = ""
    tasks: list[Any] = []
    try:
        tasks = list(scan.plan_files()) if scan.snapshot_id is not None else []
    except (ValueError, NotImplementedError) as error:
        is_equality = "equality delete" in str(error)
        told = "it has equality deletes, which pyiceberg cannot apply; have the engine that wrote them rewrite its files"
        fault = told if is_equality else "its manifests cannot be read"
    except OSError:
        fault = "its manifests cannot be read"
    root = scan.table_metadata.location.rstrip("/") + "/"
    found = {task.file.file_path.removeprefix(root): task for task in tasks}
    if len(found) < len(tasks):
        fault = "its manifests list a file twice"
    if fault:
        msg = f"{table}: {fault}"
        raise SourceError(msg)
    return found


def _read(scan: Any, task: Any, name: str, columns: list[str]) -> Iterator[Batch]:
    fault = ""
    try:
        for records in scan.to_record_batches([task]):
            yield Batch({column: records.column(column) for column in columns}, records.num_rows)
    except FileNotFoundError:
        fault = "it, or a file of deletes for it, is gone; pin a newer snapshot"
    except (pa.ArrowException, ValueError, OSError):
        fault = "not a readable data file of this table (cut short, empty, encrypted or of another schema)"
    if fault:
        msg = f"{name}: {fault}"
        raise SourceError(msg)


plugin = Iceberg
