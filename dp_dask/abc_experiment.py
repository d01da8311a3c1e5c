"""ABC experiment: a paper's comparison of choices among simulations, and of releases, from one small file.

It reads no record and opens no ledger: records are simulated, or public ones that stand in the file.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dp_dask.abc_file import AbcExperiment
from dp_dask.abc_trials import choices, releases
from dp_dask.progress import Progress, silent
from dp_dask.public.abc_comparison import Cell, Trial, cells_of, table, to_csv
from dp_dask.public.abc_pictures import Curves, pictures
from dp_dask.public.guarded import guarded

__all__ = ["AbcResult", "files", "run"]


@dataclass(frozen=True, slots=True)
class AbcResult:
    """What every method did, and its curves where the file names some."""

    cells: list[Cell]
    curves: Curves | None


def run(experiment: AbcExperiment, *, progress: Progress = silent) -> AbcResult:
    """Let every method meet every replicate on the cluster.

    The same file gives the same result on any cluster: what is drawn is decided by the file's seed, the number of the replicate
    and what it is drawn for. Reads no record, charges nothing. Raises InferenceError where a release cannot be inferred from.
    """
    study, size = experiment.study, experiment.size
    epsilons = [] if study.releasing is None else list(study.releasing.like)
    with experiment.cluster.client() as client:
        tasks = [client.submit(choices, study, size.seed, i, pure=False) for i in range(size.replicates)]
        tasks += [
            client.submit(releases, study, size.seed, i, epsilon, pure=False)
            for i in range(experiment.n_releases)
            for epsilon in epsilons
        ]
        trials: list[Trial] = []
        for done, task in enumerate(tasks):
            trials += task.result()
            progress("simulating", done + 1, len(tasks))
    return AbcResult(cells_of(trials), _curves(experiment, trials))


def _curves(experiment: AbcExperiment, trials: list[Trial]) -> Curves | None:
    """Simulate what the first replicate accepted again, as curves over the observed ones."""
    study, curve = experiment.study, experiment.curve
    if curve is None or study.observed is None:
        return None
    found = {}
    for trial in trials:
        if len(trial.theta):
            rng = np.random.default_rng([experiment.size.seed, *str(trial.place).encode()])
            made = guarded(study.model.simulator, trial.theta, study.n, rng, policy="raise", call=study.model.call)
            found[trial.place] = made.simulated.dense(curve[1])
    return Curves(curve, study.observed.values[curve[0]], study.observed.values[curve[1]], found)


def files(result: AbcResult, experiment: AbcExperiment) -> dict[str, str]:
    """Return the texts of results.csv, table.md and the pictures by their names."""
    text = table(result.cells, experiment.targets)
    texts = {"results.csv": to_csv(result.cells), "table.md": f"{experiment.note}\n\n{text}" if experiment.note else text}
    return texts | pictures(result.cells, result.curves)
