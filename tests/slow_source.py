"""A source that takes its time, so that something can be done to a cluster in the middle; importable on any worker."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa

from dp_dask.private.sources import Batch, OfFiles, Part, Split

SPLITS, ROWS = 24, 100


@dataclass(frozen=True)
class Slow(OfFiles):
    """``SPLITS`` splits of ``ROWS`` records, 0.25 s each; the ``fatal``-th does something to its process, where it is given.

    The ``marker`` folder tells those who watch how many splits were begun.
    """

    marker: str
    fatal: str = ""

    keeps_places: ClassVar[bool] = False

    def plan(self) -> list[Split]:
        return [Split(i, (Part(f"part{i}", 0, 1),)) for i in range(SPLITS)]

    def version(self) -> str:
        return "1"

    def schema(self) -> pa.Schema:
        return pa.schema([("x", pa.int64())])

    def check(self, columns: list[str], texts: frozenset[str] = frozenset(), dates: frozenset[str] = frozenset()) -> None:
        pass

    def read(
        self,
        split: Split,
        columns: list[str],
        texts: frozenset[str] = frozenset(),  # noqa: ARG002
        dates: frozenset[str] = frozenset(),  # noqa: ARG002
    ) -> Iterator[Batch]:
        (Path(self.marker) / f"{split.index}-{os.getpid()}").touch()
        time.sleep(0.25)
        if split.index == SPLITS // 2 and self.fatal == "exit":
            os._exit(3)
        if split.index == SPLITS // 2 and self.fatal == "memory":
            held = []
            while True:
                held.append(np.ones(2**21))  # 16 MB, every page of it
                time.sleep(0.02)
        yield Batch(dict.fromkeys(columns, pa.array(np.arange(ROWS) % 2)), ROWS)
