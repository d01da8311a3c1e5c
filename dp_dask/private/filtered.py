"""Filtered: a source of which only the records that meet public conditions are there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dp_dask.core.where import Condition, Known, OneOf, Where
from dp_dask.private.arrow import as_bytes, days_and_validity, is_text, values_and_validity
from dp_dask.private.sources import Batch, Look, Source, Split, here

__all__ = ["Filtered", "meets"]


@dataclass(frozen=True, slots=True)
class Filtered:
    """What ``source`` holds of the records that meet ``where``; the others, and lines without values, are not counted.

    A source may leave out by itself what does not meet a condition, see ``Source.narrowed``: all are looked at again here.
    """

    source: Source
    where: Where

    keeps_places: ClassVar[bool] = False

    @property
    def snapshot(self) -> str:
        """The pinned state of the source."""
        return self.source.snapshot

    @contextmanager
    def pinned(self, look: Look = here) -> Iterator[Source]:
        """Hold the source in one state."""
        with self.source.pinned(look) as source:
            yield replace(self, source=source)

    def narrowed(self, where: Where) -> Source:
        """Meet more conditions."""
        return Filtered(self.source, Where((*self.where.conditions, *where.conditions)))

    def plan(self) -> list[Split]:
        """List the splits of the source."""
        return self.source.narrowed(self.where).plan()

    def version(self) -> str:
        """The state of the source; the conditions are part of each request."""
        return self.source.version()

    def schema(self) -> pa.Schema:
        """The columns of the source and their types."""
        return self.source.schema()

    def check(self, columns: list[str], texts: frozenset[str] = frozenset(), dates: frozenset[str] = frozenset()) -> None:
        """Look all columns up, those of the conditions too."""
        self.source.check(*self._wanted(columns, texts, dates))

    def read(
        self, split: Split, columns: list[str], texts: frozenset[str] = frozenset(), dates: frozenset[str] = frozenset()
    ) -> Iterator[Batch]:
        """Stream the records of a split that meet the conditions."""
        for batch in self.source.narrowed(self.where).read(split, *self._wanted(columns, texts, dates)):
            kept = np.logical_and.reduce(
                [meets(condition, batch.columns[condition.column]) for condition in self.where.conditions]
            )
            mask = pa.array(kept)
            yield Batch({column: batch.columns[column].filter(mask) for column in columns}, int(kept.sum()))

    def _wanted(
        self, columns: list[str], texts: frozenset[str], dates: frozenset[str]
    ) -> tuple[list[str], frozenset[str], frozenset[str]]:
        return sorted({*columns, *self.where.columns}), texts | self.where.texts, dates | self.where.dates


def meets(condition: Condition, array: pa.Array) -> NDArray[np.bool_]:
    """Return which records meet a condition; raises for no value."""
    if isinstance(condition, OneOf) and condition.is_text:
        found = pc.is_in(as_bytes(array), value_set=pa.array([str(value).encode() for value in condition.values], pa.binary()))
        return np.asarray(pc.and_(found, array.is_valid()))
    if isinstance(condition, Known) and is_text(array.type):
        return np.asarray(as_bytes(array).is_valid())
    is_date = not isinstance(condition, OneOf | Known) and condition.is_date
    values, valid = days_and_validity(array) if is_date else values_and_validity(array)
    if isinstance(condition, OneOf):
        met = np.isin(values, np.array(condition.values, dtype=np.float64))
    elif isinstance(condition, Known):
        met = ~np.isnan(values)
    else:
        met = np.ones(len(values), dtype=np.bool_)  # NaN is outside whatever the ends are
        if condition.lower is not None:
            met &= values >= condition.lower
        if condition.upper is not None:
            met &= values <= condition.upper
    return met if valid is None else met & valid
