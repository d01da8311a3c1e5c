"""Servers: real ones on the loopback interface, for tests; they end with the session, unless that is killed."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import quote
from urllib.request import Request, urlopen

DEBIAN = Path("/usr/lib/postgresql")
PASSWORD = "planted-password"  # noqa: S105  (of a server that lives as long as the tests; they look for it in error texts)


@dataclass(frozen=True)
class PostgreSQL:
    """A running server with one database, ``postgres``, for one test at a time."""

    port: int
    data: Path
    start: Callable[[], None]
    stop: Callable[[], None]  # at once, with nothing written down first

    def url(self, password: str = PASSWORD) -> str:
        return f"postgresql+psycopg://dp:{password}@127.0.0.1:{self.port}/postgres"

    @property
    def conninfo(self) -> str:
        return f"host=127.0.0.1 port={self.port} user=dp password={PASSWORD} dbname=postgres"

    def emptied(self) -> str:
        """Empty the database, whoever is still connected to it, and return its URL."""
        import psycopg.sql

        others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'dp' AND pid <> pg_backend_pid()"
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            connection.execute(others)
            schemas = connection.execute(
                "SELECT nspname FROM pg_namespace WHERE nspname !~ '^(pg_|information_schema$)'"
            ).fetchall()
            for (schema,) in schemas:
                connection.execute(psycopg.sql.SQL("DROP SCHEMA {} CASCADE").format(psycopg.sql.Identifier(schema)))
            connection.execute("CREATE SCHEMA public")
        return self.url()

    def kill(self) -> None:
        """Kill the server; the processes of its connections see it and end."""
        os.kill(int((self.data / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)


def missing_postgresql() -> str | None:
    """Say why PostgreSQL cannot be started here, or return None."""
    if _programs() is None:
        return f"no initdb on the path or below {DEBIAN}; apt-get install -y postgresql"
    try:
        import psycopg  # noqa: F401
    except ImportError:
        return "no psycopg; pip install 'psycopg[binary]'"
    return None


@contextmanager
def postgresql(*, fsync: bool = False) -> Iterator[PostgreSQL]:
    """Start a server in a folder of its own and remove both; it refuses root, so it runs as another user there.

    With ``fsync`` it may crash, and what was committed is still there.
    """
    programs = _programs()
    assert programs is not None
    user = _other_user() if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="dp-dask-postgresql-"))
    try:
        password = folder / "password"
        password.write_text(PASSWORD, encoding="utf-8")
        if user is not None:
            for path in (folder, password):
                shutil.chown(path, user.pw_uid, user.pw_gid)
        data = folder / "data"
        secure = ["--auth-local=trust", "--auth-host=scram-sha-256", f"--pwfile={password}"]
        _call([programs / "initdb", "-D", data, "-U", "dp", *secure, "-E", "UTF8", "--no-locale", "-N"], folder, user)
        port = _free_port()
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": port,
            "unix_socket_directories": folder,
            "fsync": "on" if fsync else "off",
            "shared_buffers": "16MB",
            "max_connections": 120,
        }
        options = " ".join(f"-c {name}={value}" for name, value in settings.items())
        control = [programs / "pg_ctl", "-D", data, "-w", "-l", folder / "log"]
        start = partial(_call_again, [*control, "-o", options, "start"], folder, user)
        stop = partial(_call, [*control, "-m", "immediate", "stop"], folder, user)
        start()
        try:
            yield PostgreSQL(port, data, start, stop)
        finally:
            stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


SECRETS = {"AWS_ACCESS_KEY_ID": "AKIAPLANTEDKEY7731", "AWS_SECRET_ACCESS_KEY": "planted/secret/7731+of/the/tests"}


@dataclass(frozen=True)
class S3:
    """A running object store that speaks S3, with one bucket, ``records``; any key opens it unless it is ``guarded``."""

    port: int

    @property
    def options(self) -> dict[str, str]:
        return {"endpoint": f"127.0.0.1:{self.port}", "scheme": "http", "region": "us-east-1"}

    def uri(self, prefix: str) -> str:
        return f"s3://records/{prefix}?" + "&".join(f"{key}={value}" for key, value in self.options.items())

    def put(self, key: str, data: bytes, kind: str = "application/octet-stream") -> None:
        self._send("PUT", f"/records/{quote(key)}", data, kind)

    def upload(self, folder: Path, prefix: str) -> None:
        """Put a folder's files below a prefix, and a marker for each folder, as some writers do."""
        for path in sorted(folder.rglob("*")):
            key = f"{prefix}/{path.relative_to(folder)}"
            if path.is_dir():
                self.put(f"{key}/", b"")
            else:
                self.put(key, path.read_bytes())

    @contextmanager
    def guarded(self, allowed: int = 0) -> Iterator[None]:
        """Refuse every key after so many requests, as there is no user."""
        self._send("POST", "/moto-api/reset-auth", str(allowed).encode())
        try:
            yield
        finally:
            self._send("POST", "/moto-api/reset-auth", b"inf")

    def _send(self, method: str, path: str, data: bytes, kind: str = "text/plain") -> None:
        url = f"http://127.0.0.1:{self.port}{path}"
        owner = f"AWS4-HMAC-SHA256 Credential={SECRETS['AWS_ACCESS_KEY_ID']}/20260101/us-east-1/s3/aws4_request"
        headers = {"Content-Type": kind, "Authorization": owner}  # not signed: the server asks for no more
        with urlopen(Request(url, data, headers, method=method)):
            pass


@contextmanager
def s3() -> Iterator[S3]:
    """Start a server that keeps all in memory, with credentials for it in the environment."""
    port = _free_port()
    words = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    before = {name: os.environ.get(name) for name in (*SECRETS, "AWS_EC2_METADATA_DISABLED")}
    os.environ.update(SECRETS, AWS_EC2_METADATA_DISABLED="true")
    try:
        server = S3(port)
        for _ in range(600):
            with suppress(OSError):
                server._send("PUT", "/records", b"")
                break
            time.sleep(0.05)
        yield server
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
        process.kill()
        process.wait()


def _programs() -> Path | None:
    found = shutil.which("initdb")
    if found:
        return Path(found).parent
    folders = sorted(DEBIAN.glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return folders[-1].parent if folders else None


def _other_user() -> pwd.struct_passwd:
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    return known.get("postgres") or known["nobody"]


def _call(command: list[object], folder: Path, user: pwd.struct_passwd | None) -> None:
    identity = {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    with (folder / "output").open("w+", encoding="utf-8") as output:  # a pipe would stay open as long as the server
        done = subprocess.run(
            list(map(str, command)), cwd=folder, stdout=output, stderr=output, timeout=60, check=False, **identity
        )
        if done.returncode:
            output.seek(0)
            msg = f"{command[0]} failed: {output.read()}"
            raise RuntimeError(msg)


def _call_again(command: list[object], folder: Path, user: pwd.struct_passwd | None) -> None:
    """Call until it works: a killed server's processes need a moment to end, and until then no other may start."""
    until = time.monotonic() + 20
    while True:
        try:
            return _call(command, folder, user)
        except RuntimeError:
            if time.monotonic() > until:
                raise
        time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
