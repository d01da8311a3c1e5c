"""delta: one version of a Delta Lake table on a local or mounted disk (extra ``delta``).

The table's log is read by deltalake, its Parquet files here, each by the columns' names or field ids in the file, with the
partition values of the log and without the records that deletion vectors mark. deltalake's own scan is not used: it cannot be
cut into tasks, and where columns are mapped by id it gives nulls for those that have another name in the file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dp_dask.core.where import Between, Condition, OneOf, Where
from dp_dask.errors import SourceError
from dp_dask.private import listing
from dp_dask.private.delta_log import Table, kept_records, open_table, opened
from dp_dask.private.filtered import meets
from dp_dask.private.lake import check_columns, is_comparable
from dp_dask.private.sources import Batch, Look, Source, Split, here

__all__ = ["plugin"]

BATCH_ROWS = 2**17
FIELD_ID = b"PARQUET:field_id"


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """The table in the folder ``path``, in its newest version or the one given as ``version``.

    An empty partition value is a null, as the protocol has it. A column that a file lacks is null there.
    """

    path: Path
    at: int | None = field(default=None, metadata={"key": "version"})

    keeps_places: ClassVar[bool] = False  # writers put records where their values belong

    def __post_init__(self) -> None:
        if self.at is not None and self.at < 0:
            msg = f"version is {self.at}; give a version of the table, 0 or more, or none for the newest"
            raise ValueError(msg)

    @property
    def snapshot(self) -> str:
        """None yet."""
        return ""

    def pinned(self, look: Look = here) -> AbstractContextManager[Source]:
        """Give the version that is the newest now, or the one that was asked for; versions do not change."""
        return nullcontext(look(partial(self._held, Where(()))))

    def narrowed(self, where: Where) -> Source:
        """Leave out files by their partition values, and by the ranges of integers and days in the log."""
        return self._held(where)

    def plan(self) -> list[Split]:
        """List the version's files; a file is read by one task."""
        table, where = self._table(), self._where
        files = [
            listing.File(name, table.adds["size_bytes"][row].as_py(), 0)
            for name, row in sorted(table.rows.items())
            if all(_may_meet_key(table, row, condition) for condition in where.conditions)
        ]
        return listing.pack(files, can_cut=False) if files else [Split(0, ())]

    def version(self) -> str:
        """The table's id and the version, which the protocol never changes, and what the log says of the files' sizes and times.

        These tell two copies of a table apart that went on separately; a table that is moved stays the same.
        """
        table = open_table(self.path, self.at)
        files = sorted(zip(*[table.adds[name].to_pylist() for name in ("size_bytes", "modification_time")], strict=True))
        return f"delta {table.id} version {table.at} files {hashlib.sha256(repr(files).encode()).hexdigest()}"

    def schema(self) -> pa.Schema:
        """The table's columns and its partition columns."""
        return self._table().schema

    def check(self, columns: list[str], texts: frozenset[str] = frozenset(), dates: frozenset[str] = frozenset()) -> None:
        """Look the columns up in the table's schema."""
        check_columns(self.path.name, self.schema(), columns, texts, dates)

    def read(
        self, split: Split, columns: list[str], texts: frozenset[str] = frozenset(), dates: frozenset[str] = frozenset()
    ) -> Iterator[Batch]:
        """Stream the files of the split."""
        table = self._table()
        check_columns(self.path.name, table.schema, columns, texts, dates)
        for part in split.parts:
            row = table.rows[part.path]
            # Here and not in the plan: ranges are of values, and the number of tasks is shown.
            if all(_may_meet_range(table, row, condition) for condition in self._where.conditions):
                yield from _read(table, part.path, columns)

    @property
    def _where(self) -> Where:
        return Where(())

    def _table(self) -> Table:
        return open_table(self.path, self.at)

    def _held(self, where: Where) -> _Held:
        table = self._table()
        return _Held(path=self.path, at=table.at, table_id=table.id, where=where)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held(Delta):
    """One version of one table."""

    at: int
    table_id: str
    where: Where

    @property
    def snapshot(self) -> str:
        """The version."""
        return f"delta version {self.at}"

    @property
    def _where(self) -> Where:
        return self.where

    def _table(self) -> Table:
        return opened(self.path, self.at, self.table_id)

    def _held(self, where: Where) -> _Held:
        return _Held(path=self.path, at=self.at, table_id=self.table_id, where=Where((*self.where.conditions, *where.conditions)))


def _may_meet_key(table: Table, row: int, condition: Condition) -> bool:
    """Tell whether the file's partition value meets the condition, exactly as it is looked at record by record."""
    if condition.column not in table.keys or not is_comparable(condition, table.schema.field(condition.column).type):
        return True
    return bool(meets(condition, _repeated(table, row, condition.column, 1))[0])


def _may_meet_range(table: Table, row: int, condition: Condition) -> bool:
    """Tell whether the file's least and greatest integer or day leave room for the condition.

    Other types are not looked at: the log has texts and instants cut short, and says nothing of infinities and NaN.
    """
    column = condition.column
    if not table.has_ranges or not isinstance(condition, Between | OneOf) or column in table.keys:
        return True
    ends = []
    for name in ("min", "max"):
        stats = table.adds.schema.field(name).type if name in table.adds.schema.names else pa.struct([])
        kind = stats.field(column).type if stats.get_field_index(column) >= 0 else pa.null()
        if not (pa.types.is_integer(kind) or pa.types.is_date32(kind)) or not is_comparable(condition, kind):
            return True
        end = pc.struct_field(table.adds[name], column)[row]
        days = end.cast(pa.int32()) if pa.types.is_date32(kind) else end  # a date may be one that Python does not have
        if not days.is_valid:
            return True
        ends.append(float(days.as_py()))
    least, greatest = ends
    if isinstance(condition, OneOf):
        return any(least <= float(value) <= greatest for value in condition.values)
    is_above = condition.upper is not None and least > condition.upper
    return not (is_above or (condition.lower is not None and greatest < condition.lower))


def _read(table: Table, name: str, columns: list[str]) -> Iterator[Batch]:
    masks = kept_records(table.root, table.at, table.id) if table.has_deletions else {}
    kept = masks.get(str(table.root / name))
    row, start = table.rows[name], 0
    with _open_file(table.root / name, name) as file:
        stored = {column: _stored_name(table, file, name, column) for column in columns if column not in table.keys}
        found = sorted({own for own in stored.values() if own is not None})
        if kept is not None and len(kept) != file.metadata.num_rows:
            msg = f"{name}: its deletion vector is not as long as the file; the table is damaged"
            raise SourceError(msg)
        for records in _batches(file, found):
            if kept is not None:
                mask, start = kept[start : start + records.num_rows], start + records.num_rows
                records = records.filter(mask)  # noqa: PLW2901
            yield Batch(
                {
                    column: _repeated(table, row, column, records.num_rows)
                    if column in table.keys
                    else pa.nulls(records.num_rows, table.schema.field(column).type)
                    if stored[column] is None
                    else records.column(stored[column])
                    for column in columns
                },
                records.num_rows,
            )


def _batches(file: pq.ParquetFile, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Read the row groups one by one: a reader of all holds on to the memory of those before."""
    for group in range(file.metadata.num_row_groups):
        yield from file.iter_batches(BATCH_ROWS, row_groups=[group], columns=columns, use_threads=False)


def _repeated(table: Table, row: int, key: str, count: int) -> pa.Array:
    return pa.repeat(table.adds["partition"].combine_chunks().field(key)[row], count)


def _open_file(path: Path, name: str) -> pq.ParquetFile:
    fault = ""
    try:
        # Instants as Spark once wrote them would overflow in nanoseconds, without a word.
        return pq.ParquetFile(path, page_checksum_verification=True, coerce_int96_timestamp_unit="us")
    except FileNotFoundError:
        fault = "it is gone: this version of the table was vacuumed; give a newer one"
    except PermissionError:
        fault = "it may not be read; check its permissions"
    except (pa.ArrowException, ValueError, OSError):
        fault = "not a readable Parquet file (cut short, empty or encrypted)"
    msg = f"{name}: {fault}"
    raise SourceError(msg)


def _stored_name(table: Table, file: pq.ParquetFile, name: str, column: str) -> str | None:
    """Return the column's name in a file; None where it was added to the table after the file."""
    schema = file.schema_arrow
    own, own_id = table.stored[column]
    if table.by_id:
        ids = [(each.metadata or {}).get(FIELD_ID) for each in schema]
        fault = "" if None not in ids else "it has no field ids, by which the table maps its columns"
        found = [each.name for each, told in zip(schema, ids, strict=True) if told == str(own_id).encode()]
    else:
        found = [each for each in schema.names if each == own]
        near = [each for each in schema.names if each.casefold() == own.casefold()]
        fault = (
            ""
            if found or not near
            else f"it calls the column {column!r} {near[0]!r}; names must be the same in upper and lower case"
        )
    if not fault and (len(found) > 1 or any(schema.names.count(each) > 1 for each in found)):
        fault = f"several columns are called {column!r}"
    if fault:
        msg = f"{name}: {fault}"
        raise SourceError(msg)
    if found:
        wanted = table.schema.field(column).type
        kind = schema.field(found[0]).type
        check_columns(
            name,
            pa.schema([(column, kind)]),
            [column],
            frozenset([column] if pa.types.is_string(wanted) or pa.types.is_binary(wanted) else []),
            frozenset([column] if pa.types.is_temporal(wanted) else []),
        )
    return found[0] if found else None


plugin = Delta
