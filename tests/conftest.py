"""Settings for all tests, and a server that any may use."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from servers import PostgreSQL, missing_postgresql, postgresql

# A busy machine is slow now and then: time is the benchmark's business, not the tests'.
settings.register_profile("dp_dask", deadline=None)
settings.load_profile("dp_dask")

# A shell's background jobs ignore Ctrl-C, and so would every process that a test starts and interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Half of the time: real clusters, crashes, whole runs, calibrations. CI runs them; -m "not slow and not long" leaves them out.
LONG = (
    "audit/test_audit.py",
    "clusters/test_gateway.py",
    "clusters/test_slurm",
    "end_to_end/",
    "gate/test_ledger_crashes.py",
    "statistics/",
    "test_faults",
    "test_soak.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if str(item.path.relative_to(here)).startswith(LONG):
            item.add_marker(pytest.mark.long)


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[PostgreSQL]:
    missing = missing_postgresql()
    if missing:
        pytest.skip(missing)
    with postgresql() as server:
        yield server
