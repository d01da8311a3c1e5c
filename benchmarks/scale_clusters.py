"""What benchmarks/scale.py measures with: clusters whose scheduler is a process of its own, and what a reduction uses of each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from copy import copy
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import psutil

from dp_dask.clusters.scheduler_file import plugin as SchedulerFile  # noqa: N812
from dp_dask.private.reduce import reduce
from dp_dask.private.sources import Split

JOINED = 2  # workers
SETTINGS = Path(__file__).parent.parent / "deploy" / "dask.yaml"
OVERRIDES = ["distributed.comm.require-encryption"]
NOTHING: dict[str, Any] = {"progress": lambda _done, _of: None, "stall_timeout": 1800.0}


@dataclass(frozen=True)
class Repeated:
    """A source that plans these splits; in a task it is the source itself, so that no task is larger than a pipeline's."""

    source: Any
    splits: tuple[Split, ...]

    def plan(self) -> list[Split]:
        """List the splits."""
        return list(self.splits)

    def __reduce__(self) -> Any:
        return copy, (self.source,)


@dataclass(frozen=True)
class Used:
    """What a reduction took: CPU seconds of driver, scheduler and workers, seconds on the clock, peak bytes above the start's."""

    driver: float
    scheduler: float
    workers: float
    wall: float
    driver_bytes: float
    scheduler_bytes: float
    messages: int = 0
    sent: int = 0

    def least(self, other: Used) -> Used:
        """Take the smaller of each figure, of bytes the larger: what one round freed the next one uses."""
        pairs = {field.name: (getattr(self, field.name), getattr(other, field.name)) for field in fields(self)}
        return Used(**{name: (max if name.endswith("_bytes") else min)(pair) for name, pair in pairs.items()})


@contextmanager
def joined(folder: Path, workers: int, *, together: bool = False) -> Iterator[Any]:
    """Start a scheduler and workers of one thread by their command lines, all in one process where that is asked; join them."""
    folder.mkdir(parents=True, exist_ok=True)
    file, dask_command = folder / "scheduler.json", [sys.executable, "-m", "dask"]
    env = {key: value for key, value in os.environ.items() if not key.startswith("DASK_")} | {
        "DASK_CONFIG": str(SETTINGS),
        "DASK_TEMPORARY_DIRECTORY": str(folder),
        "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "False",
        "DASK_DISTRIBUTED__COMM__DEFAULT_SCHEME": "tcp",
    }
    shared = ["--host", "tcp://127.0.0.1", "--dashboard-address", "127.0.0.1:0", "--scheduler-file", str(file)]
    started: list[subprocess.Popen[bytes]] = []

    def start(*command: str) -> None:
        quiet = subprocess.DEVNULL
        started.append(subprocess.Popen([*dask_command, *command], env=env, stdout=quiet, stderr=quiet, cwd=folder))

    try:
        start("scheduler", "--port", "0", *shared)
        while not file.exists() and started[0].poll() is None:
            time.sleep(0.05)
        if together:
            options = {"nthreads": 1, "host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "memory_limit": 0}
            spec = {str(i): {"cls": "distributed.Worker", "opts": options} for i in range(workers)}
            (folder / "spec.json").write_text(json.dumps(spec), encoding="utf-8")
            start("spec", json.loads(file.read_text(encoding="utf-8"))["address"], "--spec-file", str(folder / "spec.json"))
        for _ in range(0 if together else workers):
            start("worker", "--nthreads", "1", "--no-nanny", *shared)
        with SchedulerFile(path=file, workers=workers, overrides=OVERRIDES).client() as client:
            yield client
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            with suppress(subprocess.TimeoutExpired):
                process.wait(5)
            process.kill()
            process.wait()


class Clusters:
    """One joined cluster, started where a part first asks for it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.stack, self.clients = folder, ExitStack(), list[Any]()

    def client(self) -> Any:
        """Give its client."""
        if not self.clients:
            self.clients.append(self.stack.enter_context(joined(self.folder / "cluster", JOINED)))
        return self.clients[0]


def scheduler_of(client: Any) -> psutil.Process:
    return psutil.Process(client.run_on_scheduler(os.getpid))


@contextmanager
def peaks(*processes: psutil.Process) -> Iterator[list[int]]:
    """Give the peak resident bytes of processes above those at the start; looked at ten times a second and at the end."""
    first = [process.memory_info().rss for process in processes]
    most, is_over = [0] * len(processes), threading.Event()

    def look() -> None:
        for i, process in enumerate(processes):
            most[i] = max(most[i], process.memory_info().rss - first[i])

    def watch() -> None:
        while not is_over.wait(0.1):
            look()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield most
        look()
    finally:
        is_over.set()
        watcher.join()


def measure(client: Any, source: Any, statistics: Sequence[Any], **options: Any) -> Used:
    """Reduce once."""
    comm, driver = client.scheduler_comm, psutil.Process()
    sent = comm.message_count, comm.byte_count
    of_workers, of_scheduler = sum(client.run(time.process_time).values()), client.run_on_scheduler(time.process_time)
    with peaks(driver, scheduler_of(client)) as most:
        wall, of_driver = time.perf_counter(), time.process_time()
        reduce(client, source, statistics, **NOTHING, **options)
        of_driver, wall = time.process_time() - of_driver, time.perf_counter() - wall
    of_scheduler = client.run_on_scheduler(time.process_time) - of_scheduler
    of_workers = sum(client.run(time.process_time).values()) - of_workers
    messages, size = comm.message_count - sent[0], comm.byte_count - sent[1]
    return Used(of_driver, of_scheduler, of_workers, wall, most[0], most[1], messages, size)


def least(rounds: int, once: Callable[[], Used]) -> Used:
    used = once()
    for _ in range(rounds - 1):
        used = used.least(once())
    return used
