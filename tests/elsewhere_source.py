"""A source that no process may look at but the workers: what a driver sees that has no way to the records."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

import pyarrow as pa

from dp_dask.core.where import Where
from dp_dask.errors import SourceError
from dp_dask.private.sources import Batch, Look, Source, Split, here


@dataclass(frozen=True)
class Elsewhere:
    """``source``, which the process of the number ``driver`` does not see."""

    source: Source
    driver: int

    @property
    def snapshot(self) -> str:
        return self.source.snapshot

    @property
    def keeps_places(self) -> bool:
        return self.source.keeps_places

    def _seen(self) -> Source:
        if os.getpid() == self.driver:
            msg = "the driver sees no records"
            raise SourceError(msg)
        return self.source

    def pinned(self, look: Look = here) -> AbstractContextManager[Source]:
        return _Pinned(self, look)

    def narrowed(self, where: Where) -> Source:
        return Elsewhere(self.source.narrowed(where), self.driver)

    def plan(self) -> list[Split]:
        return self._seen().plan()

    def version(self) -> str:
        return self._seen().version()

    def schema(self) -> pa.Schema:
        return self._seen().schema()

    def check(self, columns: list[str], texts: frozenset[str] = frozenset(), dates: frozenset[str] = frozenset()) -> None:
        self._seen().check(columns, texts, dates)

    def read(
        self, split: Split, columns: list[str], texts: frozenset[str] = frozenset(), dates: frozenset[str] = frozenset()
    ) -> Iterator[Batch]:
        return self._seen().read(split, columns, texts, dates)


@dataclass(frozen=True)
class _Pinned(AbstractContextManager[Source]):
    elsewhere: Elsewhere
    look: Look

    def __enter__(self) -> Source:
        with self.elsewhere.source.pinned(self.look) as source:
            return Elsewhere(source, self.elsewhere.driver)

    def __exit__(self, *_: object) -> None:
        """Nothing is held."""
