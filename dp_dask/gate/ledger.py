"""Ledger: the data sets' budgets, as one append-only, hash-chained journal in a database.

Every entry carries the running totals of its data set, so that a balance is one row, and the digest of the
entry before it, so that ``verify`` finds an entry that was edited, removed or moved. A charge and its noisy
values are one entry; the entries of a run are written in one transaction, before anything is shown. A
crash before it leaves nothing charged and nothing seen; after it, the next run finds the release and reuses it.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from pydantic import TypeAdapter

from dp_dask.core.privacy import Neighbours, exact_epsilon
from dp_dask.core.release import INSECURE, Release, Request
from dp_dask.errors import BudgetError, ConfigError, LedgerError
from dp_dask.gate import journal
from dp_dask.gate.journal import Balance

__all__ = ["Balance", "Ledger"]

SCHEMA_VERSION = 1
INIT = "dp-dask ledger init FILE --epsilon E"
release_json = TypeAdapter(Release)
request_json = TypeAdapter(Request)


class Ledger:
    """A journal behind a SQLAlchemy URL: an SQLite file for one coordinator, PostgreSQL for many."""

    def __init__(self, url: str) -> None:
        self._engine = _engine(url)
        self._name = self._engine.url.render_as_string(hide_password=True)

    def exists(self) -> bool:
        """Tell whether the ledger has been made; makes nothing."""
        url = self._engine.url
        if url.get_backend_name() == "sqlite" and not (url.database and Path(url.database).is_file()):
            return False
        with self._errors(), self._engine.connect() as connection:
            return sa.inspect(connection).has_table(journal.entries.name)

    def open_dataset(self, dataset: str, neighbours: Neighbours, epsilon: Decimal, *, who: str, why: str) -> Balance:
        """Make the ledger where there is none, and give a new data set its first budget; a repeat changes nothing.

        Raises LedgerError where the data set is there with another budget or neighbouring relation.
        """
        epsilon = exact_epsilon(epsilon)
        url = self._engine.url
        if url.get_backend_name() == "sqlite" and url.database:
            _make_private_file(Path(url.database), self._name)
        with self._errors():
            journal.metadata.create_all(self._engine)
        with self._transaction() as connection:
            if connection.execute(sa.select(journal.about.c.salt)).first() is None:
                connection.execute(journal.about.insert().values(schema_version=SCHEMA_VERSION, salt=secrets.token_hex(16)))
            balance = journal.balance(connection, dataset)
            if balance is None:
                new = Balance(dataset, neighbours, granted=epsilon, spent=Decimal(0))
                journal.append(connection, new, "open", epsilon, who=who, why=why)
                return new
        if balance.neighbours is not neighbours or balance.granted != epsilon:
            msg = (
                f"data set {dataset!r} is open already with epsilon {balance.granted} under {balance.neighbours}, "
                f"not {epsilon} under {neighbours}; add budget with: dp-dask ledger grant"
            )
            raise LedgerError(msg)
        return balance

    def grant(self, dataset: str, epsilon: Decimal, *, who: str, why: str) -> Balance:
        """Add to a data set's budget; raises BudgetError where it has none yet."""
        epsilon = exact_epsilon(epsilon)
        self._require()
        with self._transaction() as connection:
            old = _known(connection, dataset)
            new = replace(old, granted=old.granted + epsilon)
            journal.append(connection, new, "grant", epsilon, who=who, why=why)
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

    def digest(self, request: Request, version: str) -> str:
        """Identify a request on a data version; salted, so that nobody can try out file sizes against it."""
        with self._errors(), self._engine.connect() as connection:
            salt = connection.execute(sa.select(journal.about.c.salt)).scalar_one()
        content = request_json.dump_json(request) + b"\n" + version.encode()
        return hashlib.sha256(salt.encode() + b"\n" + content).hexdigest()

    def find(self, digest: str) -> Release | None:
        """Return the release that a request has had, if any."""
        with self._errors(), self._engine.connect() as connection:
            return _find(connection, digest)

    def check_affordable(self, dataset: str, neighbours: Neighbours, epsilon: Decimal) -> Balance:
        """Raise BudgetError unless a charge would be accepted now; charges nothing."""
        balance = self.balance(dataset)
        _check_charge(balance, neighbours, epsilon)
        return balance

    def commit(self, charges: Sequence[tuple[str, Release]], *, who: str, why: str) -> list[Release]:
        """Write charges and noisy values in one transaction; return what may be shown.

        A request that another run has committed meanwhile gets that run's release, and nothing is charged for it. The budget
        is checked again under the lock; where it does not cover all that is new, nothing is written and BudgetError raised.
        """
        if any(release.sampler == INSECURE for _, release in charges):
            msg = "a release with seeded noise protects nobody and is never written to a ledger"
            raise LedgerError(msg)
        with self._transaction() as connection:
            shown: dict[str, Release] = {}
            new: dict[str, Release] = {}
            for digest, release in charges:
                found = _find(connection, digest)
                if found is None:
                    found = new.setdefault(digest, release)
                shown[digest] = found
            for digest, release in new.items():
                request = release.request
                old = _known(connection, request.dataset)
                _check_charge(old, request.neighbours, request.epsilon)
                journal.append(
                    connection,
                    replace(old, spent=old.spent + request.epsilon),
                    "charge",
                    request.epsilon,
                    who=who,
                    why=why,
                    request=digest,
                    release=release_json.dump_json(release).decode(),
                )
        return [shown[digest] for digest, _ in charges]

    def verify(self) -> int:
        """Recompute every digest and running total; return the number of entries, or raise LedgerError at the first fault."""
        self._require()
        with self._errors(), self._engine.connect() as connection:
            rows = connection.execute(journal.entries.select().order_by(journal.entries.c.seq)).mappings().all()
        fault = journal.first_fault(map(dict, rows))
        if fault is not None:
            msg = f"{self._name}: entry {fault} was edited, removed or moved; restore a backup before any further release"
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
            text = str(error.orig).lower()
            is_busy = "locked" in text or "lock timeout" in text
            kind = (
                "locked by another run; wait for it to end, or look for one that hangs"
                if is_busy
                else "cannot be reached or read"
            )
        except sa.exc.SQLAlchemyError as error:
            kind = f"not a ledger that this version can use ({type(error).__name__})"
        if kind:
            msg = f"{self._name}: {kind}; nothing was charged"
            raise LedgerError(msg)

    @contextmanager
    def _transaction(self) -> Iterator[sa.Connection]:
        """Hold the whole journal: one writer at a time, all or nothing."""
        with self._errors(), self._engine.connect() as connection:
            if connection.dialect.name == "sqlite":
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            else:
                connection.exec_driver_sql("SET LOCAL lock_timeout = '10s'")
                connection.exec_driver_sql(f"LOCK TABLE {journal.entries.name} IN SHARE ROW EXCLUSIVE MODE")
            yield connection
            connection.commit()


def _engine(url: str) -> sa.Engine:
    kind = ""
    try:
        engine = sa.create_engine(url)
        if engine.dialect.name not in ("sqlite", "postgresql"):
            kind = f"is for {engine.dialect.name}"
    except sa.exc.ArgumentError:
        kind = "is not a database URL"
    except (sa.exc.NoSuchModuleError, ModuleNotFoundError):
        kind = "needs a driver that is not installed (for PostgreSQL: pip install 'dp-dask[postgresql]')"
    if kind:
        msg = f"the URL {kind}; use sqlite:///FILE or postgresql+psycopg://USER@HOST/DATABASE"
        raise ConfigError.of("ledger", msg)
    if engine.dialect.name == "sqlite":
        # The driver's own transactions begin too late for a check and a write to be one step.
        @sa.event.listens_for(engine, "connect")
        def _(connection: Any, _record: Any) -> None:
            connection.isolation_level = None

    return engine


def _make_private_file(path: Path, name: str) -> None:
    if path.exists():
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        msg = f"{name}: cannot be made ({error.strerror}); choose a folder that you may write to"
        raise LedgerError(msg) from None


def _known(connection: sa.Connection, dataset: str) -> Balance:
    balance = journal.balance(connection, dataset)
    if balance is None:
        msg = f"data set {dataset!r} has no budget in this ledger; a data steward gives it one with: {INIT}"
        raise BudgetError(msg)
    return balance


def _check_charge(balance: Balance, neighbours: Neighbours, epsilon: Decimal) -> None:
    if neighbours is not balance.neighbours:
        msg = (
            f"data set {balance.dataset!r} was opened under {balance.neighbours}, this run is under {neighbours}; "
            "epsilons of the two do not add up: use one relation for a data set"
        )
        raise BudgetError(msg)
    if epsilon > balance.left:
        msg = (
            f"data set {balance.dataset!r}: this run asks for epsilon {epsilon}, {balance.left} is left "
            f"({balance.spent} of {balance.granted} spent); lower epsilon, or ask the data steward for: dp-dask ledger grant"
        )
        raise BudgetError(msg)


def _find(connection: sa.Connection, digest: str) -> Release | None:
    stored = connection.execute(sa.select(journal.entries.c.release).where(journal.entries.c.request == digest)).scalar()
    return None if stored is None else release_json.validate_json(stored)
