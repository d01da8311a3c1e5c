"""scheduler_file: a cluster that runs already, by the file that its scheduler wrote (``dask scheduler --scheduler-file``)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dp_dask.errors import ClusterError
from dp_dask.hardened.joining import Joined
from dp_dask.hardened.tls import Tls, security_of

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["plugin"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerFile(Joined):
    """The scheduler whose address is in the JSON file ``path``, once it has ``workers``; it goes on when the run is over."""

    path: Path
    tls: Tls | None = None
    wait: float = 120.0

    @contextmanager
    def client(self) -> Iterator[Client]:
        """Join it, and leave it at the end."""
        with self.join(self._address(), security_of(self.tls)) as client:
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
