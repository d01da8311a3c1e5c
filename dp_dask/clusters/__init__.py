"""Clusters: one back end a file; a file's name is its ``kind`` in the pipeline file.

A back end is a frozen dataclass of options with one method, ``client()``, a context manager of a ready ``distributed.Client``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from dp_dask.errors import ClusterError

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["Attended", "Cluster", "attended", "configured"]


class Cluster(Protocol):
    """Where tasks run."""

    @property
    def stall_timeout(self) -> float:
        """Seconds without any finished task after which a stage is given up."""
        ...

    @property
    def driver_sees_records(self) -> bool:
        """May names, columns and the state of the records be looked up here, or only on the workers?"""
        ...

    def client(self) -> AbstractContextManager[Client]:
        """Start or join the cluster, and leave it at the end; raises ClusterError."""
        ...


@runtime_checkable
class Attended(Cluster, Protocol):
    """A cluster whose processes all run the program that is to use it."""

    def attended(self) -> AbstractContextManager[None]:
        """Hold the cluster in the one process that drives it; in any other, serve until that leaves, and end by SystemExit."""
        ...


@contextmanager
def attended(*clusters: Cluster) -> Iterator[None]:
    """Attend what is to be attended of the clusters of a command, before anything else is done there.

    Raises ClusterError, where two are.
    """
    found = [cluster for i, cluster in enumerate(clusters) if isinstance(cluster, Attended) and cluster not in clusters[:i]]
    if len(found) > 1:
        msg = "the processes of one srun are one cluster; leave simulation_cluster out, or give both the same options"
        raise ClusterError(msg)
    if not found:
        yield
        return
    with found[0].attended():
        yield


def configured() -> dict[str, Any]:
    """Return the named clusters of Dask's own configuration: ``dp-dask.clusters`` in its files or environment."""
    import dask  # noqa: PLC0415  (heavy: not for --help)

    found = dask.config.get("dp-dask.clusters", {})
    return found if isinstance(found, dict) else {}
