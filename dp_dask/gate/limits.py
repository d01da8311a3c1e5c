"""Limits: what of a data set's budget may be spent in a period, or by one requester; entries of the journal like all else."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation
from functools import reduce
from typing import Any
from zoneinfo import ZoneInfo

import sqlalchemy as sa

from dp_dask.core.privacy import EXACT
from dp_dask.errors import LedgerError
from dp_dask.gate import journal
from dp_dask.gate.periods import Per, Period, period_at
from dp_dask.gate.reservations import Reservation

__all__ = ["Limit", "Standing", "in_force", "limits", "read_limit", "standings", "total"]


@dataclass(frozen=True, slots=True)
class Limit:
    """At most ``amount``, in the budget's unit, of each period ``per`` in a time zone, or of all that ``who`` spends.

    An amount of 0 allows nothing; None lifts the limit. Raises ValueError unless it is of a period or of a requester.
    """

    amount: Decimal | None
    per: Per | None = None
    zone: str = "UTC"
    who: str | None = None

    def __post_init__(self) -> None:
        if (self.per is None) is (self.who is None):
            msg = "a limit is of a period or of a requester, one of the two"
            raise ValueError(msg)

    @property
    def sort(self) -> tuple[Per | None, str | None]:
        """What a later limit must share with this one to take its place."""
        return self.per, self.who

    @property
    def terms(self) -> str:
        """The JSON that says of what this is a limit."""
        of = {"per": str(self.per), "zone": self.zone} if self.per else {"who": self.who}
        return json.dumps(of | ({"lifted": True} if self.amount is None else {}))

    def __str__(self) -> str:
        return f"of each {self.per} in {self.zone}" if self.per else f"of what {self.who} may spend"


@dataclass(frozen=True, slots=True)
class Standing:
    """What has been spent and reserved of a limit, now; ``period`` is the present one of a limit that renews."""

    limit: Limit
    amount: Decimal
    spent: Decimal
    reserved: Decimal
    period: Period | None

    @property
    def left(self) -> Decimal:
        """What may still be spent: nothing where the limit was set below what was spent already."""
        return max(Decimal(0), EXACT.subtract(self.amount, self.spent))

    @property
    def renews(self) -> datetime | None:
        """When the present period is over, in the limit's time zone."""
        return None if self.period is None else self.period.end.astimezone(ZoneInfo(self.limit.zone))


def read_limit(row: Any) -> Limit:
    """Read the limit that an entry sets; raises LedgerError where it was edited."""
    try:
        terms = json.loads(row["terms"])
        amount = None if terms.pop("lifted", False) else journal.read_amount(row["epsilon"])[1]
        per = terms.pop("per", None)
        return Limit(amount, per=per and Per(per), **terms)
    except (TypeError, ValueError, AttributeError, InvalidOperation):
        msg = f"entry {row['seq']} is no limit of this version of dp_dask"
    raise LedgerError(msg)


def in_force(given: Iterable[Limit]) -> list[Limit]:
    """Keep the last limit of each sort, and of those the ones that limit."""
    return [limit for limit in {limit.sort: limit for limit in given}.values() if limit.amount is not None]


def limits(connection: sa.Connection, dataset: str) -> list[Limit]:
    """Read a data set's limits that are in force."""
    entries = journal.entries
    query = entries.select().where(entries.c.dataset == dataset, entries.c.kind == "limit").order_by(entries.c.seq)
    rows = connection.execute(query).mappings().all()
    for row in rows:
        journal.check_digest(row)
    return in_force(map(read_limit, rows))


def standings(
    connection: sa.Connection, dataset: str, moment: datetime, reservations: Sequence[Reservation] = ()
) -> list[Standing]:
    """Read what is spent of each limit at a moment; add what is reserved of it."""
    return [_standing(connection, dataset, limit, moment, reservations) for limit in limits(connection, dataset)]


def _standing(
    connection: sa.Connection, dataset: str, limit: Limit, moment: datetime, reservations: Sequence[Reservation]
) -> Standing:
    assert limit.amount is not None  # noqa: S101  (those in force have one)
    charges = journal.entries.c
    period = None
    reserved = [reservation.amount for reservation in reservations if limit.who in (None, reservation.who)]
    if limit.per is not None:
        try:
            period = period_at(moment, limit.per, limit.zone)
        except ValueError as error:
            msg = f"data set {dataset!r} has a limit {limit}; {error}"
            raise LedgerError(msg) from None
        condition = charges.at >= journal.written_time(period.start)
    else:
        condition = charges.who == limit.who
    query = sa.select(charges.epsilon).where(charges.dataset == dataset, charges.kind == "charge", condition)
    spent = [journal.read_amount(text)[1] for text in connection.execute(query).scalars()]
    return Standing(limit, limit.amount, total(spent), total(reserved), period)


def total(amounts: Iterable[Decimal]) -> Decimal:
    """Add amounts exactly."""
    return reduce(EXACT.add, amounts, Decimal(0))
