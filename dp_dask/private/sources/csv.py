"""csv: delimited text, one file or a folder, compressed or not; the types of the columns are declared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv

from dp_dask.errors import SourceError
from dp_dask.private import listing
from dp_dask.private.sources import Batch, Split

__all__ = ["plugin"]

BLOCK_BYTES = 4 * 2**20
TYPES = ("number", "text")


@dataclass(frozen=True, slots=True, kw_only=True)
class Csv:
    """Delimited files below ``path``, each with a header line.

    ``columns`` declares each measured column ``number`` or ``text``: a text file has no schema, and one guessed
    from the values would tell about them. A field that is not a number is a null. A line with too many or too few
    fields is a record without values.
    """

    path: Path
    columns: dict[str, str]
    delimiter: str = ","
    nulls: list[str] = field(default_factory=lambda: ["", "NA", "NULL", "null", "NaN", "nan"])

    def __post_init__(self) -> None:
        for name, kind in self.columns.items():
            if kind not in TYPES:
                msg = f"columns: {name!r} is declared {kind!r}; known types: {', '.join(TYPES)}"
                raise ValueError(msg)
        if len(self.delimiter) != 1 or not self.delimiter.isascii():
            msg = f"delimiter {self.delimiter!r} must be one ASCII character"
            raise ValueError(msg)

    @property
    def root(self) -> Path:
        """The folder that the splits' names are relative to."""
        return self.path.parent if self.path.is_file() else self.path

    def plan(self) -> list[Split]:
        """List files; a text file is read by one task, because a quoted field may hold a line end."""
        return listing.pack(listing.list_files(self.path), can_cut=False)

    def version(self) -> str:
        """Names, sizes and times of change of the files."""
        return listing.version(listing.list_files(self.path))

    def check(self, columns: list[str]) -> None:
        """Look the columns up in the declared types and in the header of the first file."""
        for column in columns:
            kind = self.columns.get(column)
            if kind != "number":
                given = "is not declared" if kind is None else f"is declared {kind}"
                msg = f"{self.path.name}: column {column!r} {given}; declare it, source.columns: {{{column}: number}}"
                raise SourceError(msg)
        reader, _ = self._open(listing.list_files(self.path)[0].name, columns)
        reader.close()

    def read(self, split: Split, columns: list[str]) -> Iterator[Batch]:
        """Stream one file's lines in blocks of a few megabytes."""
        for part in split.parts:
            reader, skipped = self._open(part.path, columns)
            reported = 0
            broken = False
            while True:
                batch = None
                try:
                    batch = reader.read_next_batch()
                except StopIteration:
                    break
                except (pa.ArrowException, OSError):
                    broken = True
                if broken or batch is None:
                    msg = f"{part.path}: not readable as delimited text (a quote left open, a line beyond 4 MB, a broken file)"
                    raise SourceError(msg)
                lost, reported = len(skipped) - reported, len(skipped)
                yield Batch({name: _numbers(batch.column(name)) for name in columns}, batch.num_rows + lost)
            if len(skipped) > reported:
                empty = pa.nulls(0, pa.float64())
                yield Batch(dict.fromkeys(columns, empty), len(skipped) - reported)

    def _open(self, name: str, columns: list[str]) -> tuple[Any, list[None]]:
        """Open a file; the list grows by one for each line that is not a record of the right width."""
        skipped: list[None] = []

        def skip(_row: Any) -> str:
            skipped.append(None)
            return "skip"

        stream: Any = None
        kind = ""
        try:
            stream = pa.input_stream(self.root / name, compression="detect")
            header = pcsv.open_csv(
                stream,
                read_options=pcsv.ReadOptions(block_size=BLOCK_BYTES, use_threads=False),
                parse_options=pcsv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True, invalid_row_handler=skip),
                convert_options=pcsv.ConvertOptions(
                    include_columns=columns,
                    column_types=dict.fromkeys(columns, pa.binary()),
                    null_values=self.nulls,
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=True,
                    check_utf8=False,
                ),
            )
        except FileNotFoundError:
            kind = "it is gone"
        except PermissionError:
            kind = "it may not be read; check its permissions"
        except KeyError:
            kind = "header"
        except (pa.ArrowException, ValueError, OSError):
            kind = "not readable as delimited text (empty, a broken archive, or of another format)"
        if not kind:
            return header, skipped
        if kind == "header":
            kind = f"the header line lacks one of the columns {', '.join(columns)}, or names it twice"
        msg = f"{name}: {kind}"
        raise SourceError(msg)


NUMBER = r"^[ \t]*[+-]?(([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?|[iI][nN][fF]([iI][nN][iI][tT][yY])?)[ \t]*$"


def _numbers(texts: pa.Array) -> pa.Array:
    """Turn fields to float64, one by one: what is not a number becomes null, whatever its neighbours are."""
    is_number = pc.match_substring_regex(texts, NUMBER)
    clean = pc.if_else(is_number, texts, pa.scalar(None, pa.binary()))
    plain = pc.utf8_trim(clean.cast(pa.string()), " \t+")
    return plain.cast(pa.float64())


plugin = Csv
