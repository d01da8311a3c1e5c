"""Charges: entries that pay for a release and hold it, and requests that the budget does not cover."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import TypeVar

import sqlalchemy as sa
from pydantic import ValidationError

from dp_dask.core.privacy import Neighbours
from dp_dask.core.release import Release, Request
from dp_dask.core.selected import Selection, SelectionRequest
from dp_dask.errors import LedgerError
from dp_dask.gate import journal
from dp_dask.gate.accounts import account, known, priced, refusal
from dp_dask.gate.forms import parsed, written
from dp_dask.gate.units import other_unit

__all__ = ["Refused", "enter", "find", "sort_out", "uncovered"]

Released = TypeVar("Released", bound=Release | Selection)


@dataclass(frozen=True, slots=True)
class Refused:
    """What was asked of a data set, and why its budget does not cover it."""

    dataset: str
    amount: Decimal
    text: str


def find(connection: sa.Connection, digest: str, kind: type[Released]) -> Released | None:
    """Return the release that a request has had, if any; raises LedgerError where it is not of this kind."""
    row = connection.execute(journal.entries.select().where(journal.entries.c.request == digest)).mappings().first()
    if row is None:
        return None
    journal.check_digest(row)
    with suppress(ValidationError):
        return parsed(row["release"], kind)
    msg = f"the release of entry {row['seq']} is not of this version of dp_dask"
    raise LedgerError(msg)


def sort_out(
    connection: sa.Connection, charges: Sequence[tuple[str, Released]]
) -> tuple[dict[str, Released], dict[str, Released]]:
    """Return what may be shown for each request, and those of them that are not paid for yet."""
    shown: dict[str, Released] = {}
    new: dict[str, Released] = {}
    for digest, release in charges:
        found = find(connection, digest, type(release))
        if found is None:
            found = new.setdefault(digest, release)
        shown[digest] = found
    return shown, new


def uncovered(
    connection: sa.Connection, requests: Sequence[Request | SelectionRequest], at: datetime, who: str
) -> Refused | None:
    """Return the first data set whose budget does not cover all that is asked of it, whatever others have reserved."""
    asked: dict[tuple[str, Neighbours], list[Request | SelectionRequest]] = {}
    for request in requests:
        asked.setdefault((request.dataset, request.neighbours), []).append(request)
    for (dataset, neighbours), own in asked.items():
        found = account(connection, dataset, at, but=None)
        amount = priced(found.balance, neighbours, [request.loss for request in own])
        problem = other_unit(connection, dataset, [request.unit for request in own]) or refusal(found, amount, who)
        if problem:
            return Refused(dataset, amount, problem)
    return None


def enter(connection: sa.Connection, digest: str, release: Release | Selection, *, at: datetime, who: str, why: str) -> None:
    """Write the charge for a release, and the release."""
    balance = known(connection, release.request.dataset)
    amount = release.request.loss.priced(balance.unit)
    after = balance.with_spent(amount)
    journal.append(connection, after, "charge", amount, at=at, who=who, why=why, request=digest, release=written(release))
