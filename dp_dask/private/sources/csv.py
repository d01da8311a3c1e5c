"""csv: delimited text, compressed or not, one file or a folder on a disk or in an object store; columns' types are declared."""

from __future__ import annotations

import csv
import io
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import PurePath
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv

from dp_dask.errors import SourceError
from dp_dask.private import listing
from dp_dask.private.filesystems import Stored
from dp_dask.private.sources import Batch, Split

__all__ = ["plugin"]

BLOCK_BYTES = 32 * 2**20  # a record must fit into one
HEADER_BYTES = 2**20
BOM = b"\xef\xbb\xbf"
TYPES = ("number", "text", "date")


@dataclass(frozen=True, slots=True, kw_only=True)
class Csv(Stored):
    """Delimited files below ``path``, each with a header line.

    ``columns`` declares each column that is used ``number``, ``text`` or ``date``: a text file has no schema, and one guessed
    from the values would tell about them. A field that is not a number is a null, and so is one that is no ISO 8601 date or
    instant. A line with too many or too few fields is a record without values.

    A record is what the format says: with ``quotes``, a stray quotation mark joins lines into one record, so the file must come
    from a program that quotes. Without, every line is a record whatever it holds.
    """

    columns: dict[str, str]
    delimiter: str = ","
    quotes: bool = True
    nulls: list[str] = field(default_factory=lambda: ["", "NA", "NULL", "null", "NaN", "nan"])

    keeps_places: ClassVar[bool] = False  # a line of the wrong width is counted, and those after it move up

    def __post_init__(self) -> None:
        Stored.__post_init__(self)
        for name, kind in self.columns.items():
            if kind not in TYPES:
                msg = f"columns: {name!r} is declared {kind!r}; known types: {', '.join(TYPES)}"
                raise ValueError(msg)
        if len(self.delimiter) != 1 or not self.delimiter.isascii() or self.delimiter in '\r\n"':
            msg = f"delimiter {self.delimiter!r} must be one ASCII character, and no quote or line end"
            raise ValueError(msg)

    def plan(self) -> list[Split]:
        """List files; a text file is read by one task, because a quoted field may hold a line end."""
        return listing.pack(self.files.listed(), can_cut=False, opening=self.files.opening, split_bytes=self.split_bytes)

    def version(self) -> str:
        """Names, sizes and times of change of the files, and how they are read."""
        return f"{self.delimiter!r} {self.quotes} {sorted(self.nulls)!r}\n" + listing.version(self.files.listed())

    def schema(self) -> pa.Schema:
        """The declared columns."""
        kinds = {"number": pa.float64(), "text": pa.string(), "date": pa.date32()}
        return pa.schema([(name, kinds[kind]) for name, kind in self.columns.items()])

    def check(self, columns: list[str], texts: frozenset[str] = frozenset(), dates: frozenset[str] = frozenset()) -> None:
        """Look the columns up in the declared types and in the header of the first file."""
        for column in columns:
            wanted = "text" if column in texts else "date" if column in dates else "number"
            kind = self.columns.get(column)
            if kind != wanted:
                given = "is not declared" if kind is None else f"is declared {kind}"
                msg = f"{PurePath(self.path).name}: column {column!r} {given}; declare it, source.columns: {{{column}: {wanted}}}"
                raise SourceError(msg)
        self.look_up(columns, lambda name: self._names(name, columns))

    def read(
        self, split: Split, columns: list[str], texts: frozenset[str] = frozenset(), dates: frozenset[str] = frozenset()
    ) -> Iterator[Batch]:
        """Stream the files' lines in blocks of some megabytes."""
        make = {column: _texts if column in texts else _dates if column in dates else _numbers for column in columns}
        for part in split.parts:
            yield from self._read(part.path, make)

    def _read(self, name: str, make: Mapping[str, Callable[[pa.Array], pa.Array]]) -> Iterator[Batch]:
        names = self._names(name, list(make))
        columns = [column for column in make if column in names]
        absent = [column for column in make if column not in names]
        width = len(names)
        end = uuid.uuid4().hex  # a last line of the wrong width, which no quote left open may swallow
        lost = ended = 0

        def skip(row: Any) -> str:
            nonlocal lost, ended
            if row.text.startswith(end):
                ended += 1
            else:
                lost += 1
            return "skip"

        is_broken, told = False, ""
        reader: Any = None
        while True:
            batch = None
            try:
                if reader is None:
                    stream = self.files.stream(name)
                    last = end if width > 1 else end + self.delimiter
                    reader = self._open(_Lines(stream, last.encode()), columns or names[:1], width, skip)
                batch = reader.read_next_batch()
            except StopIteration:
                break
            except (pa.ArrowException, ValueError, OSError) as error:
                is_broken, told = True, str(error)
            if is_broken or batch is None:
                break
            n = batch.num_rows
            found = {column: make[column](batch.column(_latin(column))) for column in columns}
            yield Batch(found | {column: make[column](pa.nulls(n, pa.binary())) for column in absent}, n)
        if is_broken or ended != 1:
            broken = "not readable as delimited text (a quote left open, a record beyond 32 MB, a broken file)"
            raise self.files.unreadable(name, told, broken)
        yield Batch({column: make[column](pa.array([], pa.binary())) for column in make}, lost)

    def _open(self, lines: _Lines, columns: list[str], width: int, skip: Any) -> Any:
        names = [_latin(column) for column in columns]
        return pcsv.open_csv(
            lines,
            read_options=pcsv.ReadOptions(block_size=BLOCK_BYTES, use_threads=False),
            parse_options=pcsv.ParseOptions(
                delimiter=self.delimiter,
                quote_char='"' if self.quotes else False,
                newlines_in_values=self.quotes,
                invalid_row_handler=skip,
                ignore_empty_lines=width > 1,  # of one field, a blank line is a record whose value is null
            ),
            convert_options=pcsv.ConvertOptions(
                include_columns=names,
                column_types=dict.fromkeys(names, pa.binary()),
                null_values=[_latin(null) for null in self.nulls],
                strings_can_be_null=True,
                quoted_strings_can_be_null=True,
                check_utf8=False,
            ),
        )

    def _names(self, name: str, columns: list[str]) -> list[str]:
        """Read the header line's names, and of what follows nothing."""
        names: list[str] = []
        kind = told = ""
        try:
            with self.files.stream(name) as stream:
                head = stream.read(HEADER_BYTES).removeprefix(BOM).decode("utf-8", "replace")
            rows = csv.reader(io.StringIO(head, newline=""), delimiter=self.delimiter)
            names = next((row for row in rows if row), [])
        except (pa.ArrowException, csv.Error, ValueError, OSError) as error:
            told = str(error)
            kind = "not readable as delimited text (a broken archive, or of another format)"
        if not kind and not names:
            kind = "not readable as delimited text (it is empty)"
        least = 1 if self.missing == "refuse" else 0
        if not kind and not all(least <= names.count(column) <= 1 for column in columns):
            kind = f"the header line lacks one of the columns {', '.join(columns)}, or names it twice"
        if kind:
            raise self.files.unreadable(name, told, kind)
        return names


class _Lines(io.RawIOBase):
    """A text file whose bytes are read as Latin-1, with one more line at its end.

    So every byte is a character: pyarrow decodes a line of the wrong width, and where that fails it stops, and prints
    a byte of it.
    """

    def __init__(self, stream: Any, last: bytes) -> None:
        self._stream = stream
        self._rest: bytes | None = last
        self._before = BOM  # what was read last: nothing yet

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        room = size // 2  # a Latin-1 character may take two bytes
        read: list[bytes] = []
        while room > 0 and self._rest is not None:
            data: bytes = self._stream.read(room)
            room -= len(data)
            if not data:
                data = self._rest if self._before[-1:] in b"\r\n" else b"\n" + self._rest
                self._rest = None
            elif self._before is BOM:
                data = data.removeprefix(BOM)
            read.append(data)
            self._before = data
        data = b"".join(read)
        return data if data.isascii() else data.decode("latin-1").encode()


def _latin(text: str) -> str:
    return text.encode().decode("latin-1")


def _texts(fields: pa.Array) -> pa.Array:
    """Give fields that were read as Latin-1 their own bytes again; each distinct one is converted once."""
    distinct = fields.dictionary_encode()
    own = [value.decode().encode("latin-1") for value in distinct.dictionary.to_pylist()]
    return pa.array(own, pa.binary()).take(distinct.indices)


def _dates(fields: pa.Array) -> pa.Array:
    """Turn fields to days, each distinct one once: what is no date, or not one that Python knows, becomes null."""
    distinct = fields.dictionary_encode()
    days = [_day(value) for value in distinct.dictionary.cast(pa.binary()).to_pylist()]
    return pa.array(days, pa.date32()).take(distinct.indices)


def _day(value: bytes) -> date | None:
    with suppress(ValueError, OverflowError):
        instant = datetime.fromisoformat(value.decode("ascii").strip())
        return (instant if instant.tzinfo is None else instant.astimezone(UTC)).date()
    return None


NUMBER = r"^[ \t]*[+-]?(([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?|[iI][nN][fF]([iI][nN][iI][tT][yY])?)[ \t]*$"


def _numbers(texts: pa.Array) -> pa.Array:
    """Turn fields to float64, one by one: what is not a number becomes null, whatever its neighbours are."""
    is_number = pc.match_substring_regex(texts, NUMBER)
    clean = pc.if_else(is_number, texts, pa.scalar(None, pa.binary()))
    plain = pc.utf8_trim(clean.cast(pa.string()), " \t+")
    return plain.cast(pa.float64())


plugin = Csv
