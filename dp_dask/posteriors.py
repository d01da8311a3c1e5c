"""Posteriors: from a publication alone to the posterior of each of its measurements."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from dp_dask.clusters import Cluster
from dp_dask.core.grouped import GroupedSum
from dp_dask.entries.build import Faults
from dp_dask.entries.measurement import for_report
from dp_dask.entries.model import make_model
from dp_dask.entries.prior import make_prior
from dp_dask.entries.simulator import make_simulator
from dp_dask.errors import ConfigError, InferenceError, LimitError
from dp_dask.fan_out import over
from dp_dask.public.candidate_simulations import Candidates, draws_digest
from dp_dask.public.chosen import Chosen
from dp_dask.public.infer import check_engine, infer
from dp_dask.public.limited import limited
from dp_dask.public.observe import AnyObservation, observe
from dp_dask.public.posterior import Posterior, seed
from dp_dask.public.publication import Publication, Published
from dp_dask.public.simulations import Batch
from dp_dask.public.spread import Mapper, spread_by, watched
from dp_dask.public.tempering import Effort
from dp_dask.simulation_store import stored

__all__ = ["chosen_from", "infer_from", "observations"]


def infer_from(
    publication: Publication,
    n_draws: int,
    engine: str = "auto",
    priors: dict[str, Any] | None = None,
    cluster: Cluster | None = None,
    simulations: int | None = None,
    *,
    seconds: float | None = None,
    store: Path | None = None,
    reuse: bool = False,
    anew: bool = True,
    progress: Callable[[int], None] | None = None,
) -> tuple[Posterior, ...]:
    """Make every measurement's posterior from public values alone, with other priors where given (by measurement).

    ``simulations``: the data sets that may be simulated for each engine, where a release is seen through a simulator; after
    ``seconds`` no more are begun. Batches of them are kept as files in ``store`` and, to ``reuse``, read from there; without
    ``anew`` the first that is not there is where time is over, as it was for the run that kept them. ``progress`` is told how
    many there are so far.

    Repeats give the same draws, with a cluster to simulate on or without. Raises ConfigError where a prior or a model of the
    file cannot be used.
    """
    try:
        check_engine(engine)
    except ValueError as error:
        raise ConfigError.of("engine", str(error)) from None
    wanted = _wanted(publication, priors)
    with ExitStack() as stack:
        mapper: Mapper = map if cluster is None else stack.enter_context(over(cluster))
        ended: list[float] = []
        if not anew:
            mapper = _ending(ended)
        if store is not None:
            mapper = stored(mapper, store, reuse=reuse)
        if progress is not None:
            mapper = watched(mapper, progress)
        if seconds is not None:  # outside what is stored: a run that goes on ends where the first one would have
            mapper = limited(mapper, deadline=time.monotonic() + seconds)
        if not anew:
            mapper = limited(mapper, deadline=1.0, clock=lambda: sum(ended))
        stack.enter_context(spread_by(mapper))
        effort = None if simulations is None else Effort.of(simulations)
        return tuple(_infer_one(*each, n_draws, engine, effort) for each in wanted)


def _ending(ended: list[float]) -> Mapper:
    """Give a map that ends with the first batch of simulations that it is asked for, and notes it."""

    def through(function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        if any(isinstance(item, Batch) for item in items):
            ended.append(1.0)
            msg = "what the run had no time for is not simulated again; run again for more"
            raise LimitError(msg)
        yield from map(function, items)

    return through


def observations(publication: Publication) -> dict[str, tuple[AnyObservation, Any]]:
    """Return every measurement's release, seen through its model or simulator, and its prior, for other tools.

    Raises ConfigError where a prior or a model of the file cannot be used, InferenceError where the release cannot be explained.
    """
    return {
        name: (observe(published.release, model, published.expected_records), prior)
        for name, published, model, prior in _wanted(publication, None)
    }


def _wanted(publication: Publication, priors: dict[str, Any] | None) -> list[tuple[str, Published, Any, Any]]:
    """Return each measurement's name, entry, and the model and prior of all that is reported; raises ConfigError."""
    faults = Faults(Path())
    wanted: list[tuple[str, Published, Any, Any]] = []
    for name, published in publication.measurements.items():
        path = f"measurements.{name}.model"
        make = make_simulator if published.is_simulator else make_model
        model = make(published.model, published.known, path, faults)
        given = (priors or {}).get(name, published.prior)
        statistic = published.release.request.statistic
        prior = None
        if model is not None:
            prior = make_prior(model, given, f"prior of {name}", faults, is_grouped=isinstance(statistic, GroupedSum))
        if model is None or prior is None:
            continue
        wanted.append((name, published, *for_report(model, prior, statistic)))
    if faults.problems:
        raise ConfigError(faults.problems)
    return wanted


def _infer_one(
    name: str, published: Published, model: Any, prior: Any, n_draws: int, engine: str, effort: Effort | None
) -> Posterior:
    rng = np.random.default_rng(seed(published.release, name))
    try:
        observation = observe(published.release, model, published.expected_records)
        inference = infer(rng, observation, prior, n_draws, engine, effort)
    except InferenceError as error:
        msg = f"{name}: {error}"
        raise InferenceError(msg) from None
    except LimitError as error:
        msg = f"{name}: {error}"
        raise LimitError(msg) from None
    return Posterior(
        measurement=name,
        model=published.model,
        parameters=model.parameters,
        prior=prior,
        release=published.release,
        observation=observation,
        inference=inference,
    )


def chosen_from(publication: Publication) -> tuple[Chosen, ...]:
    """Draw the accepted parameters of every selection again.

    Raises ConfigError where its simulator or prior cannot be made, or where this version of a library draws others.
    """
    faults = Faults(Path())
    found = []
    for name, selection in publication.selections.items():
        request, path = selection.request, f"selections.{name}"
        model = make_simulator(request.simulator, request.known, path, faults)
        prior = None if model is None else make_prior(model, request.prior, f"{path}.prior", faults)
        if model is None or prior is None:
            continue
        if request.draws not in ("", draws_digest(prior, request.seed, request.batch_size)):
            told = f"numpy {np.__version__} draws other parameters from its seed than were compared; use the version of the run"
            faults.add(path, f"{told}, or its {name}.accepted.csv")
            continue
        theta = Candidates.of(request, model.simulator, prior).thetas(selection.accepted)
        found.append(Chosen(measurement=name, parameters=model.parameters, selection=selection, theta=theta))
    if faults.problems:
        raise ConfigError(faults.problems)
    return tuple(found)
