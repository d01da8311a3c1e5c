"""Clusters: one back end a file; a file's name is its ``kind`` in the pipeline file.

A back end is a frozen dataclass of options with one method, ``client()``, a context manager of a ready
``distributed.Client``.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["HARDENED", "Cluster"]

# Set before any cluster starts: nothing of the records on disk, in logs or behind an open port.
HARDENED = {
    "distributed.worker.memory.target": False,  # spilled data is plain text on disk
    "distributed.worker.memory.spill": False,
    "distributed.p2p.storage.disk": False,
    "distributed.diagnostics.erred-tasks.max-history": 0,  # keeps exception texts
    "distributed.diagnostics.computations.nframes": 0,
    "distributed.admin.log-length": 0,
    "distributed.admin.max-error-length": 200,
    "distributed.scheduler.http.routes": ["distributed.http.health"],
    "distributed.worker.http.routes": ["distributed.http.health"],
    "distributed.scheduler.no-workers-timeout": "10 minutes",
    "distributed.comm.retry.count": 3,
}


class Cluster(Protocol):
    """Where tasks run."""

    @property
    def stall_timeout(self) -> float:
        """Seconds without any finished task after which a stage is given up."""
        ...

    def client(self) -> AbstractContextManager[Client]:
        """Start or join the cluster, and leave it at the end; raises ClusterError."""
        ...
