"""pbs: workers as jobs of PBS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dp_dask.hardened.batch import BatchCluster

__all__ = ["plugin"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pbs(BatchCluster):
    """Jobs of PBS, with the options of every batch system."""

    of_jobqueue: ClassVar[str] = "PBSCluster"
    submits: ClassVar[str] = "qsub"


plugin = Pbs
