"""ipc: Arrow's own format, as files (also called Feather 2) or as streams, one or a folder, on a disk or in an object store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.ipc as pai

from dp_dask.errors import SourceError
from dp_dask.private.columnar import Columnar
from dp_dask.private.sources import Batch, Part, Split

__all__ = ["plugin"]

BATCH_ROWS = 2**17
NO_IPC = "not a readable Arrow IPC file or stream (cut short, empty, compressed as a whole, or of another format)"
MAGIC = b"ARROW1"  # of a file; a stream has none
BYTES: dict[Callable[[pa.DataType], bool], pa.DataType] = {
    pa.types.is_string: pa.binary(),
    pa.types.is_binary: pa.binary(),
    pa.types.is_large_string: pa.large_binary(),
    pa.types.is_large_binary: pa.large_binary(),
    pa.types.is_string_view: pa.binary_view(),
    pa.types.is_binary_view: pa.binary_view(),
}
END = b"\xff\xff\xff\xff\0\0\0\0"  # of a stream


@dataclass(frozen=True, slots=True, kw_only=True)
class Ipc(Columnar):
    """Arrow IPC below ``path``, its buffers compressed or not; a file's batches are shared out, a stream is read by one task.

    The format has no checksums: of a file that was damaged since, only what cannot be read at all is noticed.
    """

    def schema_of(self, name: str) -> pa.Schema:
        """Return the schema in the footer of a file or the head of a stream."""
        with self.files.open(name) as source:
            return self._reader(name, source, None).schema

    def read(
        self, split: Split, columns: list[str], texts: frozenset[str] = frozenset(), dates: frozenset[str] = frozenset()
    ) -> Iterator[Batch]:
        """Stream the batches that begin in the split's parts."""
        for part in split.parts:
            with self.files.open(part.path) as source:
                schema = self._reader(part.path, source, None).schema
                found = self.find(schema, part.path, columns, texts, dates)
                fields = [schema.get_field_index(column) for column in found.stored] or [0]  # none at all would be every one
                reader = self._reader(part.path, source, fields)
                for records in _batches(part, source, reader):
                    checked = pa.RecordBatch.from_arrays(list(map(_checked, records.columns)), records.schema.names)
                    for start in range(0, records.num_rows, BATCH_ROWS):
                        yield found.batch(checked.slice(start, BATCH_ROWS))

    def _reader(self, name: str, source: pa.NativeFile, fields: list[int] | None) -> Any:
        """Open a file or a stream, of which these fields alone are read."""
        options = pai.IpcReadOptions(included_fields=fields, use_threads=False)
        told = ""
        try:
            source.seek(0)
            is_file = source.read(len(MAGIC)) == MAGIC
            source.seek(0)
            if is_file:
                return pai.open_file(source, options=options)
            source.seek(max(source.size() - len(END), 0))
            if source.read(len(END)) == END:
                source.seek(0)
                return pai.open_stream(source, options=options)
        except (pa.ArrowException, ValueError, OSError) as error:
            told = str(error)
        raise self.files.unreadable(name, told, NO_IPC)


def _batches(part: Part, source: pa.NativeFile, reader: Any) -> Iterator[pa.RecordBatch]:
    """Read the batches that begin in the part, were a file shared among them equally and a stream one piece.

    Their true offsets are not told. Raises SourceError where a stream ends before its end mark or goes on after it: pyarrow takes
    either for its end.
    """
    size = source.size()
    if isinstance(reader, pai.RecordBatchFileReader):
        for i in range(reader.num_record_batches):
            if part.start <= i * size // reader.num_record_batches < part.end:
                yield reader.get_batch(i)
        return
    if part.start > 0:
        return
    after = source.tell()
    for records in reader:
        after = source.tell()
        yield records
    if after != size - len(END):
        msg = f"{part.path}: a stream that is cut short, or several in one file; write each to a file of its own"
        raise SourceError(msg)


def _checked(array: pa.Array) -> pa.Array:
    """Return an array whose offsets and indices lie inside its buffers; the format promises nothing.

    Texts become bytes first: pyarrow would refuse a file for one that is not UTF-8. Of numbers the buffers' lengths are all that
    can be wrong.
    """
    kind = array.type
    if pa.types.is_dictionary(kind):
        return pa.DictionaryArray.from_arrays(array.indices, _checked(array.dictionary))
    if pa.types.is_run_end_encoded(kind):
        array.validate()
        return pa.RunEndEncodedArray.from_arrays(array.run_ends, _checked(array.values))
    for test, as_bytes in BYTES.items():
        if test(kind):
            array = array.view(as_bytes)
            array.validate(full=True)
            return array
    array.validate()
    return array


plugin = Ipc
