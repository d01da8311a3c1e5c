"""Database: an engine for a ledger's URL, patient and private."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from dp_dask.errors import ConfigError, LedgerError

__all__ = ["make_engine", "make_private_file"]


def make_engine(url: str) -> sa.Engine:
    """Make the engine; raises ConfigError for a URL that is none, or not of SQLite or PostgreSQL."""
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
        # The driver's own transactions begin too late for a check and a write to be one step.
        @sa.event.listens_for(engine, "connect")
        def _(connection: Any, _record: Any) -> None:
            connection.isolation_level = None

    return engine


def make_private_file(path: Path, name: str) -> None:
    """Make an SQLite file that only its owner may read, where there is none; raises LedgerError."""
    if path.exists():
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        msg = f"{name}: cannot be made ({error.strerror}); choose a folder that you may write to"
        raise LedgerError(msg) from None


def _patient(url: sa.URL) -> sa.URL:
    """Wait ten seconds for a server or a lock where the URL does not say how long."""
    if url.get_backend_name() != "postgresql":
        return url
    defaults = {"connect_timeout": "10", "options": "-c lock_timeout=10s"}
    return url.update_query_dict({key: value for key, value in defaults.items() if key not in url.query})
