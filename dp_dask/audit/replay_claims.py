"""Replay claims: by how much what was released moved between neighbours, and that nothing else did."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from dp_dask.audit.replays import Replayed
from dp_dask.audit.results import Claim
from dp_dask.core.privacy import Unit

__all__ = ["flow", "furthest", "replay_claims"]

TOLERANCE = 1e-9  # of a scale, relatively
SHOWN = 3  # differences that are told


def moved(unit: Unit, one: Iterable[int], other: Iterable[int]) -> int:
    """Return the L1 change of a release, or for a rho the square of its L2 change."""
    changes = [abs(a - b) for a, b in zip(one, other, strict=True)]
    return sum(changes) if unit is Unit.EPSILON else sum(change * change for change in changes)


def furthest(replayed: Replayed, name: str) -> tuple[int, str]:
    """Return the largest change of a measurement's release over all neighbours, and between which it was."""
    unit = next(m.request.loss.unit for m in replayed.pipeline.measurements if m.name == name)
    traces = replayed.traces
    changes = [(moved(unit, traces[a].released[name], traces[b].released[name]), f"{a} / {b}") for a, b in replayed.pairs]
    return max(changes)


def flow(replayed: Replayed) -> list[str]:
    """Name what could be seen of the runs that was not the same for all records, or was a failure."""
    found = []
    for a, b in replayed.pairs:
        one, other = replayed.traces[a].seen, replayed.traces[b].seen
        found += [f"{key} differ: {a} / {b}" for key in one if one[key] != other[key]]
    for name, trace in replayed.traces.items():
        found += [f"{key}: {trace.seen[key]} ({name})" for key in trace.seen if key.startswith("exceptions") and trace.seen[key]]
        if not trace.is_refused:
            found.append(f"the ledger took frozen noise ({name})")
    return found


def replay_claims(found: Sequence[Replayed]) -> Iterator[Claim]:
    """Yield what the replays say of control flow, of the noise that is asked for, of sensitivities and of distances."""
    sound = []
    for replayed in found:
        broken = flow(replayed)
        yield Claim(
            part="replay",
            about=f"control flow, {replayed.about}",
            held=not broken,
            claimed=0,
            found=len(broken),
            unit="differences",
            told="; ".join(broken[:SHOWN]) or f"{len(replayed.pairs)} pairs of neighbours",
        )
        if not any(trace.is_failed for trace in replayed.traces.values()):
            sound.append(replayed)
    for replayed in sound:
        if replayed.pipeline.measurements:
            yield _scales(replayed)
    yield from _sensitivities(sound)
    for replayed in sound:
        yield from _distances(replayed)


def _scales(replayed: Replayed) -> Claim:
    """Hold the scale that noise was asked for against that of the claimed sensitivity: D / epsilon, sqrt(D2 / (2 rho))."""
    trace = next(iter(replayed.traces.values()))
    off: list[tuple[float, str]] = []
    for m in replayed.pipeline.measurements:
        claimed, amount = trace.claimed[m.name], float(m.request.loss.amount)
        needed = claimed / amount if m.request.loss.unit is Unit.EPSILON else math.sqrt(claimed / (2 * amount))
        told = trace.scales[m.name]
        off.append((abs(told[2] / needed - 1) if told in trace.asked else math.inf, m.name))
    largest, name = max(off)
    told_of = f"{len(off)} measurements" if math.isfinite(largest) else f"{name}: noise of another scale was added"
    return Claim(
        part="replay",
        about=f"noise asked for, {replayed.about}",
        held=largest <= TOLERANCE,
        claimed=TOLERANCE,
        found=largest,
        unit="relative",
        told=told_of,
    )


def _sensitivities(found: Iterable[Replayed]) -> Iterator[Claim]:
    """Yield a claim for each kind of statistic: the largest change of any measurement, as a share of what is claimed of it."""
    kinds: dict[str, dict[str, tuple[float, str]]] = {}
    for replayed in found:
        claimed = next(iter(replayed.traces.values())).claimed
        for m in replayed.pipeline.measurements:
            change, pair = furthest(replayed, m.name)
            told = f"{m.name}: {change} of {claimed[m.name]} ({pair})"
            of_kind = kinds.setdefault(f"{type(m.request.statistic).__name__}, {replayed.pipeline.neighbours}", {})
            of_kind[m.name] = max(of_kind.get(m.name, (0.0, "")), (change / claimed[m.name], told))
    for kind, shares in kinds.items():
        (least, _), (most, told) = min(shares.values()), max(shares.values())
        moves = f"{len(shares)} measurements, each moved by {least:.0%} or more"
        yield Claim(
            part="replay",
            about=f"sensitivity of {kind}",
            held=most <= 1,
            claimed=1,
            found=most,
            unit="of L1 or L2",
            told=moves if most <= 1 else told,
        )


def _distances(replayed: Replayed) -> Iterator[Claim]:
    """Yield a claim for each distance. By a rho, noise is given each candidate's distance as it is, and in order."""
    scores = {name: iter(trace.compared) for name, trace in replayed.traces.items()}
    for choice in replayed.pipeline.selections:
        if choice.request.is_sparse_vector:
            continue
        given = {name: next(each) for name, each in scores.items()}
        if choice.request.loss.unit is not Unit.RHO:
            for each in scores.values():
                next(each)  # the others of the set
            continue
        limit = choice.request.sensitivity
        changes = [(max(abs(x - y) for x, y in zip(given[a], given[b], strict=True)), f"{a} / {b}") for a, b in replayed.pairs]
        change, pair = max(changes)
        yield Claim(
            part="replay",
            about=f"distance {choice.name.removesuffix('-select-rho')}, {replayed.pipeline.neighbours}",
            held=change <= limit,
            claimed=limit,
            found=change,
            unit="steps",
            told=f"{choice.request.n_simulations} simulations ({pair})",
        )
