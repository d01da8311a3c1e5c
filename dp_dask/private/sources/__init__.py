"""Sources: one kind of table a file; a file's name is its ``kind`` in the pipeline file.

A source is a frozen, picklable description of where records lie. ``plan`` lists what to read, on the driver,
without opening a record; ``read`` streams one split's record batches, on a worker. Splits hold names and byte ranges,
never rows, a size of the data or a credential. Errors are ``SourceError``: they name file and column.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa

__all__ = ["Batch", "Part", "Source", "Split"]


@dataclass(frozen=True, slots=True)
class Part:
    """A byte range of one file; a reader takes what begins inside it."""

    path: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Split:
    """What one task reads: a number in file order and a few parts of files."""

    index: int
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Batch:
    """Some records: the columns asked for, and how many records had no readable columns at all."""

    columns: dict[str, pa.Array]
    n_records: int


class Source(Protocol):
    """Where records lie and how they are read."""

    def plan(self) -> list[Split]:
        """List the splits, in a fixed order; raise SourceError where there is nothing to read."""
        ...

    def version(self) -> str:
        """Describe the present state of the data (names, sizes, times of change); private, kept in the ledger as a digest."""
        ...

    def check(self, columns: list[str], texts: frozenset[str] = frozenset()) -> None:
        """Raise SourceError unless the first file has each column as a number, those in ``texts`` as texts; reads no record."""
        ...

    def read(self, split: Split, columns: list[str], texts: frozenset[str] = frozenset()) -> Iterator[Batch]:
        """Stream the records of a split, in bounded memory; the columns in ``texts`` as texts, the others as numbers."""
        ...

    @property
    def keeps_places(self) -> bool:
        """Does each record come at its own place whatever any record holds, one that cannot be read as nulls?"""
        ...

    @property
    def root(self) -> Path:
        """The file or folder that the splits' names are relative to."""
        ...
