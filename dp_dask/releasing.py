"""Releasing: what has not been released yet, in one scan and one transaction. What the workers reduced stays sealed here."""

from __future__ import annotations

import getpass
import os
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from dp_dask.config import Pipeline
from dp_dask.core.of_sums import OfSums
from dp_dask.core.release import Release, Request
from dp_dask.core.selected import Selection, SelectionRequest
from dp_dask.core.selection import TopC
from dp_dask.entries.selection_measurement import SelectionMeasurement
from dp_dask.errors import DpDaskError, SourceError
from dp_dask.fan_out import on_client
from dp_dask.gate import additive, selecting
from dp_dask.gate.ledger import Ledger
from dp_dask.gate.noise import Noise
from dp_dask.gate.records import cut
from dp_dask.opened import Opened
from dp_dask.private.beside import compare_beside
from dp_dask.private.reduce import columns_of, reduce
from dp_dask.progress import Progress
from dp_dask.public.spread import spread_by
from dp_dask.selection_forecast import check_workable
from dp_dask.simulation_store import stored

if TYPE_CHECKING:
    from dp_dask.core.sensitive import Sensitive
    from dp_dask.core.statistic import Total

__all__ = ["Released", "release_new", "released_as", "who"]

Released = Release | Selection
SIMULATIONS = "simulations"  # the folder where candidates are kept
UNTIL_COMMIT = "nothing was released or charged"


def release_new(
    pipeline: Pipeline, ledger: Ledger, noise: Noise, progress: Progress, *, resume: bool = False
) -> tuple[dict[str, Released], tuple[str, ...]]:
    """Return what every measurement of the file has released, by name, and the names of those that were charged now.

    Candidate simulations are kept in the output folder as they come, and with ``resume`` read from there.

    Raises BudgetError before any record is read where the budget does not cover what is new, and again at the commit.
    """
    ledger.balance(pipeline.dataset)  # refuses a data set without a budget before its files are looked at
    requests, version = pipeline.requests, pipeline.version
    is_there = version and all(ledger.find(ledger.digest(each, version), released_as(each)) is not None for each in requests)
    with (
        Opened(pipeline.cluster, pipeline.simulation_cluster) as opened,
        nullcontext(pipeline.source) if is_there else pipeline.source.pinned(opened.look) as source,  # the data may be gone since
    ):
        return _release_new(replace(pipeline, source=source), opened, ledger, noise, progress, resume=resume)


def _release_new(
    pipeline: Pipeline, opened: Opened, ledger: Ledger, noise: Noise, progress: Progress, *, resume: bool
) -> tuple[dict[str, Released], tuple[str, ...]]:
    version = pipeline.version or opened.look(pipeline.source.version)
    if not version:  # or the same question of other data would be answered by what was released before
        msg = "the source tells no version of its data; name one, dataset.version"
        raise SourceError(msg)
    names = [*(m.name for m in pipeline.measurements), *(s.name for s in pipeline.selections)]
    digests = [ledger.digest(request, version) for request in pipeline.requests]
    kept: dict[str, Released] = {}
    new: dict[str, Request | SelectionRequest] = {}
    for digest, request in zip(digests, pipeline.requests, strict=True):
        found = ledger.find(digest, released_as(request))
        if found is not None:
            kept[digest] = found
        else:
            new[digest] = request
    ours: set[str] = set()
    if new:
        ledger.check_unit(pipeline.dataset, pipeline.protects)
        losses = {digest: request.loss for digest, request in new.items()}
        asking = {"who": who(), "why": ", ".join(name for name, digest in zip(names, digests, strict=True) if digest in new)}
        with ledger.reserved(pipeline.dataset, pipeline.neighbours, losses, **asking):
            state = opened.look(pipeline.source.version) if pipeline.version else version
            drawn = _draw(pipeline, opened, list(new.values()), state, noise, progress, resume=resume)
            ours = {made.id for made in drawn}
            try:
                shown = ledger.commit(list(zip(new, drawn, strict=True)), **asking)
            except DpDaskError as error:
                drawn.clear()  # not paid for: no frame that a reporter keeps may hold a noisy value
                raise error.with_traceback(None) from None
        kept.update(zip(new, shown, strict=True))
    released = {name: kept[digest] for name, digest in zip(names, digests, strict=True)}
    first = dict(zip(reversed(digests), reversed(names), strict=True))  # of equal requests the first one paid
    charged = tuple(name for digest, name in reversed(first.items()) if digest in new and kept[digest].id in ours)
    return released, charged


def released_as(request: Request | SelectionRequest) -> type[Released]:
    """Return what kind of release a request has."""
    return Selection if isinstance(request, SelectionRequest) else Release


def _draw(
    pipeline: Pipeline,
    opened: Opened,
    new: Sequence[Request | SelectionRequest],
    state: str,
    noise: Noise,
    progress: Progress,
    *,
    resume: bool,
) -> list[Released]:
    """Read the records once and answer all requests; nothing that is returned may be shown before it is committed.

    Raises SourceError where the source is not, at the end, in the state that the requests' digests are of.
    """
    sums = [request for request in new if isinstance(request, Request)]
    choices = [next(s for s in pipeline.selections if s.request == request) for request in new if request not in sums]
    for request in sums:
        additive.noise_of(request)  # refuses what no noise can serve before any record is read
    for choice in choices:
        selecting.noise_of(choice.request)
        if isinstance(choice.request.question, TopC):
            check_workable(choice)
    distances = [choice.request.distance for choice in choices]
    statistics = [*(r.statistic for r in sums), *(d.statistic for d in distances if isinstance(d, OfSums))]
    added: list[Released] = []
    chosen: list[Released] = []
    try:
        if choices:
            opened.simulating()  # now: one that does not start is to be told of before the records are read
        parts = []
        if statistics:
            opened.look(partial(pipeline.source.check, *columns_of(statistics, pipeline.protects)))
            sealed = reduce(
                opened.client(),
                pipeline.source,
                statistics,
                progress=lambda done, of: progress("splits read", done, of),
                stall_timeout=pipeline.cluster.stall_timeout,
                unit=pipeline.protects,
                dataset=pipeline.dataset,
                passes=pipeline.passes,
                look=opened.look,
            )
            sizes = [sum(len(r.statistic.units) for r in sums), *(len(s.units) for s in statistics[len(sums) :])]
            parts = cut(sealed, sizes)
        of_distances = iter(parts[1:])
        for choice in choices:
            sums_of_it = next(of_distances) if isinstance(choice.request.distance, OfSums) else None
            chosen.append(_choose(pipeline, opened, choice, sums_of_it, noise, progress, resume=resume))
        _check_unchanged(pipeline, opened, state)
        opened.close()
        added += additive.release(parts[0], sums, noise) if sums else []
    except BaseException:
        chosen.clear()  # not paid for: no frame that a reporter keeps may hold what was accepted
        raise
    of_sums, of_choices = iter(added), iter(chosen)
    made = [next(of_sums if isinstance(request, Request) else of_choices) for request in new]
    return [replace(each, snapshot=pipeline.source.snapshot) for each in made]


def _check_unchanged(pipeline: Pipeline, opened: Opened, state: str) -> None:
    if opened.look(pipeline.source.version) != state:
        msg = f"the data changed while they were read; {UNTIL_COMMIT}, run again when they are complete"
        raise SourceError(msg)


def _choose(
    pipeline: Pipeline,
    opened: Opened,
    choice: SelectionMeasurement,
    sealed: Sensitive[Total] | None,
    noise: Noise,
    progress: Progress,
    *,
    resume: bool,
) -> Selection:
    """Simulate on the second cluster, and compare record by record beside the data, on the first."""
    request, distance = choice.request, choice.request.distance
    stall = pipeline.cluster.stall_timeout
    if sealed is not None:
        compare = selecting.compare_sums(request, sealed)
    elif not isinstance(distance, OfSums):
        compare = compare_beside(opened.client(), pipeline.source, distance, stall_timeout=stall, look=opened.look)
    deadline = float("inf") if choice.seconds is None else time.monotonic() + choice.seconds
    on_cluster = partial(on_client, opened.simulating(), stall_timeout=pipeline.simulates_on.stall_timeout)
    with spread_by(stored(on_cluster, pipeline.output / SIMULATIONS, reuse=resume)):
        return selecting.run(
            request,
            choice.candidates.batches(),
            compare,
            noise,
            deadline=deadline,
            progress=lambda done: progress(f"{choice.name}: simulated", done, request.n_simulations),
        )


def who() -> str:
    """Name the requester for the ledger."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
