"""Outbreak experiment: a paper's choices among simulated outbreaks beside one release, from one small file.

It reads no record and opens no ledger: outbreaks are simulated.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from dp_dask.clusters import Cluster
from dp_dask.config import read
from dp_dask.entries.build import Faults, build, check_keys, leaf, leaves
from dp_dask.entries.cluster import make_cluster
from dp_dask.errors import ConfigError, Problem
from dp_dask.experiment import read_epsilon
from dp_dask.outbreak_trials import Study, choices, compared, observed, release, scores
from dp_dask.outbreaks.birth_death import check_numba
from dp_dask.outbreaks.prior import OutbreakPrior
from dp_dask.progress import Progress, silent
from dp_dask.public.outbreak_comparison import PARAMETERS, Cell, Trial, cells_of

__all__ = ["OutbreakExperiment", "is_outbreaks", "load", "run"]

REQUIRED = ("outbreaks", "n", "epsilon", "c", "clip", "tolerance")
SIZES = ("c", "clip", "tolerance", "simulations", "generation", "replicates", "seed")
OTHER = ("simulations", "generation", "replicates", "seed", "cluster", "output")
AT_ONCE = 5_000  # outbreaks that one task simulates, about two seconds' worth
MOST_OUTBREAKS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The numbers of an experiment; ``generation`` is the outbreaks that a release simulates at once."""

    c: int
    clip: float
    tolerance: float
    simulations: int = 1_000
    generation: int = 5_000
    replicates: int = 10
    seed: int = 1

    def __post_init__(self) -> None:
        limits = (("simulations", 10, 10**6), ("generation", 1_000, 10**6), ("replicates", 1, 1_000), ("seed", 0, 2**62))
        for name, least, most in (("c", 1, self.simulations), *limits):
            value = getattr(self, name)
            if not least <= value <= most:
                msg = f"{name} is {value}; give a whole number from {least} to {most}"
                raise ValueError(msg)
        if not (0 < self.tolerance <= self.clip < float("inf")):
            msg = f"tolerance is {self.tolerance} and clip {self.clip}; give 0 < tolerance <= clip"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutbreakExperiment:
    """A whole file, validated."""

    study: Study
    replicates: int
    cluster: Cluster
    output: Path


def is_outbreaks(path: Path) -> bool:
    """Whether the file is one of these, by its keys."""
    given, _ = read(path)
    return isinstance(given, dict) and "outbreaks" in given


def load(path: Path, **replaced: Any) -> OutbreakExperiment:
    """Read and validate a file; ``replaced`` are top-level keys to use in place of the file's.

    Raises ConfigError with every fault.
    """
    given, faults = read(path, **replaced)
    top = check_keys(given, "", (*REQUIRED, *OTHER), REQUIRED, faults)
    is_sized = all(key in top for key in ("c", "clip", "tolerance"))
    size = build(Size, {key: top[key] for key in SIZES if key in top}, "size", faults) if is_sized else None
    faults.problems[:] = [Problem(p.path.removeprefix("size."), p.message) for p in faults.problems]
    counts = leaves(int, top.get("n", []), "n", faults)
    for n in counts:
        if n is not None and not 1 <= n <= MOST_OUTBREAKS:
            faults.add("n", f"is {n}; give whole numbers from 1 to {MOST_OUTBREAKS}")
    epsilon = read_epsilon(leaf(Decimal, top.get("epsilon", 1), "epsilon", faults), faults)
    truth, prior = _outbreaks(top.get("outbreaks", {}), faults)
    cluster = make_cluster(top.get("cluster", "local"), faults)
    output = leaf(Path, top.get("output", "runs"), "output", faults)
    try:
        check_numba()
    except ValueError as error:
        faults.add("outbreaks", str(error))
    if faults.problems or size is None or truth is None or prior is None:
        raise ConfigError(list(dict.fromkeys(faults.problems)))
    study = Study(
        truth=truth,
        prior=prior,
        sizes=tuple(sorted(counts)),
        epsilon=epsilon,
        c=size.c,
        clip=size.clip,
        tolerance=size.tolerance,
        simulations=size.simulations,
        generation=size.generation,
        seed=size.seed,
    )
    return OutbreakExperiment(study=study, replicates=size.replicates, cluster=cluster, output=output)


def _outbreaks(given: Any, faults: Faults) -> tuple[Any, OutbreakPrior | None]:
    """Read the truth and the prior; None where there was a fault."""
    keys = check_keys(given, "outbreaks", ("truth", "prior"), ("truth", "prior"), faults)
    if "truth" not in keys or "prior" not in keys:
        return None, None
    named = check_keys(keys["truth"], "outbreaks.truth", PARAMETERS, PARAMETERS, faults)
    values = [leaf(float, named[name], f"outbreaks.truth.{name}", faults) for name in PARAMETERS if name in named]
    prior = build(OutbreakPrior, keys["prior"], "outbreaks.prior", faults)
    if len(values) < len(PARAMETERS) or None in values or prior is None:
        return None, None
    try:
        prior.coordinate(np.array([values]))
    except ValueError as error:
        faults.add("outbreaks.truth", str(error))
        return None, None
    return tuple(values), prior


def run(experiment: OutbreakExperiment, *, progress: Progress = silent) -> list[Cell]:
    """Simulate the candidates once and let every method meet every replicate, on the cluster; return a cell a method and n.

    The same file gives the same cells on any cluster: what a task draws depends on the file's seed and its own numbers alone.
    Reads no record, charges nothing.
    """
    study, replicates = experiment.study, range(experiment.replicates)
    step = max(AT_ONCE // max(study.sizes), 1)
    parts = [(first, min(first + step, study.simulations)) for first in range(0, study.simulations, step)]
    with experiment.cluster.client() as client:
        records = np.stack(client.gather([client.submit(observed, study, r, pure=False) for r in replicates]))
        [held] = client.scatter([records], broadcast=True)
        own = client.submit(scores, study, pure=False)
        released = [client.submit(release, study, own, held, n, r, pure=False) for n in study.sizes for r in replicates]
        steps = [client.submit(compared, study, held, *part, pure=False) for part in parts]
        total = len(steps) + len(released)
        found = []
        for i, future in enumerate(steps):
            found.append(future.result())
            progress("simulating", i + 1, total)
        far = np.concatenate(found)
        trials: list[Trial] = []
        for j, n in enumerate(study.sizes):
            for r in replicates:
                trials += choices(study, n, r, far[:, j, r])
        for i, future in enumerate(released):
            trials.append(future.result())
            progress("simulating", len(steps) + i + 1, total)
    return sorted(cells_of(trials), key=lambda cell: cell.n)
