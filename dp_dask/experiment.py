"""Experiment: a paper's comparison of methods, on simulated releases, from one small file.

It reads no record and opens no ledger: a file names models, n and epsilon, never a data set.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from dp_dask.clusters import Cluster
from dp_dask.config import read
from dp_dask.core.names import NAME, is_name
from dp_dask.core.privacy import Neighbours, exact_epsilon
from dp_dask.entries.build import Faults, build, check_keys, leaf, leaves, show
from dp_dask.entries.cluster import make_cluster
from dp_dask.entries.measurement import Privacy
from dp_dask.entries.measurements import make_measurements
from dp_dask.errors import ConfigError, Problem
from dp_dask.progress import Progress, silent
from dp_dask.public.comparison import Cell
from dp_dask.public.counts import CountsObservation
from dp_dask.public.observation import Observation
from dp_dask.public.observe import planned
from dp_dask.public.trials import METHODS, Trial, join, outcome

__all__ = ["Experiment", "load", "read_epsilon", "run"]

BATCH = 200  # simulated releases that one task handles; a part of the seed, so it is the same everywhere
MOST_RECORDS = 10**4
REQUIRED = ("models", "n", "epsilon", "methods")


@dataclass(frozen=True, slots=True)
class Size:
    """How many releases are simulated in each cell, how many draws are taken of each posterior, and the seed."""

    replicates: int = 100
    draws: int = 63
    seed: int = 1

    def __post_init__(self) -> None:
        for name, least, most in (("replicates", 20, 20_000), ("draws", 7, 1023), ("seed", 0, 2**62)):
            value = getattr(self, name)
            if not least <= value <= most:
                msg = f"{name} is {value}; give a whole number from {least} to {most}"
                raise ValueError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """A whole experiment file, validated."""

    trials: dict[tuple[str, int, str], Trial]  # by model, n and epsilon
    methods: tuple[str, ...]
    size: Size
    cluster: Cluster
    output: Path


def load(path: Path, **replaced: Any) -> Experiment:
    """Read and validate an experiment file; ``replaced`` are top-level keys to use in place of the file's.

    Raises ConfigError with every fault.
    """
    given, faults = read(path, **replaced)
    sizes = ("replicates", "draws", "seed")
    top = check_keys(given, "", (*REQUIRED, *sizes, "cluster", "output"), REQUIRED, faults)
    size = build(Size, {key: top[key] for key in sizes if key in top}, "size", faults)
    faults.problems[:] = [Problem(p.path.removeprefix("size."), p.message) for p in faults.problems]
    methods = leaves(str, top.get("methods", []), "methods", faults)
    for method in methods:
        if method is not None and method not in METHODS:
            faults.add("methods", f"unknown method {method!r}; known: {', '.join(METHODS)}")
    counts = leaves(int, top.get("n", []), "n", faults)
    for n in counts:
        if n is not None and not 1 <= n <= MOST_RECORDS:
            faults.add("n", f"is {n}; give whole numbers from 1 to {MOST_RECORDS}")
    epsilons = [read_epsilon(value, faults) for value in leaves(Decimal, top.get("epsilon", []), "epsilon", faults)]
    cluster = make_cluster(top.get("cluster", "local"), faults)
    output = leaf(Path, top.get("output", "runs"), "output", faults)
    models = _models(top.get("models", {}), faults)
    if faults.problems:
        raise ConfigError(faults.problems)
    trials = {
        (name, n, str(epsilon)): trial
        for name, entry in models.items()
        for n in counts
        for epsilon in epsilons
        if (trial := _trial(name, entry, n, epsilon, faults)) is not None
    }
    if faults.problems or size is None:
        raise ConfigError(list(dict.fromkeys(faults.problems)))
    return Experiment(trials=trials, methods=tuple(methods), size=size, cluster=cluster, output=output)


def read_epsilon(value: Decimal | None, faults: Faults) -> Decimal:
    """Return an epsilon of a list; 1 where it is a fault."""
    try:
        return exact_epsilon(Decimal(1) if value is None else value)
    except ValueError as error:
        faults.add("epsilon", str(error))
        return Decimal(1)


def _models(given: Any, faults: Faults) -> dict[str, Any]:
    if not isinstance(given, dict) or not given:
        faults.add("models", f"is {show(given)}; give at least one, as NAME: {{model: .., prior: .., ..}}")
        return {}
    for name, entry in given.items():
        if not is_name(name):
            faults.add(f"models.{name}", f"the name may hold {NAME} only")
        for key in ("column", "epsilon", "rho"):
            if isinstance(entry, dict) and key in entry:
                faults.add(
                    f"models.{name}.{key}",
                    "has no place here: records are simulated, with Laplace noise of an epsilon that is listed once",
                )
    return given


def _trial(name: str, entry: Any, n: int, epsilon: Decimal, faults: Faults) -> Trial | None:
    own = Faults(faults.folder)
    full = {**entry, "column": "simulated", "epsilon": epsilon} if isinstance(entry, dict) else entry
    made, _ = make_measurements({name: full}, "simulated", Privacy(Neighbours.REPLACE, n), own)
    faults.problems += [Problem(p.path.replace("measurements.", "models.", 1), p.message) for p in own.problems]
    if not made:
        return None
    like = planned(made[0].request, made[0].model)
    if not isinstance(like, Observation | CountsObservation):
        faults.add(f"models.{name}.model", "is released as several sums; experiments serve one sum, or counts of categories")
        return None
    if not np.isfinite(made[0].prior.sd).all():
        faults.add(f"models.{name}.prior", "has no finite sd, by which distances between posteriors are measured; give another")
        return None
    return Trial(like, made[0].prior)


def run(experiment: Experiment, *, progress: Progress = silent) -> list[Cell]:
    """Let every method meet every trial on the cluster; return a cell for each.

    The same file gives the same cells on any cluster: a task's seed is the file's seed with the trial's name, n, epsilon and the
    number of the batch. Reads no record, charges nothing.
    """
    size = experiment.size
    batches = [min(BATCH, size.replicates - start) for start in range(0, size.replicates, BATCH)]
    wanted = [(place, method) for place in experiment.trials for method in experiment.methods]
    with experiment.cluster.client() as client:
        futures = {}
        for place, method in wanted:
            parts = [(experiment.trials[place], method, _seed(size.seed, place, i), k) for i, k in enumerate(batches)]
            # The largest n first: the longest tasks must not begin last.
            tasks = [client.submit(outcome, *part, size.draws, pure=False, priority=place[1]) for part in parts]
            futures[place, method] = tasks
        cells = []
        for i, (place, method) in enumerate(wanted):
            found = join([task.result() for task in futures.pop((place, method))])
            model, n, epsilon = place
            parameters = experiment.trials[place].parameters
            cells.append(Cell(model=model, n=n, epsilon=epsilon, method=method, parameters=parameters, outcome=found))
            progress("simulating", i + 1, len(wanted))
    return cells


def _seed(entropy: int, place: tuple[str, int, str], batch: int) -> tuple[int, ...]:
    return (entropy, batch, *" ".join(map(str, place)).encode())
