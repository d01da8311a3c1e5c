"""ABC comparison: trials of choices among simulations and of releases as the tables of a paper."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["Cell", "Place", "Target", "Trial", "cells_of", "held", "table", "to_csv"]

Floats = NDArray[np.float64]
POSTERIORS = ("release", "exact", "non_private")
What = Literal["error", "distance", "sd"]


@dataclass(frozen=True, slots=True)
class Place:
    """A method at one setting; None is what the method does not depend on."""

    method: str
    epsilon: Decimal | None = None
    c: int | None = None
    tolerance: float | None = None

    def __str__(self) -> str:
        return f"{self.method} {self.epsilon} {self.c} {self.tolerance}"

    def serves(self, epsilon: Decimal | None, c: int | None, tolerance: float | None) -> bool:
        """Whether it is the method at this setting, as far as it depends on it."""
        asked = ((self.epsilon, epsilon), (self.c, c), (self.tolerance, tolerance))
        return all(own is None or own == other for own, other in asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What a method did on one replicate: NaN is what it has not.

    error: mean over parameters of |posterior mean - truth|. distance: mean distance of what was accepted from the records.
    sd: root of the mean over parameters of the posterior variance. ``theta`` [accepted, parameter] is what was accepted.
    """

    place: Place
    error: float
    distance: float = math.nan
    accepted: int = 0
    answered: int = 0
    sd: float = math.nan
    theta: Floats = field(default_factory=lambda: np.empty((0, 0)), repr=False)


@dataclass(frozen=True, slots=True)
class Cell:
    """All replicates of a method at one setting, in order."""

    place: Place
    trials: tuple[Trial, ...]

    def values(self, what: str) -> Floats:
        """One number a replicate."""
        return np.array([getattr(trial, what) for trial in self.trials], dtype=np.float64)

    def mean(self, what: str) -> float:
        """The average; of sds the root of the average square."""
        values = self.values(what)
        return float(np.sqrt((values**2).mean())) if what == "sd" else float(values.mean())

    def standard_error(self, what: str) -> float:
        """Of the average; NaN of one replicate."""
        values = self.values(what)
        return float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What should hold: how many times the number of the method ``to`` that of the method ``of`` is, at one setting."""

    of: str
    to: str
    at_most: float
    at_least: float = 0.0
    what: What = "error"
    epsilon: Decimal | None = None
    c: int | None = None
    tolerance: float | None = None


def cells_of(trials: Sequence[Trial]) -> list[Cell]:
    """Gather the replicates of each place, in the order in which places come first."""
    found: dict[Place, list[Trial]] = {}
    for trial in trials:
        found.setdefault(trial.place, []).append(trial)
    return [Cell(place, tuple(each)) for place, each in found.items()]


def held(target: Target, cells: Sequence[Cell]) -> tuple[float, float, bool]:
    """Return the ratio over the replicates that both methods have, its standard error, and whether it is as it should.

    The error is that of a ratio of averages over pairs (delta method). Raises ValueError where a method is not at the setting.
    """
    setting = target.epsilon, target.c, target.tolerance
    both = []
    for method in (target.of, target.to):
        here = [cell for cell in cells if cell.place.method == method and cell.place.serves(*setting)]
        if len(here) != 1:
            msg = f"target: {len(here)} results of {method} are at epsilon {setting[0]}, c {setting[1]}, tolerance {setting[2]}"
            raise ValueError(msg)
        both.append(here[0].values(target.what))
    size = min(map(len, both))
    power = 2 if target.what == "sd" else 1
    one, other = (values[:size] ** power for values in both)
    ratio = one.mean() / other.mean()
    spread = (one - ratio * other).std(ddof=1) / (other.mean() * math.sqrt(size)) if size > 1 else math.nan
    if target.what == "sd":
        ratio = math.sqrt(ratio)
        spread /= 2 * ratio
    return float(ratio), float(spread), bool(target.at_least <= ratio <= target.at_most)


def to_csv(cells: Sequence[Cell]) -> str:
    """Return every number, one line a place."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    names = ("error", "distance", "accepted", "answered", "sd")
    writer.writerow(["method", "epsilon", "c", "tolerance", "replicates", *(f"{n}{end}" for n in names for end in ("", "_se"))])
    for cell in cells:
        place = cell.place
        numbers = [each for name in names for each in (cell.mean(name), cell.standard_error(name))]
        setting = ["" if each is None else each for each in (place.epsilon, place.c, place.tolerance)]
        shown = ["" if math.isnan(each) else f"{each:.6g}" for each in numbers]
        writer.writerow([place.method, *setting, len(cell.trials), *shown])
    return buffer.getvalue()


def table(cells: Sequence[Cell], targets: Sequence[Target]) -> str:
    """Return tables in Markdown: of choices, of posteriors, of what should hold."""
    chosen = [cell for cell in cells if cell.place.method not in POSTERIORS]
    what = "error" if math.isfinite(chosen[0].mean("error")) else "distance"
    lines = _of_choices(chosen, what)
    posteriors = [cell for cell in cells if cell.place.method in POSTERIORS]
    if posteriors:
        lines += ["", *_of_posteriors(posteriors)]
    if targets:
        lines += ["", *_of_targets(targets, cells)]
    return "\n".join(lines) + "\n"


def _of_choices(cells: Sequence[Cell], what: str) -> list[str]:
    told = {
        "error": "Error of the posterior mean, averaged over parameters",
        "distance": "Mean distance of the accepted simulations from the records",
    }
    replicates = max(len(cell.trials) for cell in cells)
    methods = list(dict.fromkeys(cell.place.method for cell in cells))
    settings = dict.fromkeys(
        (cell.place.epsilon, cell.place.c, other.place.tolerance)
        for cell in cells
        for other in cells
        if cell.place.epsilon is not None and other.place.tolerance is not None
    )
    head = (
        f"{told[what]}, {replicates} replicates. nearest and abc know no noise: the c nearest, and the first c within the "
        "tolerance, whatever epsilon. What accepted nothing counts as the prior."
    )
    lines = [
        head,
        "",
        "| epsilon | c | tolerance | " + " | ".join(methods) + " |",
        "|---" * (3 + len(methods)) + "|",
    ]
    order = sorted(settings, key=lambda setting: tuple(map(float, setting)))  # type: ignore[arg-type]
    for setting in order:
        here = {cell.place.method: cell for cell in cells if cell.place.serves(*setting)}
        texts = [_three(here[method].mean(what)) if method in here else "-" for method in methods]
        lines.append("| " + " | ".join([*map(str, setting), *texts]) + " |")
    return lines


def _of_posteriors(cells: Sequence[Cell]) -> list[str]:
    by = {cell.place: cell for cell in cells}
    replicates = max(len(cell.trials) for cell in cells if cell.place.epsilon)
    head = (
        f"Posteriors of one release, {replicates} replicates: error of the mean, and posterior sd (root mean square over "
        "parameters), as times that of the exact posterior of the same release, and of the posterior of the records: the median "
        "and the largest."
    )
    lines = [
        head,
        "",
        "| epsilon | error | error, exact | error, non-private | sd | to exact | largest | to non-private | largest |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for epsilon in dict.fromkeys(place.epsilon for place in by if place.epsilon is not None):
        release, exact, without = (
            by.get(Place("release", epsilon)),
            by.get(Place("exact", epsilon)),
            by.get(Place("non_private")),
        )
        errors = [_three(cell.mean("error")) if cell else "-" for cell in (release, exact, without)]
        texts = [*errors, _three(release.mean("sd")) if release else "-"]
        for cell in (exact, without):
            ratios = release.values("sd") / cell.values("sd") if release and cell else np.array([math.nan])
            texts += [_three(float(np.median(ratios))), _three(float(ratios.max()))]
        lines.append("| " + " | ".join([str(epsilon), *texts]) + " |")
    return lines


def _of_targets(targets: Sequence[Target], cells: Sequence[Cell]) -> list[str]:
    lines = [
        "What should hold, as ratios with their standard errors over replicates.",
        "",
        "| of | setting | should be | is | holds |",
        "|---|---|---|---|---|",
    ]
    for target in targets:
        ratio, error, is_held = held(target, cells)
        named = (("epsilon", target.epsilon), ("c", target.c), ("tolerance", target.tolerance))
        setting = ", ".join(f"{name} {value}" for name, value in named if value is not None)
        allowed = f"{target.at_least:g} to {target.at_most:g}" if target.at_least else f"at most {target.at_most:g}"
        verdict = "yes" if is_held else "**no**"
        what = f"{target.what} of {target.of} / {target.to}"
        lines.append(f"| {what} | {setting} | {allowed} | {ratio:.3f} +- {_three(error)} | {verdict} |")
    return lines


def _three(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:#.3g}"
