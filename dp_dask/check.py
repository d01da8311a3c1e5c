"""Check: what a pipeline would cost and show, before anything is spent or read."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np

from dp_dask.config import Pipeline
from dp_dask.core.bounds import Outside
from dp_dask.core.cluster_bands import ClusterBands
from dp_dask.core.partition import edges_of, is_partition
from dp_dask.core.privacy import USUAL, Loss, Spent, Unit, price
from dp_dask.core.statistic import BoundedSum
from dp_dask.core.table_sum import TableSum
from dp_dask.entries.measurement import Measurement
from dp_dask.entries.summary import plan
from dp_dask.errors import BudgetError
from dp_dask.gate.journal import Balance
from dp_dask.gate.ledger import Ledger
from dp_dask.gate.noise import meaning
from dp_dask.opened import Opened
from dp_dask.pipeline import check_families
from dp_dask.private.sources import Look
from dp_dask.public.engines.bank import make_bank
from dp_dask.public.observe import planned
from dp_dask.public.simulated import SimulatedObservation
from dp_dask.public.simulated_calibration import bank_widths
from dp_dask.public.simulation import Width, expected_widths
from dp_dask.releasing import released_as, who
from dp_dask.selection_forecast import SelectionForecast, forecast
from dp_dask.source_plan import SourcePlan, source_plan

__all__ = ["Check", "Forecast", "check"]

REPLICATES = 40
BANK = 10_000  # simulations, where no plan can predict a width
WORTH_IT = 1.05  # times the least expected sd
PROTECTS_LITTLE = {Unit.EPSILON: 10, Unit.RHO: 50}  # rho = epsilon^2 / 2
SEED = 0  # a plan is printed, not published; the same file gives the same plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What one measurement would release and how wide its posterior is expected to be."""

    measurement: str
    parameters: tuple[str, ...]
    loss: Loss
    sensitivity: float  # in the units of the statistic: in L1 for Laplace, in L2 for Gaussian noise
    noise_scale: float  # of the sum, in the units of the statistic
    unit: float
    prior: str
    prior_mean: tuple[float, ...]  # a parameter each; NaN or infinite where there is none
    prior_sd: tuple[float, ...]
    widths: tuple[Width, ...]  # a parameter each; none where n is private and no expected_records is given
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A valid file's plan: cost, budget, what would be read, and a forecast for each measurement."""

    dataset: str
    protects: str  # whom, in words
    cost: Spent  # of all measurements, in the budget's unit where that can be
    balance: Balance | None  # None where no budget has been granted yet
    refusal: str | None  # why a run would be refused by the ledger now
    forecasts: tuple[Forecast, ...]
    source: SourcePlan
    selections: tuple[SelectionForecast, ...] = ()


def check(pipeline: Pipeline) -> Check:
    """Look up the columns in the schema of the first file, and the budget; simulate the rest from the prior.

    Reads no record; where the driver does not see the records, workers are asked. Raises SourceError for a missing file or
    column, or one that holds no numbers.
    """
    with Opened(pipeline.cluster) as opened:
        opened.look(partial(pipeline.source.check, *pipeline.columns))
        seen = source_plan(pipeline.source, pipeline.columns[0], opened.look)
        check_families(pipeline)
        balance, refusal = _budget(pipeline, opened.look)
    forecasts = tuple(_forecast(m, pipeline) for m in pipeline.measurements)
    unit = Unit.RHO if balance is not None and balance.unit is Unit.RHO else pipeline.unit
    cost = meaning(unit, price(pipeline.losses, unit), pipeline.delta)
    return Check(
        dataset=pipeline.dataset,
        protects=f"{pipeline.protects}: {pipeline.protects.in_words(pipeline.neighbours)}",
        cost=cost,
        balance=balance,
        refusal=refusal,
        forecasts=forecasts,
        source=seen,
        selections=tuple(forecast(choice) for choice in pipeline.selections),
    )


def _budget(pipeline: Pipeline, look: Look) -> tuple[Balance | None, str | None]:
    """Return the balance, and why the measurements that are not released yet would be refused."""
    ledger = Ledger(pipeline.ledger)
    balance = None
    try:
        balance = ledger.balance(pipeline.dataset)
        version = pipeline.version or look(pipeline.source.version)
        requests = {ledger.digest(request, version): request for request in pipeline.requests}
        losses = {digest: r.loss for digest, r in requests.items() if ledger.find(digest, released_as(r)) is None}
        if losses:
            ledger.check_unit(pipeline.dataset, pipeline.protects)
            ledger.check_affordable(pipeline.dataset, pipeline.neighbours, losses, who=who())
    except BudgetError as error:
        return balance, str(error)
    finally:
        ledger.close()
    return balance, None


def _forecast(m: Measurement, pipeline: Pipeline) -> Forecast:
    statistic = m.request.statistic
    model, prior = m.whole
    like = planned(m.request, model, pipeline.expected_n)
    widths: tuple[Width, ...] = ()
    of_plan: list[str] = []
    if isinstance(like, SimulatedObservation):
        if isinstance(like.statistic, ClusterBands):
            widths = _of_bank(like, prior, min(pipeline.simulations, BANK))
        elif isinstance(like.statistic, TableSum):
            widths, of_plan = _planned(m, like.statistic)
    elif like.n is not None or like.expected_n is not None:
        widths = expected_widths(np.random.default_rng(SEED), like, prior, REPLICATES)
    unit = statistic.units[0]
    is_gaussian = m.request.loss.unit is Unit.RHO
    sensitivity = math.sqrt(m.request.squared_sensitivity) if is_gaussian else m.request.sensitivity
    return Forecast(
        measurement=m.name,
        parameters=model.parameters,
        loss=m.request.loss,
        sensitivity=sensitivity * unit,
        noise_scale=like.scale * unit,
        unit=unit,
        prior=str(m.prior),
        prior_mean=tuple(map(float, np.atleast_1d(prior.mean))),
        prior_sd=tuple(map(float, np.atleast_1d(prior.sd))),
        widths=widths,
        warnings=(*_warnings(m, like.n, pipeline.delta), *of_plan),
    )


def _of_bank(like: SimulatedObservation, prior: Any, simulations: int) -> tuple[Width, ...]:
    """Return the average posterior sd over simulated releases, by engine bank with few simulations."""
    rng = np.random.default_rng(SEED)
    return tuple(Width(float(sd), None) for sd in bank_widths(rng, make_bank(rng, like, prior, simulations), prior, REPLICATES))


def _planned(m: Measurement, statistic: TableSum) -> tuple[tuple[Width, ...], list[str]]:
    """Return the widths that simulations predict for a simulator's summary, and the summary that they would prefer.

    A prediction is that of a normal linear model about prior draws: for choosing, and rough where the simulator is curved.
    """
    if m.setting is None:
        return (), []
    edges = tuple(map(float, edges_of(statistic))) if is_partition(statistic) else None
    found = plan(m.setting, m.request.unit.for_a_record(m.request.loss), edges=edges)
    own = next((each for each in found if each.statistic == statistic), None)
    if own is None:
        return (), []
    widths = tuple(Width(float(a), float(b)) for a, b in zip(own.predicted_sd, own.non_private_sd, strict=True))
    if own.score <= WORTH_IT * found[0].score:
        return widths, []
    told = f"of the summaries compared, {found[0].name} is expected to leave {found[0].score / own.score:.2f} times the sd"
    return widths, [f"{told}: summary: auto takes it"]


def _warnings(m: Measurement, n: int | None, delta: Decimal | None) -> list[str]:
    """Say what is allowed but seldom wanted."""
    statistic = m.request.statistic
    found = []
    is_truncated = getattr(statistic, "outside", None) is Outside.TRUNCATE and not m.is_simulated
    is_truncated = is_truncated and m.model.natural_bounds is None
    if is_truncated and not getattr(statistic, "inside_weight", 0):
        counted = ", or inside_count: true," if len(statistic.units) == 1 else ""
        found.append(f"truncate: the posterior may have two modes; clamp{counted} is usually narrower")
    if isinstance(statistic, BoundedSum) and statistic.outside is Outside.TRUNCATE:
        grid = statistic.grid
        if grid.largest > 2 * (grid.upper - grid.lower):
            found.append("truncate with bounds far from zero: the sensitivity is the distance to zero; use clamp")
    if not np.isfinite(m.whole[1].sd).all():
        found.append(
            "a prior without a finite sd leaves the posterior without one: trust its interval, not its mean and sd; "
            "the widths above are medians of half the central 68 % interval"
        )
    loss = m.request.loss
    if loss.amount > PROTECTS_LITTLE[loss.unit]:
        found.append(f"{loss} protects little; {USUAL[loss.unit]} is usual")
    if loss.unit is Unit.RHO and n is not None and delta is not None and delta * n >= 1:
        found.append(
            f"delta {delta} is not below one over n: releasing one {m.request.unit.kind} as it is would be allowed; "
            "give a smaller delta"
        )
    if m.request.unit.most > 1:
        found.append(
            "records of one person are taken to be as independent as those of different ones: where they are alike, the "
            "posterior is too narrow; max_records: 1 and combine take nothing for granted"
        )
    if n is not None and n < 10:  # noqa: PLR2004
        found.append(f"n is {n}: expect the prior back")
    return found
