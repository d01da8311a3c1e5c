"""Ledger: the data sets' budgets, as one append-only, hash-chained journal in a database.

Every entry carries the running totals of its data set, so that a balance is one row, and the digest of the
entry before it, so that ``verify`` finds an entry that was edited, removed or moved. A charge and its noisy
values are one entry; the entries of a run are written in one transaction, before anything is shown. A
crash before it leaves nothing charged and nothing seen; after it, the next run finds the release and reuses it.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar, overload

import sqlalchemy as sa
from pydantic import ValidationError

from dp_dask.core.privacy import Loss, Neighbours, Unit, exact_amount, price
from dp_dask.core.release import INSECURE, Release, Request
from dp_dask.core.selected import Selection, SelectionRequest
from dp_dask.errors import BudgetError, LedgerError
from dp_dask.gate import journal
from dp_dask.gate.database import make_engine, make_private_file
from dp_dask.gate.forms import canonical, parsed, written
from dp_dask.gate.journal import Balance

__all__ = ["Balance", "Ledger"]

SCHEMA_VERSION = 1
MAKING = 7042117  # any number: PostgreSQL's name for the lock of those who make a ledger
INIT = "dp-dask ledger init FILE --epsilon E (or --rho R)"
Released = TypeVar("Released", bound=Release | Selection)


class Ledger:
    """A journal behind a SQLAlchemy URL: an SQLite file for one coordinator, PostgreSQL for many."""

    def __init__(self, url: str) -> None:
        self._engine = make_engine(url)
        # Without its query: that may hold a password too.
        self._name = self._engine.url.set(query={}).render_as_string(hide_password=True)

    def exists(self) -> bool:
        """Tell whether the ledger has been made; makes nothing."""
        url = self._engine.url
        if url.get_backend_name() == "sqlite" and not (url.database and Path(url.database).is_file()):
            return False
        with self._errors(), self._engine.connect() as connection:
            return sa.inspect(connection).has_table(journal.entries.name)

    def open_dataset(
        self, dataset: str, neighbours: Neighbours, amount: Decimal, *, unit: Unit = Unit.EPSILON, who: str, why: str
    ) -> Balance:
        """Make the ledger where there is none, and give a new data set its first budget; a repeat changes nothing.

        Raises LedgerError where the data set is there with another budget or neighbouring relation.
        """
        amount = exact_amount(amount, unit)
        url = self._engine.url
        if url.get_backend_name() == "sqlite" and url.database:
            make_private_file(Path(url.database), self._name)
        with self._transaction(make=True) as connection:
            if connection.execute(sa.select(journal.about.c.salt)).first() is None:
                connection.execute(journal.about.insert().values(schema_version=SCHEMA_VERSION, salt=secrets.token_hex(16)))
            balance = journal.balance(connection, dataset)
            if balance is None:
                new = Balance(dataset, neighbours, granted=amount, spent=Decimal(0), unit=unit)
                journal.append(connection, new, "open", amount, who=who, why=why)
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
        self._require()
        with self._transaction() as connection:
            old = _known(connection, dataset)
            if old.unit is not unit:
                msg = f"the budget of data set {dataset!r} is in {old.unit}, not in {unit}; grant with --{old.unit}"
                raise BudgetError(msg)
            new = old.with_granted(amount)
            journal.append(connection, new, "grant", amount, who=who, why=why)
        return new

    def balance(self, dataset: str) -> Balance:
        """Return a data set's budget; raises BudgetError where it has none."""
        self._require(dataset)
        with self._errors(), self._engine.connect() as connection:
            return _known(connection, dataset)

    def balances(self) -> list[Balance]:
        """Return every data set's budget, by name."""
        self._require()
        with self._errors(), self._engine.connect() as connection:
            names = (
                connection.execute(sa.select(journal.entries.c.dataset).distinct().order_by(journal.entries.c.dataset))
                .scalars()
                .all()
            )
            return [_known(connection, name) for name in names]

    def digest(self, request: Request | SelectionRequest, version: str) -> str:
        """Identify a request on a data version; salted, so that it tells nothing of file sizes without the ledger."""
        with self._errors(), self._engine.connect() as connection:
            salt = connection.execute(sa.select(journal.about.c.salt)).scalar_one()
        content = canonical(request) + b"\n" + version.encode("utf-8", "surrogateescape")
        return hashlib.sha256(salt.encode() + b"\n" + content).hexdigest()

    @overload
    def find(self, digest: str) -> Release | None: ...

    @overload
    def find(self, digest: str, kind: type[Released]) -> Released | None: ...

    def find(self, digest: str, kind: type[Any] = Release) -> Any:
        """Return the release that a request has had, if any: a ``Selection`` for a ``SelectionRequest``."""
        with self._errors(), self._engine.connect() as connection:
            return _find(connection, digest, kind)

    def check_affordable(self, dataset: str, neighbours: Neighbours, losses: Sequence[Loss]) -> Balance:
        """Raise BudgetError unless charges would be accepted now; charges nothing."""
        balance = self.balance(dataset)
        _check_charge(balance, neighbours, losses)
        return balance

    def commit(self, charges: Sequence[tuple[str, Released]], *, who: str, why: str) -> list[Released]:
        """Write charges and noisy values, or selections, in one transaction; return what may be shown.

        A request that another run has committed meanwhile gets that run's release, and nothing is charged for it. The budget
        is checked again under the lock; where it does not cover all that is new, nothing is written and BudgetError raised.
        """
        if any(release.sampler == INSECURE for _, release in charges):
            msg = "a release with seeded noise protects nobody and is never written to a ledger"
            raise LedgerError(msg)
        if not all(release.privacy_loss <= release.request.loss.amount for _, release in charges):
            msg = "a release loses more privacy than its request pays for; nothing was charged"
            raise LedgerError(msg)
        with self._transaction() as connection:
            shown: dict[str, Released] = {}
            new: dict[str, Released] = {}
            for digest, release in charges:
                found = _find(connection, digest, type(release))
                if found is None:
                    found = new.setdefault(digest, release)
                shown[digest] = found
            _check_charges(connection, [release.request for release in new.values()])
            for digest, release in new.items():
                balance = _known(connection, release.request.dataset)
                amount = release.request.loss.priced(balance.unit)
                journal.append(
                    connection,
                    balance.with_spent(amount),
                    "charge",
                    amount,
                    who=who,
                    why=why,
                    request=digest,
                    release=written(release),
                )
        return [shown[digest] for digest, _ in charges]

    def verify(self) -> int:
        """Recompute every digest and running total; return the number of entries, or raise LedgerError at the first fault."""
        self._require()
        with self._errors(), self._engine.connect() as connection:
            rows = connection.execute(journal.entries.select().order_by(journal.entries.c.seq)).mappings().all()
        fault = journal.first_fault(map(dict, rows))
        if fault is not None:
            msg = f"{self._name}: entry {fault} was edited, removed or moved; {journal.MEND}"
            raise LedgerError(msg)
        return len(rows)

    def close(self) -> None:
        """Give back the database connections."""
        self._engine.dispose()

    def _require(self, dataset: str = "DATASET") -> None:
        if not self.exists():
            msg = f"{self._name}: no ledger there; a data steward makes it and gives {dataset!r} a budget with: {INIT}"
            raise BudgetError(msg)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn the database's errors into ours; their texts quote statements and parameters."""
        kind = ""
        try:
            yield
        except sa.exc.OperationalError as error:
            # PostgreSQL's texts are in the server's language, its codes are not.
            is_busy = "locked" in str(error.orig) or getattr(error.orig, "sqlstate", "") == "55P03"
            kind = (
                "locked by another run; wait for it to end, or look for one that hangs"
                if is_busy
                else "cannot be reached or read"
            )
        except sa.exc.SQLAlchemyError as error:
            kind = f"not a ledger that this version can use ({type(error).__name__})"
        if kind:
            failure = LedgerError(f"{self._name}: {kind}; nothing is shown, and the next run pays nothing twice")
            try:
                raise failure
            finally:
                failure.__context__ = None  # the database's error quotes noisy values that were not charged

    @contextmanager
    def _transaction(self, *, make: bool = False) -> Iterator[sa.Connection]:
        """Hold the whole journal: one writer at a time, all or nothing; ``make`` its tables first where there are none."""
        with self._errors(), self._engine.connect() as connection:
            is_sqlite = connection.dialect.name == "sqlite"
            if is_sqlite:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            elif make:  # there is no table to lock yet
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({MAKING})")
            if make:
                journal.metadata.create_all(connection)
            if not is_sqlite:
                connection.exec_driver_sql(f"LOCK TABLE {journal.entries.name} IN SHARE ROW EXCLUSIVE MODE")
            yield connection
            connection.commit()


def _known(connection: sa.Connection, dataset: str) -> Balance:
    balance = journal.balance(connection, dataset)
    if balance is None:
        msg = f"data set {dataset!r} has no budget in this ledger; a data steward gives it one with: {INIT}"
        raise BudgetError(msg)
    return balance


def _check_charge(balance: Balance, neighbours: Neighbours, losses: Sequence[Loss]) -> None:
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
    asked = price(losses, balance.unit)
    if asked > balance.left:
        msg = (
            f"data set {balance.dataset!r}: this run asks for {balance.unit} {asked}, {balance.left} is left "
            f"({balance.spent} of {balance.granted} spent); lower {balance.unit}, "
            "or ask the data steward for: dp-dask ledger grant"
        )
        raise BudgetError(msg)


def _check_charges(connection: sa.Connection, requests: Sequence[Request | SelectionRequest]) -> None:
    """Raise BudgetError unless every data set's budget covers all that is asked of it."""
    asked: dict[tuple[str, Neighbours], list[Loss]] = {}
    for request in requests:
        asked.setdefault((request.dataset, request.neighbours), []).append(request.loss)
    for (dataset, neighbours), losses in asked.items():
        _check_charge(_known(connection, dataset), neighbours, losses)


def _find(connection: sa.Connection, digest: str, kind: type[Released]) -> Released | None:
    row = connection.execute(journal.entries.select().where(journal.entries.c.request == digest)).mappings().first()
    if row is None:
        return None
    journal.check_digest(row)
    with suppress(ValidationError):
        return parsed(row["release"], kind)
    msg = f"the release of entry {row['seq']} is not of this version of dp_dask"
    raise LedgerError(msg)
