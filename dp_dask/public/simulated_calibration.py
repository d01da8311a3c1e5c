"""Calibration of a whole inference through a simulator: ranks of prior truths in the posteriors of their simulated releases."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_dask.errors import InferenceError
from dp_dask.public.engines.bank import Bank, draw_for, make_bank
from dp_dask.public.randomness import RANK_DRAWS, rank_among
from dp_dask.public.simulated import SimulatedObservation
from dp_dask.public.simulated_infer import infer_simulated
from dp_dask.public.tempering import Effort

__all__ = ["bank_rank", "bank_width", "pseudo_release", "shares_bank", "simulated_rank", "simulated_ranks"]

Floats = NDArray[np.float64]
ATTEMPTS = 100
WIDTH_DRAWS = 1_000


def pseudo_release(rng: np.random.Generator, like: SimulatedObservation, prior: Any) -> tuple[Floats, SimulatedObservation]:
    """Draw a truth [p] from the prior and simulate a release of it; where the simulator fails another truth is drawn.

    That is the law that the posterior is conditional on. Raises InferenceError where the simulator fails a hundred times, and
    ValueError where n is private and its prior flat.
    """
    for _ in range(ATTEMPTS):
        theta = np.atleast_1d(prior.rvs(rng, 1)[0])
        made = like.pseudo(rng, theta)
        if made is not None:
            return theta, made
    msg = f"the simulator failed at {ATTEMPTS} parameters of the prior one after the other; mend it or move the prior"
    raise InferenceError(msg)


def simulated_rank(
    rng: np.random.Generator, like: SimulatedObservation, prior: Any, engine: str = "auto", effort: Effort | None = None
) -> tuple[Floats, str]:
    """Return a truth's randomised rank [p] among 63 draws of its posterior, and the engine's name.

    Raises InferenceError where the engine does.
    """
    theta, pseudo = pseudo_release(rng, like, prior)
    inference = infer_simulated(rng, pseudo, prior, RANK_DRAWS, engine, effort=effort)
    return rank_among(rng, inference.draws, theta), inference.engine


def simulated_ranks(
    rng: np.random.Generator, like: SimulatedObservation, prior: Any, n: int, engine: str = "auto", effort: Effort | None = None
) -> Floats:
    """Return the ranks [n, p] of n truths; by engine bank of one bank, which sees none of their releases, where that can be."""
    if engine != "bank" or not shares_bank(like):
        return np.array([simulated_rank(rng, like, prior, engine, effort)[0] for _ in range(n)])
    made = make_bank(rng, like, prior, (effort or Effort()).bank)
    return np.array([bank_rank(rng, made, prior) for _ in range(n)])


def shares_bank(like: SimulatedObservation) -> bool:
    """Whether one bank serves all releases like this one: it does not where the law of n is that given a noisy count."""
    return not (like.draws_n and like.count is not None)


def bank_rank(rng: np.random.Generator, made: Bank, prior: Any) -> Floats:
    """Return the randomised rank [p] of a fresh truth in the posterior that the bank gives its simulated release.

    Truths and releases are independent of the bank, so that the ranks of several are those of one posterior to be judged: what
    this bank gets wrong, it gets wrong for all. Raises InferenceError where a release lies far from all simulations.
    """
    theta, pseudo = pseudo_release(rng, made.problem.observation, prior)
    return rank_among(rng, draw_for(rng, made, pseudo.released, RANK_DRAWS), theta)


def bank_width(rng: np.random.Generator, made: Bank, prior: Any, replicates: int) -> Floats:
    """Return the posterior sd [p] that the bank gives simulated releases of prior truths, on average."""
    found = []
    for _ in range(replicates):
        _, pseudo = pseudo_release(rng, made.problem.observation, prior)
        found.append(draw_for(rng, made, pseudo.released, WIDTH_DRAWS).std(axis=0))
    return np.asarray(np.mean(found, axis=0))
