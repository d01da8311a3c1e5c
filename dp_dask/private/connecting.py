"""Connecting: to databases from where they are used, on the driver or in a task, without telling a value.

A library's and a server's error texts quote values and connection strings. ``quietly`` lets out a type's name and an SQLSTATE.
Credentials are read from the environment of whoever connects.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from typing import Any, TypeVar

import pyarrow as pa

from dp_dask.errors import SourceError

__all__ = ["Adbc", "adbc", "environment", "library", "quietly"]

T = TypeVar("T")
STATES = {
    "28": "the login is refused: see to user and password where the task runs",
    "42P01": "there is no such table",
    "42S02": "there is no such table",
    "42703": "there is no such column",
    "42S22": "there is no such column",
    "42501": "this user may not read it",
    "57014": "the statement was cancelled",
}
UNKNOWN = "see that it can be reached from here, that login and names are right, and its own log"


def quietly(name: str, work: Callable[[], T]) -> T:
    """Do work with a database whose failure is told without its text: that may quote values or a password."""
    kind = ""
    try:
        return work()
    except (SourceError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001
        kind = _kind(error)
    msg = f"{name}: the database did not answer as asked; {kind}"
    raise SourceError(msg)


def _kind(error: Exception) -> str:
    state = getattr(error, "sqlstate", None)
    if not isinstance(state, str):
        found = re.match(r"ODBC emitted an error calling '\w+':\s+State: ([0-9A-Z]{5}),", str(error))
        state = found.group(1) if found else ""
    known = STATES.get(state) or STATES.get(state[:2], UNKNOWN)
    return f"{known} ({type(error).__name__}{f', SQLSTATE {state}' if re.fullmatch('[0-9A-Z]{5}', state) else ''})"


def library(name: str, module: str, extra: str) -> Any:
    """Import what a kind of database needs, where it is used."""
    with suppress(ImportError):
        return import_module(module)
    msg = f"{name}: {module.partition('.')[0]} is not installed; pip install 'dp-dask[{extra}]', here and on the workers"
    raise SourceError(msg)


def environment(name: str, variable: str) -> str:
    """Read the environment variable that the file names, where it is used; its value is never told."""
    value = os.environ.get(variable)
    if not value:
        msg = f"{name}: the environment variable {variable} is not set; set it here and on the workers"
        raise SourceError(msg)
    return value


class Adbc:
    """An open ADBC connection with one cursor."""

    def __init__(self, name: str, cursor: Any) -> None:
        self._name, self._cursor = name, cursor

    def run(self, statement: str, **options: str) -> None:
        """Execute a statement that gives no rows."""
        if options:
            quietly(self._name, partial(self._cursor.adbc_statement.set_options, **options))
        quietly(self._name, partial(self._cursor.execute, statement))

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """Fetch a few rows."""
        self.run(statement)
        return quietly(self._name, self._cursor.fetchall)

    def table(self, statement: str) -> pa.Schema:
        """Execute a statement and return its columns."""
        self.run(statement)
        reader = quietly(self._name, self._cursor.fetch_record_batch)
        reader.close()
        return reader.schema

    def described(self, statement: str) -> pa.Schema:
        """Prepare a statement and return its columns."""
        return quietly(self._name, partial(self._cursor.adbc_execute_schema, statement))

    def batches(self, statement: str, **options: str) -> Iterator[pa.RecordBatch]:
        """Stream the rows."""
        self.run(statement, **options)
        reader = quietly(self._name, self._cursor.fetch_record_batch)
        while (batch := quietly(self._name, partial(next, reader, None))) is not None:
            yield batch


@contextmanager
def adbc(name: str, connect: Callable[[], Any]) -> Iterator[Adbc]:
    """Open an ADBC connection and close it."""
    connection = quietly(name, connect)
    opened = [connection]
    try:
        opened.append(quietly(name, connection.cursor))
        yield Adbc(name, opened[-1])
    finally:
        for each in reversed(opened):
            with suppress(Exception):
                each.close()
