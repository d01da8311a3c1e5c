"""Guarded simulation: what raises, hangs, or returns what is no data set is a rejection with its theta, and not the end of a run.

A call that fails for a whole batch is made again for each half of it, down to the theta at fault. A rejection is returned as a
value: nothing is logged here, where workers may be. A posterior whose simulator fails at some thetas is conditional on its
success, as if the prior had been multiplied by the probability of it; so rejections are counted, and many are a warning.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.simulated import NUMERIC, Failure, Simulated, Size
from dp_dask.errors import InferenceError
from dp_dask.simulators import Simulator

__all__ = ["Call", "Guarded", "Policy", "call_here", "guarded", "prepare", "tell"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Policy = Literal["raise", "reject", "retry"]
Call = Callable[[Simulator, Floats, Size, np.random.Generator], Simulated | str]
RETRIES = 3
LONGEST = 300  # characters of a reason


@dataclass(frozen=True, slots=True, eq=False)
class Guarded:
    """A batch: the data sets, of which those that failed have no records, and the failures in the order of their rows.

    ``unblamed`` counts failed calls whose halves then all succeeded: failures of chance, at no theta in particular.
    """

    simulated: Simulated
    failures: tuple[Failure, ...]
    unblamed: int

    @property
    def is_whole(self) -> NDArray[np.bool_]:
        """Which data sets [size] were simulated."""
        whole = np.ones(self.simulated.size, dtype=np.bool_)
        whole[[failure.row for failure in self.failures]] = False
        return whole


@dataclass(slots=True)
class _Found:
    """What a batch has yielded so far."""

    parts: list[tuple[Ints, Simulated]]
    reasons: dict[int, str]
    unblamed: int = 0


def prepare(simulator: Simulator) -> None:
    """Make the simulator ready; raises InferenceError, whatever the policy, since no theta is to blame."""
    reason = ""
    try:
        getattr(simulator, "prepare", lambda: None)()
    except Exception as error:  # noqa: BLE001
        reason = tell(error)
    if reason:
        msg = f"the simulator cannot be made ready on this worker: {reason}"
        raise InferenceError(msg)


def call_here(simulator: Simulator, theta: Floats, n: Size, rng: np.random.Generator) -> Simulated | str:
    """Call the simulator in this process; return its data sets, or why there are none.

    sys.exit is caught. A copy of the process that the simulator forked ends here, instead of living on as a second worker.
    """
    prepare(simulator)
    process = os.getpid()
    found: Simulated | str
    try:
        found = simulator.simulate(theta, n, rng)
    except (Exception, SystemExit) as error:  # noqa: BLE001  (a simulator may fail in any way)
        found = tell(error)
    if os.getpid() != process:
        os._exit(0)
    return found


def guarded(
    simulator: Simulator, theta: Floats, n: Size, rng: np.random.Generator, *, policy: Policy, call: Call = call_here
) -> Guarded:
    """Simulate one data set for each row of theta [B, p]; the result depends on the generator's seed alone.

    ``reject`` counts a failure; ``retry`` first draws the failed data sets again, up to three times; ``raise`` raises
    InferenceError with the theta and the reason. ``call`` makes one call: ``call_here``, or one with a time-out. InferenceError
    whatever the policy where the simulator cannot be made ready.
    """
    theta = np.ascontiguousarray(theta, dtype=np.float64)
    rows = np.arange(len(theta))
    found = _Found([], {})
    for attempt, stream in enumerate(rng.spawn(1 + (RETRIES if policy == "retry" else 0))):
        if attempt:
            rows = np.array(sorted(found.reasons), dtype=np.int64)
            found.reasons.clear()
        if len(rows):
            _halve(simulator, theta, n, stream, rows, call, found)
    failures = tuple(Failure(row, tuple(theta[row].tolist()), found.reasons[row]) for row in sorted(found.reasons))
    if failures and policy == "raise":
        raise InferenceError(_told(simulator, failures[0]))
    return Guarded(Simulated.assemble(len(theta), simulator.columns, found.parts), failures, found.unblamed)


def _halve(simulator: Simulator, theta: Floats, n: Size, rng: np.random.Generator, rows: Ints, call: Call, found: _Found) -> None:
    """Simulate these rows by one call or, where it fails, by halves, each with a stream that its place decides."""
    now, *halves = rng.spawn(3)
    sizes = n[rows] if isinstance(n, np.ndarray) else n
    made = call(simulator, theta[rows], sizes, now)
    if not isinstance(made, str):
        made = _judged(made, simulator.columns, len(rows))
    if isinstance(made, Simulated):
        faults = _faults(made, sizes)
        found.reasons.update({int(rows[i]): fault for i, fault in faults.items()})
        is_good = np.ones(len(rows), dtype=np.bool_)
        is_good[list(faults)] = False
        found.parts.append((rows, made.where(is_good) if faults else made))
    elif len(rows) == 1:
        found.reasons[int(rows[0])] = made
    else:
        before = len(found.reasons), found.unblamed
        for half, stream in zip(np.array_split(rows, 2), halves, strict=True):
            _halve(simulator, theta, n, stream, half, call, found)
        found.unblamed += before == (len(found.reasons), found.unblamed)


def _judged(made: object, columns: tuple[str, ...], size: int) -> Simulated | str:
    """Check what a call returned; what cannot even be looked at is wrong."""
    try:
        return _checked(made, columns, size)
    except Exception as error:  # noqa: BLE001  (a user's arrays may be anything)
        return f"returned what cannot be read: {tell(error)}"


def _checked(made: object, columns: tuple[str, ...], size: int) -> Simulated | str:
    """Return what a call returned where it is data sets in the right form, else what is wrong with it."""
    if not isinstance(made, Simulated):
        return f"returned {type(made).__name__}, not Simulated"
    if made.size != size:
        return f"returned {made.size} data sets for {size} rows of theta"
    if set(made.values) != set(columns):
        return f"returned the columns {', '.join(made.values) or '(none)'}; declared are {', '.join(columns)}"
    counts = np.asarray(made.counts)
    if counts.ndim != 1 or counts.dtype.kind not in "iu" or np.any(counts < 0):
        return f"returned counts of type {counts.dtype} and shape {counts.shape}; they must be whole numbers, 0 or more"
    values = {name: np.asarray(made.values[name]) for name in columns}
    for name, each in values.items():
        if each.shape != (counts.sum(),) or each.dtype.kind not in NUMERIC:
            return f"returned {name} of type {each.dtype} and shape {each.shape}; it must be numbers of shape ({counts.sum()},)"
    return Simulated(counts.astype(np.int64, copy=False), {k: v.astype(np.float64, copy=False) for k, v in values.items()})


def _faults(made: Simulated, n: Size) -> dict[int, str]:
    """Return, by data set, what is wrong with its records: numbers that are none, or too many or too few of them."""
    faults: dict[int, str] = {}
    if n is not None:
        counts = made.counts
        wanted = np.broadcast_to(np.asarray(n), counts.shape)
        for i in np.flatnonzero(counts != wanted):
            faults[int(i)] = f"returned {counts[i]} records; n is {wanted[i]}"
    for name, each in made.values.items():
        is_finite = np.isfinite(each)
        if not is_finite.all():
            for i in np.unique(made.dataset[~is_finite]):
                faults.setdefault(int(i), f"returned a {name} that is not a finite number")
    return faults


def tell(error: BaseException) -> str:
    """Return an exception's type and text, and where in the simulator it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}"[:LONGEST] + where


def _told(simulator: Simulator, failure: Failure) -> str:
    at = ", ".join(f"{name} = {value!r}" for name, value in zip(simulator.parameters, failure.theta, strict=True))
    return (
        f"the simulator failed at {at}: {failure.reason}; mend it, keep the prior away from there, "
        "or let such draws be rejected and counted (policy reject or retry)"
    )
