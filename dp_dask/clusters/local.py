"""local: this machine, threads by default (NumPy and pyarrow release the lock), processes where asked."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from dp_dask.errors import ClusterError
from dp_dask.hardened.joining import quiet
from dp_dask.hardened.profile import hardened

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["plugin"]

UNWRITABLE = {errno.EACCES, errno.EDQUOT, errno.ENOSPC, errno.EPERM, errno.EROFS}
# Of worker processes. Dask has them give memory back at once, so that every large array's pages are faulted in anew: simulations
# took four times the CPU time. Arrays above 32 MB, the most that glibc allows, are given back all the same.
KEEP_MEMORY = {
    "distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_": 2**25,
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 2**27,
}
# What is said within a process, or on the loopback interface where there are no certificates, needs none: settings that ask for
# them are for clusters off this machine.
PLAIN = {"distributed.comm.require-encryption": False, "distributed.comm.default-scheme": "tcp"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    """``workers`` threads in one worker, or as many single-threaded processes; the default is one a core."""

    processes: bool = False
    workers: int | None = None
    memory_limit: str = "auto"
    stall_timeout: float = 1800.0

    driver_sees_records: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            msg = f"workers is {self.workers}; give at least 1, or leave it out for one a core"
            raise ValueError(msg)
        if not self.stall_timeout > 0:
            msg = f"stall_timeout is {self.stall_timeout}; give a number of seconds above 0"
            raise ValueError(msg)

    @contextmanager
    def client(self) -> Iterator[Client]:
        """Start the cluster on the loopback interface alone, without dashboard or spill, and close it at the end."""
        import dask  # noqa: PLC0415  (heavy: not for --help)
        from distributed import Client, LocalCluster  # noqa: PLC0415

        workers = self.workers or len(os.sched_getaffinity(0))
        quiet()
        with_tls = self.processes and dask.config.get("distributed.comm.tls.ca-file", None)
        with dask.config.set(hardened() | KEEP_MEMORY | ({} if with_tls else PLAIN)):
            problem = ""
            try:
                cluster = LocalCluster(
                    n_workers=workers if self.processes else 1,
                    threads_per_worker=1 if self.processes else workers,
                    processes=self.processes,
                    memory_limit=self.memory_limit if self.processes else None,
                    host="127.0.0.1" if self.processes else None,
                    dashboard_address="127.0.0.1:0",
                    worker_dashboard_address="127.0.0.1:0",
                )
            except Exception as error:  # noqa: BLE001
                kind = type(error).__name__
                look = f"look at free memory and at memory_limit ({self.memory_limit!r})"
                problem = _of_disk(error) or f"({kind}); {look}"
            if problem:
                msg = f"the local cluster did not start {problem}"
                raise ClusterError(msg)
            with cluster, Client(cluster) as client:
                yield client


def _of_disk(error: BaseException | None) -> str:
    """Say which folder could not be written to, where that is what an error comes from."""
    while error is not None:
        if isinstance(error, OSError) and error.filename and error.errno in UNWRITABLE:
            advice = "make room there, or give Dask another folder: DASK_TEMPORARY_DIRECTORY"
            return f"({error.filename}: {error.strerror}); {advice}"
        error = error.__cause__ or error.__context__
    return ""


plugin = Local
