"""Selection forecast: what a choice among simulations can be expected to do, from simulated stand-ins for the records."""

from __future__ import annotations

import itertools
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.distances import FAILED
from dp_dask.core.selection import SparseVector, TopC
from dp_dask.entries.selection_measurement import SelectionMeasurement
from dp_dask.errors import ConfigError
from dp_dask.public.candidate_simulations import Candidates
from dp_dask.public.selection_plan import SparsePlan, TopPlan, plan_sparse_vector, plan_top_c

__all__ = ["SelectionForecast", "check_workable", "distances_to_stand_ins", "forecast", "questions_like"]

Floats = NDArray[np.float64]
STAND_INS, CANDIDATES = 5, 1_000
OTHERS = 2**127  # added to the seed: stand-ins are no candidates
SEED = 0
ENOUGH, MOST_FALSE = 0.9, 0.25  # of c, expected to be accepted; of those, falsely


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionForecast:
    """What is expected of one choice, and in words what is wrong with it."""

    measurement: str
    plan: SparsePlan | TopPlan
    step: float  # what one step of the distance is worth
    scales: tuple[float, ...]  # of the noise, in the distance's own units
    tolerance: float | None
    warnings: tuple[str, ...]
    others: tuple[SparsePlan, ...] = ()  # the same at other c, tolerances and epsilons
    advice: str = ""


def distances_to_stand_ins(choice: SelectionMeasurement) -> Floats:
    """Return the steps [stand-in, candidate] between the first candidates and data sets of other prior draws.

    NaN where a candidate failed. A thousand at most are simulated: the law of a distance needs no more.
    """
    of = choice.candidates
    others = replace(of, seed=(of.seed + OTHERS) % 2**128, n_simulations=STAND_INS, batch_size=STAND_INS).batch(0)
    size = min(of.n_simulations, CANDIDATES)
    rows = [_between(replace(of, n_simulations=size), each) for each in others.data[others.is_whole]]
    if not rows:
        msg = "all simulations that should stand in for the records failed; mend the simulator or move the prior"
        path = f"measurements.{choice.name}.prior"
        raise ConfigError.of(path, msg)
    return np.stack(rows)


def _between(of: Candidates, observed: NDArray[Any]) -> Floats:
    found = []
    for batch in of.batches():
        steps = of.distance.between(batch.data, observed).astype(np.float64)
        steps[~batch.is_whole | (steps == FAILED)] = np.nan
        found.append(steps)
    return np.concatenate(found)


def forecast(choice: SelectionMeasurement, simulated: Floats | None = None) -> SelectionForecast:
    """Average over stand-ins; ``simulated`` are distances to them, which are simulated where they are not given."""
    question, step = choice.request.question, choice.request.distance.step
    steps = distances_to_stand_ins(choice) if simulated is None else simulated
    if isinstance(question, SparseVector):
        sparse = plan_sparse_vector(question, steps)
        others = tuple(plan_sparse_vector(other, steps) for other in questions_like(choice))
        scales = tuple(scale * step for scale in question.nominal_scales)
        return SelectionForecast(
            measurement=choice.name,
            plan=sparse,
            step=step,
            scales=scales,
            tolerance=question.threshold * step,
            warnings=_of_sparse(sparse),
            others=others,
            advice=_advice(sparse, others, step),
        )
    top = _plan_top(question, steps, choice.request.n_simulations)
    warnings = (top.refusal,) if top.refusal else ()
    return SelectionForecast(
        measurement=choice.name,
        plan=top,
        step=step,
        scales=(question.nominal_scale * step,),
        tolerance=None,
        warnings=warnings,
    )


def check_workable(choice: SelectionMeasurement) -> None:
    """Raise ConfigError where the noise of a choice of c would drown the distances that it looks for, before it is spent."""
    question = choice.request.question
    if isinstance(question, TopC):
        refusal = _plan_top(question, distances_to_stand_ins(choice), choice.request.n_simulations).refusal
        if refusal:
            path = f"measurements.{choice.name}"
            raise ConfigError.of(path, refusal)


def questions_like(choice: SelectionMeasurement) -> list[SparseVector]:
    """Return the question at other c, tolerances and epsilons, three of each where all can be; none for a choice of c."""
    request, own = choice.request, choice.threshold
    epsilon = request.loss.amount
    if own is None:
        return []
    counts = sorted({max(request.question.c // 4, 1), request.question.c, min(4 * request.question.c, request.n_simulations)})
    found = []
    for c, times, each in itertools.product(counts, (0.5, 1, 2), (epsilon / 2, epsilon, epsilon * 2)):
        with suppress(ValueError):  # half an epsilon may have too many decimals, twice a tolerance too many steps
            like = replace(own, tolerance=times * own.tolerance)
            found.append(like.question(request.distance, request.question.sensitivity, c, each, request.n_simulations))
    return found


def _plan_top(question: TopC, steps: Floats, n_simulations: int) -> TopPlan:
    """Plan a choice of c among all from the distances of some: a subset with its share of c has the same c-th distance."""
    rng = np.random.default_rng(SEED)
    of_all = np.stack([rng.choice(row[np.isfinite(row)], n_simulations) for row in steps if np.isfinite(row).any()])
    return plan_top_c(question, of_all, rng)


def _advice(own: SparsePlan, others: tuple[SparsePlan, ...], step: float) -> str:
    """Name the tightest threshold, and with it the largest c, that is filled at the same epsilon with few false acceptances."""
    filled = [
        each
        for each in others
        if each.spec.epsilon == own.spec.epsilon
        and each.accepted >= ENOUGH * each.spec.c
        and each.false_accepts <= MOST_FALSE * each.accepted
    ]
    if not filled:
        return (
            "at this epsilon none of the c and thresholds tried fills its c with at most a quarter of it false: release a "
            "summary (method: release), whose noise does not grow with c, use select, or simulate more"
        )
    best = min(filled, key=lambda each: (each.spec.threshold, -each.spec.c))
    return (
        f"of those tried at this epsilon, c = {best.spec.c} with a threshold of {best.spec.threshold * step:.4g} is the tightest "
        f"that fills its c with at most a quarter of it false ({100 * best.false_accepts / best.accepted:.2g} %)"
    )


def _of_sparse(plan: SparsePlan) -> tuple[str, ...]:
    found = []
    if plan.plain_rate == 0:
        found.append("no simulation comes within the tolerance of a stand-in: expect no true acceptance; raise the tolerance")
    if plan.accepted < 1:
        found.append(f"only {plan.accepted:.2g} acceptances are expected: raise the tolerance, the simulations or epsilon")
    elif plan.false_accepts > plan.accepted / 2:
        share = plan.false_accepts / plan.accepted
        found.append(
            f"about {100 * share:.0f} % of the acceptances would be false, by noise alone: lower c, raise epsilon, use method: "
            "select, or release a summary (method: release), whose noise does not grow with c"
        )
    return tuple(found)
