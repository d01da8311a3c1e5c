"""Ledger: the data sets' budgets, as one append-only, hash-chained journal in a database.

Every entry carries the running totals of its data set, so that a balance is one row, and the digest of the
entry before it, so that ``verify`` finds an entry that was edited, removed or moved. A charge and its noisy
values are one entry; the entries of a run are written in one transaction, before anything is shown. A
crash before it leaves nothing charged and nothing seen; after it, the next run finds the release and reuses it.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from decimal import Decimal
from typing import Any, NoReturn, TypeVar, overload

import sqlalchemy as sa

from dp_dask.core.privacy import Loss, Neighbours, Unit, exact_amount
from dp_dask.core.release import INSECURE, Release, Request
from dp_dask.core.selected import Selection, SelectionRequest
from dp_dask.core.unit import UnitOfProtection
from dp_dask.errors import BudgetError, LedgerError
from dp_dask.gate import journal, reservations
from dp_dask.gate.accounts import Account, account, known, n_refused, priced, refusal
from dp_dask.gate.charges import Refused, enter, find, sort_out, uncovered
from dp_dask.gate.database import Database
from dp_dask.gate.forms import canonical
from dp_dask.gate.journal import Balance
from dp_dask.gate.limits import Limit
from dp_dask.gate.periods import check_zone
from dp_dask.gate.replay import first_fault
from dp_dask.gate.units import other_unit

__all__ = ["Balance", "Ledger"]

Released = TypeVar("Released", bound=Release | Selection)


class Ledger:
    """A journal behind a SQLAlchemy URL: an SQLite file for one coordinator, PostgreSQL for many.

    ``clock`` tells the time, given a connection; by default the server's or this machine's.
    """

    def __init__(self, url: str, *, clock: Callable[[sa.Connection], datetime] | None = None) -> None:
        self._database = Database(url, clock)

    def exists(self) -> bool:
        """Tell whether the ledger has been made; makes nothing."""
        return self._database.exists()

    # The steward's.

    def open_dataset(
        self, dataset: str, neighbours: Neighbours, amount: Decimal, *, unit: Unit = Unit.EPSILON, who: str, why: str
    ) -> Balance:
        """Make the ledger where there is none, and give a new data set its first budget; a repeat changes nothing.

        Raises LedgerError where the data set is there with another budget or neighbouring relation.
        """
        amount = exact_amount(amount, unit)
        with self._database.writing(make=True) as connection:
            balance = journal.balance(connection, dataset)
            if balance is None:
                new = Balance(dataset, neighbours, granted=amount, spent=Decimal(0), unit=unit)
                journal.append(connection, new, "open", amount, at=self._moment(connection), who=who, why=why)
                return new
            of_opening = (journal.entries.c.dataset == dataset) & (journal.entries.c.kind == "open")
            opened = journal.read_amount(connection.execute(sa.select(journal.entries.c.epsilon).where(of_opening)).scalar_one())
        if balance.neighbours is not neighbours or opened != (unit, amount):
            asked = f"{amount}" if opened[0] is unit else f"{unit} {amount}"
            msg = (
                f"data set {dataset!r} is open already with {opened[0]} {opened[1]} under {balance.neighbours}, "
                f"not {asked} under {neighbours}; add budget with: dp-dask ledger grant"
            )
            raise LedgerError(msg)
        return balance

    def grant(self, dataset: str, amount: Decimal, *, unit: Unit = Unit.EPSILON, who: str, why: str) -> Balance:
        """Add to a data set's budget; raises BudgetError where it has none yet, or one in another unit."""
        amount = exact_amount(amount, unit)
        with self._changing(dataset, unit, "grant") as (connection, old):
            new = old.with_granted(amount)
            journal.append(connection, new, "grant", amount, at=self._moment(connection), who=who, why=why)
        return new

    def revoke(self, dataset: str, amount: Decimal, *, unit: Unit = Unit.EPSILON, who: str, why: str) -> Balance:
        """Take back what is left of a data set's budget, or some of it; raises BudgetError for more, or another unit."""
        amount = exact_amount(amount, unit)
        with self._changing(dataset, unit, "revoke") as (connection, old):
            if amount > old.left:
                told = f"{old.left} that is left ({old.spent} of {old.granted} spent)"
                msg = f"data set {dataset!r}: {unit} {amount} is more than the {told}; what is spent cannot be taken back"
                raise BudgetError(msg)
            new = old.with_revoked(amount)
            journal.append(connection, new, "revoke", amount, at=self._moment(connection), who=who, why=why)
        return new

    def limit(self, dataset: str, limit: Limit, *, unit: Unit = Unit.EPSILON, who: str, why: str) -> Account:
        """Set or lift a limit, in place of the data set's earlier one of its sort.

        Raises BudgetError for another unit, ValueError for an amount that is no exact decimal or an unknown time zone.
        """
        amount = exact_amount(limit.amount, unit) if limit.amount else Decimal(0)
        check_zone(limit.zone)
        with self._changing(dataset, None if limit.amount is None else unit, "limit") as (connection, balance):
            at = self._moment(connection)
            journal.append(connection, balance, "limit", amount, at=at, who=who, why=why, terms=limit.terms)
            return account(connection, dataset, self._database.clock(connection))

    # Questions.

    def balance(self, dataset: str) -> Balance:
        """Return a data set's budget; raises BudgetError where it has none."""
        self._database.require(dataset)
        with self._database.reading() as connection:
            return known(connection, dataset)

    def accounts(self) -> list[tuple[Account, int]]:
        """Return every data set's account, by name, and how many requests it has refused."""
        self._database.require()
        with self._database.reading() as connection:
            column = journal.entries.c.dataset
            names = connection.execute(sa.select(column).distinct().order_by(column)).scalars().all()
            now = self._database.clock(connection)
            return [(account(connection, name, now), n_refused(connection, name)) for name in names]

    def entries(self) -> list[dict[str, Any]]:
        """Return every entry as it is stored, in order: releases are JSON text."""
        self._database.require()
        with self._database.reading() as connection:
            rows = connection.execute(journal.entries.select().order_by(journal.entries.c.seq)).mappings().all()
        return [dict(row) for row in rows]

    def verify(self) -> int:
        """Recompute every digest and running total; return the number of entries, or raise LedgerError at the first fault."""
        rows = self.entries()
        fault = first_fault(rows)
        if fault is not None:
            msg = f"{self._database.name}: entry {fault} was edited, removed or moved; {journal.MEND}"
            raise LedgerError(msg)
        return len(rows)

    # The run's.

    def digest(self, request: Request | SelectionRequest, version: str) -> str:
        """Identify a request on a data version; salted, so that it tells nothing of file sizes without the ledger."""
        with self._database.reading() as connection:
            salt = connection.execute(sa.select(journal.about.c.salt)).scalar_one()
        content = canonical(request) + b"\n" + version.encode("utf-8", "surrogateescape")
        return hashlib.sha256(salt.encode() + b"\n" + content).hexdigest()

    @overload
    def find(self, digest: str) -> Release | None: ...

    @overload
    def find(self, digest: str, kind: type[Released]) -> Released | None: ...

    def find(self, digest: str, kind: type[Any] = Release) -> Any:
        """Return the release that a request has had, if any: a ``Selection`` for a ``SelectionRequest``."""
        self._database.require()
        with self._database.reading() as connection:
            return find(connection, digest, kind)

    def check_affordable(self, dataset: str, neighbours: Neighbours, losses: Mapping[str, Loss], *, who: str) -> None:
        """Raise BudgetError unless charges, by the digests of their requests, could be reserved now; writes nothing."""
        self._database.require(dataset)
        with self._database.reading() as connection:
            found = account(connection, dataset, self._database.clock(connection), but=list(losses))
        problem = refusal(found, priced(found.balance, neighbours, list(losses.values())), who)
        if problem is not None:
            raise BudgetError(problem)

    def check_unit(self, dataset: str, unit: UnitOfProtection) -> None:
        """Raise BudgetError where what the data set has paid for so far protects another unit."""
        self._database.require(dataset)
        with self._database.reading() as connection:
            problem = other_unit(connection, dataset, [unit])
        if problem:
            raise BudgetError(problem)

    @contextmanager
    def reserved(self, dataset: str, neighbours: Neighbours, losses: Mapping[str, Loss], *, who: str, why: str) -> Iterator[None]:
        """Keep the price of charges, by the digests of their requests, from other runs until this block ends.

        Raises BudgetError, and enters the refusal, where the budget does not cover them besides what others have reserved.
        """
        self._database.require(dataset)
        run = secrets.token_hex(16)
        with self._database.writing() as connection:
            now = self._database.clock(connection)
            found = account(connection, dataset, now, but=list(losses))
            asked = priced(found.balance, neighbours, list(losses.values()))
            problem = refusal(found, asked, who)
            if problem is None:
                unit = found.balance.unit
                prices = {digest: loss.priced(unit) for digest, loss in losses.items()}
                reservations.reserve(connection, dataset, unit, prices, run=run, who=who, now=now)
        if problem is not None:
            self._refuse(Refused(dataset, asked, problem), who=who, why=why)

        def renew() -> None:
            with self._database.reading() as connection:
                reservations.renew(connection, run, self._database.clock(connection))
                connection.commit()

        try:
            with reservations.renewed(renew):
                yield
        finally:
            with suppress(LedgerError), self._database.reading() as connection:  # else it ends by itself
                reservations.end(connection, run=run)
                connection.commit()

    def commit(self, charges: Sequence[tuple[str, Released]], *, who: str, why: str) -> list[Released]:
        """Write charges and noisy values, or selections, in one transaction; return what may be shown.

        A request that another run has committed meanwhile gets that run's release, and nothing is charged for it. The budget
        is checked again under the lock; where it does not cover all that is new, BudgetError is raised and the refusal entered,
        nothing else.
        """
        if any(release.sampler == INSECURE for _, release in charges):
            msg = "a release with seeded noise protects nobody and is never written to a ledger"
            raise LedgerError(msg)
        if not all(release.privacy_loss <= release.request.loss.amount for _, release in charges):
            msg = "a release loses more privacy than its request pays for; nothing was charged"
            raise LedgerError(msg)
        with self._database.writing() as connection:
            at = self._moment(connection)
            shown, new = sort_out(connection, charges)
            refused = uncovered(connection, [release.request for release in new.values()], at, who)
            if refused is None:
                for digest, release in new.items():
                    enter(connection, digest, release, at=at, who=who, why=why)
                reservations.end(connection, requests=shown)
        if refused is not None:
            self._refuse(refused, who=who, why=why)
        return [shown[digest] for digest, _ in charges]

    def close(self) -> None:
        """Give back the database connections."""
        self._database.engine.dispose()

    def _moment(self, connection: sa.Connection) -> datetime:
        return journal.moment(connection, self._database.clock(connection))

    @contextmanager
    def _changing(self, dataset: str, unit: Unit | None, verb: str) -> Iterator[tuple[sa.Connection, Balance]]:
        """Hold the journal to change a budget in its own unit."""
        self._database.require()
        with self._database.writing() as connection:
            balance = known(connection, dataset)
            if unit not in (None, balance.unit):
                msg = f"the budget of data set {dataset!r} is in {balance.unit}, not in {unit}; {verb} with --{balance.unit}"
                raise BudgetError(msg)
            yield connection, balance

    def _refuse(self, refused: Refused, *, who: str, why: str) -> NoReturn:
        """Enter a refusal, if the database lets us, and raise it."""
        with suppress(LedgerError), self._database.writing() as connection:
            balance = known(connection, refused.dataset)
            journal.append(connection, balance, "refused", refused.amount, at=self._moment(connection), who=who, why=why)
        raise BudgetError(refused.text)
