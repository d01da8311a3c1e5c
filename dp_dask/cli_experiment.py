"""The command line's experiments: a paper's comparison of methods, each kind of file by what loads, runs and tells it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from dp_dask.cli_ledger import FILE, JSON

__all__ = ["experiment"]


@click.command()
@FILE
@click.option("--replicates", type=click.IntRange(1, 20_000), help="Simulated releases a cell, in place of the file's.")
@click.option("--cluster", help="The kind of cluster, in place of the file's.")
@click.option("--output", type=click.Path(path_type=Path), help="The folder for results, in place of the file's.")
@JSON
def experiment(file: Path, replicates: int | None, cluster: str | None, output: Path | None, *, as_json: bool) -> None:
    """Repeat a paper's comparison of methods, as FILE lists it, on simulated releases. No records, no budget."""
    from dp_dask import show  # noqa: PLC0415
    from dp_dask.clusters import attended  # noqa: PLC0415
    from dp_dask.pipeline import check_output  # noqa: PLC0415
    from dp_dask.whole_files import write_files  # noqa: PLC0415

    given = {"replicates": replicates, "cluster": cluster, "output": str(output.absolute()) if output else None}
    load, run_it, tell = _comparison(file)
    plan = load(file, **{key: value for key, value in given.items() if value is not None})
    with attended(plan.cluster):
        check_output(plan.output)
        with show.progress() as progress:
            texts, told = tell(plan, run_it(plan, progress=progress))
        write_files(texts, plan.output)
        show.experiment(told, texts, plan.output, as_json=as_json)


def _comparison(file: Path) -> tuple[Callable[..., Any], Callable[..., Any], Callable[[Any, Any], tuple[Any, Any]]]:
    """Return how the kind of experiment that a file holds is loaded, run, and told: its files, and what to show."""
    from dp_dask import abc_experiment, abc_file, experiment, outbreak_experiment  # noqa: PLC0415
    from dp_dask import show_experiments as told_by  # noqa: PLC0415
    from dp_dask.public import comparison, outbreak_comparison  # noqa: PLC0415

    if abc_file.is_abc(file):
        return (
            abc_file.load,
            abc_experiment.run,
            lambda plan, made: (
                abc_experiment.files(made, plan),
                told_by.compared_choices(made.cells, plan.targets),
            ),
        )
    if outbreak_experiment.is_outbreaks(file):
        return (
            outbreak_experiment.load,
            outbreak_experiment.run,
            lambda _plan, cells: (
                outbreak_comparison.files(cells),
                told_by.compared_outbreaks(cells),
            ),
        )
    return (
        experiment.load,
        experiment.run,
        lambda plan, cells: (
            comparison.files(cells, plan.size.draws),
            told_by.compared_posteriors(cells),
        ),
    )
