"""Batch: a cluster whose workers are jobs of a batch system, by dask-jobqueue, with the hardened settings and TLS."""

from __future__ import annotations

import inspect
import json
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from dp_dask.errors import ClusterError
from dp_dask.hardened.certs import make_certs
from dp_dask.hardened.joining import Joined, quiet
from dp_dask.hardened.profile import HARDENED, hardened
from dp_dask.hardened.tls import Tls

if TYPE_CHECKING:
    from distributed import Client
    from distributed.security import Security

__all__ = ["DAYS", "BatchCluster", "jobqueue"]

# What dp_dask decides itself, and so does not pass on.
DAYS = 7  # that the certificates of a run are valid
OURS = ("security", "protocol", "job_script_prologue", "n_workers", "shared_temp_directory", "scheduler_options", "processes")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCluster(Joined):
    """``jobs`` jobs of ``cores`` worker processes each; the scheduler is in this process, on a login node or in a job of its own.

    ``shared`` is a folder that all nodes see, for the certificates of the run, which are deleted at its end. ``interface`` is the
    network that they reach this process by, ``prologue`` are shell lines of a job, such as modules to load, and ``options`` the
    other options of dask-jobqueue's cluster: queue, account, job_extra_directives, .. With ``adapt``, {minimum: .., maximum: ..}
    jobs, a job that ended is replaced.
    """

    jobs: int
    memory: str
    shared: Path
    cores: int = 1
    walltime: str = "01:00:00"
    interface: str | None = None
    adapt: dict[str, int] = field(default_factory=dict)
    prologue: list[str] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)

    of_jobqueue: ClassVar[str]  # the class of dask-jobqueue
    submits: ClassVar[str]  # the command that it submits with

    def __post_init__(self) -> None:
        Joined.__post_init__(self)
        for name, value in (("jobs", self.jobs), ("cores", self.cores)):
            if value < 1:
                msg = f"{name} is {value}; give at least 1"
                raise ValueError(msg)
        if not set(self.adapt) <= {"minimum", "maximum"}:
            msg = f"adapt is {self.adapt}; give {{minimum: 1, maximum: {self.jobs}}}, in jobs"
            raise ValueError(msg)
        _check_options(self.of_jobqueue, self.options)

    @contextmanager
    def client(self) -> Iterator[Client]:
        """Start a scheduler here and the jobs, over TLS with certificates of this run alone, and end them all.

        Raises ClusterError where dask-jobqueue or the batch system's commands are not there, no job comes, or it is not hardened.
        """
        import dask  # noqa: PLC0415  (heavy: not for --help)

        if shutil.which(self.submits) is None:
            msg = f"{self.submits} is not here; run where the batch system's commands are, or inside one of its jobs"
            raise ClusterError(msg)
        quiet()
        folder = _private_folder(self.shared)
        try:
            with dask.config.set(hardened()):
                kind, cluster, security = "", None, Tls(*make_certs(folder / "tls", DAYS)).security()
                try:
                    cluster = self._start(folder, security)
                except Exception as error:  # noqa: BLE001  (its text may hold a job script with certificates)
                    kind = type(error).__name__
                if kind == "ImportError":
                    msg = "batch systems need dask-jobqueue: pip install 'dp-dask[jobqueue]'"
                    raise ClusterError(msg)
                if kind or cluster is None:
                    msg = (
                        f"{self.of_jobqueue} did not start ({kind}); look at its commands, cluster.interface and cluster.options"
                    )
                    raise ClusterError(msg)
                with cluster, self.join(cluster, security) as client:
                    yield client
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _start(self, folder: Path, security: Security) -> Any:
        cluster = getattr(jobqueue(), self.of_jobqueue)(
            cores=self.cores,
            memory=self.memory,
            processes=self.cores,
            walltime=self.walltime,
            interface=self.interface,
            security=security,
            protocol="tls://",
            job_script_prologue=[*_exports(), *self.prologue],
            scheduler_options={"dashboard_address": "127.0.0.1:0"},
            **{"local_directory": str(folder), "log_directory": str(folder), **self.options},
        )
        if self.adapt:
            cluster.adapt(minimum_jobs=self.adapt.get("minimum", 1), maximum_jobs=self.adapt.get("maximum", self.jobs))
        else:
            cluster.scale(jobs=self.jobs)
        return cluster


def _check_options(of_jobqueue: str, given: Mapping[str, Any]) -> None:
    """Raise ValueError for an option that dask-jobqueue's cluster has not, or that dp_dask sets itself."""
    known = _known(of_jobqueue)
    for key in given:
        if key in OURS:
            msg = f"options: {key!r} is set by dp-dask itself; leave it out"
            raise ValueError(msg)
        if known and key not in known:
            msg = f"options: unknown option {key!r}; known: {', '.join(sorted(known))}"
            raise ValueError(msg)


def _known(of_jobqueue: str) -> set[str]:
    """The options of the cluster and of its jobs; empty where dask-jobqueue is not installed, which starting it tells."""
    with suppress(ImportError):
        library = jobqueue()
        job = getattr(library, of_jobqueue).job_cls
        classes = [*job.__mro__[:-1], library.core.JobQueueCluster]
        found = {name for cls in classes for name in inspect.signature(cls.__init__).parameters}
        return found - {
            *OURS,
            "self",
            "args",
            "kwargs",
            "base_class_kwargs",
            "job_kwargs",
            "job_cls",
            "loop",
            "scheduler",
            "name",
        }
    return set()


def jobqueue() -> Any:
    """Import dask-jobqueue, and give signals the handlers back that it takes when it is imported: Ctrl-C is ours."""
    ours = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    import dask_jobqueue  # noqa: PLC0415  (an extra)

    if threading.current_thread() is threading.main_thread():
        for each, handler in ours.items():
            signal.signal(each, handler)
    return dask_jobqueue


def _private_folder(shared: Path) -> Path:
    try:
        shared.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix="dp-dask-", dir=shared))  # for its owner alone
    except OSError as error:
        problem = error.strerror
    msg = f"{shared}: no private folder can be made there ({problem}); give cluster.shared, a folder that all nodes see"
    raise ClusterError(msg)


def _exports() -> list[str]:
    """Shell lines that give a job's Dask the hardened settings, and files that only their owner may read."""
    lines = ["umask 077"]
    for key, value in HARDENED.items():
        name = "DASK_" + key.upper().replace(".", "__").replace("-", "_")
        text = json.dumps(value) if isinstance(value, list) else repr(value) if not isinstance(value, str) else value
        lines.append(f"export {name}='{text}'")
    return lines
