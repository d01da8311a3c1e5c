"""Opened: a pipeline's cluster, started or joined when it is first needed, and the place from which its records are looked at."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self, TypeVar

from dp_dask.clusters import Cluster
from dp_dask.private.looking import from_worker

if TYPE_CHECKING:
    from types import TracebackType

    from distributed import Client

__all__ = ["Opened"]

T = TypeVar("T")


class Opened:
    """A context in which ``cluster`` has one client at most; ``close`` leaves it before the context ends."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._stack = cluster, ExitStack()
        self._client: Client | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        self._client = None
        return self._stack.__exit__(kind, error, traceback)

    def client(self) -> Client:
        """Return the client; the first time the cluster is started or joined for it, which raises ClusterError."""
        if self._client is None:
            self._client = self._stack.enter_context(self._cluster.client())
        return self._client

    def look(self, work: Callable[[], T], /) -> T:
        """Do a source's work here where the driver sees the records, and otherwise on a worker."""
        if self._cluster.driver_sees_records:
            return work()
        return from_worker(self.client(), self._cluster.stall_timeout)(work)

    def close(self) -> None:
        """Leave the cluster."""
        self._client = None
        self._stack.close()
