"""gateway: a cluster that a Dask Gateway server starts for this run, and stops after it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dp_dask.errors import ClusterError
from dp_dask.hardened.joining import Joined, free_half_made, quiet
from dp_dask.hardened.tls import is_local

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["plugin"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway(Joined):
    """``workers`` workers of the server at ``address``; ``options`` are the cluster options that the server offers.

    Who you are comes from Dask's own configuration (``gateway.auth``) and environment, never from the file.
    """

    address: str
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        Joined.__post_init__(self)
        if not (self.address.startswith("https://") or (self.address.startswith("http://") and is_local(self.address))):
            msg = f"address is {self.address!r}; give https://HOST, as what is sent there says who you are"
            raise ValueError(msg)

    @contextmanager
    def client(self) -> Iterator[Client]:
        """Ask for a cluster, and give it back at the end."""
        quiet()
        with ExitStack() as stack:
            kind, cluster = "", None
            try:
                from dask_gateway import Gateway as Server  # noqa: PLC0415  (an extra)

                server = Server(self.address)
                stack.callback(_close, server)
                cluster = server.new_cluster(**self.options, shutdown_on_close=True)
                stack.callback(_close, cluster.gateway)
                stack.callback(cluster.close)
                cluster.scale(self.workers)
            except ImportError:
                kind = "ImportError"
            except Exception as error:  # noqa: BLE001
                kind = type(error).__name__
            if kind == "ImportError":
                msg = "a gateway needs dask-gateway: pip install 'dp-dask[gateway]'"
                raise ClusterError(msg)
            if kind or cluster is None:
                free_half_made()
                msg = f"{self.address}: no cluster was started ({kind}); look at the address, your rights and the options"
                raise ClusterError(msg)
            with self.join(cluster, cluster.security) as client:
                yield client


def _close(server: Any) -> None:
    """Close a connection, whose destructor would then complain that its loop is closed (dask-gateway 2026.3)."""
    with suppress(RuntimeError):  # it is closed already, with its cluster
        server.close()
    server._asynchronous = True  # noqa: SLF001  (of what is asynchronous the destructor asks nothing)


plugin = Gateway
