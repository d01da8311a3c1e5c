"""The child process of ``public.isolated``: it gets a simulator, then answers one call after the other until nobody asks."""

from __future__ import annotations

import pickle
import signal
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from resource import RUSAGE_SELF, getpagesize, getrusage

from dp_dask.core.simulated import Simulated
from dp_dask.public.guarded import call_here, prepare, tell

__all__ = ["main"]

ORPHAN = 2.0  # time-outs after which nobody can still be waiting


def main() -> None:
    """Serve the connection whose descriptor is the first argument."""
    connection = Connection(int(sys.argv[1]))
    reason = ""
    try:
        simulator = pickle.loads(connection.recv_bytes())  # noqa: S301  (from our own parent)
        prepare(simulator)
    except Exception as error:  # noqa: BLE001
        reason = tell(error)
    connection.send_bytes(pickle.dumps(reason))
    first = None
    while not reason:
        try:
            theta, n, rng, limits = pickle.loads(connection.recv_bytes())  # noqa: S301
        except EOFError:
            return
        # The signal's default ends even compiled code, should the parent be gone and nobody else do it.
        signal.setitimer(signal.ITIMER_REAL, ORPHAN * limits.time_out)
        found = call_here(simulator, theta, n, rng)
        if not isinstance(found, Simulated | str):
            found = f"returned {type(found).__name__}, not Simulated"
        signal.setitimer(signal.ITIMER_REAL, 0)
        now = _resident()
        first = now if first is None else first
        connection.send_bytes(_pickled(found, now - first))


def _pickled(found: Simulated | str, grown: int) -> bytes:
    try:
        return pickle.dumps((found, grown))
    except Exception as error:  # noqa: BLE001  (a user's arrays may hold anything)
        return pickle.dumps((f"returned what cannot be sent: {tell(error)}", grown))


def _resident() -> int:
    """The process's resident memory in bytes; its peak where the system does not tell."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text(encoding="ascii").split()[1]) * getpagesize()
    return getrusage(RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
