"""Certs: a certificate authority for one cluster, and the certificate that its scheduler, workers and clients share."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from dp_dask.errors import ConfigError

__all__ = ["FILES", "make_certs"]

FILES = ("ca.pem", "cert.pem", "key.pem")
CLOCKS = timedelta(minutes=5)  # that other machines may be behind


def make_certs(folder: Path, days: int) -> list[Path]:
    """Write ca.pem, cert.pem and key.pem (readable by their owner alone) and return their paths; valid for ``days``.

    The authority's own key is thrown away: nothing else can ever be signed by it. The keys are elliptic, P-256.

    Raises ConfigError where a file is there already, nothing can be written, or ``cryptography`` is not installed.
    """
    try:
        from cryptography import x509  # noqa: PLC0415  (an extra)
        from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID  # noqa: PLC0415
    except ImportError:
        raise ConfigError.of("certs", "needs cryptography: pip install 'dp-dask[tls]'") from None
    now = datetime.now(UTC)

    def name(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    def begin(subject: str, public_key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        made = x509.CertificateBuilder().subject_name(name(subject)).issuer_name(name("dp-dask cluster")).public_key(public_key)
        made = made.serial_number(x509.random_serial_number())
        return made.not_valid_before(now - CLOCKS).not_valid_after(now + timedelta(days=days))

    authority, own = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    constraints = x509.BasicConstraints(ca=True, path_length=0)
    ca = (
        begin("dp-dask cluster", authority.public_key())
        .add_extension(constraints, critical=True)
        .sign(authority, hashes.SHA256())
    )
    both = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    cert = begin("dp-dask", own.public_key()).add_extension(both, critical=False).sign(authority, hashes.SHA256())
    pem = serialization.Encoding.PEM
    key = own.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return _write(folder, dict(zip(FILES, (ca.public_bytes(pem), cert.public_bytes(pem), key), strict=True)))


def _write(folder: Path, contents: dict[str, bytes]) -> list[Path]:
    problem, paths = "", [folder / name for name in contents]
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for path, content in zip(paths, contents.values(), strict=True):
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
    except FileExistsError:
        problem = "there are certificates already; choose another folder, or remove them when nothing runs with them"
    except OSError as error:
        problem = f"cannot be written to ({error.strerror}); choose another folder"
    if problem:
        raise ConfigError.of(str(folder), problem)
    return paths
