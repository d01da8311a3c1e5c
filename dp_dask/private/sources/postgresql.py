"""postgresql: a table, view or query of a PostgreSQL server, read by ADBC in one exported snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from itertools import pairwise
from typing import ClassVar
from urllib.parse import parse_qsl, urlsplit

import pyarrow as pa

from dp_dask.errors import SourceError
from dp_dask.private.connecting import Adbc, adbc, environment, library
from dp_dask.private.databases import END, START, OfServer, Reading, Rows, Wanted
from dp_dask.private.sources import Look, Part, Source, here
from dp_dask.private.sql import Column, Dialect, Keys, quote, text_literal

__all__ = ["plugin"]

RANGE_BYTES = 64 * 2**20
NUMBERS = {"int2": "integer", "int4": "integer", "int8": "integer", "float4": "float", "float8": "float"}
NUMBERS |= {"numeric": "decimal", "bool": "boolean"}
DATES = {"date": "date", "timestamp": "timestamp", "timestamptz": "instant"}
BATCH_BYTES = {"adbc.postgresql.batch_size_hint_bytes": str(4 * 2**20)}
SETTINGS = ("client_encoding TO 'UTF8'", "standard_conforming_strings TO on", "idle_in_transaction_session_timeout TO 0")
# What can be cut by place: every table that the records lie in has to be a heap. Bytes of the largest, of a page, and whether.
PLACES = """
WITH RECURSIVE parts AS (
  SELECT to_regclass({0})::oid AS oid UNION SELECT i.inhrelid FROM pg_inherits i JOIN parts p ON i.inhparent = p.oid
)
SELECT max(pg_relation_size(c.oid)), current_setting('block_size')::int8,
  bool_and(c.relkind = 'p' OR (c.relkind IN ('r', 'm') AND m.amname = 'heap'))
FROM parts p JOIN pg_class c ON c.oid = p.oid LEFT JOIN pg_am m ON m.oid = c.relam
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Postgresql(OfServer):
    """A ``table`` (or view), in ``schema_name`` or where the search path finds it, or a ``query``; a record is a row of it.

    ``uri`` says where, without a password; ``uri_variable`` names an environment variable that holds it, and what neither says
    libpq finds by its own means (PGHOST, PGSERVICE, PGPASSWORD, ~/.pgpass). A table is read by ranges of places (ctid), a view or
    a query as a whole, or either by ranges of a numeric ``key: {column, from, to, parts}``. All tasks read one snapshot.

    Text is compared as it is, char(n) without its padding. Infinite dates are read as nulls.
    """

    table: str = ""
    schema_name: str = ""
    query: str = ""
    uri: str = "postgresql://"
    uri_variable: str = ""
    key: dict[str, str | Decimal] | None = None

    dialect: ClassVar[Dialect] = Dialect(
        folds_case=False,
        text="{}::text",
        real="'{}'::float8",
        dates={"date": "'{}'::date", "timestamp": "'{} 00:00:00'::timestamp", "instant": "'{} 00:00:00+00'::timestamptz"},
    )

    def __post_init__(self) -> None:
        OfServer.__post_init__(self)
        _check_uri(self.uri)

    @contextmanager
    def pinned(self, look: Look = here) -> Iterator[Source]:  # noqa: ARG002
        """Lock the table against what would move its records (no reader or writer waits), then export a snapshot, and hold both.

        The lock comes first: of a table that was truncated after its snapshot, the snapshot would see nothing.
        """
        with self._open("") as lock, self._open("") as exporter:
            lock.run(f"SELECT 1 FROM {self.relation} r LIMIT 0")  # noqa: S608
            [(held,)] = exporter.rows("SELECT pg_export_snapshot()")
            yield Reading(self, held)

    @contextmanager
    def connected(self, held: str) -> Iterator[Rows]:
        """Begin a transaction that only reads, of the held snapshot where there is one."""
        with self._open(held) as connection:
            yield _Rows(self, connection)

    def ranges(self, rows: Rows) -> list[tuple[int, int]]:
        """Cut by key where one is given, else a table by pages; the last range is open."""
        if self.key is not None or self.query:
            return OfServer.ranges(self, rows)
        assert isinstance(rows, _Rows)  # noqa: S101
        [(size, page, is_heap)] = rows.connection.rows(PLACES.format(text_literal(self.relation)))
        if not is_heap:
            return [(START, END)]
        step = max(RANGE_BYTES // page, 1)
        cuts = [START, *range(step, size // page, step), END]
        return list(pairwise(cuts))

    def within(self, part: Part) -> str:
        """A range of the key, or of pages."""
        if self.key is not None:
            return OfServer.within(self, part)
        first = [] if part.start == START else [f"r.ctid >= '({part.start},0)'::tid"]
        last = [] if part.end == END else [f"r.ctid < '({part.end},0)'::tid"]
        return " AND ".join(first + last)

    def selected(self, column: Column, wanted: str) -> str:
        """Texts without padding, dates as days of UTC, numbers as they are."""
        name = f"r.{quote(column.name)}"
        if wanted == "text":
            return f"{name}::text"
        if wanted == "date":
            day = f"({name} AT TIME ZONE 'UTC')::date" if column.date == "instant" else f"{name}::date"
            return f"CASE WHEN isfinite({name}) THEN {day} END"
        return name

    def made(self, array: pa.Array, column: Column, wanted: str) -> pa.Array:
        """Return decimals, which come as texts, as the nearest float64."""
        if wanted == "number" and column.number == "decimal":
            return getattr(array, "storage", array).cast(pa.float64())
        return array

    @contextmanager
    def _open(self, held: str) -> Iterator[Adbc]:
        driver = library(self.name, "adbc_driver_postgresql.dbapi", "sql")
        uri = environment(self.name, self.uri_variable) if self.uri_variable else self.uri
        with adbc(self.name, partial(driver.connect, uri, autocommit=True)) as connection:
            for setting in SETTINGS:
                connection.run(f"SET {setting}")
            connection.run("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            if held:
                connection.run(f"SET TRANSACTION SNAPSHOT {text_literal(held)}")
            yield connection


class _Rows:
    def __init__(self, database: Postgresql, connection: Adbc) -> None:
        self.connection, self._database = connection, database

    def columns(self) -> list[Column]:
        described = self.connection.described(f"SELECT * FROM {self._database.relation} r")  # noqa: S608
        columns = [_column(field) for field in described]
        if self._database.key is not None:
            _check_key(self._database.name, Keys.of(self._database.key), columns)
        return columns

    def stream(self, statement: str, wanted: Wanted) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        return self.connection.batches(statement, **BATCH_BYTES)


def _column(field: pa.Field) -> Column:
    """Read a column's type as the server names it: its Arrow type alone would take money, in cents, for a number."""
    told = (field.metadata or {}).get(b"POSTGRESQL:type", b"unknown").decode()
    is_other = told not in NUMBERS and told not in DATES
    return Column(field.name, told, NUMBERS.get(told, ""), is_other and pa.types.is_string(field.type), DATES.get(told, ""))


def _check_key(name: str, keys: Keys, columns: list[Column]) -> None:
    if [column.number not in {"", "boolean"} for column in columns if column.name == keys.column] != [True]:
        msg = f"{name}: there is no numeric column {keys.column!r}, once, to be the key; give one, or leave key out"
        raise SourceError(msg)


def _check_uri(uri: str) -> None:
    """Raise ValueError where a URI holds a password, or is none."""
    if not uri.startswith(("postgresql://", "postgres://")):
        msg = "uri does not begin with postgresql://; give one without a password, or uri_variable"
        raise ValueError(msg)
    try:
        parts = urlsplit(uri)
        has_password = parts.password is not None or any("password" in key for key, _ in parse_qsl(parts.query))
    except ValueError:
        has_password = True
    if has_password:
        msg = "uri holds a password, or cannot be read; leave it out and give it by PGPASSWORD, ~/.pgpass or uri_variable"
        raise ValueError(msg)


plugin = Postgresql
