"""Show: results on a terminal, as tables, or as one JSON object."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from dp_dask.check import Check, Forecast
from dp_dask.core.prior_kinds import tell_moments
from dp_dask.core.privacy import Unit, rounded_up
from dp_dask.explore import Exploration, Explored, Tried
from dp_dask.explore.results import tell_outside
from dp_dask.output import inference_json
from dp_dask.pipeline import Run
from dp_dask.progress import Progress, silent
from dp_dask.public.posterior import Summary
from dp_dask.public.prediction import Prediction
from dp_dask.public.questions import Answer
from dp_dask.public.simulation import Width
from dp_dask.public.uniformity import LEVEL, Uniformity
from dp_dask.show_ledger import balance_json, spent_json
from dp_dask.show_selections import planned_selections, selection_json, selections
from dp_dask.show_slots import of_slot
from dp_dask.show_source import source_plan
from dp_dask.terminal import MOST_ROWS, make_console, make_table, number, print_json

__all__ = ["calibration", "check", "experiment", "exploration", "posteriors", "progress", "run"]


@contextmanager
def progress() -> Iterator[Progress]:
    """Give a progress bar on a terminal's error stream, and nothing anywhere else."""
    if not sys.stderr.isatty():
        yield silent
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn  # noqa: PLC0415
    from rich.progress import Progress as Bars  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, Any] = {}

        def update(stage: str, done: int, of: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage)
            bars.update(tasks[stage], completed=done, total=of)

        yield update


def run(result: Run, summaries: Sequence[Summary], folder: Path, *, as_json: bool) -> None:
    """Show the posteriors, the budget and where the files are."""
    if as_json:
        print_json(json.loads((folder / "run.json").read_text(encoding="utf-8")) | {"folder": str(folder)})
        return
    console = make_console()
    told = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    if summaries:
        _posteriors(console, summaries)
    selections(console, told["selections"])
    balance = result.balance
    paid = ", ".join(result.charged) or "nothing: these releases were paid for before"
    console.print(f"charged: {paid}")
    means = (
        ""
        if told["delta"] is None
        else f" (what is spent means epsilon {rounded_up(told['spent_epsilon_at_delta'])} at delta {told['delta']})"
    )
    of = "" if balance.unit is Unit.EPSILON else f" in {balance.unit}"
    console.print(f"budget of {balance.dataset}{of}: {balance.spent} of {balance.granted} spent, {balance.left} left{means}")
    console.print(f"files: {folder}", soft_wrap=True)


def posteriors(
    summaries: Sequence[Summary], answers: Sequence[Answer], predictions: Sequence[Prediction], *, as_json: bool
) -> None:
    """Show posteriors that were made from a public release, the records to expect and the answers to questions."""
    if as_json:
        print_json(inference_json(summaries, answers, predictions))
        return
    console = make_console()
    _posteriors(console, summaries)
    if predictions:
        table = make_table("a new record of", "column", "mean", "sd", "median", "90 % interval")
        for p in predictions[:MOST_ROWS]:
            of = p.measurement if p.group is None else f"{p.measurement}, {p.group}"
            table.add_row(of, p.column, number(p.mean), number(p.sd), number(p.median), _interval(p.lower, p.upper))
        console.print()
        console.print(table)
    if answers:
        _answers(console, answers)


def _answers(console: Console, answers: Sequence[Answer]) -> None:
    table = make_table("question", "answer", "sd", "90 % interval", "Monte Carlo error")
    for a in answers:
        if a.probability is not None:
            table.add_row(a.question, f"probability {a.probability:.4g}", "", "", f"{a.error:.2g}")
        elif a.lower is not None and a.upper is not None:
            table.add_row(a.question, f"mean {number(a.mean)}", number(a.sd), _interval(a.lower, a.upper), f"{a.error:.2g}")
    console.print()
    console.print(table)
    for note in dict.fromkeys(a.note for a in answers if a.note):
        console.print(f"note: {note}")


def _posteriors(console: Console, summaries: Sequence[Summary]) -> None:
    """Print the table, and under it what is suspicious."""
    table = make_table(
        "measurement", "parameter", "mean", "sd", "90 % interval", "noise ratio", "noise adds", "ESS", "R-hat", "engine"
    )
    for s in summaries[:MOST_ROWS]:
        ratio = "" if not s.noise_ratio else f"{max(s.noise_ratio):.2g}"
        adds = "" if s.noise_share is None else f"{100 * s.noise_share:.0f} %"
        diagnostics = (ratio, adds, f"{s.ess:.0f}", f"{s.r_hat:.3f}", s.engine)
        table.add_row(s.measurement, s.parameter, number(s.mean), f"{s.sd:.3g}", _interval(s.lower, s.upper), *diagnostics)
    console.print(table)
    for measurement, warning in dict.fromkeys((s.measurement, warning) for s in summaries for warning in s.warnings):
        console.print(f"warning: {measurement}: {warning}")


def _interval(lower: float, upper: float) -> str:
    return f"{lower:.4g} to {upper:.4g}"


def check(result: Check, picture: Path | None = None, slot: Mapping[str, Any] | None = None, *, as_json: bool) -> None:
    """Show a plan, where its picture is, and what is there of its slot."""
    if as_json:
        plan = {
            "dataset": result.dataset,
            "protects": result.protects,
            **spent_json("cost", result.cost),
            "budget": None if result.balance is None else balance_json(result.balance),
            "refusal": result.refusal,
            "source": asdict(result.source),
            "measurements": {f.measurement: _forecast(f) for f in result.forecasts},
            "selections": {f.measurement: selection_json(f) for f in result.selections},
            "picture": None if picture is None else str(picture),
        }
        print_json(plan if slot is None else {**plan, "slot": slot})
        return
    console = make_console()
    table = make_table(
        "measurement", "parameter", "loss", "sensitivity", "noise scale", "expected sd", "without privacy", "ratio"
    )
    for f in result.forecasts:
        widths = [_width(w) for w in f.widths] or [("?", "?", "?")] * len(f.parameters)
        facts = (str(f.loss), f"{f.sensitivity:.4g}", f"{f.noise_scale:.4g}")
        for parameter, width in list(zip(f.parameters, widths, strict=True))[:MOST_ROWS]:
            table.add_row(f.measurement, parameter, *facts, *width)
    console.print("valid")
    console.print(f"protects {result.protects}", soft_wrap=True)
    source_plan(console, result.source)
    if result.forecasts:
        console.print(table)
    planned_selections(console, result.selections)
    for f in result.forecasts:
        for line in _notes(f):
            console.print(line)
    _budget(console, result)
    if slot is not None:
        console.print(of_slot(slot), soft_wrap=True)
    if picture is not None:
        console.print(f"picture: {picture}", soft_wrap=True)


def _budget(console: Console, result: Check) -> None:
    balance = result.balance
    if balance is not None:
        console.print(f"budget of {balance.dataset}: {balance.unit} {balance.left} left before, cost {result.cost}")
        if result.refusal is None:
            console.print("a run is affordable; releases made before are not charged again")
    if result.refusal is not None:
        console.print(f"a run would be refused: {result.refusal}")


def _notes(f: Forecast) -> list[str]:
    """Say what the prior amounts to, and what is seldom wanted."""
    moments = list(zip(f.parameters, f.prior_mean, f.prior_sd, strict=True))[:MOST_ROWS]
    notes = [f"{f.measurement}: the prior of {parameter} has {tell_moments(mean, sd)}" for parameter, mean, sd in moments]
    notes += [f"{f.measurement}: {warning}" for warning in f.warnings]
    if not f.widths:
        notes.append(f"{f.measurement}: give privacy.expected_records, a public guess, to see the expected width")
    return notes


def _forecast(f: Forecast) -> dict[str, Any]:
    moments = {"prior_mean": f.prior_mean, "prior_sd": f.prior_sd}
    finite = {key: [value if math.isfinite(value) else None for value in values] for key, values in moments.items()}
    told = {key: value for key, value in asdict(f).items() if key != "loss"}
    return {**told, **finite, str(f.loss.unit): str(f.loss.amount)}


def _width(width: Width) -> tuple[str, str, str]:
    if width.non_private is None or width.ratio is None:
        return f"{width.private:.3g}", "-", "-"
    return f"{width.private:.3g}", f"{width.non_private:.3g}", f"{width.ratio:.2f}"


def exploration(result: Exploration, picture: Path | None, *, as_json: bool) -> None:
    """Show what could be chosen in place of the file's designs, and what it would be."""
    if as_json:
        plain = json.loads(json.dumps(asdict(result), default=str, allow_nan=False))  # decimals as text
        plain["measurements"] = {m.pop("measurement"): m for m in plain["measurements"]}
        print_json(plain | {"picture": None if picture is None else str(picture)})
        return
    console = make_console()
    for m in result.measurements:
        console.print(_explored(m))
        for line in (*m.reasons, *m.warnings):
            console.print(f"{m.measurement}: {line}")
        console.print()
    if result.split is not None:
        console.print(f"split: {result.split.reason}")
    console.print("Simulated from models and priors alone: no record was read, nothing was charged.")
    if picture is not None:
        console.print(f"picture: {picture}", soft_wrap=True)


def _explored(m: Explored) -> Table:
    """Return the designs, then the chosen one at other epsilons and with other weights of the count."""
    width = "expected sd" if m.has_sd else "expected width"
    table = make_table(m.measurement, "bounds", "outside", "epsilon", "count", "beyond", width, "times the file's")

    def row(cell: Tried, label: str) -> None:
        widths = ", ".join(f"{name} {value:.3g}" for name, value in zip(m.parameters, cell.widths, strict=True))
        times = f"{cell.ratio:.3g}" if cell.error == 0 else f"{cell.ratio:.3g} ± {cell.error:.1g}"
        bounds = f"[{cell.bounds.lower:.4g}, {cell.bounds.upper:.4g}]"
        count = "-" if cell.weight is None else f"{cell.weight:.2g}"
        outside = tell_outside(cell.outside, cell.inside_count)
        table.add_row(label, bounds, outside, str(cell.epsilon), count, f"{100 * cell.share_outside:.0f} %", widths, times)

    for cell in m.designs:
        row(cell, f"{cell.label}, chosen" if cell == m.chosen else cell.label)
    for cell in (*m.epsilons, *m.weights):
        if cell != m.chosen:
            row(cell, "chosen, otherwise")
    return table


def calibration(results: dict[str, Uniformity], *, as_json: bool) -> None:
    """Show whether posteriors can be believed."""
    if as_json:
        print_json({name: {**asdict(u), "passes": u.passes} for name, u in results.items()})
        return
    console = make_console()
    table = make_table("parameter", "replicates", "gamma", "pass mark", "p-value", "KS distance", "verdict")
    for name, u in results.items():
        verdict = "can be believed" if u.passes else "CANNOT be believed"
        table.add_row(name, str(u.n), f"{u.gamma:.3g}", f"{u.pass_mark:.3g}", f"{u.p_value:.3g}", f"{u.ks:.3f}", verdict)
    console.print(table)
    console.print("This tests the computation: if model and prior are right, so are the intervals, averaged over the prior.")
    console.print(f"A posterior that is right passes {100 * (1 - LEVEL):.0f} times in 100, whatever the number of replicates;")
    console.print("500 replicates find an sd 15 % too small 98 times in 100, 2,000 one 7 % too small 2 times in 3.")


def experiment(told: Mapping[str, Any], texts: Mapping[str, str], folder: Path, *, as_json: bool) -> None:
    """Show the tables of a comparison and where its files are."""
    if as_json:
        print_json({"folder": str(folder), **told})
        return
    console = make_console()
    console.print(texts["table.md"], soft_wrap=True)
    console.print(f"files: {folder}", soft_wrap=True)
