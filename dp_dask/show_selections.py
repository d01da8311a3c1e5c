"""Show selections: what choices among simulations are expected to do, and what they did."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console

from dp_dask.public.selection_plan import SparsePlan, TopPlan
from dp_dask.selection_forecast import SelectionForecast
from dp_dask.terminal import MOST_ROWS, make_table, number

__all__ = ["planned_selections", "selection_json", "selections"]


def selections(console: Console, told: Mapping[str, Any]) -> None:
    """Print what choices among simulations accepted."""
    if not told:
        return
    table = make_table("measurement", "method", "accepted", "answered", "failed", "parameter", "mean", "sd")
    for name, one in told.items():
        for parameter, moments in list(one["parameters"].items())[:MOST_ROWS]:
            counts = (str(one["accepted"]), str(one["answered"]), str(one["failed"]))
            table.add_row(name, one["method"], *counts, parameter, number(moments["mean"]), number(moments["sd"]))
    console.print(table)
    for name, one in told.items():
        if not one["accepted"]:
            spent = "its loss is spent all the same: that nothing is near is an answer too"
            console.print(f"{name}: none of {one['answered']} simulations was accepted; {spent}")
    console.print("accepted parameters are a sample with a tolerance and noise: their spread is no calibrated interval")


def planned_selections(console: Console, forecasts: Sequence[SelectionForecast]) -> None:
    """Print what sparse vector, or a choice of c, is expected to do."""
    for f in forecasts:
        for line in (_of_top(f, f.plan) if isinstance(f.plan, TopPlan) else _of_sparse(f, f.plan), *f.warnings):
            console.print(f"{f.measurement}: {line}")
        if f.others:
            table = make_table(
                f.measurement, "c", "threshold", "answered", "accepted", "falsely", "falsely rejected", "flip", "bound"
            )
            for each in f.others:
                spec = each.spec
                counts = (each.answered, each.accepted, each.false_accepts, each.false_rejects, each.flip, each.bound)
                threshold = number(spec.threshold * f.step)
                table.add_row(f"epsilon {spec.epsilon}", str(spec.c), threshold, *(f"{value:.3g}" for value in counts))
            console.print(table)
            console.print(f"{f.measurement}: {f.advice}")


def _of_top(f: SelectionForecast, plan: TopPlan) -> str:
    c = plan.spec.c
    return (
        f"noise of scale {f.scales[0]:.4g} on each distance; of the {c} chosen about {plan.hits:.3g} are among the {c} nearest; "
        f"their mean distance is {plan.mean_chosen * f.step:.4g}, that of the nearest {plan.mean_nearest * f.step:.4g}"
    )


def _of_sparse(f: SelectionForecast, plan: SparsePlan) -> str:
    return (
        f"threshold {f.tolerance:.4g}, noise of scale {f.scales[0]:.4g} on it and {f.scales[1]:.4g} on each distance; "
        f"of {plan.spec.n_queries} simulations about {plan.answered:.4g} are answered and {plan.accepted:.3g} of at most "
        f"{plan.spec.c} accepted, {plan.false_accepts:.3g} falsely, {plan.false_rejects:.3g} falsely rejected; noise changes an "
        f"answer with probability {plan.flip:.2g}; plain ABC accepts {100 * plan.plain_rate:.3g} %; {plan.needed:.4g} "
        f"simulations bring {plan.spec.c} acceptances; a posterior's mean is off by at most {plan.bound:.3g} "
        "times the largest |f|, on average"
    )


def selection_json(f: SelectionForecast) -> dict[str, Any]:
    """Return a forecast for --json; what is not a finite number as null."""
    plan = {key: value for key, value in asdict(f.plan).items() if key != "spec"}
    finite = {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in plan.items()}
    return {**finite, "step": f.step, "scales": f.scales, "threshold": f.tolerance, "warnings": f.warnings, "advice": f.advice}
