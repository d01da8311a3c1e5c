"""The command line: a thin shell over the same verbs, with one exit code for each kind of failure.

0 done, 2 invalid configuration, 3 budget refused, 4 data source, 5 cluster, 130 interrupted, 1 anything else.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from dp_dask import __version__
from dp_dask.cli_audit import audit
from dp_dask.cli_certs import certs
from dp_dask.cli_experiment import experiment
from dp_dask.cli_ledger import FILE, JSON, ledger
from dp_dask.errors import ConfigError, DpDaskError

__all__ = ["cli", "main"]

# Everything heavy is imported inside the commands: --help must answer at once.
SLOT = click.option("--slot", metavar="TIME", help="The scheduled time, which is charged once: ISO 8601; or give DP_DASK_SLOT.")


def main() -> None:
    """Run the command line and exit with its code."""
    as_json = "--json" in sys.argv
    try:
        cli.main(standalone_mode=False)
    except DpDaskError as error:
        _fail(error, as_json=as_json)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except OSError as error:
        told = "a release that was committed is found again, free, by the next run"
        where = f": {error.filename}" if error.filename else " where something was to be written"
        click.echo(f"error: {error.strerror}{where}; {told}", err=True)
        sys.exit(1)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted; what was not committed by then is not charged", err=True)
        sys.exit(130)


def _fail(error: DpDaskError, *, as_json: bool) -> None:
    if as_json:
        problems = [{"path": p.path, "message": p.message} for p in error.problems] if isinstance(error, ConfigError) else []
        report = {"error": type(error).__name__, "message": str(error), "problems": problems, "exit_code": error.exit_code}
        click.echo(json.dumps(report))
    if isinstance(error, ConfigError):
        click.echo(f"{len(error.problems)} problem{'s' if len(error.problems) > 1 else ''}:", err=True)
        for problem in error.problems:
            click.echo(f"  {problem}", err=True)
    else:
        click.echo(f"error: {error}", err=True)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="dp-dask")
def cli() -> None:
    """Differentially private Bayesian posteriors from records on a Dask cluster."""


@cli.command()
@FILE
@click.option("--explore", is_flag=True, help="Try other bounds, clamp and truncate, and epsilons, from the prior alone.")
@click.option(
    "--output", type=click.Path(path_type=Path), help="Draw into this folder: explore.svg, or without --explore flips.svg of svt."
)
@SLOT
@JSON
def check(file: Path, output: Path | None, slot: str | None, *, explore: bool, as_json: bool) -> None:
    """Validate FILE; show its cost, its noise and the width to expect. Reads no record."""
    from dp_dask import show  # noqa: PLC0415
    from dp_dask.check import check as check_pipeline  # noqa: PLC0415
    from dp_dask.config import load  # noqa: PLC0415
    from dp_dask.output import write_flips  # noqa: PLC0415
    from dp_dask.pipeline import check_output  # noqa: PLC0415
    from dp_dask.scheduled import schedule, state  # noqa: PLC0415

    if explore:
        _explore(file, output, as_json=as_json)
        return
    pipeline, scheduled = schedule(load(file), slot)
    if output is not None:
        if not any(choice.request.is_sparse_vector for choice in pipeline.selections):
            told = (
                "is where --explore draws, or the flips of method svt, which no measurement has; give --explore, or leave it out"
            )
            raise ConfigError.of("--output", told)
        check_output(output)
    found = check_pipeline(pipeline)
    picture = None if output is None else write_flips(found.selections, output)
    show.check(found, picture, None if scheduled is None else state(pipeline, scheduled), as_json=as_json)


def _explore(file: Path, output: Path | None, *, as_json: bool) -> None:
    from dp_dask import show  # noqa: PLC0415
    from dp_dask.config import load  # noqa: PLC0415
    from dp_dask.explore import explore  # noqa: PLC0415
    from dp_dask.output import write_picture  # noqa: PLC0415
    from dp_dask.pipeline import check_output  # noqa: PLC0415

    pipeline = load(file)
    if output is not None:
        check_output(output)
    with show.progress() as progress:
        found = explore(pipeline, progress=progress)
    picture = None if output is None else write_picture(found, output)
    show.exploration(found, picture, as_json=as_json)


@cli.command()
@FILE
@click.option("--cluster", help="The kind of cluster, in place of the file's.")
@click.option("--output", type=click.Path(path_type=Path), help="The folder for results, in place of the file's.")
@click.option("--resume", is_flag=True, help="Read simulations that an interrupted run left, in place of making them again.")
@SLOT
@JSON
def run(file: Path, cluster: str | None, output: Path | None, slot: str | None, *, resume: bool, as_json: bool) -> None:
    """Read, reduce, release, infer and report: charges the budget once for each new release."""
    from dp_dask import show  # noqa: PLC0415
    from dp_dask.clusters import attended  # noqa: PLC0415
    from dp_dask.config import load  # noqa: PLC0415
    from dp_dask.output import write_run  # noqa: PLC0415
    from dp_dask.pipeline import run as run_pipeline  # noqa: PLC0415
    from dp_dask.scheduled import schedule  # noqa: PLC0415

    replaced: dict[str, Any] = {}
    if cluster:
        replaced["cluster"] = cluster
    if output:
        replaced["output"] = str(output.absolute())
    loaded = load(file, **replaced)
    with attended(loaded.cluster, loaded.simulates_on):
        pipeline, scheduled = schedule(loaded, slot)
        if scheduled is not None and scheduled.warning:
            click.echo(f"warning: {scheduled.warning}", err=True)
        with show.progress() as progress:
            result = run_pipeline(pipeline, progress=progress, resume=resume)
            asked: dict[str, Any] = {"resume": resume, "progress": progress, "scheduled": scheduled}
            folder, summaries = write_run(result, pipeline.output, pipeline.simulates_on, **asked)
        show.run(result, summaries, folder, as_json=as_json)


@cli.command()
@click.argument("release", type=click.Path(path_type=Path))
@click.option("--prior", help="Another prior, as {alpha: 2, beta: 3}; for the one named by --measurement, or the only one.")
@click.option("--measurement", help="Infer this measurement only.")
@click.option("--engine", default="auto", show_default=True, help="auto, lattice, edgeworth, augment, gibbs, ..")
@click.option("--draws", default=4000, show_default=True, type=click.IntRange(100, 10**7))
@click.option("--simulations", type=click.IntRange(2_000, 10**8), help="Data sets to simulate at most, through a simulator.")
@click.option(
    "--ask", "questions", multiple=True, help="An event or a quantity, as 'P(rate > 2)' or 'a.rate / b.rate'; repeatable."
)
@click.option("--with", "others", multiple=True, help="NAME=RELEASE.json: ask about NAME.measurement.parameter too; repeatable.")
@click.option("--predict", is_flag=True, help="Draw a new record, before bounds, for each posterior draw.")
@click.option("--output", type=click.Path(path_type=Path), help="Write posterior.nc and report.html into this folder.")
@JSON
def infer(
    release: Path,
    prior: str | None,
    measurement: str | None,
    engine: str,
    draws: int,
    simulations: int | None,
    questions: tuple[str, ...],
    others: tuple[str, ...],
    output: Path | None,
    *,
    predict: bool,
    as_json: bool,
) -> None:
    """Make a posterior from a public RELEASE.json and ask about it: no records, no budget, any prior."""
    from dp_dask import show  # noqa: PLC0415
    from dp_dask.entries.strict_yaml import parse  # noqa: PLC0415
    from dp_dask.output import summaries_of, write_inference  # noqa: PLC0415
    from dp_dask.pipeline import check_output, select  # noqa: PLC0415
    from dp_dask.posteriors import infer_from  # noqa: PLC0415
    from dp_dask.public.prediction import predict as predict_from  # noqa: PLC0415
    from dp_dask.public.publication import read  # noqa: PLC0415
    from dp_dask.public.questions import Asked, answer  # noqa: PLC0415

    publication = select(read(release), measurement)
    priors = None
    if prior is not None:
        if len(publication.measurements) > 1:
            names = ", ".join(publication.measurements)
            raise ConfigError.of("--prior", f"the release holds {names}; say which with --measurement")
        if not publication.measurements:
            raise ConfigError.of("--prior", "is for a measurement; the release holds choices among simulations alone")
        priors = {next(iter(publication.measurements)): parse(prior, "--prior")}
    more = {name: select(read(file), None) for name, file in map(_named_file, others)}
    if others and not questions:
        raise ConfigError.of("--with", "is for --ask: give a question")
    if len(more) < len(others):
        raise ConfigError.of("--with", "gives a name twice")
    posteriors = infer_from(publication, draws, engine, priors, simulations=simulations)
    asked = [Asked(p.measurement, publication.dataset, p) for p in posteriors]
    for name, other in more.items():
        asked += [
            Asked(f"{name}.{p.measurement}", other.dataset, p) for p in infer_from(other, draws, engine, simulations=simulations)
        ]
    answers = answer(questions, asked)
    predictions = [found for p in posteriors for found in predict_from(p)] if predict else []
    if output is None:
        summaries = summaries_of(posteriors)
    else:
        check_output(output)
        if (output / "run.json").exists():
            raise ConfigError.of("--output", f"{output} holds a run; choose another folder")
        summaries = write_inference(publication, posteriors, output, answers, predictions, more)
    show.posteriors(summaries, answers, predictions, as_json=as_json)


def _named_file(text: str) -> tuple[str, Path]:
    from dp_dask.core.names import NAME, is_name  # noqa: PLC0415

    name, equals, file = text.partition("=")
    if not (equals and file and is_name(name)):
        raise ConfigError.of("--with", f"is {text!r}; give NAME=RELEASE.json, the name of {NAME}")
    return name, Path(file)


@cli.command()
@FILE
@click.option("--replicates", default=500, show_default=True, type=click.IntRange(20, 20_000))
@click.option("--seed", default=1, show_default=True, help="Equal seeds give equal results on any cluster.")
@click.option("--cluster", help="The kind of cluster, in place of the file's.")
@JSON
def calibrate(file: Path, replicates: int, seed: int, cluster: str | None, *, as_json: bool) -> None:
    """Simulate FILE's models, priors, n, bounds and epsilons: can its posteriors be believed? No records, no budget."""
    from dp_dask import show  # noqa: PLC0415
    from dp_dask.clusters import attended  # noqa: PLC0415
    from dp_dask.config import load  # noqa: PLC0415
    from dp_dask.pipeline import calibrate as calibrate_pipeline  # noqa: PLC0415

    pipeline = load(file, **({"cluster": cluster} if cluster else {}))
    with attended(pipeline.simulates_on):
        with show.progress() as progress:
            results = calibrate_pipeline(pipeline, replicates, entropy=seed, progress=progress)
        show.calibration(results, as_json=as_json)


@cli.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--series", is_flag=True, help="Of all slots in FOLDER, which holds a folder each: FOLDER/series.html.")
@JSON
def report(folder: Path, *, series: bool, as_json: bool) -> None:
    """Write the HTML report of a run's FOLDER again, from its release.json and run.json; or that of a series of runs."""
    from dp_dask.output import write_report_again, write_series  # noqa: PLC0415

    told = write_series(folder) if series else {"report": str(write_report_again(folder))}
    click.echo(json.dumps(told, allow_nan=False) if as_json else told["report"])


@cli.command()
def schema() -> None:
    """Print the JSON schema of a pipeline file, for editors."""
    from dp_dask.schema import schema as make_schema  # noqa: PLC0415

    click.echo(json.dumps(make_schema(), indent=2))


cli.add_command(experiment)
cli.add_command(ledger)
cli.add_command(certs)
cli.add_command(audit)
