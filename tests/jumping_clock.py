"""A preload of Dask's processes (``dask scheduler --preload``, and of workers) by which their wall clocks can be moved."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

FILE = "JUMPING_CLOCK"  # of the environment: the file that holds how far the clock is off, in seconds
MOVED = ("dask", "distributed", "dp_dask", "tornado", "time")
REAL = time.time


class Clock:
    """The wall clock, off by what a file says."""

    def __init__(self, file: Path) -> None:
        self.file, self.seconds = file, 0.0

    def __call__(self) -> float:
        return REAL() + self.seconds

    def watch(self) -> None:
        """Follow the file from now on, from a thread that ends with the process."""

        def follow() -> None:
            while True:
                with suppress(OSError, ValueError):  # not there, or being written
                    self.seconds = float(self.file.read_text())
                time.sleep(0.05)

        threading.Thread(target=follow, daemon=True).start()

    def places(self) -> Iterator[tuple[Any, str, Callable[[], float]]]:
        """Say what must be set, to what, for those that have imported the function ``time.time`` by any name."""
        for module in [each for name, each in sys.modules.items() if name.partition(".")[0] in MOVED]:
            for name in [name for name, value in vars(module).items() if value is REAL]:
                yield module, name, self


def wall() -> tuple[float, float]:
    """Return how far this process's wall clock is off, for all and for Dask's scheduler, which imports it by another name."""
    from distributed import scheduler

    return time.time() - REAL(), scheduler.time() - REAL()


def dask_setup(_server: Any) -> None:
    """Move what is imported by now, which is all of Dask."""
    clock = Clock(Path(os.environ[FILE]))
    clock.watch()
    for module, name, function in list(clock.places()):
        setattr(module, name, function)
