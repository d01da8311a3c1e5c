"""slurm_runner: the processes of one ``srun`` are the cluster: scheduler, driver and workers, by dask-jobqueue's SLURMRunner."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from dp_dask.errors import ClusterError, DpDaskError
from dp_dask.hardened.batch import DAYS, jobqueue
from dp_dask.hardened.certs import FILES, make_certs
from dp_dask.hardened.joining import Joined, joined, quiet
from dp_dask.hardened.profile import hardened
from dp_dask.hardened.tls import Tls

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["plugin"]

SCHEDULER, DRIVER, FEWEST = 0, 1, 3  # as SLURMRunner numbers them: all other processes are workers
FILE = "scheduler.json"
POLL = 0.2  # seconds
USE = "start it with: srun --ntasks=4 python -m dp_dask run FILE --cluster NAME"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmRunner(Joined):
    """All processes of a step of Slurm run one command: the second drives it, the first schedules, others work, a thread each.

    ``shared`` is a folder that all nodes see, for the certificates of the step, which are deleted at its end; ``interface`` is
    the network between the nodes. The scheduler ends once the driver's process has, however it ended, and the workers with it.
    """

    shared: Path
    interface: str | None = None

    @contextmanager
    def attended(self) -> Iterator[None]:
        """Hold the cluster while the command goes on, once all have come; a process that does not drive serves, and exits with 0.

        Raises ClusterError outside of a step, in one of too few processes, and where a process does not start or come.
        """
        process, processes = _place()
        if process != DRIVER:
            self._serve(process)
        address, tls = self._scheduler()
        # All of them: one that came when the scheduler had ended already would wait for another.
        workers = processes - FEWEST + 1
        with joined(address, security=tls.security(), workers=workers, wait=self.wait, overrides=self.overrides):
            yield

    @contextmanager
    def client(self) -> Iterator[Client]:
        """Join the step's scheduler, in its driver; ``attended`` must have been entered in all of its processes."""
        process, _ = _place()
        if process != DRIVER:
            msg = f"process {process} of this step is no driver, which is process {DRIVER} alone"
            raise ClusterError(msg)
        address, tls = self._scheduler()
        with self.join(address, tls.security()) as client:
            yield client

    @property
    def _folder(self) -> Path:
        step = [os.environ.get(name, "0") for name in ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT")]
        return self.shared / f"dp-dask-step-{'-'.join(step)}"

    def _scheduler(self) -> tuple[str, Tls]:
        """Wait for the scheduler's file; return its address and the certificates beside it."""
        until = time.monotonic() + self.wait
        while time.monotonic() < until:
            with suppress(OSError, ValueError, KeyError, TypeError):  # not there, or half of it is
                status = self._folder.lstat()
                if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
                    msg = f"{self._folder}: is not a folder of this user alone; remove it, or give another one as shared"
                    raise ClusterError(msg)
                address = str(json.loads((self._folder / FILE).read_text(encoding="utf-8"))["address"])
                return address, Tls(*(self._folder / "tls" / name for name in FILES))
            time.sleep(POLL)
        msg = f"{self._folder}: no scheduler came within {self.wait:g} s; is shared a folder that all nodes see? or raise wait"
        raise ClusterError(msg)

    def _serve(self, process: int) -> NoReturn:
        """Be the scheduler or a worker until the driver has left; raises SystemExit(0) then."""
        import dask  # noqa: PLC0415

        signal.signal(signal.SIGTERM, _end)
        with dask.config.set(hardened() | {"distributed.scheduler.idle-timeout": None}):
            if process == SCHEDULER:
                self._schedule()
            else:
                _, tls = self._scheduler()
                self._run(tls)
        _end()

    def _schedule(self) -> None:
        problem, folder = "", self._folder
        try:
            self.shared.mkdir(parents=True, exist_ok=True)
            folder.mkdir(mode=0o700)  # and no other process's: all trust what is in it
        except OSError as error:
            problem = error.strerror or type(error).__name__
        if problem:
            msg = (
                f"{folder}: cannot be made ({problem}); remove what is there, or give cluster.shared, a folder that all nodes see"
            )
            raise ClusterError(msg)
        try:
            self._run(Tls(*make_certs(folder / "tls", DAYS)))
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # or the certificates would stay
            shutil.rmtree(folder, ignore_errors=True)

    def _run(self, tls: Tls) -> None:
        """Run what SLURMRunner starts in a process of this number, until it has ended."""
        facts = {"security": tls.security(), "interface": self.interface, "dashboard_address": "127.0.0.1:0"}
        problem = ""
        try:
            library = jobqueue()
            quiet()  # once Dask is imported, which sets its loggers
            library.slurm.SLURMRunner(
                scheduler_file=str(self._folder / FILE),
                scheduler_options={**facts, "protocol": "tls://", "port": 0, "plugins": [_leaving(self.wait)]},
                worker_options={**facts, "protocol": "tls://", "nthreads": 1},
            )
        except KeyboardInterrupt:  # how SLURMRunner ends a process
            return
        except ImportError:
            problem = "needs dask-jobqueue: pip install 'dp-dask[jobqueue]'"
        except DpDaskError:
            raise
        except Exception as error:  # noqa: BLE001  (its text may name what it was given)
            problem = f"SLURMRunner did not start ({type(error).__name__}); look at cluster.interface"
        if problem:
            raise ClusterError(problem)


def _end(*_: Any) -> NoReturn:
    """End well, whatever Slurm still sends to a step that is over: the driver's exit code is the one that counts."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(0)


def _place() -> tuple[int, int]:
    """Return this process's number in its step, and of how many; raises ClusterError outside of one, as a batch script is."""
    given = [os.environ.get(name, "") for name in ("SLURM_PROCID", "SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS")]
    if not all(each.isdecimal() for each in given):
        msg = f"this is no step of Slurm; {USE}"
        raise ClusterError(msg)
    process, _, processes = map(int, given)
    if processes < FEWEST:
        msg = f"the step has {processes} processes and takes {FEWEST} at least: scheduler, driver and a worker; {USE}"
        raise ClusterError(msg)
    return process, processes


def _leaving(wait: float) -> Any:
    """Make a plug-in that closes its scheduler when the last client has left, or none came."""
    from distributed.diagnostics.plugin import SchedulerPlugin  # noqa: PLC0415

    class Leaving(SchedulerPlugin):  # type: ignore[misc, unused-ignore]
        def __init__(self) -> None:
            self.clients: set[str] = set()

        async def start(self, scheduler: Any) -> None:
            asyncio.get_running_loop().call_later(wait, self.close_unless_used, scheduler)

        def add_client(self, scheduler: Any, client: str) -> None:  # noqa: ARG002
            self.clients.add(client)

        def remove_client(self, scheduler: Any, client: str) -> None:
            self.clients.discard(client)
            self.close_unless_used(scheduler)

        def close_unless_used(self, scheduler: Any) -> None:
            if not self.clients:
                scheduler.loop.add_callback(scheduler.close)

    return Leaving()


plugin = SlurmRunner
