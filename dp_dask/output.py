"""Output: the files of a run, each written whole or not at all."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from decimal import Decimal, InvalidOperation
from itertools import chain
from pathlib import Path
from typing import Any

from dp_dask.clusters import Cluster
from dp_dask.config import FEWEST_DRAWS, MOST_DRAWS, SIMULATIONS
from dp_dask.core.privacy import Unit
from dp_dask.errors import ConfigError
from dp_dask.explore import Exploration
from dp_dask.explore.picture import draw
from dp_dask.gate.noise import meaning
from dp_dask.pipeline import Run, select
from dp_dask.posteriors import chosen_from, infer_from
from dp_dask.progress import Progress, silent
from dp_dask.public import publication as files
from dp_dask.public.chosen import Chosen, accepted_csv, chosen_json
from dp_dask.public.posterior import Posterior, Summary, summarise, write_netcdf
from dp_dask.public.prediction import Prediction
from dp_dask.public.publication import Publication
from dp_dask.public.questions import Answer
from dp_dask.public.report import Spending, render
from dp_dask.public.series import read_series
from dp_dask.public.series_page import render_series, series_json
from dp_dask.scheduled import Scheduled
from dp_dask.selection_forecast import SelectionForecast
from dp_dask.selection_picture import draw_flips
from dp_dask.whole_files import make_folder, replace_file, write_files

__all__ = [
    "inference_json",
    "run_folder",
    "run_json",
    "summaries_json",
    "summaries_of",
    "write_flips",
    "write_inference",
    "write_picture",
    "write_posterior",
    "write_report_again",
    "write_run",
    "write_series",
]

# What the summaries of one measurement's parameters have in common.
SHARED = (
    "model", "engine", "reason", "error", "noise_ratio", "prior_p", "posterior_p", "warnings",
)  # fmt: skip


def run_folder(run: Run, folder: Path, scheduled: Scheduled | None = None) -> Path:
    """Make the folder of a run and write release.json there, before anything that could fail.

    It is named by its slot, or else by the releases, so that a repeat of a run replaces its files and makes no new ones.
    """
    releases = list(run.publication.released.values())
    created = max(release.created for release in releases)[:19].replace("-", "").replace(":", "")
    key = hashlib.sha256("".join(release.id for release in releases).encode()).hexdigest()[:8]
    target = folder / f"{created}Z-{key}" if scheduled is None else scheduled.folder
    make_folder(target)
    replace_file(target / "release.json", lambda path: files.write(run.publication, path))
    return target


def write_run(
    run: Run,
    folder: Path,
    cluster: Cluster | None = None,
    *,
    resume: bool = False,
    progress: Progress = silent,
    scheduled: Scheduled | None = None,
) -> tuple[Path, list[Summary]]:
    """Infer from a run's releases, long simulations on the cluster; write all files, return their folder and summaries.

    Simulations are kept in the run's folder as they come, and with ``resume`` read from there instead of made again.
    There is a CSV of accepted parameters for each choice among simulations, and no posterior.nc where there is nothing else.
    """
    target = run_folder(run, folder, scheduled)
    chosen = chosen_from(run.publication)
    write_files({f"{one.measurement}.accepted.csv": accepted_csv(one) for one in chosen}, target)
    is_simulated = any(one.is_simulator for one in run.publication.measurements.values())
    posteriors = infer_from(
        run.publication,
        run.n_draws,
        run.engine,
        cluster=cluster,
        simulations=run.simulations,
        seconds=run.seconds,
        store=target / "simulations" if is_simulated else None,
        reuse=resume,
        progress=(lambda done: progress("simulated", done, max(done, run.simulations))) if is_simulated else None,
    )
    delta = None if run.publication.total is None else run.publication.total.delta
    balance = run.balance
    spending = Spending(charged=run.cost, spent=meaning(balance.unit, balance.spent, delta), granted=balance.granted)
    summaries = write_posterior(run.publication, posteriors, spending, target, chosen=chosen)
    told = run_json(run, summaries, spending, chosen) | ({} if scheduled is None else scheduled.told)
    for posterior in posteriors:
        if posterior.inference.failures is not None:
            told["measurements"][posterior.measurement]["simulations"] = asdict(posterior.inference.failures)
    text = json.dumps(told, indent=2, allow_nan=False) + "\n"
    replace_file(target / "run.json", lambda path: path.write_text(text, encoding="utf-8"))
    return target, summaries


def write_inference(
    publication: Publication,
    posteriors: Sequence[Posterior],
    folder: Path,
    answers: Sequence[Answer] = (),
    predictions: Sequence[Prediction] = (),
    others: Mapping[str, Publication] | None = None,
) -> list[Summary]:
    """Write release.json, posterior.nc, accepted.csv of choices and report.html of an inference; return the summaries.

    ``others`` are the releases, by the names that questions know them by, on which answers rest too.
    """
    replace_file(folder / "release.json", lambda path: files.write(publication, path))
    chosen = chosen_from(publication)
    write_files({f"{one.measurement}.accepted.csv": accepted_csv(one) for one in chosen}, folder)
    return write_posterior(publication, posteriors, None, folder, answers, predictions, others, chosen=chosen)


def write_posterior(
    publication: Publication,
    posteriors: Sequence[Posterior],
    spending: Spending | None,
    folder: Path,
    answers: Sequence[Answer] = (),
    predictions: Sequence[Prediction] = (),
    others: Mapping[str, Publication] | None = None,
    *,
    chosen: Sequence[Chosen] = (),
) -> list[Summary]:
    """Write posterior.nc and report.html; return the summaries."""
    summaries = summaries_of(posteriors)
    records = {prediction.name: prediction.draws for prediction in predictions}
    if posteriors:
        import dask  # noqa: PLC0415  (heavy: not for --help)

        with dask.config.set(scheduler="synchronous"):  # or xarray would lock the file on the cluster of any client that is there
            replace_file(folder / "posterior.nc", lambda path: write_netcdf(posteriors, path, records))
    page = render(publication, posteriors, summaries, spending, answers, predictions, others, chosen=chosen)
    replace_file(folder / "report.html", lambda path: path.write_text(page, encoding="utf-8"))
    return summaries


def write_picture(exploration: Exploration, folder: Path) -> Path:
    """Write explore.svg; return its path."""
    text = draw(exploration)
    replace_file(folder / "explore.svg", lambda path: path.write_text(text, encoding="utf-8"))
    return folder / "explore.svg"


def write_flips(forecasts: Sequence[SelectionForecast], folder: Path) -> Path:
    """Write flips.svg; return its path."""
    write_files({"flips.svg": draw_flips(forecasts)}, folder)
    return folder / "flips.svg"


def summaries_of(posteriors: Sequence[Posterior]) -> list[Summary]:
    """Summarise each parameter of each posterior."""
    return list(chain.from_iterable(map(summarise, posteriors)))


def summaries_json(summaries: Sequence[Summary]) -> dict[str, Any]:
    """Return the summaries by measurement and parameter; what is not a finite number as null."""
    told: dict[str, Any] = {}
    for s in summaries:
        fields = _plain(asdict(s))
        del fields["measurement"], fields["parameter"]
        shared = {key: fields.pop(key) for key in SHARED}
        told.setdefault(s.measurement, {**shared, "parameters": {}})["parameters"][s.parameter] = fields
    return told


def inference_json(
    summaries: Sequence[Summary], answers: Sequence[Answer] = (), predictions: Sequence[Prediction] = ()
) -> dict[str, Any]:
    """Return what an inference from a public release says: measurements, with predictions where asked for, and answers.

    A measurement of groups has a prediction for each.
    """
    measurements = summaries_json(summaries)
    for prediction in predictions:
        fields = {key: getattr(prediction, key) for key in ("mean", "sd", "median", "lower", "upper")}
        if prediction.group is None:
            measurements[prediction.measurement]["prediction"] = fields
        else:
            measurements[prediction.measurement].setdefault("prediction", {})[prediction.group] = fields
    return {"measurements": measurements, "answers": [_plain(_given(asdict(one))) for one in answers]}


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}


def _plain(value: Any) -> Any:
    """Replace each float that is not finite by None: strict JSON has no other word for it."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_report_again(folder: Path) -> Path:
    """Write a run's report.html again from its release.json and run.json; the same release gives the same draws.

    Where the run's time was limited these rest on the simulations that it kept, and no others.

    Raises ConfigError where one of the two is missing or not of this version.
    """
    publication = select(files.read(folder / "release.json"), None)
    problem = ""
    try:
        told = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        spending = _spending(told)
        n_draws, engine = int(told["draws"]), str(told["engine"])
        simulations, is_limited = int(told.get("simulations", SIMULATIONS)), told.get("seconds") is not None
        if not FEWEST_DRAWS <= n_draws <= MOST_DRAWS:
            problem = "asks for a number of draws that is not allowed"
    except (OSError, ValueError, KeyError, TypeError, OverflowError, InvalidOperation):
        problem = "is missing or not the run.json of a run"
    if problem:
        raise ConfigError.of(str(folder / "run.json"), problem)
    kept = folder / "simulations"
    store = kept if kept.is_dir() else None
    posteriors = infer_from(
        publication, n_draws, engine, simulations=simulations, store=store, reuse=True, anew=store is None or not is_limited
    )
    page = render(publication, posteriors, summaries_of(posteriors), spending, chosen=chosen_from(publication))
    replace_file(folder / "report.html", lambda path: path.write_text(page, encoding="utf-8"))
    return folder / "report.html"


def write_series(folder: Path) -> dict[str, Any]:
    """Write series.html of the slots' folders in a folder; return where it is and all that it says. Raises ConfigError."""
    series = read_series(folder)
    write_files({"series.html": render_series(series)}, folder)
    return {"report": str(folder / "series.html"), **series_json(series)}


def _spending(told: dict[str, Any]) -> Spending:
    unit = Unit(told.get("unit", Unit.EPSILON))
    delta = None if told.get("delta") is None else Decimal(told["delta"])
    spent = meaning(unit, Decimal(told["spent"]), delta)
    return Spending(charged=Decimal(told["charged"]), spent=spent, granted=Decimal(told["granted"]))


def run_json(run: Run, summaries: Sequence[Summary], spending: Spending, chosen: Sequence[Chosen] = ()) -> dict[str, Any]:
    """Return what a machine wants to know of a run, in strict JSON; decimals as text."""
    return {
        "schema": "dp-dask/run/2",
        "written_by": run.publication.written_by,
        "dataset": run.publication.dataset,
        "unit": str(spending.spent.unit),
        "charged": str(spending.charged),
        "spent": str(spending.spent.amount),
        "delta": None if spending.spent.delta is None else str(spending.spent.delta),
        "spent_epsilon_at_delta": spending.spent.epsilon,
        "granted": str(spending.granted),
        "left": str(spending.left),
        "draws": run.n_draws,
        "engine": run.engine,
        "simulations": run.simulations,
        "seconds": run.seconds,
        "measurements": {name: {**told, "charged": name in run.charged} for name, told in summaries_json(summaries).items()},
        "selections": {name: {**told, "charged": name in run.charged} for name, told in chosen_json(chosen).items()},
    }
