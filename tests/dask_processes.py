"""Dask processes: a scheduler and workers started by their command lines, as an operator would, and stopped again."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

SETTINGS = Path(__file__).parent.parent / "deploy" / "dask.yaml"


def environment(folder: Path, tls: Path | None, changes: dict[str, str]) -> dict[str, str]:
    """The profile that ships, the certificates of a folder, and what a test changes of them."""
    given = {key: value for key, value in os.environ.items() if not key.startswith("DASK_")}
    given |= {"DASK_CONFIG": str(SETTINGS), "DASK_TEMPORARY_DIRECTORY": str(folder)}
    if tls is None:
        given["DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION"] = "False"
        given["DASK_DISTRIBUTED__COMM__DEFAULT_SCHEME"] = "tcp"
    else:
        given["DASK_DISTRIBUTED__COMM__TLS__CA_FILE"] = str(tls / "ca.pem")
        for role in ("SCHEDULER", "WORKER", "CLIENT"):
            given[f"DASK_DISTRIBUTED__COMM__TLS__{role}__CERT"] = str(tls / "cert.pem")
            given[f"DASK_DISTRIBUTED__COMM__TLS__{role}__KEY"] = str(tls / "key.pem")
    return given | changes


def end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End processes, the last first; one that waits for another that is gone is not waited for long."""
    for process in reversed(processes):
        process.terminate()
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(2)
        process.kill()
        process.wait()


@contextlib.contextmanager
def running(
    folder: Path,
    tls: Path | None = None,
    *,
    workers: int = 1,
    nanny: bool = False,
    options: tuple[str, ...] = (),
    **changes: str,
) -> Iterator[Path]:
    """Start a scheduler on the loopback interface and workers of it; give the scheduler's file."""
    folder.mkdir(parents=True, exist_ok=True)
    env, file, scheme = environment(folder, tls, changes), folder / "scheduler.json", "tcp" if tls is None else "tls"
    dask = [sys.executable, "-m", "dask"]
    shared = ["--host", f"{scheme}://127.0.0.1", "--dashboard-address", "127.0.0.1:0"]
    processes, nannies = [], [] if nanny else ["--no-nanny"]
    with (folder / "log").open("wb") as log:

        def start(*arguments: str) -> None:
            processes.append(subprocess.Popen([*dask, *arguments], env=env, stdout=log, stderr=log, cwd=folder))

        try:
            start("scheduler", *shared, "--port", "0", "--scheduler-file", str(file))
            until = time.monotonic() + 60
            while not file.exists():
                assert time.monotonic() < until, (folder / "log").read_text()
                time.sleep(0.05)
            for _ in range(workers):
                start("worker", *shared, "--scheduler-file", str(file), "--nthreads", "1", *nannies, *options)
            yield file
        finally:
            end(processes)
