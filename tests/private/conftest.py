"""Fixtures: an empty database for one test."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from servers import PASSWORD, PostgreSQL


@pytest.fixture
def server(postgresql_server: PostgreSQL, monkeypatch: pytest.MonkeyPatch) -> Iterator[psycopg.Connection]:
    """An empty database, whose connections libpq finds by its own means."""
    postgresql_server.emptied()
    found = {"HOST": "127.0.0.1", "PORT": str(postgresql_server.port), "USER": "dp", "PASSWORD": PASSWORD, "DATABASE": "postgres"}
    for name, value in found.items():
        monkeypatch.setenv(f"PG{name}", value)
    with psycopg.connect(postgresql_server.conninfo, autocommit=True) as connection:
        yield connection
