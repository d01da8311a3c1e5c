"""Attack: an event is chosen on pilot runs of a mechanism on two neighbours, and counted on fresh ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_dask.audit.bounds import Bound
from dp_dask.audit.results import Claim

__all__ = ["Attack", "Pair", "claim_of", "lower_bound"]

Event = Callable[[Any], NDArray[np.bool_]]  # of the outcomes of many runs
PILOT = 5  # fresh runs for each pilot run
PILOT_ALPHA = 1e-3  # so that of two events that tell as much the more common one is counted


@dataclass(frozen=True, slots=True)
class Pair:
    """Two neighbours: ``draw(is_second, n)`` runs the mechanism n times on one of them, and events of its outcomes."""

    draw: Callable[[bool, int], Any]
    events: dict[str, Event]


@dataclass(frozen=True, slots=True)
class Attack:
    """A mechanism, what it claims to lose at most, and the neighbours that it is tried on; ``share`` of the runs are made."""

    about: str
    claimed: float
    unit: str
    bound: Bound
    pairs: tuple[Pair, ...]
    share: float = 1.0


def lower_bound(attack: Attack, runs: int, alpha: float) -> tuple[float, str]:
    """Return what the mechanism loses at least, wrong with probability alpha at most, and the event that shows it.

    The event is one that pilot runs bound best. Fresh runs alone are counted, so that the choice costs no confidence.
    """
    n = max(round(runs * attack.share), 100)
    n_pilot = max(n // PILOT, 50)
    tried: list[tuple[float, int, str, bool]] = []
    for i, pair in enumerate(attack.pairs):
        here, there = pair.draw(False, n_pilot), pair.draw(True, n_pilot)  # noqa: FBT003
        for name, event in pair.events.items():
            counts = [int(event(each).sum()) for each in (here, there)]
            for is_second in (False, True):
                hits, others = counts[::-1] if is_second else counts
                tried.append((attack.bound(hits, others, n_pilot, PILOT_ALPHA), i, name, is_second))
    _, i, name, is_second = max(tried)
    pair = attack.pairs[i]
    hits, others = (int(pair.events[name](pair.draw(each, n)).sum()) for each in (is_second, not is_second))
    return attack.bound(hits, others, n, alpha), f"{name}: {hits} and {others} times in {n} runs on each"


def claim_of(attack: Attack, runs: int, alpha: float) -> Claim:
    """Make the attack; the claim holds unless more is lost than is claimed, or the mechanism fails: then nothing is found."""
    shared: dict[str, Any] = {"part": "attack", "about": attack.about, "claimed": attack.claimed, "unit": attack.unit}
    try:
        found, told = lower_bound(attack, runs, alpha)
    except Exception as error:  # noqa: BLE001  (of a build that is broken anything may come, and the records are made up)
        return Claim(**shared, held=False, told=f"failed with {type(error).__name__}: {error}")
    if found > attack.claimed:
        told = f"more is lost than is claimed; {told}"
    return Claim(**shared, held=found <= attack.claimed, found=max(found, 0.0), told=told)
