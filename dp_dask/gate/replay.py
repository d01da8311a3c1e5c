"""Replay: follow a journal from its first entry and find the first that does not follow from those before it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

from dp_dask.core.privacy import EXACT, Neighbours
from dp_dask.errors import LedgerError
from dp_dask.gate.journal import Balance, digest, read_amount
from dp_dask.gate.limits import Limit, in_force, read_limit

__all__ = ["first_fault"]


@dataclass(slots=True)
class _Book:
    """What a data set's entries amount to so far."""

    balance: Balance
    limits: list[Limit] = field(default_factory=list)
    spent_by: dict[str, Decimal] = field(default_factory=dict)


def first_fault(rows: Iterable[Mapping[str, Any]]) -> int | None:
    """Return the number of the first entry that does not follow from those before it, or None.

    Digests, order, times, totals and requesters' shares are followed. Limits of a period are not: where one begins depends on
    the rules of its time zone, and those that this machine knows may be newer than those that a charge was decided by.
    """
    previous, at = "", ""
    books: dict[str, _Book] = {}
    for seq, row in enumerate(rows, start=1):
        # The digest comes first: an edited entry may not even hold what it should.
        if row["seq"] != seq or row["previous"] != previous or row["digest"] != digest(row):
            return seq
        try:
            follows = _follow(books, row) and (row["terms"] is None or row["at"] >= at)
        except (InvalidOperation, ValueError, LedgerError):
            return seq
        if not follows:
            return seq
        previous, at = row["digest"], row["at"]
    return None


def _follow(books: dict[str, _Book], row: Mapping[str, Any]) -> bool:
    """Tell whether an entry agrees with its data set's book, and enter it there; raises for an amount that is none."""
    (unit, amount), *told = (read_amount(row[name]) for name in ("epsilon", "granted", "spent"))
    kind, neighbours = row["kind"], Neighbours(row["neighbours"])
    if not amount.is_finite() or amount < 0 or (amount == 0 and kind != "limit"):
        return False
    if (kind == "open") is (row["dataset"] in books):
        return False
    book = books.setdefault(row["dataset"], _Book(Balance(row["dataset"], neighbours, Decimal(0), Decimal(0), unit)))
    before = book.balance
    match kind:
        case "open" | "grant":
            book.balance = before.with_granted(amount)
        case "revoke":
            book.balance = before.with_revoked(amount)
        case "charge":
            book.balance = before.with_spent(amount)
            book.spent_by[row["who"]] = EXACT.add(book.spent_by.get(row["who"], Decimal(0)), amount)
        case "limit":
            book.limits = in_force([*book.limits, read_limit(row)])
        case "refused":
            pass
        case _:
            return False
    shares = [limit.amount for limit in book.limits if limit.who == row["who"] and limit.amount is not None]
    return (
        (unit, neighbours) == (before.unit, before.neighbours)
        and told == [(unit, book.balance.granted), (unit, book.balance.spent)]
        and book.balance.left >= 0
        and (kind != "charge" or all(book.spent_by[row["who"]] <= share for share in shares))
    )
