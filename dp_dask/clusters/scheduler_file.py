"""scheduler_file: a cluster that runs already, by the file that its scheduler wrote (``dask scheduler --scheduler-file``)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from dp_dask.errors import ClusterError
from dp_dask.hardened.joining import check_options, joined
from dp_dask.hardened.tls import Tls, security_of

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["plugin"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerFile:
    """The scheduler whose address is in the JSON file ``path``, once it has ``workers``; it goes on when the run is over."""

    path: Path
    tls: Tls | None = None
    workers: int = 1
    wait: float = 120.0
    stall_timeout: float = 1800.0
    overrides: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        check_options(workers=self.workers, wait=self.wait, stall_timeout=self.stall_timeout, overrides=self.overrides)

    @contextmanager
    def client(self) -> Iterator[Client]:
        """Join it, and leave it at the end."""
        address, security = self._address(), security_of(self.tls)
        with joined(address, security=security, workers=self.workers, wait=self.wait, overrides=self.overrides) as client:
            yield client

    def _address(self) -> str:
        try:
            return str(json.loads(self.path.read_text(encoding="utf-8"))["address"])
        except OSError as error:
            problem = f"cannot be read ({error.strerror})"
        except (ValueError, KeyError, TypeError):
            problem = "is not what a scheduler writes"
        msg = f"{self.path}: {problem}; start the scheduler with: dask scheduler --scheduler-file {self.path}"
        raise ClusterError(msg)


plugin = SchedulerFile
