"""ABC file: what a file says of a comparison of choices among simulations, validated."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from dp_dask.abc_trials import METHODS, Releasing, Study
from dp_dask.clusters import Cluster
from dp_dask.config import read
from dp_dask.core.dirichlet import Dirichlet
from dp_dask.core.of_sums import OfSums
from dp_dask.core.privacy import Neighbours
from dp_dask.core.simulated import Simulated
from dp_dask.entries.build import Faults, build, check_keys, leaf, leaves, show
from dp_dask.entries.cluster import make_cluster
from dp_dask.entries.distance import make_distance, read_distance
from dp_dask.entries.measurement import Measurement, Privacy
from dp_dask.entries.measurements import make_measurements
from dp_dask.entries.prior import make_prior
from dp_dask.entries.simulator import known_of_simulator, make_simulator
from dp_dask.errors import ConfigError, InferenceError, Problem
from dp_dask.experiment import read_epsilon
from dp_dask.public.abc_comparison import Place, Target
from dp_dask.public.observe import planned
from dp_dask.public.simulated import SimulatedObservation
from dp_dask.public.simulator_model import SimulatorModel
from dp_dask.public.tempering import Effort

__all__ = ["AbcExperiment", "is_abc", "load"]

OF_RELEASE = ("epsilon", "is_categorical", "draws", "simulations", "replicates")
REQUIRED = ("simulation", "n", "distance", "c", "tolerance", "epsilon")
OTHER = (
    "note",
    "truth",
    "observed",
    "curve",
    "methods",
    "simulations",
    "replicates",
    "seed",
    "release",
    "targets",
    "cluster",
    "output",
)


@dataclass(frozen=True, slots=True)
class Size:
    """The records of a data set, the candidates of a replicate, the replicates, and the seed."""

    n: int
    simulations: int = 10_000
    replicates: int = 20
    seed: int = 1

    def __post_init__(self) -> None:
        limits = (("n", 1, 10**6), ("simulations", 10, 10**7), ("replicates", 1, 10_000), ("seed", 0, 2**62))
        for name, least, most in limits:
            value = getattr(self, name)
            if not least <= value <= most:
                msg = f"{name} is {value}; give a whole number from {least} to {most}"
                raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class ReleaseSize:
    """How many draws of each posterior, simulations for each engine, and replicates with a release (all where it is None)."""

    is_categorical: bool = False
    draws: int = 4_000
    simulations: int = 8_000
    replicates: int | None = None

    def __post_init__(self) -> None:
        for name, least in (("draws", 100), ("simulations", 2_000)):
            if getattr(self, name) < least:
                msg = f"{name} is {getattr(self, name)}; give at least {least}"
                raise ValueError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class AbcExperiment:
    """A whole file, validated; ``note`` is what must be told with its tables."""

    note: str
    study: Study
    size: Size
    n_releases: int
    targets: tuple[Target, ...]
    curve: tuple[str, str] | None
    cluster: Cluster
    output: Path


def is_abc(path: Path) -> bool:
    """Whether the file is one of these, by its keys."""
    given, _ = read(path)
    return isinstance(given, dict) and "simulation" in given


def load(path: Path, **replaced: Any) -> AbcExperiment:
    """Read and validate a file; ``replaced`` are top-level keys to use in place of the file's.

    Raises ConfigError with every fault that can be seen before others are mended.
    """
    given, faults = read(path, **replaced)
    top = check_keys(given, "", (*REQUIRED, *OTHER), REQUIRED, faults)
    sizes = ("n", "simulations", "replicates", "seed")
    size = build(Size, {key: top[key] for key in sizes if key in top}, "size", faults) if "n" in top else None
    faults.problems[:] = [Problem(p.path.removeprefix("size."), p.message) for p in faults.problems]
    methods = leaves(str, top.get("methods", list(METHODS)), "methods", faults)
    for method in methods:
        if method is not None and method not in METHODS:
            faults.add("methods", f"unknown method {method!r}; known: {', '.join(METHODS)}")
    epsilons = tuple(read_epsilon(value, faults) for value in leaves(Decimal, top.get("epsilon", []), "epsilon", faults))
    counts = leaves(int, top.get("c", []), "c", faults)
    tolerances = leaves(float, top.get("tolerance", []), "tolerance", faults)
    cluster = make_cluster(top.get("cluster", "local"), faults)
    output = leaf(Path, top.get("output", "runs"), "output", faults)
    note = leaf(str, top.get("note", ""), "note", faults)
    targets = [build(Target, each, f"targets[{i}]", faults) for i, each in enumerate(top.get("targets", []))]
    curve = leaf(tuple[str, str], top["curve"], "curve", faults) if "curve" in top else None
    if "simulation" in top:
        model, prior = _simulation(top["simulation"], faults)
    options = read_distance(top["distance"], "distance", faults) if "distance" in top else None
    if options is not None and not hasattr(options, "bandwidth"):
        faults.add("distance.kind", "is no discrepancy of a kernel, which these experiments are of; give mmd, or another of them")
    _stop(faults)
    assert model is not None and size is not None and options is not None  # noqa: S101, PT018  (for the type checker)
    truth, observed = _records(top, model, size.n, faults)
    releasing, n_releases = _releasing(top, prior, size, faults) if "release" in top else (None, 0)
    study = None
    try:
        distance = make_distance(options, model, prior, size.n)
        assert isinstance(distance, OfSums)  # noqa: S101  (for the type checker)
        study = Study(
            model=model,
            prior=prior,
            n=size.n,
            distance=distance,
            truth=truth,
            observed=observed,
            methods=tuple(methods),
            epsilons=epsilons,
            counts=tuple(counts),
            tolerances=tuple(tolerances),
            n_simulations=size.simulations,
            releasing=releasing,
        )
    except ValueError as error:
        faults.add("distance", str(error))
    _stop(faults)
    assert study is not None  # noqa: S101  (for the type checker)
    _check_questions(study, faults)
    _check_targets(study, targets, faults)
    if curve is not None and not (observed is not None and set(curve) <= set(observed.values)):
        faults.add("curve", f"is {show(curve)}; give two columns of observed records, as [day, cases]")
    _stop(faults)
    return AbcExperiment(
        note=note,
        study=study,
        size=size,
        n_releases=n_releases,
        targets=tuple(each for each in targets if each is not None),
        curve=curve,
        cluster=cluster,
        output=output,
    )


def _stop(faults: Faults) -> None:
    if faults.problems:
        raise ConfigError(list(dict.fromkeys(faults.problems)))


def _simulation(given: Any, faults: Faults) -> tuple[SimulatorModel | None, Any]:
    """Make the simulator and its prior from what a pipeline file would say of them."""
    path = "simulation"
    name = leaf(str, given.get("simulator"), f"{path}.simulator", faults) if isinstance(given, dict) else None
    known = None if name is None else known_of_simulator(name, f"{path}.simulator", faults)
    values = check_keys(given, path, ("simulator", "prior", *(known or ())), ("simulator", "prior"), faults)
    if name is None or known is None:
        return None, None
    model = make_simulator(name, {key: values[key] for key in known if key in values}, path, faults)
    if model is not None and model.simulator.decides_n:
        faults.add(
            f"{path}.simulator", "decides by its own course how many records there are; these experiments are of a public n"
        )
    prior = None if model is None or "prior" not in values else make_prior(model, values["prior"], f"{path}.prior", faults)
    return model, prior


def _records(
    top: dict[str, Any], model: SimulatorModel, n: int, faults: Faults
) -> tuple[tuple[float, ...] | None, Simulated | None]:
    """Read the truth, or the records that are public."""
    if ("truth" in top) is ("observed" in top):
        faults.add("truth", "give either truth, as prior or as one number for each parameter, or observed records")
        return None, None
    if "observed" in top:
        found = leaf(dict[str, list[float]], top["observed"], "observed", faults) or {}
        if set(found) != set(model.simulator.columns) or {len(each) for each in found.values()} != {n}:
            faults.add("observed", f"must be {n} numbers for each of {', '.join(model.simulator.columns)}")
            return None, None
        return None, Simulated(np.array([n]), {name: np.array(each) for name, each in found.items()})
    if top["truth"] == "prior":
        return None, None
    truth = leaf(tuple[float, ...], top["truth"], "truth", faults)
    if truth is not None:
        try:
            model.simulator.simulate(np.array([truth]), 1, np.random.default_rng(0))
        except ValueError as error:
            faults.add("truth", str(error))
    return truth, None


def _releasing(top: dict[str, Any], prior: Any, size: Size, faults: Faults) -> tuple[Releasing | None, int]:
    """Plan a release of the summary at each epsilon, as a pipeline file would have it."""
    given = top["release"]
    if not isinstance(given, dict) or "observed" in top:
        faults.add("release", f"is {show(given)}; give a mapping with column, bounds, summary and epsilon, and a truth")
        return None, 0
    own = build(ReleaseSize, {key: given[key] for key in OF_RELEASE[1:] if key in given}, "release", faults)
    epsilons = [read_epsilon(value, faults) for value in leaves(Decimal, given.get("epsilon", []), "release.epsilon", faults)]
    shape = {key: value for key, value in given.items() if key not in OF_RELEASE}
    like: dict[Decimal, SimulatedObservation] = {}
    for epsilon in epsilons:
        entry, inner = {**top["simulation"], **shape, "epsilon": epsilon}, Faults(faults.folder)
        made, _ = make_measurements({"release": entry}, "simulated", Privacy(Neighbours.REPLACE, size.n), inner)
        faults.problems += [Problem(p.path.replace("measurements.", "", 1), p.message) for p in inner.problems]
        observation = _planned(made[0], faults) if made else None
        if observation is not None:
            like[epsilon] = observation
    if own is None or not like:
        return None, 0
    if own.is_categorical:
        bins = {len(each.statistic.units) for each in like.values()}
        if not isinstance(prior, Dirichlet) or bins != {len(prior.alpha)}:
            faults.add("release.is_categorical", "needs a Dirichlet prior, and a bin for each of its parameters")
    n_releases = size.replicates if own.replicates is None else min(own.replicates, size.replicates)
    return Releasing(like, own.is_categorical, own.draws, Effort.of(own.simulations)), n_releases


def _planned(measurement: Measurement, faults: Faults) -> SimulatedObservation | None:
    try:
        found = planned(measurement.request, measurement.model)
    except InferenceError as error:
        faults.add("release", str(error))
        return None
    return found if isinstance(found, SimulatedObservation) else None


def _check_questions(study: Study, faults: Faults) -> None:
    for c in study.counts:
        for place in study.places(c):
            try:
                if place.epsilon is not None:
                    study.question(place.method, place.epsilon, c, place.tolerance)
            except ValueError as error:
                faults.add("c" if str(error).startswith("c is") else "tolerance", str(error))


def _check_targets(study: Study, targets: list[Any], faults: Faults) -> None:
    places = [place for c in study.counts for place in study.places(c)]
    if study.releasing is not None:
        names = ("release", "exact") if study.releasing.is_categorical else ("release",)
        places += [Place(name, epsilon) for name in names for epsilon in study.releasing.like]
        places += [Place("non_private")] if study.releasing.is_categorical else []
    for i, target in enumerate(targets):
        for method in (target.of, target.to):
            setting = target.epsilon, target.c, target.tolerance
            if sum(place.method == method and place.serves(*setting) for place in places) != 1:
                faults.add(
                    f"targets[{i}]",
                    f"is of {method} at epsilon {setting[0]}, c {setting[1]}, tolerance {setting[2]}; no one result is",
                )
