"""What two runs of one slot do at once, in processes of their own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dp_dask.config import load
from dp_dask.gate.noise import OpenDPNoise
from dp_dask.output import write_run
from dp_dask.pipeline import run
from dp_dask.scheduled import schedule


class MeetingNoise(OpenDPNoise):
    """Waits for the other run between the look into the ledger and the commit."""

    def __init__(self, barrier: Any) -> None:
        self.barrier = barrier

    def add_discrete_laplace(self, values: Sequence[int], scale: float) -> list[int]:
        self.barrier.wait(60)
        return super().add_discrete_laplace(values, scale)


def race(file: Path, slot: str, barrier: Any, told: Path) -> None:
    """Run a slot when the other does too; write what was charged and released."""
    pipeline, scheduled = schedule(load(file), slot)
    result = run(pipeline, noise=MeetingNoise(barrier))
    barrier.wait(60)
    folder, _ = write_run(result, pipeline.output, scheduled=scheduled)
    release = result.publication.measurements["m"].release
    told.write_text(json.dumps([list(result.charged), release.id, str(folder)]))
