"""Database: a ledger's URL, patient and private; one writer at a time, and errors that quote nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from dp_dask.errors import BudgetError, ConfigError, LedgerError
from dp_dask.gate import journal, upgrades
from dp_dask.gate.file_systems import network_file_system

__all__ = ["INIT", "Database"]

MAKING = 7042117  # any number: PostgreSQL's name for the lock of those who make a ledger
INIT = "dp-dask ledger init FILE --epsilon E (or --rho R)"
# A crash must not undo a commit whose release has been shown, whatever a server's default; what is stricter than "on" stays.
SYNCHRONOUS = "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'"
LOCK_NOT_AVAILABLE = "55P03"  # PostgreSQL's code
FULL = "its disk is full; make room there, and run again"
READ_ONLY = "it is read-only; see to the rights of a file and its folder and how their disk is mounted, or to the server's role"
TOLD = {  # by PostgreSQL's codes, and SQLite's names for what is an operational error too
    "42501": "this user's rights in the database do not suffice",
    "53100": FULL,
    "SQLITE_FULL": FULL,
    "25006": READ_ONLY,
    "SQLITE_READONLY": READ_ONLY,
}


class Database:
    """An SQLite file for one coordinator, PostgreSQL for many; raises ConfigError for a URL that is neither.

    ``clock`` tells the time, given a connection: by default the server's, so that all coordinators have one, or this machine's.
    """

    def __init__(self, url: str, clock: Callable[[sa.Connection], datetime] | None = None) -> None:
        self.engine = _make_engine(url)
        # Without its query: that may hold a password too.
        self.name = self.engine.url.set(query={}).render_as_string(hide_password=True)
        self.clock = clock or _clock
        self._is_current = False

    def exists(self) -> bool:
        """Tell whether the ledger has been made; makes nothing."""
        url = self.engine.url
        if url.get_backend_name() == "sqlite" and not (url.database and Path(url.database).is_file()):
            return False
        with self.errors(), self.engine.connect() as connection:
            return sa.inspect(connection).has_table(journal.entries.name)

    def require(self, dataset: str = "DATASET") -> None:
        """Raise BudgetError where there is no ledger; upgrade an older one."""
        if self._is_current:
            return
        if not self.exists():
            msg = f"{self.name}: no ledger there; a data steward makes it and gives {dataset!r} a budget with: {INIT}"
            raise BudgetError(msg)
        with self.errors(), self.engine.connect() as connection:
            self._is_current = upgrades.is_current(connection)
        if not self._is_current:
            with self.writing():
                self._is_current = True

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """Give a connection to read with."""
        with self.errors(), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self, *, make: bool = False) -> Iterator[sa.Connection]:
        """Hold the whole journal: one writer at a time, all or nothing; ``make`` it first where there is none."""
        url = self.engine.url
        if make and url.get_backend_name() == "sqlite" and url.database:
            self._make_private_file(Path(url.database))
        with self.errors(), self.engine.connect() as connection:
            is_sqlite = connection.dialect.name == "sqlite"
            if is_sqlite:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            elif make:  # there is no table to lock yet
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({MAKING})")
            if make:
                upgrades.make(connection)
            if not is_sqlite:
                connection.exec_driver_sql(f"LOCK TABLE {journal.entries.name} IN SHARE ROW EXCLUSIVE MODE")
                connection.exec_driver_sql(SYNCHRONOUS)
            upgrades.upgrade(connection, self.name)
            yield connection
            connection.commit()

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn the database's errors into ours; their texts quote statements and parameters."""
        kind = ""
        try:
            yield
        except sa.exc.SQLAlchemyError as error:
            kind = _told(error)
        if kind:
            failure = LedgerError(f"{self.name}: {kind}; nothing is shown, and the next run pays nothing twice")
            try:
                raise failure
            finally:
                failure.__context__ = None  # the database's error quotes noisy values that were not charged

    def _make_private_file(self, path: Path) -> None:
        """Make an SQLite file that only its owner may read, where there is none; raises LedgerError."""
        if path.exists():
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        except OSError as error:
            msg = f"{self.name}: cannot be made ({error.strerror}); choose a folder that you may write to"
            raise LedgerError(msg) from None


def _told(error: sa.exc.SQLAlchemyError) -> str:
    # PostgreSQL's texts are in the server's language, its codes are not.
    cause = getattr(error, "orig", None)
    code = getattr(cause, "sqlstate", "") or getattr(cause, "sqlite_errorname", "")
    for known, told in TOLD.items():
        if code and code.startswith(known):
            return told
    if not isinstance(error, sa.exc.OperationalError):
        return f"not a ledger that this version can use ({type(error).__name__})"
    if "locked" in str(error.orig) or code == LOCK_NOT_AVAILABLE:
        return "locked by another run; wait for it to end, or look for one that hangs"
    return "cannot be reached or read"


def _clock(connection: sa.Connection) -> datetime:
    if connection.dialect.name == "sqlite":
        return datetime.now(UTC)
    return connection.exec_driver_sql("SELECT clock_timestamp()").scalar_one()


def _make_engine(url: str) -> sa.Engine:
    kind = ""
    try:
        # A pooled connection would be dead when an hour of reading is over.
        engine = sa.create_engine(_patient(sa.make_url(url)), poolclass=sa.NullPool)
        if engine.dialect.name not in ("sqlite", "postgresql"):
            kind = f"is for {engine.dialect.name}"
    except (sa.exc.ArgumentError, ValueError, TypeError):
        kind = "is not a database URL"
    except (sa.exc.NoSuchModuleError, ModuleNotFoundError):
        kind = "needs a driver that is not installed (for PostgreSQL: pip install 'dp-dask[postgresql]')"
    if kind:
        msg = f"the URL {kind}; use sqlite:///FILE or postgresql+psycopg://USER@HOST/DATABASE"
        raise ConfigError.of("ledger", msg)
    if engine.dialect.name == "sqlite":
        _check_local(engine.url.database)
        sa.event.listen(engine, "connect", _careful)
    return engine


def _check_local(database: str | None) -> None:
    kind = network_file_system(Path(database)) if database else None
    if kind:
        msg = (
            f"{database} is on {kind}, a network's file system, on which SQLite's locks may let two runs spend the same budget; "
            "put it on a local disk, or use PostgreSQL: postgresql+psycopg://USER@HOST/DATABASE"
        )
        raise ConfigError.of("ledger", msg)


def _careful(connection: Any, _record: Any) -> None:
    # The driver's own transactions begin too late for a check and a write to be one step.
    connection.isolation_level = None
    # So that a power cut undoes no commit: FULL, the default, does not write the folder that the rollback journal left.
    connection.execute("PRAGMA synchronous = EXTRA")


def _patient(url: sa.URL) -> sa.URL:
    """Wait for a server ten seconds, for a lock ten, of an SQLite file thirty, where the URL does not say how long."""
    defaults = {"connect_timeout": "10", "options": "-c lock_timeout=10s"}
    if url.get_backend_name() == "sqlite":
        defaults = {"timeout": "30"}  # those who wait there have no queue
    elif url.get_backend_name() != "postgresql":
        return url
    return url.update_query_dict({key: value for key, value in defaults.items() if key not in url.query})
