"""The five steps in order: read, reduce, release, infer, report. The only file that sees all three zones."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from dp_dask import __version__
from dp_dask.config import Pipeline
from dp_dask.core.grouped import GroupedSum
from dp_dask.core.privacy import Spent, Unit, price
from dp_dask.core.release import Release
from dp_dask.core.selected import Selection
from dp_dask.entries.measurement import Measurement
from dp_dask.entries.model import plain_model
from dp_dask.entries.prior import plain_prior
from dp_dask.errors import ConfigError, Problem
from dp_dask.gate.journal import Balance
from dp_dask.gate.ledger import Ledger
from dp_dask.gate.noise import Noise, OpenDPNoise, meaning
from dp_dask.progress import Progress, silent
from dp_dask.public.calibration import ranks
from dp_dask.public.observe import planned
from dp_dask.public.publication import Publication, Published
from dp_dask.public.tempering import Effort
from dp_dask.public.uniformity import Uniformity, uniformity
from dp_dask.public.verify import verify
from dp_dask.releasing import Released, release_new
from dp_dask.user_family import is_reference

__all__ = ["Run", "calibrate", "check_families", "check_output", "run", "select"]

BATCH = 25  # replicates of a task, at most
BANKS = 4  # made for all replicates together, for as many workers
VERIFYING = 20260101  # a seed: the same family passes or fails every time


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a run released: public, committed and charged; all that follows is free."""

    publication: Publication
    balance: Balance
    charged: tuple[str, ...]  # the measurements that this run paid for; the others were released before
    n_draws: int
    engine: str
    simulations: int
    seconds: float | None = None

    @property
    def cost(self) -> Decimal:
        """What this run was charged, in the budget's unit."""
        released = self.publication.released
        return price((released[name].request.loss for name in self.charged), self.balance.unit)


def run(pipeline: Pipeline, *, noise: Noise | None = None, progress: Progress = silent, resume: bool = False) -> Run:
    """Release what has not been released yet, in one scan and one transaction.

    Raises BudgetError before any record is read where the budget does not cover what is new, and again at the commit. Until
    the commit nothing is charged and nothing shown, whatever fails. Inference (``infer_from``) is a step of its own, so that
    a release is never lost to it.
    """
    check_output(pipeline.output)
    check_families(pipeline)
    ledger = Ledger(pipeline.ledger)
    try:
        released, charged = release_new(pipeline, ledger, noise or OpenDPNoise(), progress, resume=resume)
        balance = ledger.balance(pipeline.dataset)
    finally:
        ledger.close()
    publication = Publication(
        written_by=f"dp-dask {__version__}",
        dataset=pipeline.dataset,
        measurements={m.name: _published(m, released[m.name], pipeline.expected_n) for m in pipeline.measurements},
        selections={s.name: made for s in pipeline.selections if isinstance(made := released[s.name], Selection)},
        total=_total(released.values(), pipeline.delta),
    )
    return Run(
        publication=publication,
        balance=balance,
        charged=charged,
        n_draws=pipeline.n_draws,
        engine=pipeline.engine,
        simulations=pipeline.simulations,
        seconds=pipeline.seconds,
    )


def _total(releases: Iterable[Released], delta: Decimal | None) -> Spent:
    """Return what releases lose together: in epsilon, or where one is in rho, in rho."""
    losses = list({each.id: each.request.loss for each in releases}.values())
    unit = Unit.RHO if any(loss.unit is Unit.RHO for loss in losses) else Unit.EPSILON
    return meaning(unit, price(losses, unit), delta)


def select(publication: Publication, measurement: str | None) -> Publication:
    """Keep one measurement of a publication, or all; raises ConfigError for a name that it does not hold.

    What is kept loses what its releases lose, whatever total a file claims; of the file's own the delta alone is kept.
    """
    kept, selections = publication.measurements, publication.selections
    if measurement is not None:
        if measurement not in kept:
            names = ", ".join(kept) or "choices among simulations alone, of which there is no posterior"
            raise ConfigError.of("--measurement", f"is {measurement!r}; the release holds: {names}")
        kept, selections = {measurement: kept[measurement]}, {}
    delta = None if publication.total is None else publication.total.delta
    kept_publication = replace(publication, measurements=kept, selections=selections)
    return replace(kept_publication, total=_total(kept_publication.released.values(), delta))


def calibrate(pipeline: Pipeline, replicates: int, *, entropy: int, progress: Progress = silent) -> dict[str, Uniformity]:
    """Simulate this pipeline's models, priors, n, bounds and epsilons on its cluster and test every parameter's ranks.

    The same entropy gives the same ranks on any cluster: a batch's number is its seed. Reads no record, charges nothing.
    """
    needs_n = any(not (m.is_simulated and m.model.simulator.decides_n) for m in pipeline.measurements)
    if needs_n and pipeline.n is None and pipeline.expected_n is None:
        raise ConfigError.of("privacy.expected_records", "is missing; to simulate a private n takes a public guess of it")
    likes = {m.name: planned(m.request, m.whole[0], pipeline.expected_n) for m in pipeline.measurements}
    effort = Effort.of(pipeline.simulations)
    results: dict[str, Uniformity] = {}
    with pipeline.simulates_on.client() as client:
        seeds = np.random.SeedSequence(entropy).spawn(len(pipeline.measurements))
        for m, parent in zip(pipeline.measurements, seeds, strict=True):
            batch = max(1, min(BATCH, replicates // 16))
            if m.is_simulated and pipeline.engine == "bank":
                batch = -(-replicates // BANKS)
            sizes = [min(batch, replicates - start) for start in range(0, replicates, batch)]
            children = parent.spawn(len(sizes))
            futures = [
                client.submit(ranks, child, likes[m.name], m.whole[1], size, pipeline.engine, effort, pure=False)
                for child, size in zip(children, sizes, strict=True)
            ]
            parts = []
            for i, future in enumerate(futures):
                parts.append(future.result())
                progress(f"calibrating {m.name}", sum(sizes[: i + 1]), replicates)
            u = np.concatenate(parts)
            for j, parameter in enumerate(m.whole[0].parameters):
                results[f"{m.name}.{parameter}"] = uniformity(u[:, j])
    return results


def check_families(pipeline: Pipeline) -> None:
    """Raise ConfigError where a user's family contradicts itself, before anything is read or charged for it."""
    rng = np.random.default_rng(VERIFYING)
    problems = [
        Problem(f"measurements.{m.name}.model", f"{m.model_name}: {fault}")
        for m in pipeline.measurements
        if is_reference(m.model_name) and not m.is_simulated
        for fault in verify(rng, m.model, _within(m.request.statistic), m.prior)
    ]
    if problems:
        raise ConfigError(problems)


def _within(statistic: Any) -> Any:
    """Return the statistic of one group where there are groups."""
    return statistic.within if isinstance(statistic, GroupedSum) else statistic


def check_output(folder: Path) -> None:
    """Raise ConfigError unless the folder exists or can be made, and can be written to."""
    problem = ""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            problem = "may not be written to"
    except OSError as error:
        problem = f"cannot be made ({error.strerror})"
    if problem:
        raise ConfigError.of("output", f"{folder}: {problem}; choose another folder")


def _published(m: Measurement, made: Released, expected_n: float | None) -> Published:
    assert isinstance(made, Release)  # noqa: S101  (the ledger keeps each request's own kind)
    known = dict(m.model.known) if m.is_simulated else plain_model(m.model)
    return Published(
        model=m.model_name,
        known=known,
        is_simulator=m.is_simulated,
        prior=plain_prior(m.model, m.prior),
        expected_records=expected_n,
        release=made,
    )
