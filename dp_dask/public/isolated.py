"""Isolated: calls of a simulator with a time-out, in a process of its own.

A thread cannot be stopped from outside, least of all in compiled code, so a call that may hang runs in a child process, which is
killed with all that it started once its time is over. A hard exit, a crash of native code and lost memory end the child alone.
The child is kept for this thread's next calls; it holds nothing but the simulator.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import weakref
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.simulated import Simulated, Size
from dp_dask.errors import InferenceError
from dp_dask.simulators import Simulator

__all__ = ["Isolated"]

Floats = NDArray[np.float64]
START_UP = 120.0  # seconds to import and to compile, which no time-out counts
FAREWELL = 5.0  # seconds from a closed connection to the end of the process


@dataclass(frozen=True, slots=True)
class Isolated:
    """A ``Call`` of at most ``time_out`` seconds, whatever the size of its batch.

    What the simulator prints goes nowhere; its standard error stays. The same seed gives the same data sets as ``call_here``. A
    process that has grown by more than ``leak`` bytes since its first call is replaced.
    """

    time_out: float
    leak: int = 2**30

    def __post_init__(self) -> None:
        if not 0 < self.time_out < float("inf"):
            msg = f"the time-out is {self.time_out}; it must be a positive number of seconds"
            raise ValueError(msg)

    def __call__(self, simulator: Simulator, theta: Floats, n: Size, rng: np.random.Generator) -> Simulated | str:
        """Make the call; return its data sets, or why there are none."""
        child = _kept_child(pickle.dumps(simulator))
        answer = child.ask(pickle.dumps((theta, n, rng, self)), self.time_out)
        if isinstance(answer, str):
            _kept.child = None
            return answer
        found, grown = answer
        if grown > self.leak:
            child.end()
            _kept.child = None
        return found


class _Child:
    """A child process with one simulator, and the connection to it."""

    def __init__(self, simulator: bytes) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(  # noqa: S603  (this interpreter, this package)
                [sys.executable, "-P", "-m", "dp_dask.public.isolated_process", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)},
                start_new_session=True,
            )
        self.simulator = simulator
        self.connection = Connection(ours.detach())
        self.end = weakref.finalize(self, _end, self.process, self.connection)
        reason = self.ask(simulator, START_UP)
        if reason:
            self.end()
            msg = f"the simulator cannot be made ready in a process of its own: {reason}"
            raise InferenceError(msg)

    def ask(self, message: bytes, seconds: float) -> Any:
        """Send a message and return the answer; a text, and the end of the child, where there is none in time."""
        try:
            self.connection.send_bytes(message)
            if self.connection.poll(seconds):
                return pickle.loads(self.connection.recv_bytes())  # noqa: S301  (from our own child)
        except (EOFError, OSError):
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(FAREWELL)
            code = self.process.returncode
            self.end()
            if code is not None and code < 0:
                return f"was ended by {signal.Signals(-code).name}"
            return f"ended its process (exit code {code})"
        self.end()
        return f"timed out after {seconds:g} s"


_kept = threading.local()


def _kept_child(simulator: bytes) -> _Child:
    """This thread's child for the simulator; one of another simulator is ended."""
    child: _Child | None = getattr(_kept, "child", None)
    if child is not None and child.simulator != simulator:
        child.end()
        child = None
    if child is None:
        child = _kept.child = _Child(simulator)
    return child


def _end(process: subprocess.Popen[bytes], connection: Connection) -> None:
    """Kill the child and all of its session, and wait for it."""
    connection.close()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
