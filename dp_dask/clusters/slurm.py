"""slurm: workers as jobs of Slurm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dp_dask.hardened.batch import BatchCluster

__all__ = ["plugin"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Slurm(BatchCluster):
    """Jobs of Slurm, with the options of every batch system."""

    of_jobqueue: ClassVar[str] = "SLURMCluster"
    submits: ClassVar[str] = "sbatch"


plugin = Slurm
