"""Joining: a client of a cluster, once its workers are there and it is seen to be hardened."""

from __future__ import annotations

import gc
import logging
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dp_dask.errors import ClusterError
from dp_dask.hardened.profile import ENCRYPTION, OF_SCHEDULER, OF_WORKERS, faults, hardened
from dp_dask.hardened.tls import check_encrypted
from dp_dask.hardened.versions import differences

if TYPE_CHECKING:
    from distributed import Client
    from distributed.security import Security

__all__ = ["VERSIONS", "Joined", "free_half_made", "joined", "quiet"]

VERSIONS = "versions"
OVERRIDES = (ENCRYPTION, VERSIONS, *dict.fromkeys([*OF_SCHEDULER, *OF_WORKERS]))
CONNECT = 30  # seconds for a scheduler to answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """The options of every cluster that is joined: how many workers to wait for and how long, in seconds, and ``overrides``.

    These name the settings that may be as they are: whoever gives them answers for them. Where the driver does not see the
    records (``driver_sees_records: false``), workers list the files for it. Raises ValueError for what cannot be.
    """

    workers: int = 1
    wait: float = 600.0
    stall_timeout: float = 1800.0
    overrides: list[str] = field(default_factory=list)
    driver_sees_records: bool = True

    def __post_init__(self) -> None:
        if self.workers < 1:
            msg = f"workers is {self.workers}; give how many to wait for, at least 1"
            raise ValueError(msg)
        for name, value in (("wait", self.wait), ("stall_timeout", self.stall_timeout)):
            if not value > 0:
                msg = f"{name} is {value}; give a number of seconds above 0"
                raise ValueError(msg)
        unknown = [each for each in self.overrides if each not in OVERRIDES]
        if unknown:
            msg = f"overrides: {unknown[0]!r} is none; known: {', '.join(OVERRIDES)}"
            raise ValueError(msg)

    def join(self, target: Any, security: Security | None, *, wait: float | None = None) -> AbstractContextManager[Client]:
        """Join an address or a cluster object, as ``joined`` does."""
        return joined(target, security=security, workers=self.workers, wait=wait or self.wait, overrides=self.overrides)


def quiet() -> None:
    """Silence Dask's own loggers, which print task arguments and exception texts; ours tell all that may be told."""
    logging.getLogger("distributed").setLevel(logging.CRITICAL)


def free_half_made() -> None:
    """Free clients that did not come about: their destructor takes a lock that the next event loop's start holds (2026.8)."""
    gc.collect()


@contextmanager
def joined(
    target: Any, *, security: Security | None, workers: int, wait: float, overrides: Collection[str] = ()
) -> Iterator[Client]:
    """Connect to an address or a cluster object, wait for its workers, and look at its settings and versions.

    Raises ClusterError where none answers, too few workers come, or anything is not as it must be and is not overridden.
    """
    import dask  # noqa: PLC0415  (heavy: not for --help)
    from distributed import Client  # noqa: PLC0415

    quiet()
    address = target if isinstance(target, str) else str(target.scheduler_address)
    if ENCRYPTION not in overrides:
        check_encrypted(address)
    with dask.config.set(hardened()):
        client, kind = None, ""
        try:
            client = Client(target, security=security, timeout=CONNECT, set_as_default=False)
        except Exception as error:  # noqa: BLE001  (OSError, TimeoutError, ssl and Dask's own: none is worth more than its name)
            kind = type(error).__name__
        if client is None:
            free_half_made()
            msg = f"{address}: no scheduler let us in within {CONNECT} s ({kind}); look at the address, network and certificates"
            raise ClusterError(msg)
        with client:
            _wait(client, address, workers, wait)
            _check(client, address, overrides)
            yield client


def _wait(client: Client, address: str, workers: int, wait: float) -> None:
    kind = ""
    try:
        client.wait_for_workers(workers, timeout=wait)
    except Exception as error:  # noqa: BLE001
        kind = type(error).__name__
    if kind:
        there = len(client.scheduler_info(n_workers=-1).get("workers", {})) if client.status == "running" else 0
        msg = (
            f"{address}: {there} of {workers} workers came within {wait:g} s ({kind}); start more, or raise wait; one that "
            "cannot write to its local directory ends at once and says so in its log"
        )
        raise ClusterError(msg)


def _check(client: Client, address: str, overrides: Collection[str]) -> None:
    kind, found = "", []
    try:
        found = [] if VERSIONS in overrides else differences(client)
        found = found or faults(client, overrides)
    except Exception as error:  # noqa: BLE001  (a worker without dp_dask cannot even be asked)
        kind = type(error).__name__
    if kind:
        msg = f"{address}: scheduler or workers could not be asked for their settings ({kind}); install the same dp_dask there"
        raise ClusterError(msg)
    if found:
        msg = (
            f"{address}: {'; '.join(found)}. Start it with the settings of deploy/dask.yaml and the same packages, "
            "or name in cluster.overrides what you answer for"
        )
        raise ClusterError(msg)
