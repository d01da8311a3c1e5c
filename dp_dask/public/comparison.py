"""Comparison: outcomes of trials as the tables and pictures of a paper."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_dask.public.trials import Outcome
from dp_dask.public.uniformity import LEVEL, uniformity

__all__ = ["Calibration", "Cell", "Utility", "calibrations", "files", "panels", "svg", "table", "utilities"]

Floats = NDArray[np.float64]
COLOURS = {
    "non_private": "#222222",
    "exact": "#2b6ca3",
    "augment": "#3f9b6b",
    "gibbs": "#a34b2b",
    "naive": "#c9952b",
    "ops": "#8a5ba8",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What one method did for one model at one n and epsilon; ``outcome`` is a text where it refused."""

    model: str
    n: int
    epsilon: str
    method: str
    parameters: tuple[str, ...]
    outcome: Outcome | str

    @property
    def place(self) -> tuple[str, int, str]:
        """What it has in common with the other methods' cells."""
        return self.model, self.n, self.epsilon


@dataclass(frozen=True, slots=True)
class Calibration:
    """The test of one parameter's ranks. ``passes`` holds a method's tests to 1 % together (Holm 1979)."""

    model: str
    n: int
    epsilon: str
    method: str
    parameter: str
    replicates: int
    ks: float
    gamma: float
    p_value: float  # exact
    passes: bool


@dataclass(frozen=True, slots=True)
class Utility:
    """How far a method's posterior is from the one without privacy, averaged over releases."""

    model: str
    n: int
    epsilon: str
    method: str
    replicates: int
    squared_mmd: float  # unbiased; below 0 by chance where the truth is near 0
    standard_error: float
    refusal: str  # why the method did not serve the model

    @property
    def mmd(self) -> float:
        """The root of the average square."""
        return math.sqrt(max(self.squared_mmd, 0.0))


def calibrations(cells: Sequence[Cell]) -> list[Calibration]:
    """Test the ranks of every cell that a method served."""
    tested = [
        (cell, parameter, uniformity(cell.outcome.ranks[:, j]))
        for cell in cells
        if isinstance(cell.outcome, Outcome)
        for j, parameter in enumerate(cell.parameters)
    ]
    kept = {}
    for method in {cell.method for cell, _, _ in tested}:
        p = [found.p_value for cell, _, found in tested if cell.method == method]
        kept[method] = _smallest_kept(p)
    return [
        Calibration(
            *cell.place, cell.method, parameter, found.n, found.ks, found.gamma, found.p_value, found.p_value >= kept[cell.method]
        )
        for cell, parameter, found in tested
    ]


def _smallest_kept(p_values: Sequence[float]) -> float:
    """Return the smallest p-value that Holm's procedure does not reject."""
    for i, p in enumerate(sorted(p_values)):
        if p >= LEVEL / (len(p_values) - i):
            return p
    return math.inf


def utilities(cells: Sequence[Cell]) -> list[Utility]:
    """Average the distance from the non-private posterior over each cell's releases."""
    found = []
    for cell in cells:
        if isinstance(cell.outcome, str):
            found.append(Utility(*cell.place, cell.method, 0, math.nan, math.nan, cell.outcome))
            continue
        squares = cell.outcome.squared_mmd
        error = float(squares.std(ddof=1)) / math.sqrt(len(squares))
        found.append(Utility(*cell.place, cell.method, len(squares), float(squares.mean()), error, ""))
    return found


def files(cells: Sequence[Cell], n_draws: int) -> dict[str, str]:
    """Return the text of calibration.csv, utility.csv, table.md, qq.svg and mmd.svg by their names."""
    tests, distances = calibrations(cells), utilities(cells)
    return {
        "calibration.csv": _csv(Calibration, tests),
        "utility.csv": _csv(Utility, distances),
        "table.md": table(tests, distances, n_draws),
        "qq.svg": _qq(cells),
        "mmd.svg": _mmd(distances),
    }


def _csv(kind: Any, rows: Sequence[Any]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([field.name for field in fields(kind)])
    for row in rows:
        writer.writerow(["" if value != value else _plain(value) for value in astuple(row)])  # noqa: PLR0124  (NaN)
    return buffer.getvalue()


def _plain(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.6g}" if isinstance(value, float) else value


def table(tests: Sequence[Calibration], distances: Sequence[Utility], n_draws: int) -> str:
    """Return two tables in Markdown: calibration, then utility."""
    methods = list(dict.fromkeys(row.method for row in distances))
    places = list(dict.fromkeys((row.model, row.n, row.epsilon) for row in distances))
    worst: dict[Any, tuple[float, bool]] = {}
    for test in tests:
        key = (test.model, test.n, test.epsilon, test.method)
        ks, passes = worst.get(key, (0.0, True))
        worst[key] = (max(ks, test.ks), passes and test.passes)
    ks_cells = {key: f"{ks:.3f}" if passes else f"**{ks:.3f}**" for key, (ks, passes) in worst.items()}
    mmd_cells = {(d.model, d.n, d.epsilon, d.method): f"{d.mmd:.3f}" for d in distances if not d.refusal}
    replicates = max(row.replicates for row in distances)
    mark = 1.628 / math.sqrt(replicates)
    calibration = (
        f"Calibration: KS distance of {replicates} ranks from uniform ({n_draws} draws a posterior), the largest over "
        f"parameters; one parameter's exceeds {mark:.3f} once in 100 where the posterior is right. **Bold**: not calibrated, "
        "by the exact test of gamma, all tests of a method at 1 % together. A dash: the method does not serve the model."
    )
    utility = (
        "Utility: MMD between a method's posterior and the one without privacy (root of the average unbiased square; Gaussian "
        "kernel, bandwidth the prior sd); smaller is nearer. A method that is not calibrated has no claim to be near."
    )
    lines = [calibration, "", *_rows(methods, places, ks_cells), "", utility, "", *_rows(methods, places, mmd_cells)]
    return "\n".join(lines) + "\n"


def _rows(methods: Sequence[str], places: Sequence[tuple[str, int, str]], texts: dict[Any, str]) -> list[str]:
    lines = ["| " + " | ".join(["model", "n", "epsilon", *methods]) + " |", "|---" * (3 + len(methods)) + "|"]
    for place in places:
        values = [texts.get((*place, method), "-") for method in methods]
        lines.append("| " + " | ".join([*map(str, place), *values]) + " |")
    return lines


def _qq(cells: Sequence[Cell]) -> str:
    """Draw ranks, sorted, against uniform quantiles: models down, n and epsilon across."""
    served = [cell for cell in cells if isinstance(cell.outcome, Outcome)]
    models = list(dict.fromkeys(cell.model for cell in cells))
    columns = list(dict.fromkeys((cell.n, cell.epsilon) for cell in cells))
    figure, axes = panels(len(models), len(columns), 2.2)
    for cell in served:
        panel = axes[models.index(cell.model), columns.index((cell.n, cell.epsilon))]
        assert isinstance(cell.outcome, Outcome)  # noqa: S101  (for the type checker)
        ranks = np.sort(cell.outcome.ranks.ravel())
        uniform = (np.arange(len(ranks)) + 0.5) / len(ranks)
        panel.plot(uniform, ranks, color=COLOURS[cell.method], linewidth=1.2, label=cell.method)
        panel.set_title(f"{cell.model}\nn = {cell.n}, epsilon {cell.epsilon}", fontsize=8)
        panel.set_xticks([0, 1])
        panel.set_yticks([0, 1])
        panel.set_aspect("equal")
    return svg(figure, axes, "uniform quantile", "rank of the truth")


def _mmd(distances: Sequence[Utility]) -> str:
    """Draw the distance from the non-private posterior over n: models down, epsilon across."""
    models = list(dict.fromkeys(row.model for row in distances))
    epsilons = list(dict.fromkeys(row.epsilon for row in distances))
    figure, axes = panels(len(models), len(epsilons), 3.4)
    for model in models:
        for epsilon in epsilons:
            panel = axes[models.index(model), epsilons.index(epsilon)]
            here = [row for row in distances if (row.model, row.epsilon) == (model, epsilon) and row.mmd > 0]
            for method in dict.fromkeys(row.method for row in here if row.method != "non_private"):
                rows = [row for row in here if row.method == method]
                error = [row.standard_error / (2 * row.mmd) for row in rows]
                n, mmd = [row.n for row in rows], [row.mmd for row in rows]
                panel.errorbar(n, mmd, error, color=COLOURS[method], linewidth=1.2, marker="o", markersize=3, label=method)
            panel.set_xscale("log")
            panel.set_yscale("log")
            panel.yaxis.set_minor_formatter("")
            panel.set_title(f"{model}\nepsilon {epsilon}", fontsize=8)
    return svg(figure, axes, "n", "MMD")


def panels(n_rows: int, n_columns: int, width: float) -> tuple[Any, Any]:
    """Return a figure and its panels [row, column], so many inches wide."""
    from matplotlib.figure import Figure  # noqa: PLC0415  (half a second of imports)

    figure = Figure(figsize=(width * n_columns + 1.6, 2.2 * n_rows + 0.4), layout="constrained")
    return figure, figure.subplots(n_rows, n_columns, squeeze=False)


def svg(figure: Any, axes: Any, x: str, y: str) -> str:
    """Return the figure as text, with one legend for all panels; the same figure is the same text."""
    import matplotlib as mpl  # noqa: PLC0415

    known: dict[str, Any] = {}
    for panel in axes.ravel():
        handles, labels = panel.get_legend_handles_labels()
        known.update(zip(labels, handles, strict=True))
    figure.legend(known.values(), known.keys(), loc="outside right upper", frameon=False, fontsize=8)
    figure.supxlabel(x, fontsize=9)
    figure.supylabel(y, fontsize=9)
    buffer = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": y}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()
