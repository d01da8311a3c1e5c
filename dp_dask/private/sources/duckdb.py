"""duckdb: a table, view or query of a DuckDB file, which is only read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from dp_dask.errors import SourceError
from dp_dask.private.connecting import library, quietly
from dp_dask.private.databases import END, START, OfDatabase, Reading, Rows, Wanted
from dp_dask.private.sources import Look, Part, Source, here
from dp_dask.private.sql import Column, Dialect

__all__ = ["plugin"]

BATCH_ROWS = 2**17
RANGE_ROWS = 122_880 * 16  # row groups are of 122,880 rows
# One configuration for all connections of a process, or DuckDB refuses the second. Records are not spilled to disk, and what is
# read is the file whose state ``version`` tells.
CONFIG = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "enable_external_access": False,
    "temp_directory": "",
    "threads": 1,
}
INTEGERS = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"}
NUMBERS = {**dict.fromkeys(INTEGERS, "integer"), "FLOAT": "float", "DOUBLE": "float", "BOOLEAN": "boolean"}
DATES = {
    "DATE": "date",
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"), "timestamp"),
    "TIMESTAMP WITH TIME ZONE": "instant",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Duckdb(OfDatabase):
    """A ``table`` (or view), in ``schema_name``, or a ``query``, of the file at ``path``; a record is a row of it.

    While a run reads, no other process can write to the file. A table is read by ranges of rowid, a view or query as a whole.
    """

    path: Path
    table: str = ""
    schema_name: str = "main"
    query: str = ""

    has_state: ClassVar[bool] = True
    dialect: ClassVar[Dialect] = Dialect(
        text="{}::VARCHAR",
        real="CAST('{}' AS DOUBLE)",
        decimal="CAST('{}' AS DOUBLE)",
        dates={"date": "DATE '{}'", "timestamp": "TIMESTAMP '{} 00:00:00'", "instant": "TIMESTAMPTZ '{} 00:00:00+00'"},
        pushed_text=r"[^\0]*",
    )

    @property
    def name(self) -> str:
        """The file, and the table."""
        return f"{self.path.name}: {self.table or 'the query'}"

    def version(self) -> str:
        """Name, size and time of change of the file, and of its log where there is one."""
        return "\n".join([self.asked, *(_state(path) for path in (self.path, Path(f"{self.path}.wal")))])

    @contextmanager
    def pinned(self, look: Look = here) -> Iterator[Source]:  # noqa: ARG002
        """Hold the file open, which keeps writers of other processes away."""
        with self.connected(""):
            yield Reading(self)

    @contextmanager
    def connected(self, held: str) -> Iterator[Rows]:  # noqa: ARG002
        """Open the file to be read."""
        duckdb = library(self.name, "duckdb", "duckdb")
        if not self.path.is_file():
            msg = f"{self.path}: no such file"
            raise SourceError(msg)
        connection = quietly(self.name, partial(duckdb.connect, str(self.path), read_only=True, config=CONFIG))
        try:
            yield _Rows(self, connection)
        finally:
            with suppress(Exception):
                connection.close()

    def ranges(self, rows: Rows) -> list[tuple[int, int]]:
        """Cut a table by rowid, about two million rows a range."""
        assert isinstance(rows, _Rows)  # noqa: S101
        if self.query or not rows.has_rowid():
            return [(START, END)]
        [(last,)] = rows.fetch(f"SELECT max(rowid) FROM {self.relation}")  # noqa: S608
        cuts = [START, *range(RANGE_ROWS, (last or 0) + 1, RANGE_ROWS), END]
        return list(pairwise(cuts))

    def within(self, part: Part) -> str:
        """A range of rowids."""
        ends = [] if part.start == START else [f"r.rowid >= {part.start}"]
        return " AND ".join(ends if part.end == END else [*ends, f"r.rowid < {part.end}"])


class _Rows:
    def __init__(self, database: Duckdb, connection: Any) -> None:
        self._database, self._connection = database, connection

    def fetch(self, statement: str) -> list[tuple[Any, ...]]:
        return quietly(self._database.name, lambda: self._connection.execute(statement).fetchall())

    def columns(self) -> list[Column]:
        told = self.fetch(f"DESCRIBE SELECT * FROM {self._database.relation} r")  # noqa: S608
        return [_column(name, kind) for name, kind, *_ in told]

    def has_rowid(self) -> bool:
        """Tell whether it is a table (a view has no rowid) without a column of that name."""
        is_taken = any(column.name.casefold() == "rowid" for column in self.columns())
        known = self.fetch("SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = current_database()")
        mine = (self._database.schema_name.casefold(), self._database.table.casefold())
        return not is_taken and mine in {(schema.casefold(), table.casefold()) for schema, table in known}

    def stream(self, statement: str, wanted: Wanted) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        """Stream the rows; DuckDB computes as many as are asked for."""
        reader = quietly(self._database.name, lambda: self._connection.sql(statement).to_arrow_reader(BATCH_ROWS))
        while (batch := quietly(self._database.name, partial(next, reader, None))) is not None:
            yield batch


def _column(name: str, kind: str) -> Column:
    """Read a type as DuckDB calls it: UHUGEINT's Arrow type, of signed numbers, would turn the large ones negative."""
    number = "decimal" if kind.startswith("DECIMAL(") and kind.endswith(")") else NUMBERS.get(kind, "")
    is_text = kind == "VARCHAR" or (kind.startswith("ENUM(") and kind.endswith(")"))
    return Column(name, kind if len(kind) < 40 else kind[:36] + " ..", number, is_text, DATES.get(kind, ""))  # noqa: PLR2004


def _state(path: Path) -> str:
    try:
        status = path.stat()
    except OSError:
        return f"{path.name}\tnone"
    return f"{path.name}\t{status.st_size}\t{status.st_mtime_ns}"


plugin = Duckdb
