"""Reservations: what runs under way will be charged, so that no other starts for the same budget and reads for nothing.

They are advice beside the journal: a commit asks the journal alone. Each lasts for minutes and is renewed while its run lives.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

import sqlalchemy as sa

from dp_dask.core.privacy import Unit
from dp_dask.errors import DpDaskError
from dp_dask.gate import journal

__all__ = ["LIFETIME", "Reservation", "end", "live", "renew", "renewed", "reserve", "table"]

LIFETIME = timedelta(minutes=5)
RENEWALS = 5  # in a lifetime: a few may fail
table = sa.Table(
    "dp_dask_reservations",
    journal.metadata,
    sa.Column("run", sa.Text, primary_key=True),
    sa.Column("request", sa.Text, primary_key=True),
    sa.Column("dataset", sa.Text, nullable=False),
    sa.Column("who", sa.Text, nullable=False),
    sa.Column("amount", sa.Text, nullable=False),  # in the budget's unit, written as in entries
    sa.Column("expires", sa.Text, nullable=False),
)


@dataclass(frozen=True, slots=True)
class Reservation:
    """The price of a request that a run under way will be charged."""

    request: str
    who: str
    amount: Decimal
    expires: datetime


def live(connection: sa.Connection, dataset: str, now: datetime, *, but: Iterable[str] = ()) -> list[Reservation]:
    """Read what is reserved of a data set ``but`` for some requests, each once: whoever commits it first pays for all."""
    rows = connection.execute(table.select().where(table.c.dataset == dataset).order_by(table.c.run)).mappings()
    found = {
        row["request"]: Reservation(
            row["request"], row["who"], journal.read_amount(row["amount"])[1], datetime.fromisoformat(row["expires"])
        )
        for row in rows
        if _lives(row["expires"], now)
    }
    return [reservation for request, reservation in found.items() if request not in but]


def reserve(
    connection: sa.Connection, dataset: str, unit: Unit, prices: Mapping[str, Decimal], *, run: str, who: str, now: datetime
) -> None:
    """Reserve the prices of a run's requests, and forget those of runs that died."""
    dead = [row.run for row in connection.execute(sa.select(table.c.run, table.c.expires)) if not _lives(row.expires, now)]
    connection.execute(table.delete().where(table.c.run.in_(dead)))
    facts = {"run": run, "dataset": dataset, "who": who, "expires": journal.written_time(now + LIFETIME)}
    rows = [facts | {"request": request, "amount": journal.written_amount(unit, price)} for request, price in prices.items()]
    connection.execute(table.insert(), rows)


def renew(connection: sa.Connection, run: str, now: datetime) -> None:
    """Let a run's reservations last from now on."""
    connection.execute(table.update().where(table.c.run == run).values(expires=journal.written_time(now + LIFETIME)))


def end(connection: sa.Connection, *, run: str | None = None, requests: Iterable[str] = ()) -> None:
    """Give up what a run has reserved, and what any has for these requests, which are paid for."""
    connection.execute(table.delete().where(sa.or_(table.c.run == run, table.c.request.in_(list(requests)))))


@contextmanager
def renewed(renewal: Callable[[], None]) -> Iterator[None]:
    """Call ``renewal`` now and then from a thread of this process, which dies with it; its failures are those of advice."""
    is_over = threading.Event()

    def go_on() -> None:
        while not is_over.wait(LIFETIME.total_seconds() / RENEWALS):
            with suppress(DpDaskError):
                renewal()

    threading.Thread(target=go_on, name="dp-dask reservation", daemon=True).start()
    try:
        yield
    finally:
        is_over.set()


def _lives(expires: str, now: datetime) -> bool:
    # One that lies further ahead than any could was made by a clock that has been put back since.
    return now < datetime.fromisoformat(expires) <= now + 2 * LIFETIME
