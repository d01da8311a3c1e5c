"""Opened: a run's clusters, started or joined when first needed, and the place from which its records are looked at."""

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
    """A context of the cluster beside the records and the one that simulates, which may be the same; each has one client at most.

    They are left in the reverse of the order in which they were entered, as Dask's settings ask for, at the end or by ``close``.
    """

    def __init__(self, cluster: Cluster, simulates_on: Cluster | None = None) -> None:
        self._cluster, self._simulates_on = cluster, simulates_on or cluster
        self._stack = ExitStack()
        self._clients: list[tuple[Cluster, Client]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        self._clients.clear()
        return self._stack.__exit__(kind, error, traceback)

    def client(self) -> Client:
        """Return the client beside the records; the first time its cluster is started or joined, which raises ClusterError."""
        return self._client(self._cluster)

    def simulating(self) -> Client:
        """Return the client for simulations, likewise."""
        return self._client(self._simulates_on)

    def look(self, work: Callable[[], T], /) -> T:
        """Do a source's work here where the driver sees the records, and otherwise on a worker."""
        if self._cluster.driver_sees_records:
            return work()
        return from_worker(self.client(), self._cluster.stall_timeout)(work)

    def close(self) -> None:
        """Leave the clusters."""
        self._clients.clear()
        self._stack.close()

    def _client(self, cluster: Cluster) -> Client:
        for known, client in self._clients:
            if known is cluster:
                return client
        client = self._stack.enter_context(cluster.client())
        self._clients.append((cluster, client))
        return client
