"""Chosen: the parameters that a selection accepted, drawn again from its public seed."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.selected import Selection
from dp_dask.core.selection import SparseVector, TopC

__all__ = ["Chosen", "accepted_csv", "chosen_json", "method_of", "question_in_words"]

Floats = NDArray[np.float64]
SPREAD = (0.05, 0.95)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Chosen:
    """The accepted parameters theta [k, p]: a sample of plain ABC's, up to noise. No law that holds the truth at a known rate."""

    measurement: str
    parameters: tuple[str, ...]
    selection: Selection
    theta: Floats

    @property
    def moments(self) -> list[tuple[str, float, float]]:
        """Each parameter's name, mean and sd among the accepted; NaN where there are none."""
        if not len(self.theta):
            return [(name, np.nan, np.nan) for name in self.parameters]
        mean, sd = self.theta.mean(axis=0), self.theta.std(axis=0)
        return [(name, float(mean[j]), float(sd[j])) for j, name in enumerate(self.parameters)]


def method_of(selection: Selection) -> str:
    """Name the method as a pipeline file does."""
    return "svt" if isinstance(selection.request.question, SparseVector) else "select"


def question_in_words(selection: Selection) -> str:
    """Say what was asked, with which noise."""
    request, question = selection.request, selection.request.question
    step = request.distance.step
    scales = [f"{scale * step:.4g}" for scale in selection.scales]
    records = "" if request.where is None else f" to the records where {request.where}"
    if isinstance(question, TopC):
        how = "one exponential mechanism over sets" if question.is_joint else "Gumbel noise"
        return f"the {question.c} nearest of {selection.n_answered} simulations{records}, by {how} of scale {scales[0]}"
    noise = "one-sided geometric" if question.is_one_sided else "discrete Laplace"
    again = ", drawn anew after each acceptance" if question.n_thresholds > 1 else ""
    return (
        f"the first {question.c} of {request.n_simulations} simulations within {question.threshold * step:.4g}{records}, "
        f"by {noise} noise of scale {scales[0]} on the threshold{again} and {scales[1]} on each distance"
    )


def accepted_csv(chosen: Chosen) -> str:
    """Return the accepted simulations' numbers and parameters as CSV, every digit of them."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["simulation", *chosen.parameters])
    for index, row in zip(chosen.selection.accepted, chosen.theta.tolist(), strict=True):
        writer.writerow([index, *map(repr, row)])
    return text.getvalue()


def chosen_json(found: Sequence[Chosen]) -> dict[str, Any]:
    """Return what a machine wants to know of each selection, in strict JSON."""
    return {
        one.measurement: {
            "method": method_of(one.selection),
            "simulator": one.selection.request.simulator,
            "accepted": len(one.selection.accepted),
            "answered": one.selection.n_answered,
            "failed": one.selection.n_failed,
            str(one.selection.request.loss.unit): str(one.selection.request.loss.amount),
            "parameters": {
                name: {"mean": mean, "sd": sd} if len(one.theta) else {"mean": None, "sd": None} for name, mean, sd in one.moments
            },
        }
        for one in found
    }
