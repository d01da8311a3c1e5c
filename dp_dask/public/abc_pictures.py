"""ABC pictures: trials of choices among simulations as the pictures of a paper."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_dask.public.abc_comparison import Cell, Place
from dp_dask.public.comparison import panels, svg

__all__ = ["Curves", "pictures"]

Floats = NDArray[np.float64]
WITHOUT_EPSILON = ("nearest", "abc")
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
class Curves:
    """Records as curves: those observed, x and y [n], and those simulated with what each place's first replicate accepted."""

    names: tuple[str, str]
    x: Floats
    y: Floats
    simulated: dict[Place, Floats]  # [accepted, n]


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
