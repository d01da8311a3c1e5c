"""Split: how several measurements would share one total epsilon."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal

import numpy as np

from dp_dask.errors import InferenceError
from dp_dask.explore.choose import CLEAR
from dp_dask.explore.designs import LEAST, Design, Setting
from dp_dask.explore.results import Split
from dp_dask.public.paired import compare

__all__ = ["share", "split"]

STEPS = 100  # of the total


def split(settings: Sequence[Setting], chosen: Sequence[Design], curves: Sequence[Sequence[Design]]) -> Split | None:
    """Share the measurements' total epsilon for the least geometric mean of their widths; None where there is nothing to share.

    ``curves`` are each chosen design at several epsilons. What is found on them is simulated once more at the new epsilons: only
    that is reported, and it is preferred only where it is clearly narrower than the file's split.
    """
    if len({d.measurement.request for d in chosen}) < len(chosen) or len(chosen) < 2 or min(map(len, curves)) < 2:  # noqa: PLR2004
        return None
    total = sum((d.epsilon for d in chosen), Decimal(0))
    own = [float(d.epsilon / total) * STEPS for d in chosen]
    points = [
        ([float(d.epsilon / total) * STEPS for d in curve], [math.log(compare(d.widths, one.widths)[0]) for d in curve])
        for one, curve in zip(chosen, curves, strict=True)
    ]
    parts = share(own, points)
    try:
        moved = [_at(*each, total) for each in zip(settings, chosen, parts, strict=True)]
    except (ValueError, InferenceError):
        return None
    pairs = [compare(one.widths, other.widths) for one, other in zip(moved, chosen, strict=True)]
    ratio = math.exp(sum(math.log(r) for r, _ in pairs) / len(pairs))
    error = ratio * math.sqrt(sum((e / r) ** 2 for r, e in pairs)) / len(pairs)
    is_preferred = math.log(ratio) + CLEAR * error / ratio < -math.log1p(LEAST)
    told = ", ".join(f"{d.measurement.name} {d.epsilon}" for d in moved)
    verdict = "" if is_preferred else ", not clearly narrower: keep the file's split"
    return Split(
        total=total,
        epsilons={d.measurement.name: d.epsilon for d in (moved if is_preferred else chosen)},
        ratio=ratio,
        error=error,
        is_preferred=is_preferred,
        reason=f"epsilon {total} in all as {told}: {ratio:.3f} ± {error:.1g} times the widths of the file's split{verdict}",
    )


def share(own: Sequence[float], points: Sequence[tuple[list[float], list[float]]]) -> list[int]:
    """Share out whole parts one by one, each to the measurement whose log width falls most by it, between its curve's ends.

    ``own`` are the file's parts, adding up to ``STEPS``; ``points`` each measurement's parts in order and log widths there. Where
    log width is convex in epsilon, as for every power of it, this is the best there is (Fox 1966).
    """
    least = [max(1, math.ceil(x[0])) for x, _ in points]
    most = [max(low, math.floor(x[-1])) for low, (x, _) in zip(least, points, strict=True)]
    parts = list(least)
    if sum(least) > STEPS or sum(most) < STEPS:
        return [round(part) for part in own]

    def gain(k: int) -> float:
        x, y = points[k]
        here, there = np.interp(np.log([parts[k], parts[k] + 1]), np.log(x), y)
        return float(here - there) if parts[k] < most[k] else -math.inf

    for _ in range(STEPS - sum(parts)):
        parts[max(range(len(parts)), key=gain)] += 1
    return parts


def _at(setting: Setting, design: Design, part: int, total: Decimal) -> Design:
    """Try a design at so many parts of the total."""
    return setting.at_epsilon(design, total * part / STEPS)
