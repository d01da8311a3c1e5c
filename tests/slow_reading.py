"""A preload of Dask's workers (``dask worker --preload``): what reads and simulates is the product's, a part of a second late."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from dp_dask.private import reduce
from dp_dask.public.candidate_simulations import Candidates

MARKER = "SLOW_READING"  # of the environment: the folder that tells what was begun, and by which process


def dask_setup(_worker: Any) -> None:
    """Take the place of what sums a part of the records, and of what simulates a batch of candidates."""
    read, simulate, marker = reduce._sum_part, Candidates.batch, Path(os.environ[MARKER])

    def late(name: str) -> None:
        (marker / f"{name}-{os.getpid()}").touch()
        time.sleep(0.25)

    def slow(source: Any, split: Any, *rest: Any) -> Any:
        late(str(split.index))
        return read(source, split, *rest)

    def slow_batch(candidates: Any, number: int) -> Any:
        late(f"batch{number}")
        return simulate(candidates, number)

    reduce._sum_part, Candidates.batch = slow, slow_batch
