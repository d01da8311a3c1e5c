"""Outbreak comparison: trials where an outbreak is a record as a table, a CSV file and a picture."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dp_dask.public.comparison import panels, svg

__all__ = ["PARAMETERS", "Cell", "Trial", "cells_of", "files"]

Floats = NDArray[np.float64]
PARAMETERS = ("beta", "R1", "t1", "R2")
COLOURS = {
    "prior": "#888888",
    "published": "#a34b2b",
    "select": "#c9952b",
    "abc": "#3f9b6b",
    "nearest": "#222222",
    "release": "#2b6ca3",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What a method did on one replicate: |posterior mean - truth| and posterior sd of each parameter, in sds of its prior.

    NaN and 0 are what the method has not; ``refusal`` says why it has no posterior.
    """

    n: int
    method: str
    error: tuple[float, ...]
    sd: tuple[float, ...] = (math.nan,) * len(PARAMETERS)
    accepted: int = 0
    simulated: int = 0
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class Cell:
    """All replicates of a method at one n, in order."""

    n: int
    method: str
    trials: tuple[Trial, ...]

    @property
    def served(self) -> tuple[Trial, ...]:
        """Those that were not refused."""
        return tuple(trial for trial in self.trials if not trial.refusal)

    def errors(self) -> Floats:
        """The errors [replicate, parameter]."""
        return np.array([trial.error for trial in self.served]).reshape(-1, len(PARAMETERS))

    def sds(self) -> Floats:
        """The posterior sds [replicate, parameter]."""
        return np.array([trial.sd for trial in self.served]).reshape(-1, len(PARAMETERS))


def cells_of(trials: Sequence[Trial]) -> list[Cell]:
    """Gather the replicates of each method and n, in the order in which these come first."""
    found: dict[tuple[int, str], list[Trial]] = {}
    for trial in trials:
        found.setdefault((trial.n, trial.method), []).append(trial)
    return [Cell(n, method, tuple(own)) for (n, method), own in found.items()]


def files(cells: Sequence[Cell]) -> dict[str, str]:
    """Return the text of results.csv, table.md and errors.svg by their names."""
    return {"results.csv": _csv(cells), "table.md": _table(cells), "errors.svg": _picture(cells)}


def _csv(cells: Sequence[Cell]) -> str:
    """Return one line a replicate and parameter."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["n", "method", "replicate", "parameter", "error", "sd", "accepted", "simulated", "refusal"])
    for cell in cells:
        for i, trial in enumerate(cell.trials):
            for name, error, sd in zip(PARAMETERS, trial.error, trial.sd, strict=True):
                numbers = ["" if math.isnan(each) else f"{each:.6g}" for each in (error, sd)]
                writer.writerow([cell.n, cell.method, i, name, *numbers, trial.accepted, trial.simulated, trial.refusal])
    return buffer.getvalue()


def _table(cells: Sequence[Cell]) -> str:
    replicates = max(len(cell.trials) for cell in cells)
    head = (
        f"Error of the posterior mean in sds of the prior, averaged over {replicates} replicates, and its standard error. An "
        "outbreak is the record that is protected, by replacing it, with all its patients. abc and nearest know no noise. What "
        "accepts nothing counts as the prior. sd: of the release's posterior, averaged over replicates and parameters."
    )
    names = ["n", "method", *PARAMETERS, "mean", "accepted", "sd"]
    lines = [head, "", "| " + " | ".join(names) + " |", "|---" * len(names) + "|"]
    for cell in cells:
        errors, sds = cell.errors(), cell.sds()
        if not len(errors):
            lines.append(f"| {cell.n} | {cell.method} |" + " - |" * (len(names) - 2))
            continue
        each = [f"{value:.3f}" for value in errors.mean(axis=0)]
        of_replicates = errors.mean(axis=1)
        se = f" +- {of_replicates.std(ddof=1) / math.sqrt(len(errors)):.3f}" if len(errors) > 1 else ""
        is_release = bool(np.isfinite(sds).all())
        accepted = "-" if is_release else f"{np.mean([trial.accepted for trial in cell.served]):.1f}"
        sd = f"{sds.mean():.3f}" if is_release else "-"
        lines.append(
            f"| {cell.n} | {cell.method} | " + " | ".join([*each, f"{of_replicates.mean():.3f}{se}", accepted, sd]) + " |"
        )
    refused = [(cell, trial) for cell in cells for trial in cell.trials if trial.refusal]
    if refused:
        lines += ["", *dict.fromkeys(f"Refused at n = {cell.n}: {trial.refusal}." for cell, trial in refused)]
    return "\n".join(lines) + "\n"


def _picture(cells: Sequence[Cell]) -> str:
    """Draw each parameter's error, and their mean, on a log scale: one panel for each n."""
    sizes = list(dict.fromkeys(cell.n for cell in cells))
    figure, axes = panels(1, len(sizes), 3.4)
    places = np.arange(len(PARAMETERS) + 1)
    shift = np.linspace(-0.3, 0.3, len(COLOURS))
    for cell in cells:
        errors = cell.errors()
        if not len(errors):
            continue
        panel = axes[0, sizes.index(cell.n)]
        shown = np.column_stack([errors, errors.mean(axis=1)])
        se = shown.std(axis=0, ddof=1) / math.sqrt(len(shown)) if len(shown) > 1 else np.zeros(shown.shape[1])
        x = places + shift[list(COLOURS).index(cell.method)]
        mean = np.maximum(shown.mean(axis=0), np.finfo(float).tiny)
        panel.errorbar(x, mean, se, color=COLOURS[cell.method], marker="o", markersize=3, linestyle="", label=cell.method)
        panel.set_yscale("log")
        panel.set_xticks(places, [*PARAMETERS, "mean"])
        panel.set_title(f"{cell.n} outbreaks", fontsize=8)
    return svg(figure, axes, "", "error / prior sd")
