"""ABC comparison: trials of choices among simulations and of releases as the tables and pictures of a paper."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dp_dask.public.comparison import panels, svg

__all__ = ["Cell", "Curves", "Place", "Target", "Trial", "cells_of", "held", "pictures", "table", "to_csv"]

Floats = NDArray[np.float64]
WITHOUT_EPSILON = ("nearest", "abc", "non_private")
POSTERIORS = ("release", "exact", "non_private")
What = Literal["error", "distance", "sd"]
COLOURS = {
    "nearest": "#222222",
    "abc": "#888888",
    "published": "#a34b2b",
    "resampled": "#c9952b",
    "tight": "#d98f7a",
    "split": "#3f9b6b",
    "one_sided": "#8a5ba8",
    "select": "#2b6ca3",
    "release": "#d11f6a",
}


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


@dataclass(frozen=True, slots=True)
class Curves:
    """Records as curves: those observed, x and y [n], and those simulated with what each place's first replicate accepted."""

    names: tuple[str, str]
    x: Floats
    y: Floats
    simulated: dict[Place, Floats]  # [accepted, n]


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


def pictures(cells: Sequence[Cell], curves: Curves | None) -> dict[str, str]:
    """Return the SVG texts by their files' names: errors over the tolerance, or curves where there are some."""
    found = {}
    if any(math.isfinite(cell.mean("error")) for cell in cells):
        found["errors.svg"] = _errors(cells)
    if curves is not None:
        found["curves.svg"] = _curves(curves)
    return found


def _errors(cells: Sequence[Cell]) -> str:
    """Draw the error over the tolerance: c down, epsilon across; what knows no tolerance is a level."""
    counts = list(dict.fromkeys(cell.place.c for cell in cells if cell.place.c is not None))
    private = [cell for cell in cells if cell.place.c is not None and cell.place.epsilon is not None]
    epsilons = list(dict.fromkeys(cell.place.epsilon for cell in private))
    tolerances = sorted({cell.place.tolerance for cell in private if cell.place.tolerance is not None})
    figure, axes = panels(len(counts), len(epsilons), 2.6)
    for i, c in enumerate(counts):
        for j, epsilon in enumerate(epsilons):
            panel = axes[i, j]
            for method, colour in COLOURS.items():
                here = [cell for cell in cells if cell.place.method == method and (cell.place.c or c) == c]
                here = [cell for cell in here if cell.place.epsilon in (None, epsilon)]
                over = sorted((cell for cell in here if cell.place.tolerance), key=lambda cell: cell.place.tolerance or 0)
                style: dict[str, Any] = {"color": colour, "linewidth": 1.2, "label": method}
                if over:
                    x, y = [cell.place.tolerance for cell in over], [cell.mean("error") for cell in over]
                    panel.errorbar(x, y, [cell.standard_error("error") for cell in over], marker="o", markersize=2.5, **style)
                elif here:
                    panel.axhline(here[0].mean("error"), linestyle="--", **style)
            panel.set_xscale("log")
            panel.set_xticks(tolerances, labels=[f"{each:g}" for each in tolerances])
            panel.xaxis.set_minor_formatter("")
            panel.set_yscale("log")
            panel.set_title(f"c = {c}, epsilon {epsilon}", fontsize=8)
    return svg(figure, axes, "tolerance", "error of the posterior mean")


def _curves(curves: Curves) -> str:
    """Draw simulated over observed records: methods down, epsilon across."""
    methods = list(dict.fromkeys(place.method for place in curves.simulated))
    epsilons = list(dict.fromkeys(place.epsilon for place in curves.simulated if place.epsilon is not None))
    figure, axes = panels(len(methods), len(epsilons), 2.6)
    for i, method in enumerate(methods):
        for j, epsilon in enumerate(epsilons):
            panel = axes[i, j]
            for place, rows in curves.simulated.items():
                if place.method == method and place.serves(epsilon, place.c, place.tolerance):
                    for row in rows:
                        panel.plot(curves.x, row, color=COLOURS[method], linewidth=0.8, label=method)
            panel.plot(curves.x, curves.y, "o", color="#222222", markersize=2.5, label="observed")
            reach = np.ptp(curves.y)
            panel.set_ylim(curves.y.min() - 0.5 * reach, curves.y.max() + 0.5 * reach)
            panel.set_title(method if method in WITHOUT_EPSILON else f"{method}, epsilon {epsilon}", fontsize=8)
    return svg(figure, axes, *curves.names)
