"""Accounts: a data set's budget with its limits and reservations, and why it does not cover a request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

import sqlalchemy as sa

from dp_dask.core.privacy import EXACT, Loss, Neighbours, Unit, price
from dp_dask.errors import BudgetError
from dp_dask.gate import journal, reservations
from dp_dask.gate.database import INIT
from dp_dask.gate.journal import Balance
from dp_dask.gate.limits import Standing, standings, total
from dp_dask.gate.reservations import Reservation

__all__ = ["Account", "account", "known", "n_refused", "priced", "refusal"]


@dataclass(frozen=True, slots=True)
class Account:
    """A data set's budget, what running runs have reserved of it, and its limits, now."""

    balance: Balance
    reservations: tuple[Reservation, ...]
    standings: tuple[Standing, ...]

    @property
    def reserved(self) -> Decimal:
        """What running runs have reserved, of what is left."""
        return total(reservation.amount for reservation in self.reservations)


def known(connection: sa.Connection, dataset: str) -> Balance:
    """Read a data set's budget; raises BudgetError where it has none."""
    balance = journal.balance(connection, dataset)
    if balance is None:
        msg = f"data set {dataset!r} has no budget in this ledger; a data steward gives it one with: {INIT}"
        raise BudgetError(msg)
    return balance


def account(connection: sa.Connection, dataset: str, now: datetime, *, but: Sequence[str] | None = ()) -> Account:
    """Read a data set's account: without what is reserved for the requests ``but``, or for any where that is None.

    Raises BudgetError where the data set has no budget.
    """
    balance = known(connection, dataset)
    reserved = [] if but is None else reservations.live(connection, dataset, now, but=but)
    limited = standings(connection, dataset, journal.moment(connection, now), reserved)
    return Account(balance, tuple(reserved), tuple(limited))


def n_refused(connection: sa.Connection, dataset: str) -> int:
    """Count the requests that were refused."""
    of_it = (journal.entries.c.dataset == dataset) & (journal.entries.c.kind == "refused")
    return connection.execute(sa.select(sa.func.count()).select_from(journal.entries).where(of_it)).scalar_one()


def priced(balance: Balance, neighbours: Neighbours, losses: Sequence[Loss]) -> Decimal:
    """Return what losses cost in the budget's unit; raises BudgetError where it has no price or is of another relation."""
    if neighbours is not balance.neighbours:
        msg = (
            f"data set {balance.dataset!r} was opened under {balance.neighbours}, this run is under {neighbours}; "
            "epsilons of the two do not add up: use one relation for a data set"
        )
        raise BudgetError(msg)
    concentrated = [loss for loss in losses if loss.unit is Unit.RHO]
    if concentrated and balance.unit is Unit.EPSILON:
        msg = (
            f"data set {balance.dataset!r}: this run asks for {concentrated[0]}, and the budget is in epsilon; no finite epsilon "
            "bounds Gaussian noise: give epsilon in place of rho, or keep the data set under another name with a budget in rho, "
            "which serves both: dp-dask ledger init FILE --rho R; what is spent under the old name adds to it, as half its square"
        )
        raise BudgetError(msg)
    return price(losses, balance.unit)


def refusal(account: Account, asked: Decimal, who: str) -> str | None:
    """Say why the account does not cover what a requester asks for, or return None where it does."""
    balance = account.balance
    asks = f"data set {balance.dataset!r}: this run asks for {balance.unit} {asked}, "
    if asked > balance.left:
        return (
            f"{asks}{balance.left} is left ({balance.spent} of {balance.granted} spent); lower {balance.unit}, "
            "or ask the data steward for: dp-dask ledger grant"
        )
    standings = [standing for standing in account.standings if standing.limit.who in (None, who)]
    for standing in standings:
        if asked > standing.left:
            return asks + _beyond(standing, asked, balance.unit)
    ends = ", ".join(
        f"{one.amount} by {one.who} until {one.expires.isoformat(timespec='seconds')}" for one in account.reservations
    )
    for what, left, reserved in [
        ("", balance.left, account.reserved),
        *((f" of the limit {standing.limit}", standing.left, standing.reserved) for standing in standings),
    ]:
        if asked > EXACT.subtract(left, reserved):
            return (
                f"{asks}{left} is left{what}, and {reserved} of it is reserved by runs under way ({ends}, longer while they "
                f"live); wait until they end, or lower {balance.unit}"
            )
    return None


def _beyond(standing: Standing, asked: Decimal, unit: Unit) -> str:
    """Tell which limit is in the way, what is left of it, and when it renews."""
    limit, period = standing.limit, standing.period
    told = f"{standing.left} is left of the limit of {standing.amount} {limit} ({standing.spent} spent"
    steward = "or ask the data steward for: dp-dask ledger limit"
    if period is None or standing.renews is None:
        return f"{told}), which does not renew; lower {unit}, {steward}"
    start, end = (at.isoformat(timespec="minutes") for at in (period.start.astimezone(standing.renews.tzinfo), standing.renews))
    wait = "wait until then, " if asked <= standing.amount else ""
    return f"{told} since {start}), which renews at {end}; {wait}lower {unit}, {steward}"
