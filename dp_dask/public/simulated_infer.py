"""Infer through a simulator: by the engine asked for, or the one that its own simulations speak for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dp_dask.errors import InferenceError
from dp_dask.public.engines import Inference, bank, synthetic, tempered
from dp_dask.public.engines.bank import Bank
from dp_dask.public.engines.synthetic import Fitted
from dp_dask.public.possible import check_possible
from dp_dask.public.self_check import check_ranks, told_check
from dp_dask.public.simulated import SimulatedObservation
from dp_dask.public.tempering import Cloud, Effort, first_cloud, temper, told

__all__ = ["SIMULATED", "infer_simulated"]

SIMULATED = ("auto", "tempered", "synthetic", "bank")
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

    auto tempers first: lambda = 1 is exact and taken. Else, where n decides how many records there are, synthetic, unless its
    simulations contradict a normal law of the sums; else tempered up to lambda = 2, and beyond it bank. With ``checks`` simulated
    releases the posterior is checked against itself, and ``reason`` tells the outcome.
    """
    if engine not in SIMULATED:
        msg = f"engine {engine!r} serves no simulator; known: {', '.join(SIMULATED)}"
        raise InferenceError(msg)
    if observation.n is not None or observation.count is not None:
        check_possible(observation)
    effort = effort or Effort()
    made, why = _made(rng, observation, prior, n_draws, engine, effort)
    if isinstance(made, Cloud):
        inference = tempered.conclude(rng, made, n_draws)
    elif isinstance(made, Fitted):
        inference = synthetic.conclude(rng, made, n_draws)
    else:
        inference = bank.conclude(rng, made, n_draws)
    checked = [told_check(check_ranks(rng, made, checks))] if checks else []
    return replace(inference, reason="; ".join([inference.reason, *why, *checked]))


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
            return synthetic.trusted(rng, cloud, effort, n_draws), []
        except InferenceError as error:
            against = str(error)
    if cloud.multiple <= MODEST:
        return cloud, [f"not synthetic: {against}"]
    return bank.make_bank(rng, observation, prior, effort.bank), [f"not tempered: {told(cloud)}", f"not synthetic: {against}"]
