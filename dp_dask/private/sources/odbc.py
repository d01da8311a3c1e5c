"""odbc: a table, view or query of any database that has an ODBC driver; the types of the columns are declared."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any, ClassVar

import pyarrow as pa

from dp_dask.errors import SourceError
from dp_dask.private.connecting import environment, library, quietly
from dp_dask.private.databases import OfServer, Rows, Wanted
from dp_dask.private.sql import Column, Dialect, quote

__all__ = ["plugin"]

BATCH_ROWS, BATCH_BYTES = 2**16 - 1, 16 * 2**20
LONGEST = 2**20
TYPES = {
    "int16": (pa.int16(), "integer"),
    "int32": (pa.int32(), "integer"),
    "int64": (pa.int64(), "integer"),
    "float32": (pa.float32(), "float"),
    "float64": (pa.float64(), "float"),
    "bool": (pa.bool_(), "boolean"),
    "string": (pa.string(), ""),
    "date": (pa.date32(), ""),
    "timestamp": (pa.timestamp("us"), ""),
}
PASSWORD = re.compile(r"(^|[;{\s])\s*(pwd|pass\w*|\w*token|\w*secret|\w*key)\s*=", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Odbc(OfServer):
    """A ``table`` (or view), in ``schema_name``, or a ``query``, read through the driver manager unixODBC.

    ``columns`` declares each column that is used: int16, int32, int64, float32, float64, bool, string, date or timestamp. It is
    fetched as that, because drivers tell types narrower than they are (PostgreSQL's tells 32 bits of a double precision).
    ``connection`` is a connection string without a password; ``connection_variable`` names an environment variable that has it,
    ``user_variable`` and ``password_variable`` such that hold the login. Names are quoted by double quotes. A text longer than
    ``longest_text`` bytes stops the run. An instant with a zone comes in that of the session: cast it in a query.

    A table or query is read as a whole, or by ranges of a numeric ``key: {column, from, to, parts}``, each in a statement of its
    own: with a key, the data must rest while a run reads.
    """

    columns: dict[str, str]
    table: str = ""
    schema_name: str = ""
    query: str = ""
    connection: str = ""
    connection_variable: str = ""
    user_variable: str = ""
    password_variable: str = ""
    key: dict[str, str | Decimal] | None = None
    longest_text: int = 1024

    dialect: ClassVar[Dialect] = Dialect(pushed_text=r"[A-Za-z0-9 _.:+-]*")

    def __post_init__(self) -> None:
        OfServer.__post_init__(self)
        for name, kind in self.columns.items():
            quote(name)
            if kind not in TYPES:
                msg = f"columns: {name!r} is declared {kind!r}; known types: {', '.join(TYPES)}"
                raise ValueError(msg)
        if bool(self.connection) == bool(self.connection_variable):
            msg = "give either connection or connection_variable"
            raise ValueError(msg)
        if PASSWORD.search(self.connection):
            msg = "connection holds a password or a token; name an environment variable: password_variable or connection_variable"
            raise ValueError(msg)
        if not 1 <= self.longest_text <= LONGEST:
            msg = f"longest_text is {self.longest_text}; give a number of bytes from 1 to {LONGEST}"
            raise ValueError(msg)

    @contextmanager
    def connected(self, held: str) -> Iterator[Rows]:  # noqa: ARG002
        """Give what connects for each statement."""
        yield _Rows(self, library(self.name, "arrow_odbc", "odbc"))


class _Rows:
    def __init__(self, database: Odbc, arrow_odbc: Any) -> None:
        self._database, self._library = database, arrow_odbc

    def columns(self) -> list[Column]:
        declared = [_column(name, kind) for name, kind in self._database.columns.items()]
        names = ", ".join(f"r.{quote(column.name)}" for column in declared)
        wanted = [(column, "") for column in declared]
        list(self.stream(f"SELECT {names} FROM {self._database.relation} r WHERE 1 = 0", wanted))  # noqa: S608
        return declared

    def stream(self, statement: str, wanted: Wanted) -> Iterator[pa.RecordBatch]:
        kinds = [TYPES[column.type][0] for column, _ in wanted] or [pa.int64()]
        reader = quietly(self._database.name, partial(self._reader, statement, kinds))
        while (batch := quietly(self._database.name, partial(self._next, reader))) is not None:
            yield batch

    def _reader(self, statement: str, kinds: list[pa.DataType]) -> Any:
        database = self._database
        variable = database.connection_variable
        connection = environment(database.name, variable) if variable else database.connection
        logins = {"user": database.user_variable, "password": database.password_variable}
        login = {name: environment(database.name, variable) for name, variable in logins.items() if variable}
        return self._library.read_arrow_batches_from_odbc(
            statement,
            connection if connection.rstrip().endswith(";") else f"{connection};",
            batch_size=BATCH_ROWS,
            max_bytes_per_batch=BATCH_BYTES,
            max_text_size=database.longest_text,
            schema=pa.schema([(f"c{i}", kind) for i, kind in enumerate(kinds)]),
            **login,
        )

    def _next(self, reader: Any) -> pa.RecordBatch | None:
        try:
            return next(reader, None)
        except self._library.Error as error:
            if "too large to be written into the allocated buffer" not in str(error):
                raise
        msg = f"{self._database.name}: a text is longer than {self._database.longest_text} bytes; give a larger longest_text"
        raise SourceError(msg)


def _column(name: str, kind: str) -> Column:
    date = kind if kind in {"date", "timestamp"} else ""
    return Column(name, kind, TYPES[kind][1], kind == "string", date)


plugin = Odbc
