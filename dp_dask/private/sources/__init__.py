"""Sources: one kind of table a file; a file's name is its ``kind`` in the pipeline file.

A source is a frozen, picklable description of where records lie. ``plan`` lists what to read without opening a record, on
the driver or, where that does not see the records, on a worker; ``read`` streams one split's record batches, on a worker.
Splits hold names and byte ranges, never rows, a size of the data or a credential. Errors are ``SourceError``: they name file
and column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

import pyarrow as pa

from dp_dask.core.where import Where

__all__ = ["Batch", "Look", "OfFiles", "Part", "Source", "Split", "here"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Part:
    """A range of one file, of bytes or of what its source counts in; a reader takes what begins inside it."""

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


class Look(Protocol):
    """A place from which to look at what a source holds besides records: it does the work there and gives what that gives."""

    def __call__(self, work: Callable[[], T], /) -> T:
        """Do the work; raises what it raises, and ClusterError where that is a worker that is lost."""
        ...


def here(work: Callable[[], T], /) -> T:
    """Look from where this is called."""
    return work()


class Source(Protocol):
    """Where records lie and how they are read."""

    def pinned(self, look: Look = here) -> AbstractContextManager[Source]:
        """Hold one state of the data (a version, a snapshot) while the context lasts, and give the source that reads it.

        A source of files gives itself: whether they changed is found by ``version``. A table's name for its state is looked up
        by ``look``; a database's, which lasts as long as a connection, is held from here.
        """
        ...

    @property
    def snapshot(self) -> str:
        """The public name of the state that is pinned (``delta version 12``), recorded in the release; empty for files."""
        ...

    def narrowed(self, where: Where) -> Source:
        """Leave out by itself, where that saves time, records that do not meet a condition; itself is always right.

        Every record that meets all conditions must still come, once: what comes is looked at again.
        """
        ...

    def plan(self) -> list[Split]:
        """List the splits, in a fixed order; raise SourceError where there is nothing to read."""
        ...

    def version(self) -> str:
        """Describe the present state of the data (names, sizes, times of change); private, kept in the ledger as a digest.

        Empty where a source cannot tell it: the file must then name a version.
        """
        ...

    def schema(self) -> pa.Schema:
        """Return the columns of the first file, or of the table, with their types; reads no record, tells no statistic."""
        ...

    def check(self, columns: list[str], texts: frozenset[str] = frozenset(), dates: frozenset[str] = frozenset()) -> None:
        """Raise SourceError unless the first file has each column as what it is to be read as; reads no record.

        That is texts for those in ``texts``, dates for those in ``dates``, and numbers for the others.
        """
        ...

    def read(
        self, split: Split, columns: list[str], texts: frozenset[str] = frozenset(), dates: frozenset[str] = frozenset()
    ) -> Iterator[Batch]:
        """Stream the records of a split, in bounded memory: ``texts`` as texts, ``dates`` as dates, other columns as numbers."""
        ...

    @property
    def keeps_places(self) -> bool:
        """Does each record come at its own place whatever any record holds, one that cannot be read as nulls?"""
        ...


class OfFiles:
    """What all sources of files have in common."""

    __slots__ = ()

    @property
    def snapshot(self) -> str:
        """None: files are held by their names, sizes and times of change."""
        return ""

    def pinned(self, look: Look = here) -> AbstractContextManager[Self]:  # noqa: ARG002
        """Give itself."""
        return nullcontext(self)

    def narrowed(self, where: Where) -> Self:  # noqa: ARG002
        """Leave out nothing."""
        return self
