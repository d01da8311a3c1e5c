"""address: a cluster that runs already, by its scheduler's address."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dp_dask.hardened.joining import Joined
from dp_dask.hardened.tls import Tls, security_of

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["plugin"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Address(Joined):
    """The scheduler at ``address``, as ``tls://host:8786``, once it has ``workers``; it goes on when the run is over."""

    address: str
    tls: Tls | None = None
    wait: float = 120.0

    def __post_init__(self) -> None:
        if "://" not in self.address:
            msg = f"address is {self.address!r}; give it with its scheme, as tls://HOST:8786"
            raise ValueError(msg)
        Joined.__post_init__(self)

    @contextmanager
    def client(self) -> Iterator[Client]:
        """Join it, and leave it at the end."""
        with self.join(self.address, security_of(self.tls)) as client:
            yield client


plugin = Address
