"""parquet: one file, a folder of files, or hive partitions, on a local or mounted disk or in an object store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dp_dask.private.columnar import Columnar
from dp_dask.private.sources import Batch, Part, Split

__all__ = ["plugin"]

BATCH_ROWS = 2**17
GROUP_ROWS = 2**16, 2**20  # row groups of these sizes are read whole: 0.85 x the time of batches
NO_PARQUET = "not a readable Parquet file (cut short, empty, encrypted or of another format)"
GROUP_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Parquet(Columnar):
    """Parquet files below ``path``; a file's records are those of its row groups."""

    def schema_of(self, name: str) -> pa.Schema:
        """Return the schema in the footer of a file."""
        with self.files.open(name) as source, self._opened(name, source) as file:
            return file.schema_arrow

    def read(
        self, split: Split, columns: list[str], texts: frozenset[str] = frozenset(), dates: frozenset[str] = frozenset()
    ) -> Iterator[Batch]:
        """Stream the row groups that begin in the split's parts."""
        for part in split.parts:
            with self.files.open(part.path) as source, self._opened(part.path, source) as file:
                found = self.find(file.schema_arrow, part.path, columns, texts, dates)
                groups = _groups_in(file.metadata, part, source.size())
                yield from map(found.batch, _batches(file, groups, found.stored))

    def _opened(self, name: str, source: pa.NativeFile) -> pq.ParquetFile:
        told = ""
        try:
            return pq.ParquetFile(source, page_checksum_verification=True, pre_buffer=self.files.buffers_ahead)
        except (pa.ArrowException, ValueError, OSError) as error:  # Arrow raises OSError for a garbled or encrypted footer
            told = str(error)
        raise self.files.unreadable(name, told, NO_PARQUET)


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


plugin = Parquet
