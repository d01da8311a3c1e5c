"""Clusters: one back end a file; a file's name is its ``kind`` in the pipeline file.

A back end is a frozen dataclass of options with one method, ``client()``, a context manager of a ready ``distributed.Client``.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["Cluster", "configured"]


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


def configured() -> dict[str, Any]:
    """Return the named clusters of Dask's own configuration: ``dp-dask.clusters`` in its files or environment."""
    import dask  # noqa: PLC0415  (heavy: not for --help)

    found = dask.config.get("dp-dask.clusters", {})
    return found if isinstance(found, dict) else {}
