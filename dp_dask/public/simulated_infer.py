"""Infer through a simulator: by the engine asked for, or the one that its own simulations speak for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dp_dask.errors import InferenceError, LimitError
from dp_dask.public.engines import Inference, bank, synthetic, tempered
from dp_dask.public.engines.bank import Bank
from dp_dask.public.engines.synthetic import Fitted
from dp_dask.public.possible import check_possible
from dp_dask.public.self_check import check_ranks, is_too_narrow, told_check
from dp_dask.public.simulated import SimulatedObservation
from dp_dask.public.tempering import Cloud, Effort, first_cloud, temper, told

__all__ = ["SIMULATED", "infer_simulated"]

SIMULATED = ("auto", "tempered", "synthetic", "bank")
CHECKS = 100  # simulated releases, before tempered at a large lambda or bank is believed
MODEST = 2.0  # lambda up to which the noise is hardly widened


def infer_simulated(
    rng: np.random.Generator,
    observation: SimulatedObservation,
    prior: Any,
    n_draws: int,
    engine: str = "auto",
    *,
    effort: Effort | None = None,
    checks: int = 0,
) -> Inference:
    """Draw from p(theta | release); raises InferenceError where no engine, or not the one asked for, can serve the simulator.

    A limit of simulations (``limited``) ends tempered with what it has, and ``reason`` tells; the other engines raise LimitError.

    auto tempers first: lambda = 1 is exact and taken. Else, where n decides how many records there are, synthetic, unless its
    simulations contradict a normal law of the sums; else tempered up to lambda = 2, and beyond it the narrower of tempered and
    bank that is not too narrow by its own check. With ``checks`` simulated releases the posterior is checked against itself, and
    ``reason`` tells the outcome.
    """
    if engine not in SIMULATED:
        msg = f"engine {engine!r} serves no simulator; known: {', '.join(SIMULATED)}"
        raise InferenceError(msg)
    if observation.n is not None or observation.count is not None:
        check_possible(observation)
    effort = effort or Effort()
    problem = ""
    try:
        make = _made if observation.each is None else _made_of_few
        made, why = make(rng, observation, prior, n_draws, engine, effort)
    except LimitError as error:
        problem = f"engine {engine} did not come to an end: {error}"
    if problem:
        raise LimitError(problem)
    if isinstance(made, Cloud):
        inference = tempered.conclude(rng, made, n_draws)
    elif isinstance(made, Fitted):
        inference = synthetic.conclude(rng, made, n_draws)
    else:
        inference = bank.conclude(rng, made, n_draws)
    checked = told_check(check_ranks(rng, made, checks)) if checks else ""
    told = [inference.reason, *why, *([checked] if checked else [])]
    return replace(inference, reason="; ".join(told), checked=checked)


def _made(
    rng: np.random.Generator, observation: SimulatedObservation, prior: Any, n_draws: int, engine: str, effort: Effort
) -> tuple[Cloud | Fitted | Bank, list[str]]:
    """Return what an engine makes, and why it is this one."""
    if engine == "bank":
        return bank.make_bank(rng, observation, prior, effort.bank), []
    cloud = temper(first_cloud(rng, observation, prior, effort.per_generation), effort)
    if engine == "tempered" or (engine == "auto" and cloud.multiple == 1):
        return cloud, []
    if engine == "synthetic":
        return synthetic.trusted(rng, cloud, effort, n_draws), []
    against = "one history makes all records"
    if not observation.simulator.decides_n:
        try:
            fitted = synthetic.refine(rng, cloud, effort, n_draws)
        except (InferenceError, LimitError) as error:
            against = str(error)
        else:
            if not fitted.doubts:
                return fitted, []
            against = "; ".join(fitted.doubts)
    why = [f"not synthetic: {against}"]
    if cloud.multiple <= MODEST:
        return cloud, why
    banked = None
    try:
        banked = bank.make_bank(rng, observation, prior, effort.bank)
    except LimitError as error:
        why = [f"not bank: {error}", *why]
    made, also = _narrower(rng, cloud, banked)
    return made, [also, *why]


def _made_of_few(
    rng: np.random.Generator, observation: SimulatedObservation, prior: Any, n_draws: int, engine: str, effort: Effort
) -> tuple[Fitted, list[str]]:
    """Return what engine synthetic makes of a few records a data set, where they are independent; the others are refused."""
    if engine not in {"auto", "synthetic"}:
        observation.check_whole(engine)
    cloud = temper(first_cloud(rng, observation, prior, effort.per_generation), effort)
    return synthetic.trusted(rng, cloud, effort, n_draws), [
        f"{observation.each} of {observation.n} independent records simulated"
    ]


def _narrower(rng: np.random.Generator, cloud: Cloud, banked: Bank | None) -> tuple[Cloud | Bank, str]:
    """Return the one with the narrower posterior that its own check does not find too narrow, and why it is that one."""
    released = cloud.problem.observation.released
    candidates: list[tuple[float, Cloud | Bank, str]] = [(_width(cloud.moments()), cloud, "taken before bank")]
    if banked is not None and bank.is_near(banked, released):
        of_bank = _width(bank.nearest(banked, released).moments())
        candidates.append((of_bank, banked, f"taken before tempered ({told(cloud)})"))
    for _, made, why in sorted(candidates, key=lambda each: each[0]):
        if not is_too_narrow(check_ranks(rng, made, CHECKS)):
            return made, f"{why}, by width and a check on {CHECKS} simulated releases"
    msg = (
        f"{told(cloud)}; neither tempered nor bank passes its self-check; simulate more, release with less epsilon, or fewer sums"
    )
    raise InferenceError(msg)


def _width(moments: tuple[Any, Any]) -> float:
    return float(np.log(np.diag(moments[1])).mean() / 2)
