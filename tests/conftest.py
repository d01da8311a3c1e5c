"""Settings for all tests, and a server that any may use."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings
from servers import PostgreSQL, missing_postgresql, postgresql

# A busy machine is slow now and then: time is the benchmark's business, not the tests'.
settings.register_profile("dp_dask", deadline=None)
settings.load_profile("dp_dask")

# A shell's background jobs ignore Ctrl-C, and so would every process that a test starts and interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[PostgreSQL]:
    missing = missing_postgresql()
    if missing:
        pytest.skip(missing)
    with postgresql() as server:
        yield server
