"""adbc: a table, view or query of any database that has an ADBC driver."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlsplit

import pyarrow as pa

from dp_dask.errors import SourceError
from dp_dask.private.arrow import is_date, is_numeric, is_text
from dp_dask.private.connecting import Adbc, adbc, environment, library
from dp_dask.private.databases import OfServer, Rows, Wanted
from dp_dask.private.sql import Column, Dialect, quote

__all__ = ["plugin"]

DECLARED = {
    "number": Column("", "number", "float"),
    "text": Column("", "text", is_text=True),
    "date": Column("", "date", date="date"),
}
FITS = {"number": (is_numeric, pa.float64()), "text": (is_text, pa.string()), "date": (is_date, pa.date32())}
SECRET = re.compile(r"pass|pwd|secret|token|credential|private|jwt|api_?key|auth_header|authorization", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyAdbc(OfServer):
    """A ``table`` (or view), in ``schema_name``, or a ``query``, by the ``driver``: a Python package or a shared library.

    ``uri`` and ``options`` are public and hold no password: ``uri_variable`` and ``option_variables`` name environment variables
    that hold what is secret. Names are quoted by double quotes. Columns are of the driver's types, or of those that ``columns``
    declares (number, text or date): a driver such as SQLite's tells none without rows.

    A table or query is read as a whole, or by ranges of a numeric ``key: {column, from, to, parts}``, each in a statement of its
    own: with a key, the data must rest while a run reads.
    """

    driver: str
    table: str = ""
    schema_name: str = ""
    query: str = ""
    uri: str = ""
    uri_variable: str = ""
    options: dict[str, str] = field(default_factory=dict)
    option_variables: dict[str, str] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)
    key: dict[str, str | Decimal] | None = None

    dialect: ClassVar[Dialect] = Dialect(pushed_text=r"[A-Za-z0-9 _.:+-]*")

    def __post_init__(self) -> None:
        OfServer.__post_init__(self)
        for name, kind in self.columns.items():
            if kind not in DECLARED:
                msg = f"columns: {name!r} is declared {kind!r}; known types: {', '.join(DECLARED)}"
                raise ValueError(msg)
        if _has_secret(self.uri, self.options):
            msg = "uri or options hold a password or a token; name environment variables: uri_variable, option_variables"
            raise ValueError(msg)

    @contextmanager
    def connected(self, held: str) -> Iterator[Rows]:  # noqa: ARG002
        """Connect with what the file and the environment say."""
        manager = library(self.name, "adbc_driver_manager.dbapi", "sql")
        secrets = {option: environment(self.name, variable) for option, variable in self.option_variables.items()}
        uri = environment(self.name, self.uri_variable) if self.uri_variable else self.uri
        options = {**self.options, **secrets, **({"uri": uri} if uri else {})}
        with adbc(self.name, partial(_connect, manager, self.driver, options)) as connection:
            yield _Rows(self, connection)

    def made(self, array: pa.Array, column: Column, wanted: str) -> pa.Array:
        """Return decimals that come as texts as the nearest float64; refuse by its type what is not as declared."""
        if wanted == "number" and column.number == "decimal" and not is_numeric(array.type):
            return getattr(array, "storage", array).cast(pa.float64())
        fits, kind = FITS[wanted]
        if fits(array.type):
            return array
        if array.null_count == len(array):
            return pa.nulls(len(array), kind)
        msg = f"{self.name}: column {column.name!r} came as {array.type}, and is read as a {wanted}"
        raise SourceError(msg)


class _Rows:
    def __init__(self, database: AnyAdbc, connection: Adbc) -> None:
        self._connection, self._database = connection, database

    def columns(self) -> list[Column]:
        declared = self._database.columns
        if declared:
            names = ", ".join(f"r.{quote(name)}" for name in declared)
            self._connection.run(f"SELECT {names} FROM {self._database.relation} r WHERE 1 = 0")  # noqa: S608
            return [_named(DECLARED[kind], name) for name, kind in declared.items()]
        empty = self._connection.table(f"SELECT * FROM {self._database.relation} r WHERE 1 = 0")  # noqa: S608
        return [_column(each) for each in empty]

    def stream(self, statement: str, wanted: Wanted) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        return self._connection.batches(statement)


def _connect(manager: Any, driver: str, options: dict[str, str]) -> Any:
    path = driver
    if driver.isidentifier() and find_spec(driver) is not None:
        path = getattr(import_module(driver), "_driver_path", lambda: driver)()
    return manager.connect(driver=path, db_kwargs=options, autocommit=True)


def _named(column: Column, name: str) -> Column:
    return Column(name, column.type, column.number, column.is_text, column.date)


def _column(each: pa.Field) -> Column:
    """Read a column's Arrow type; PostgreSQL's driver gives money as integers, decimals as texts and infinite dates as others."""
    told = (each.metadata or {}).get(b"POSTGRESQL:type", b"").decode()
    if told == "numeric":
        return Column(each.name, told, "decimal")
    if told and told not in {"int2", "int4", "int8", "float4", "float8", "bool"} and not is_text(each.type):
        return Column(each.name, f"{told} (kind: postgresql may read it)")
    number = ""
    if is_numeric(each.type):
        tests = {"integer": pa.types.is_integer, "float": pa.types.is_floating, "boolean": pa.types.is_boolean}
        number = next((kind for kind, test in tests.items() if test(each.type)), "decimal")
    return Column(each.name, str(each.type), number, is_text(each.type), "timestamp" if is_date(each.type) else "")


def _has_secret(uri: str, options: dict[str, str]) -> bool:
    for text in (uri, *options.values()):
        try:
            parts = urlsplit(text)
            if parts.password is not None or any(SECRET.search(key) for key, _ in parse_qsl(parts.query)):
                return True
        except ValueError:
            return True
    return any(SECRET.search(name) for name in options) or bool(re.search(r"(pass\w*|pwd)\s*=", uri, re.IGNORECASE))


plugin = AnyAdbc
