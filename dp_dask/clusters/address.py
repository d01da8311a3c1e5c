"""address: a cluster that runs already, by its scheduler's address."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dp_dask.hardened.joining import check_options, joined
from dp_dask.hardened.tls import Tls, security_of

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["plugin"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The scheduler at ``address``, as ``tls://host:8786``, once it has ``workers``; it goes on when the run is over."""

    address: str
    tls: Tls | None = None
    workers: int = 1
    wait: float = 120.0
    stall_timeout: float = 1800.0
    overrides: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if "://" not in self.address:
            msg = f"address is {self.address!r}; give it with its scheme, as tls://HOST:8786"
            raise ValueError(msg)
        check_options(workers=self.workers, wait=self.wait, stall_timeout=self.stall_timeout, overrides=self.overrides)

    @contextmanager
    def client(self) -> Iterator[Client]:
        """Join it, and leave it at the end."""
        security = security_of(self.tls)
        with joined(self.address, security=security, workers=self.workers, wait=self.wait, overrides=self.overrides) as client:
            yield client


plugin = Address
