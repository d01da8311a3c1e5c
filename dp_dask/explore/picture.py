"""Picture: an exploration as one SVG, a row for each measurement."""

from __future__ import annotations

import io
from typing import Any

from dp_dask.core.bounds import Outside
from dp_dask.explore.results import Exploration, Explored, Tried, tell

__all__ = ["draw"]

BLUE, RED, GREEN, GREY = "#2b6ca3", "#a34b2b", "#3a7d44", "#777777"
MOST_ROWS = 8  # of measurements


def draw(exploration: Exploration) -> str:
    """Return the SVG: left the width of every design, right that of the chosen one by epsilon; equal results, equal text."""
    import matplotlib as mpl  # noqa: PLC0415  (half a second of imports)
    from matplotlib.figure import Figure  # noqa: PLC0415

    shown = exploration.measurements[:MOST_ROWS]
    mpl.rcParams["svg.hashsalt"] = exploration.dataset
    heights = [max(2.4, 0.3 * len(m.designs) + 0.9) for m in shown]
    figure = Figure(figsize=(11, sum(heights)), layout="constrained")
    rows = figure.subplots(len(shown), 2, squeeze=False, height_ratios=heights, width_ratios=(3, 2))
    for (left, right), measurement in zip(rows, shown, strict=True):
        _designs(left, measurement)
        _epsilons(right, measurement)
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()


def _designs(axes: Any, measurement: Explored) -> None:
    """Mark each design's ratio with two standard errors, the chosen one by a ring."""
    for i, cell in enumerate(reversed(measurement.designs)):
        is_clamp, is_counted = cell.outside is Outside.CLAMP, cell.inside_count is not None
        colour = BLUE if is_clamp else GREEN if is_counted else RED
        axes.errorbar(
            cell.ratio,
            i,
            xerr=_reach(cell),
            color=colour,
            marker="s" if is_counted else "o",
            markerfacecolor=colour if is_clamp else "white",
            capsize=2,
        )
        if cell == measurement.chosen:
            axes.plot(cell.ratio, i, marker="o", markersize=14, markerfacecolor="none", markeredgecolor="black")
    names = [f"{tell(cell.bounds, cell.outside, cell.inside_count)}, {cell.label}" for cell in reversed(measurement.designs)]
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.axvline(1, color=GREY, linewidth=0.8)
    axes.set_xscale("log")
    axes.set_xlabel("expected width, times the file's (ring: chosen; bars: 2 standard errors)", fontsize=8)
    axes.set_title(f"{measurement.measurement}, epsilon {measurement.chosen.epsilon}", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)


def _reach(cell: Tried) -> list[list[float]]:
    """Return how far two standard errors reach to both sides, kept above zero for a logarithmic axis."""
    return [[min(2 * cell.error, 0.9 * cell.ratio)], [2 * cell.error]]


def _epsilons(axes: Any, measurement: Explored) -> None:
    """Draw each parameter's width by epsilon, the file's own design as a cross, the width without privacy dashed."""
    own = measurement.designs[0]
    for j, parameter in enumerate(measurement.parameters):
        (line,) = axes.plot(
            [float(cell.epsilon) for cell in measurement.epsilons],
            [cell.widths[j] for cell in measurement.epsilons],
            marker="o",
            label=parameter,
        )
        axes.plot(float(own.epsilon), own.widths[j], marker="x", color=line.get_color())
        floor = measurement.non_private[j]
        if floor is not None:
            axes.axhline(floor, color=line.get_color(), linestyle="--", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("epsilon (cross: the file's design; dashed: without privacy)", fontsize=8)
    kind = "mean posterior sd" if measurement.has_sd else "median of half the 68 % interval"
    axes.set_ylabel(kind, fontsize=8)
    axes.set_title(
        f"chosen: {tell(measurement.chosen.bounds, measurement.chosen.outside, measurement.chosen.inside_count)}", fontsize=10
    )
    axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
