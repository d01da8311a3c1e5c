"""Databases: what the sources that ask SQL have in common: a table or query, read in ranges, each in one statement."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import ClassVar, Protocol

import pyarrow as pa

from dp_dask.core.where import Where
from dp_dask.errors import SourceError
from dp_dask.private.sources import Batch, Look, Part, Source, Split, here
from dp_dask.private.sql import Column, Dialect, Keys, check_asked, check_repeatable, narrowing, quote

__all__ = ["END", "START", "OfDatabase", "OfServer", "Rows", "Wanted"]

START, END = -(2**63), 2**63 - 1  # of ranges that are open
ARROW = {"integer": pa.int64(), "float": pa.float64(), "decimal": pa.float64(), "boolean": pa.bool_(), "date": pa.date32()}

Wanted = list[tuple[Column, str]]  # and what it is read as: number, text or date


class Rows(Protocol):
    """A connection that was opened for one task."""

    def columns(self) -> list[Column]:
        """List the columns of what is asked; reads no record."""
        ...

    def stream(self, statement: str, wanted: Wanted) -> Iterator[pa.RecordBatch]:
        """Stream the rows of a statement, in bounded memory; the columns come in the order of ``wanted``."""
        ...


class OfDatabase:
    """What all kinds of databases have in common: their options become a source, which a ``Reading`` is."""

    __slots__ = ()
    keeps_places: ClassVar[bool] = False  # rows have no order
    has_state: ClassVar[bool] = False  # does ``version`` change with the data?
    dialect: ClassVar[Dialect] = Dialect()
    table: str
    query: str

    def __post_init__(self) -> None:
        check_asked(self.table, self.query)
        if self.schema_name:
            quote(self.schema_name)

    @property
    def schema_name(self) -> str:
        """The schema of the table; empty where the database is to look for it."""
        return "main"

    @property
    def name(self) -> str:
        """What messages call it."""
        return self.table or "the query"

    @property
    def relation(self) -> str:
        """What stands after FROM: the quoted name, with its schema where one is given, or the query in parentheses."""
        return ".".join(quote(name) for name in (self.schema_name, self.table) if name) if self.table else f"({self.query})"

    @abstractmethod
    def connected(self, held: str) -> AbstractContextManager[Rows]:
        """Connect, to the state that is held where there is one."""

    def ranges(self, rows: Rows) -> list[tuple[int, int]]:  # noqa: ARG002
        """List the ranges in which the records are read, each record in one of them."""
        return [(START, END)]

    def within(self, part: Part) -> str:  # noqa: ARG002
        """Return the condition that a range is; empty where it is all."""
        return ""

    def selected(self, column: Column, wanted: str) -> str:  # noqa: ARG002
        """Return what is selected to read a column as a number, text or date."""
        return f"r.{quote(column.name)}"

    def made(self, array: pa.Array, column: Column, wanted: str) -> pa.Array:  # noqa: ARG002
        """Return what came as what is wanted."""
        return array

    def version(self) -> str:
        """Empty: a table tells no state."""
        return ""

    @property
    def asked(self) -> str:
        """The table or query, which a version that the file names does not tell."""
        return self.relation

    @property
    def snapshot(self) -> str:
        """None that has a public name: ``dataset.version`` is the steward's own."""
        return ""

    def pinned(self, look: Look = here) -> AbstractContextManager[Source]:  # noqa: ARG002
        """Give itself."""
        return nullcontext(Reading(self))

    def narrowed(self, where: Where) -> Source:
        """Push conditions down."""
        return Reading(self).narrowed(where)

    def plan(self) -> list[Split]:
        """List the ranges."""
        return Reading(self).plan()

    def schema(self) -> pa.Schema:
        """The columns, numbers as they are read."""
        return Reading(self).schema()

    def check(self, columns: list[str], texts: frozenset[str] = frozenset(), dates: frozenset[str] = frozenset()) -> None:
        """Look the columns up in the catalogue."""
        Reading(self).check(columns, texts, dates)

    def read(
        self, split: Split, columns: list[str], texts: frozenset[str] = frozenset(), dates: frozenset[str] = frozenset()
    ) -> Iterator[Batch]:
        """Stream the records of a range."""
        return Reading(self).read(split, columns, texts, dates)


class OfServer(OfDatabase):
    """What databases behind a server have in common: they may be read by ranges of a key, and tell no state."""

    __slots__ = ()
    key: Mapping[str, str | Decimal] | None

    def __post_init__(self) -> None:
        OfDatabase.__post_init__(self)
        if self.key is not None:
            Keys.of(self.key)
            check_repeatable(self.query)

    def ranges(self, rows: Rows) -> list[tuple[int, int]]:  # noqa: ARG002
        """The ranges of the key, or one."""
        return [(START, END)] if self.key is None else [(i, i + 1) for i in range(Keys.of(self.key).parts)]

    def within(self, part: Part) -> str:
        """A range of the key."""
        if self.key is None:
            return ""
        keys = Keys.of(self.key)
        return keys.condition(part.start, f"r.{quote(keys.column)}")


@dataclass(frozen=True, slots=True)
class Reading:
    """A table or query as one run reads it: in the state that is held, without what conditions surely leave out."""

    database: OfDatabase
    held: str = ""
    where: Where = field(default_factory=lambda: Where(()))

    keeps_places: ClassVar[bool] = False

    @property
    def snapshot(self) -> str:
        """The database's."""
        return self.database.snapshot

    def pinned(self, look: Look = here) -> AbstractContextManager[Source]:  # noqa: ARG002
        """Give itself."""
        return nullcontext(self)

    def narrowed(self, where: Where) -> Source:
        """Push more conditions down."""
        return replace(self, where=Where((*self.where.conditions, *where.conditions)))

    def plan(self) -> list[Split]:
        """List the ranges, a split each."""
        with self.database.connected(self.held) as rows:
            ranges = self.database.ranges(rows)
        return [Split(i, (Part(self.database.name, *each),)) for i, each in enumerate(ranges)]

    def version(self) -> str:
        """The database's."""
        return self.database.version()

    def schema(self) -> pa.Schema:
        """The columns; one that cannot be read has the type null."""
        with self.database.connected(self.held) as rows:
            return pa.schema([(column.name, _arrow(column)) for column in rows.columns()])

    def check(self, columns: list[str], texts: frozenset[str] = frozenset(), dates: frozenset[str] = frozenset()) -> None:
        """Look the columns up in the catalogue."""
        with self.database.connected(self.held) as rows:
            self._wanted(rows.columns(), columns, texts, dates)

    def read(
        self, split: Split, columns: list[str], texts: frozenset[str] = frozenset(), dates: frozenset[str] = frozenset()
    ) -> Iterator[Batch]:
        """Stream the records of a range."""
        database = self.database
        with database.connected(self.held) as rows:
            listed = rows.columns()
            wanted = self._wanted(listed, columns, texts, dates)
            selected = ", ".join(f"{database.selected(*each)} AS c{i}" for i, each in enumerate(wanted)) or "1 AS c0"
            pushed = narrowing(self.where, listed, database.dialect)
            for part in split.parts:
                conditions = " AND ".join(filter(None, [database.within(part), pushed])) or "1 = 1"
                statement = f"SELECT {selected} FROM {database.relation} r WHERE {conditions}"  # noqa: S608  (all of it is quoted)
                for batch in rows.stream(statement, wanted):
                    arrays = [database.made(batch.column(i), *each) for i, each in enumerate(wanted)]
                    yield Batch(dict(zip(columns, arrays, strict=True)), batch.num_rows)

    def _wanted(self, listed: list[Column], columns: list[str], texts: frozenset[str], dates: frozenset[str]) -> Wanted:
        roles = {**dict.fromkeys(texts, "text"), **dict.fromkeys(dates, "date")}
        return [(self._find(listed, name, roles.get(name, "number")), roles.get(name, "number")) for name in columns]

    def _find(self, listed: list[Column], name: str, role: str) -> Column:
        """Look one column up; names match exactly, and where the database folds case none may differ by case alone."""
        fold = str.casefold if self.database.dialect.folds_case else str
        found = [column for column in listed if fold(column.name) == fold(name)]
        exact = [column for column in found if column.name == name]
        message = ""
        if len(found) > 1:
            message = f"{len(found)} columns are called {name!r}; rename all but one"
        elif not exact:
            known = ", ".join(column.name for column in listed[:20]) + (", .." if len(listed) > 20 else "")  # noqa: PLR2004
            message = f"no column {name!r}; there are: {known}"
        elif role == "number" and not exact[0].number:
            message = f"column {name!r} is of type {exact[0].type}; a measurement needs a number"
        elif role == "text" and not exact[0].is_text:
            message = f"column {name!r} is of type {exact[0].type}; its categories are texts: list them as the column has them"
        elif role == "date" and not exact[0].date:
            message = (
                f"column {name!r} is of type {exact[0].type}, and is compared with dates; give numbers or texts as it has them"
            )
        if message:
            msg = f"{self.database.name}: {message}"
            raise SourceError(msg)
        return exact[0]


def _arrow(column: Column) -> pa.DataType:
    if column.is_text:
        return pa.string()
    if column.date in {"timestamp", "instant"}:
        return pa.timestamp("us", "UTC" if column.date == "instant" else None)
    return ARROW.get(column.number or column.date, pa.null())
