"""Fixtures: a ledger's URL on each of the two kinds of database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from dp_dask.core.privacy import Neighbours
from dp_dask.gate.ledger import Ledger


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'ledger.db'}"
    return request.getfixturevalue("postgresql_server").emptied()


@pytest.fixture
def made(request: pytest.FixtureRequest) -> Callable[[str], Ledger]:
    """Make Ledger objects that are closed at the end, whatever comes of the test."""

    def make(url: str) -> Ledger:
        ledger = Ledger(url)
        request.addfinalizer(ledger.close)
        return ledger

    return make


@pytest.fixture
def opened(made: Callable[[str], Ledger]) -> Callable[..., Ledger]:
    """Make ledgers in which each data set (``people`` where none is named) has a budget."""

    def open_(url: str, granted: str = "1", *names: str) -> Ledger:
        ledger = made(url)
        for name in names or ("people",):
            ledger.open_dataset(name, Neighbours.REPLACE, Decimal(granted), who="steward", why="test")
        return ledger

    return open_


@pytest.fixture
def ledger(opened: Callable[..., Ledger], url: str) -> Ledger:
    return opened(url)


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = datetime(2026, 3, 27, 12, tzinfo=UTC)

    def __call__(self, _connection: Any) -> datetime:
        return self.now

    def set(self, local: str, zone: str = "UTC") -> None:
        """Set it to a local time, of two the first."""
        self.now = datetime.fromisoformat(local).replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def timed(url: str, clock: Clock) -> Iterator[Ledger]:
    """A ledger that goes by ``clock``, in which ``people`` have an epsilon of 10."""
    ledger = Ledger(url, clock=clock)
    ledger.open_dataset("people", Neighbours.REPLACE, Decimal(10), who="steward", why="test")
    yield ledger
    ledger.close()
