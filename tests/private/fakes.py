"""Fakes: sources that fail, stall or are counted in ways that no file is; importable on any worker."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from private.tables import CANARY, CANARY_TEXT

from dp_dask.errors import SourceError
from dp_dask.private.sources import Batch, OfFiles, Part, Split

GO_ON = threading.Event()  # what a stalled read waits for
ATTEMPTS: list[int] = []  # the splits that were tried, in order


class Unforeseen(BaseException):
    """No Exception at all, as a panic of a library in Rust is."""


ERRORS = {
    kind.__name__: kind
    for kind in (
        ValueError,
        KeyError,
        ZeroDivisionError,
        MemoryError,
        RecursionError,
        pa.ArrowInvalid,
        pa.ArrowKeyError,
        AssertionError,
    )
} | {kind.__name__: kind for kind in (UnicodeError, RuntimeError, StopIteration, TimeoutError, OSError, ConnectionError)}
BASE_ERRORS = {kind.__name__: kind for kind in (Unforeseen, SystemExit, GeneratorExit)}


@dataclass(frozen=True)
class Fake(OfFiles):
    """Three splits of two records each; the ones in ``failing`` raise ``error`` after their first batch."""

    error: str = ""
    failing: tuple[int, ...] = (1,)
    stalling: bool = False
    failures: int = 10**9  # how often a split fails before it succeeds

    def plan(self) -> list[Split]:
        return [Split(i, (Part(f"file{i}", 0, 1),)) for i in range(3)]

    def version(self) -> str:
        return "1"

    def check(self, columns: list[str], texts: frozenset[str] = frozenset(), dates: frozenset[str] = frozenset()) -> None:
        pass

    def read(
        self,
        split: Split,
        columns: list[str],
        texts: frozenset[str] = frozenset(),  # noqa: ARG002
        dates: frozenset[str] = frozenset(),  # noqa: ARG002
    ) -> Iterator[Batch]:
        ATTEMPTS.append(split.index)
        yield Batch(dict.fromkeys(columns, pa.array([1.0, None])), 2)
        if split.index not in self.failing or ATTEMPTS.count(split.index) > self.failures:
            return
        if self.stalling:
            GO_ON.wait(20)
        if self.error == "SourceError":
            msg = f"file{split.index}: not as declared"
            raise SourceError(msg)
        if self.error:
            try:
                _ = {}[CANARY]  # the context of what follows
            except KeyError:
                raise (ERRORS | BASE_ERRORS)[self.error](CANARY_TEXT)  # noqa: B904
