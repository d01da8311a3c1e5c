"""Columnar: what sources have in common whose files carry their columns' names and types."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import pyarrow as pa

from dp_dask.errors import SourceError
from dp_dask.private import listing
from dp_dask.private.arrow import plain, without_encoding
from dp_dask.private.filesystems import Stored
from dp_dask.private.roles import check_role, listed
from dp_dask.private.sources import Batch, Split

__all__ = ["Columnar", "Found"]

NO_COLUMNS = frozenset[str]()
WITH_NUMBERS = {"decimal32": pa.decimal32, "decimal64": pa.decimal64, "decimal128": pa.decimal128, "decimal256": pa.decimal256}


@dataclass(frozen=True, slots=True)
class Found:
    """Where a file has the columns that are asked for: in itself, in its name as partition keys, or not at all."""

    stored: list[str]
    keys: Mapping[str, str | None]
    absent: Mapping[str, pa.DataType]

    def batch(self, records: pa.RecordBatch) -> Batch:
        """Return the stored columns of some records, and for each of the others one value again and again."""
        columns = {column: plain(records.column(column)) for column in self.stored}
        for column, key in self.keys.items():
            columns[column] = pa.repeat(pa.scalar(key, pa.string()), records.num_rows)
        for column, kind in self.absent.items():
            columns[column] = pa.nulls(records.num_rows, kind)
        return Batch(columns, records.num_rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Columnar(Stored):
    """Files that carry their columns' types, each read in its own.

    ``types`` pins columns' (``schema`` in a pipeline file): a file that has another is refused, however it encodes them.
    """

    types: dict[str, str] = field(default_factory=dict, metadata={"key": "schema"})

    keeps_places: ClassVar[bool] = True

    def __post_init__(self) -> None:
        Stored.__post_init__(self)
        for column, name in self.types.items():
            if _type(name) is None:
                msg = (
                    f"schema: the type of {column!r} is {name!r}; give one of Arrow's, such as int64, float64, decimal128(9, 2), "
                    "bool, string, date32, timestamp[us] or timestamp[us, UTC]"
                )
                raise ValueError(msg)

    def plan(self) -> list[Split]:
        """List files and cut them by bytes, without opening one."""
        return listing.pack(self.files.listed(), can_cut=True, opening=self.files.opening, split_bytes=self.split_bytes)

    def schema(self) -> pa.Schema:
        """The schema of the first file, and its partition keys."""
        name = self.files.listed()[0].name
        stored = self.schema_of(name)
        keys = [key for key in listing.partition_keys(name) if key not in stored.names]
        return pa.schema([*stored, *(pa.field(key, pa.string()) for key in keys)])

    def schema_of(self, name: str) -> pa.Schema:
        """Return what a file tells of its own columns; raises SourceError."""
        raise NotImplementedError

    def check(self, columns: list[str], texts: frozenset[str] = NO_COLUMNS, dates: frozenset[str] = NO_COLUMNS) -> None:
        """Look the columns up in the schema of the first file; where it may lack some, also in others until each is found."""

        def found(name: str) -> set[str]:
            return set(columns) - self.find(self.schema_of(name), name, columns, texts, dates).absent.keys()

        self.look_up(columns, found)

    def find(self, stored: pa.Schema, name: str, columns: Collection[str], texts: frozenset[str], dates: frozenset[str]) -> Found:
        """Find the columns in a file's schema and name; raises SourceError for one that is not what it is to be read as."""
        absent: dict[str, pa.DataType] = {}
        keys = {column: key for column, key in listing.partition_keys(name).items() if column in columns and column in texts}
        for column in [*columns, *(column for column in self.types if column not in columns)]:
            kind = _type_in(stored, name, column, is_text=column in texts or column not in columns)
            if kind is None and self.missing == "refuse":
                msg = f"{name}: no column {column!r}; the file has: {listed(stored)}"
                raise SourceError(msg)
            if kind is None:
                if column in columns:
                    absent[column] = pa.string() if column in texts else pa.date32() if column in dates else pa.float64()
                continue
            pinned = self.types.get(column)
            if pinned is not None and without_encoding(kind) != _type(pinned):
                msg = f"{name}: column {column!r} is of type {kind}, pinned as {pinned}; convert it, or change source.schema"
                raise SourceError(msg)
            if column in columns:
                check_role(kind, name, column, texts, dates)
        return Found([c for c in columns if c not in keys and c not in absent], keys, absent)


def _type_in(stored: pa.Schema, name: str, column: str, *, is_text: bool) -> pa.DataType | None:
    """Return the type of a column in a file, of a partition key that of texts; None where the file has no such column."""
    positions = stored.get_all_field_indices(column)
    if len(positions) > 1:
        msg = f"{name}: {len(positions)} columns are called {column!r}; rename all but one"
        raise SourceError(msg)
    if column in listing.partition_keys(name):
        if is_text and not positions:
            return pa.string()
        # Even where the files have such a column too: to compare the two would let one record stop the run.
        msg = f"{name}: {column!r} is a partition key, hence text; rename the folders or measure another column"
        raise SourceError(msg)
    return stored.field(positions[0]).type if positions else None


def _type(name: str) -> pa.DataType | None:
    """Return the type of a name as Arrow prints it or calls it; None where there is none."""
    try:
        if found := re.fullmatch(r"(decimal\d+)\((\d+), ?(-?\d+)\)", name):
            return WITH_NUMBERS[found[1]](int(found[2]), int(found[3]))
        if found := re.fullmatch(r"timestamp\[(s|ms|us|ns), ?(?:tz=)?([\w/+:-]+)\]", name):
            return pa.timestamp(found[1], found[2])
        return pa.type_for_alias(name)
    except (KeyError, ValueError):  # pyarrow's own errors are ValueErrors
        return None
