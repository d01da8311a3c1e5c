"""Upgrades: what makes an older ledger one of this version, in place; entries keep their digests."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping

import sqlalchemy as sa

from dp_dask.errors import LedgerError
from dp_dask.gate import journal

__all__ = ["SCHEMA_VERSION", "is_current", "make", "upgrade"]

SCHEMA_VERSION = 2


def _to_2(connection: sa.Connection) -> None:
    """Give entries terms, for limits, and keep reservations beside them."""
    connection.exec_driver_sql("ALTER TABLE dp_dask_entries ADD COLUMN terms TEXT")
    columns = ", ".join(f"{name} TEXT NOT NULL" for name in ("run", "request", "dataset", "who", "amount", "expires"))
    connection.exec_driver_sql(f"CREATE TABLE dp_dask_reservations ({columns}, PRIMARY KEY (run, request))")


STEPS: Mapping[int, Callable[[sa.Connection], None]] = {1: _to_2}  # from each version to the next


def make(connection: sa.Connection) -> None:
    """Make the tables of a new ledger, where there are none."""
    if not sa.inspect(connection).has_table(journal.entries.name):
        journal.metadata.create_all(connection)
        connection.execute(journal.about.insert().values(schema_version=SCHEMA_VERSION, salt=secrets.token_hex(16)))


def is_current(connection: sa.Connection) -> bool:
    """Tell whether a ledger is of this version."""
    return _version(connection) == SCHEMA_VERSION


def upgrade(connection: sa.Connection, name: str) -> None:
    """Make an older ledger one of this version; raises LedgerError for a newer one.

    It is the transaction of the caller, who holds the journal: all steps are taken, or none.
    """
    version = _version(connection)
    if version > SCHEMA_VERSION:
        msg = (
            f"{name}: this ledger is of schema {version}, and this dp_dask knows {SCHEMA_VERSION} and older ones; "
            "install the newer dp_dask that has upgraded it; nothing was changed or charged"
        )
        raise LedgerError(msg)
    for step in range(version, SCHEMA_VERSION):
        STEPS[step](connection)
    if version != SCHEMA_VERSION:
        connection.execute(journal.about.update().values(schema_version=SCHEMA_VERSION))


def _version(connection: sa.Connection) -> int:
    return connection.execute(sa.select(journal.about.c.schema_version)).scalar_one()
