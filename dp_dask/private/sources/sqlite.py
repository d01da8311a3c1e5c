"""sqlite: a table, view or query of an SQLite file, which is only read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote as percent

import pyarrow as pa

from dp_dask.errors import SourceError
from dp_dask.private.connecting import Adbc, adbc, library
from dp_dask.private.databases import END, START, OfDatabase, Rows, Wanted
from dp_dask.private.sources import Part
from dp_dask.private.sql import Column, Dialect, quote, text_literal

__all__ = ["plugin"]

RANGE_BYTES = 32 * 2**20
BATCH_ROWS = 2**16
PATIENCE = 30_000  # milliseconds, for a writer's commit
HEADER = 100  # bytes, in which the file counts its changes
FIRST = {"number": ("0.5", 0.5), "text": ("''", ""), "date": ("0", 0)}  # a row that tells the types


@dataclass(frozen=True, slots=True, kw_only=True)
class Sqlite(OfDatabase):
    """A ``table`` or view, or a ``query``, of the file at ``path``; a record is a row of it.

    A column is read by its declared type, and in SQLite a value may be of another: it is then read as a null. Dates are columns
    that are declared DATE, DATETIME or TIMESTAMP and hold ISO 8601 texts, one without a zone being of UTC.
    A table is read by ranges of rowid; a view, a query or a table WITHOUT ROWID as a whole.
    """

    path: Path
    table: str = ""
    query: str = ""

    has_state: ClassVar[bool] = True
    dialect: ClassVar[Dialect] = Dialect(text="{} COLLATE BINARY", pushed_text=r"[^\0]*")

    @property
    def name(self) -> str:
        """The file, and the table."""
        return f"{self.path.name}: {self.table or 'the query'}"

    @property
    def relation(self) -> str:
        """The quoted table, or a view of the connection's own that the query is."""
        return '"temp"."asked"' if self.query else f'"main".{quote(self.table)}'

    @property
    def asked(self) -> str:
        """The table or query."""
        return self.query or self.relation

    def version(self) -> str:
        """Name, size, time of change and count of changes of the file, and of its log where there is one."""
        return f"{self.asked}\n{_state(self.path)}\n{_state(Path(f'{self.path}-wal'), is_optional=True)}"

    @contextmanager
    def connected(self, held: str) -> Iterator[Rows]:  # noqa: ARG002
        """Begin a transaction on the file, opened to be read."""
        driver = library(self.name, "adbc_driver_sqlite.dbapi", "sql")
        # Not opened here: to close it again would undo the locks of all who read it in this process.
        if not (self.path.is_file() and os.access(self.path, os.R_OK)):
            msg = f"{self.path}: no such file, or it may not be read; check its permissions"
            raise SourceError(msg)
        uri = f"file:{percent(str(self.path))}?mode=ro"
        with adbc(self.name, partial(driver.connect, uri, autocommit=False)) as connection:
            connection.rows(f"PRAGMA busy_timeout = {PATIENCE}")
            if self.query:
                connection.run(f"CREATE TEMP VIEW asked AS SELECT * FROM ({self.query})")  # noqa: S608
            yield _Rows(self, connection)

    def ranges(self, rows: Rows) -> list[tuple[int, int]]:
        """Cut a table evenly by rowid, about 32 MB of the file a range."""
        assert isinstance(rows, _Rows)  # noqa: S101
        key = self._rowid(rows)
        if not key:
            return [(START, END)]
        ends = f"(SELECT min({key}) FROM {self.relation}), (SELECT max({key}) FROM {self.relation})"  # noqa: S608
        [(first, last)] = rows.connection.rows(f"SELECT {ends}")
        if first is None:
            return [(START, END)]
        return _evenly(first, last, -(-self.path.stat().st_size // RANGE_BYTES))

    def within(self, part: Part) -> str:
        """A range of rowids."""
        ends = [] if part.start == START else [f"r.rowid >= {part.start}"]
        return " AND ".join(ends if part.end == END else [*ends, f"r.rowid < {part.end}"])

    def selected(self, column: Column, wanted: str) -> str:
        """Return what is of the wanted type as it is, and null for the rest."""
        name = f"r.{quote(column.name)}"
        if wanted == "text":
            return f"CASE WHEN typeof({name}) = 'text' THEN {name} END"
        if wanted == "number":
            return f"CASE WHEN typeof({name}) IN ('integer', 'real') THEN CAST({name} AS REAL) END"
        # SQLite takes 2026-02-31 for 2026-03-03: a day is one that comes back as it was written.
        written = f"substr({name}, 1, 10)"
        is_day = f"typeof({name}) = 'text' AND date({written}) = {written}"
        return f"CASE WHEN {is_day} THEN CAST(julianday(date({name})) - 2440587.5 AS INTEGER) END"

    def made(self, array: pa.Array, column: Column, wanted: str) -> pa.Array:  # noqa: ARG002
        """Return days as dates."""
        return array.cast(pa.int32()).cast(pa.date32()) if wanted == "date" else array

    def _rowid(self, rows: _Rows) -> str:
        """Return rowid for a table that has it under this name, else nothing."""
        if self.query or any(column.name.casefold() == "rowid" for column in rows.columns()):
            return ""
        found = rows.connection.rows(f"SELECT type, upper(sql) FROM sqlite_schema WHERE name = {text_literal(self.table)}")  # noqa: S608
        if not found or found[0][0] != "table" or found[0][1].startswith("CREATE VIRTUAL"):
            return ""
        try:
            rows.connection.run(f"SELECT rowid FROM {self.relation} LIMIT 0")  # noqa: S608
        except SourceError:
            return ""
        return "rowid"


class _Rows:
    def __init__(self, database: Sqlite, connection: Adbc) -> None:
        self.connection, self._database = connection, database

    def columns(self) -> list[Column]:
        where = "'asked', 'temp'" if self._database.query else f"{text_literal(self._database.table)}, 'main'"
        told = self.connection.rows(f"SELECT name, type FROM pragma_table_xinfo({where}) WHERE hidden <> 1")  # noqa: S608
        if not told:
            msg = f"{self._database.name}: no such table or view, or one without columns"
            raise SourceError(msg)
        return [_column(name, kind or "") for name, kind in told]

    def stream(self, statement: str, wanted: Wanted) -> Iterator[pa.RecordBatch]:
        """Stream the rows, after one that is ours: the driver takes each column's type from what comes first.

        A record that is equal to that row may be left out in its place: it is then that row that stays.
        """
        roles = [role for _, role in wanted]
        first = f"SELECT {', '.join(f'{FIRST[role][0]} AS c{i}' for i, role in enumerate(roles)) or '1 AS c0'} UNION ALL "
        batches = self.connection.batches(first + statement, **{"adbc.sqlite.query.batch_rows": str(BATCH_ROWS)})
        is_first = True
        for batch in batches:
            if is_first and [column[0].as_py() for column in batch.columns] != ([FIRST[role][1] for role in roles] or [1]):
                msg = f"{self._database.name}: the rows of a UNION ALL came in another order than they stand; nothing was read"
                raise SourceError(msg)
            yield batch.slice(1) if is_first else batch
            is_first = False


def _evenly(first: int, last: int, parts: int) -> list[tuple[int, int]]:
    """Cut the whole numbers into ranges of the same width between ``first`` and ``last``; the outer ones are open."""
    parts = max(min(parts, last - first + 1), 1)
    cuts = [START, *(first + (last - first + 1) * i // parts for i in range(1, parts)), END]
    return list(pairwise(cuts))


def _column(name: str, declared: str) -> Column:
    """Tell what a column holds by its declared type, by SQLite's own rules of affinity (sqlite.org/datatype3.html, 3.1)."""
    upper = declared.upper()
    if not upper:
        return Column(name, "any", "float", is_text=True)
    if "INT" in upper:
        return Column(name, declared, "integer")
    if any(mark in upper for mark in ("CHAR", "CLOB", "TEXT")):
        return Column(name, declared, is_text=True)
    if "BLOB" in upper:
        return Column(name, declared)
    is_date = upper.startswith(("DATE", "TIMESTAMP"))
    return Column(name, declared, "float", date="timestamp" if is_date else "")


def _state(path: Path, *, is_optional: bool = False) -> str:
    kind = ""
    try:
        status = path.stat()
        if is_optional and status.st_size == 0:  # as good as none: a reader may make it
            return ""
        with path.open("rb") as file:
            counted = file.read(HEADER)[24:28].hex()
    except FileNotFoundError:
        kind = "" if is_optional else "no such file"
    except OSError as error:
        kind = f"it may not be read ({error.strerror}); check its permissions"
    else:
        return f"{path.name}\t{status.st_size}\t{status.st_mtime_ns}\t{counted}"
    if not kind:
        return ""
    msg = f"{path}: {kind}"
    raise SourceError(msg)


plugin = Sqlite
