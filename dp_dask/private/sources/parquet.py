"""parquet: one file, a folder of files, or hive partitions, on a local or mounted disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from dp_dask.errors import SourceError
from dp_dask.private import listing
from dp_dask.private.arrow import is_date, is_numeric, is_text
from dp_dask.private.sources import Batch, OfFiles, Part, Split

__all__ = ["plugin"]

BATCH_ROWS = 2**17
GROUP_ROWS = 2**16, 2**20  # row groups of these sizes are read whole: 0.85 x the time of batches
GROUP_BYTES = 64 * 2**20
SMALL_FILE = 2**20  # read with one call: 0.71 x the time


@dataclass(frozen=True, slots=True, kw_only=True)
class Parquet(OfFiles):
    """Parquet files below ``path``; a file's records are those of its row groups."""

    path: Path

    keeps_places: ClassVar[bool] = True

    @property
    def root(self) -> Path:
        """The folder that the splits' names are relative to."""
        return self.path.parent if self.path.is_file() else self.path

    def plan(self) -> list[Split]:
        """List files and cut them by bytes, without opening one."""
        return listing.pack(listing.list_files(self.path), can_cut=True)

    def version(self) -> str:
        """Names, sizes and times of change of the files."""
        return listing.version(listing.list_files(self.path))

    def schema(self) -> pa.Schema:
        """The schema in the footer of the first file, and its partition keys."""
        name = listing.list_files(self.path)[0].name
        with self._open(name) as file:
            keys = [key for key in listing.partition_keys(name) if key not in file.schema_arrow.names]
            return pa.schema([*file.schema_arrow, *(pa.field(key, pa.string()) for key in keys)])

    def check(self, columns: list[str], texts: frozenset[str] = frozenset(), dates: frozenset[str] = frozenset()) -> None:
        """Look the columns up in the footer of the first file."""
        name = listing.list_files(self.path)[0].name
        with self._open(name) as file:
            for column in columns:
                _check_column(file, name, column, texts, dates)

    def read(
        self, split: Split, columns: list[str], texts: frozenset[str] = frozenset(), dates: frozenset[str] = frozenset()
    ) -> Iterator[Batch]:
        """Stream the row groups that begin in the split's parts."""
        for part in split.parts:
            with self._open(part.path) as file:
                for column in columns:
                    _check_column(file, part.path, column, texts, dates)
                groups = _groups_in(file.metadata, part, (self.root / part.path).stat().st_size)
                keys = {c: key for c, key in listing.partition_keys(part.path).items() if c in texts}
                stored = [column for column in columns if column not in keys]
                yield from map(partial(_batch, columns=stored, keys=keys), _batches(file, groups, stored))

    def _open(self, name: str) -> pq.ParquetFile:
        path = self.root / name
        kind = ""
        try:
            small = path.stat().st_size < SMALL_FILE
            source: Any = pa.BufferReader(path.read_bytes()) if small else path
            return pq.ParquetFile(source, page_checksum_verification=True)
        except FileNotFoundError:
            kind = "it is gone"
        except PermissionError:
            kind = "it may not be read; check its permissions"
        except (pa.ArrowException, ValueError, OSError):  # Arrow raises OSError for a garbled or encrypted footer
            kind = "not a readable Parquet file (cut short, empty, encrypted or of another format)"
        msg = f"{name}: {kind}"
        raise SourceError(msg)


def _check_column(file: pq.ParquetFile, name: str, column: str, texts: frozenset[str], dates: frozenset[str]) -> None:
    schema = file.schema_arrow
    positions = schema.get_all_field_indices(column)
    if len(positions) > 1:
        msg = f"{name}: {len(positions)} columns are called {column!r}; rename all but one"
        raise SourceError(msg)
    if column in listing.partition_keys(name):
        if column in texts and not positions:
            return
        # Even where the files have such a column too: to compare the two would let one record stop the run.
        msg = f"{name}: {column!r} is a partition key, hence text; rename the folders or measure another column"
        raise SourceError(msg)
    if not positions:
        known = ", ".join(schema.names[:20]) + (", .." if len(schema.names) > 20 else "")  # noqa: PLR2004
        msg = f"{name}: no column {column!r}; the file has: {known}"
        raise SourceError(msg)
    kind = schema.field(positions[0]).type
    if column in dates:
        if not is_date(kind):
            msg = f"{name}: column {column!r} is of type {kind}, and is compared with dates; give numbers or texts as it has them"
            raise SourceError(msg)
    elif column in texts:
        if not is_text(kind):
            msg = f"{name}: column {column!r} is of type {kind}; its categories are texts: list them as the column has them"
            raise SourceError(msg)
    elif not is_numeric(kind):
        msg = f"{name}: column {column!r} is of type {kind}; a measurement needs a number (integer, float, decimal or boolean)"
        raise SourceError(msg)


def _groups_in(metadata: Any, part: Part, file_size: int) -> list[int]:
    """Return the row groups that begin in the part, were the file shared among them by their sizes; each begins in one part.

    Their true offsets stand in the columns' metadata: pyarrow aborts the process where that is encrypted, and a wrong one
    beyond the file's end would lose a group without a word.
    """
    sizes = [max(metadata.row_group(i).total_byte_size, 0) for i in range(metadata.num_row_groups)]
    total = max(sum(sizes), 1)
    starts = (min(start * file_size // total, file_size - 1) for start in accumulate(sizes, initial=0))
    return [i for i, start in zip(range(len(sizes)), starts, strict=False) if part.start <= start < part.end]


def _batches(file: pq.ParquetFile, groups: list[int], columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Read middling row groups whole, others as batches, so that memory is bounded by the batch."""
    if not groups:
        return
    metadata = file.metadata
    sizes = [metadata.row_group(i) for i in groups]
    if all(GROUP_ROWS[0] <= g.num_rows <= GROUP_ROWS[1] and g.total_byte_size <= GROUP_BYTES for g in sizes):
        for i in groups:
            batches = file.read_row_group(i, columns=columns, use_threads=False).to_batches()
            while batches:  # handed on without a name here that would keep it alive
                yield batches.pop(0)
    else:
        yield from file.iter_batches(BATCH_ROWS, row_groups=groups, columns=columns, use_threads=False)


def _batch(records: pa.RecordBatch, columns: list[str], keys: dict[str, str | None]) -> Batch:
    """Return the stored columns, and the partition keys as columns of one text."""
    texts = {column: pa.repeat(pa.scalar(key, pa.string()), records.num_rows) for column, key in keys.items()}
    return Batch({column: records.column(column) for column in columns} | texts, records.num_rows)


plugin = Parquet
