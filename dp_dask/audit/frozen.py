"""Frozen: noise that is the same each time, a ledger that takes none of it, and a cluster whose tasks are counted.

With them two runs differ by nothing but the records, so that what differs in what they tell, and by how much, shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dp_dask.core.release import INSECURE
from dp_dask.errors import LedgerError
from dp_dask.gate.ledger import Ledger

__all__ = ["Counted", "Frozen", "Refused", "Unwritten"]

CONSTANTS = (3, -7, 0, 12, -1)


@dataclass(slots=True)
class Frozen:
    """Noise that adds recorded constants, and notes what it was asked for; marked so that no ledger takes it."""

    asked: list[tuple[str, int, float]] = field(default_factory=list)  # the law, how many numbers, and the scale
    compared: list[tuple[int, ...]] = field(default_factory=list)  # the scores that choices were made among
    sampler: str = INSECURE

    def add_discrete_laplace(self, values: Sequence[int], scale: float) -> list[int]:
        """Add the constants, whatever the scale."""
        return self._add("laplace", values, scale)

    def add_discrete_gaussian(self, values: Sequence[int], scale: float) -> list[int]:
        """Add the constants, whatever the scale."""
        return self._add("gaussian", values, scale)

    def lowest_with_gumbel(self, values: Sequence[int], c: int, scale: float) -> list[int]:
        """Choose the smallest, once the constants are added."""
        self.compared.append(tuple(values))
        return np.argsort(self._add("gumbel", values, scale), kind="stable")[:c].tolist()

    def _add(self, law: str, values: Sequence[int], scale: float) -> list[int]:
        drawn = (
            len(values) if any(values) or law != "gumbel" else 0
        )  # among equals: as many as the noise has left, not the records
        self.asked.append((law, drawn, scale))
        return [int(value) + CONSTANTS[i % len(CONSTANTS)] for i, value in enumerate(values)]


class Refused(Exception):  # noqa: N818  (what is to happen)
    """The ledger refused, as it must, what frozen noise made; ``made`` is what it was given, beneath the commit."""

    def __init__(self, made: Sequence[Any]) -> None:
        self.made = made
        super().__init__("refused")


class Unwritten(Ledger):
    """The ledger, which must refuse at the commit; what was to be committed is then handed to the audit, unwritten."""

    def commit(self, charges: Sequence[tuple[str, Any]], *, who: str, why: str) -> list[Any]:
        """Raise Refused with the releases of made-up records where the ledger refuses them; else return what it wrote."""
        try:
            return super().commit(charges, who=who, why=why)
        except LedgerError:
            pass
        raise Refused([made for _, made in charges])


@dataclass(slots=True)
class Counted:
    """A cluster that is running already, and the number of tasks that were submitted to it."""

    running: Any
    tasks: int = 0
    stall_timeout: float = 60.0
    driver_sees_records: bool = True

    @contextmanager
    def client(self) -> Iterator[Any]:
        """Lend the running cluster's client."""
        yield _Client(self)


@dataclass(slots=True)
class _Client:
    counted: Counted

    def submit(self, *arguments: Any, **options: Any) -> Any:
        self.counted.tasks += 1
        return self.counted.running.submit(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.counted.running, name)
