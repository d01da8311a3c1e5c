"""A stand-in for the API server of Kubernetes: HTTPS on the loopback interface, bearer tokens, and what a role allows."""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

TOKEN = "planted-token"  # noqa: S105  (tests look for it in error texts)


@dataclass
class Api:
    """What it holds, by path, what it was asked, and the answers that it is told to give in place of its own."""

    url: str = ""
    held: dict[str, Any] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    posted: list[dict[str, Any]] = field(default_factory=list)
    refuse: dict[str, int] = field(default_factory=dict)  # method: status


@contextmanager
def serving(folder: Path, held: dict[str, Any]) -> Iterator[Api]:
    """Serve objects, and write a service account of it into the folder."""
    authority, both = certificate(folder)
    for name, text in {"token": TOKEN, "namespace": "dp-dask", "ca.crt": authority.read_text()}.items():
        (folder / name).write_text(text + "\n")
    api = Api(held=dict(held))

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            method, path = self.command, self.path
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or "null")
            api.asked.append((method, path))
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                status, told = 401, {"message": "Unauthorized"}
            elif method in api.refuse:
                status, told = api.refuse[method], {"message": "as the test says"}
            elif method == "POST":
                api.posted.append(body)
                path = f"{path}/{body['metadata']['name']}"
                status, told = (409, {}) if path in api.held else (201, body)
                api.held.setdefault(path, body)
            else:
                status, told = (200, api.held[path]) if path in api.held else (404, {"message": "not found"})
                if method == "DELETE":
                    api.held.pop(path, None)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(told).encode())

        do_GET = do_POST = do_DELETE = answer  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(both)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    api.url = f"https://127.0.0.1:{server.server_address[1]}"
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()


def certificate(folder: Path) -> tuple[Path, Path]:
    """Write a certificate for 127.0.0.1 that signs itself, and with its key; the authority is the certificate."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key, now = ec.generate_private_key(ec.SECP256R1()), dt.datetime.now(dt.UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubernetes")])
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(1).not_valid_before(now - dt.timedelta(1)).not_valid_after(now + dt.timedelta(1))
    made = made.add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
    pem = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True).sign(key, hashes.SHA256())
    public = pem.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "authority.pem").write_bytes(public)
    (folder / "server.pem").write_bytes(private + public)
    return folder / "authority.pem", folder / "server.pem"
