"""TLS: who may talk to a cluster. Mutual, 1.3, with a certificate authority of its own."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from dp_dask.errors import ClusterError

if TYPE_CHECKING:
    from distributed.security import Security

__all__ = ["Tls", "check_encrypted", "is_local", "security_of"]


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files: the authority that all certificates of the cluster are signed by, and the certificate and key of this side.

    Dask takes any certificate of the authority, whatever host it names: so the authority should serve this cluster alone.
    """

    ca: Path
    cert: Path
    key: Path

    def security(self) -> Security:
        """Make Dask's settings; raises ClusterError for a file that is not there or may not be read."""
        from distributed.security import Security  # noqa: PLC0415

        for name, path in (("ca", self.ca), ("cert", self.cert), ("key", self.key)):
            if not path.is_file():
                msg = f"tls.{name}: there is no file {path}; make certificates with: dp-dask certs FOLDER"
                raise ClusterError(msg)
        cert, key = str(self.cert), str(self.key)
        return Security(
            require_encryption=True,
            tls_ca_file=str(self.ca),
            tls_min_version=ssl.TLSVersion.TLSv1_3,
            tls_client_cert=cert,
            tls_client_key=key,
            tls_scheduler_cert=cert,
            tls_scheduler_key=key,
            tls_worker_cert=cert,
            tls_worker_key=key,
        )


def security_of(tls: Tls | None) -> Security | None:
    """Make Dask's settings of a file's ``tls``; without one Dask's own configuration is asked."""
    return None if tls is None else tls.security()


def is_local(address: str) -> bool:
    """Tell whether an address can be reached from this machine alone."""
    parts = urlsplit(address)
    if parts.scheme == "inproc":
        return True
    try:
        host = parts.hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def check_encrypted(address: str) -> None:
    """Raise ClusterError for an address off this machine whose connections are not encrypted."""
    scheme = urlsplit(address).scheme
    if scheme not in {"tls", "wss", "gateway"} and not is_local(address):
        msg = (
            f"{address}: records and sums would cross the network in the clear; start the scheduler with TLS and give "
            "tls://HOST:PORT with tls: {ca, cert, key}"
        )
        raise ClusterError(msg)
