"""Calibration of a whole inference through a simulator: ranks of prior truths in the posteriors of their simulated releases."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_dask.errors import InferenceError
from dp_dask.public.engines.bank import Bank, is_near, make_bank, nearest
from dp_dask.public.randomness import RANK_DRAWS, rank_among
from dp_dask.public.simulated import SimulatedObservation
from dp_dask.public.simulated_infer import infer_simulated
from dp_dask.public.tempering import Effort

__all__ = ["bank_ranks", "bank_widths", "pseudo_release", "simulated_rank", "simulated_ranks"]

Floats = NDArray[np.float64]
ATTEMPTS = 100
WIDTH_DRAWS = 1_000
ALLOWED, MOST_REFUSED = 5, 0.05  # releases that a bank may refuse


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
    if engine != "bank" or not _shares_bank(like):
        return np.array([simulated_rank(rng, like, prior, engine, effort)[0] for _ in range(n)])
    return bank_ranks(rng, make_bank(rng, like, prior, (effort or Effort()).bank), prior, n)


def bank_ranks(rng: np.random.Generator, made: Bank, prior: Any, n: int) -> Floats:
    """Return the randomised ranks [n, p] of fresh truths in the posteriors that one bank gives their simulated releases.

    Raises InferenceError where it refuses more than one in twenty of these.
    """
    return np.array([rank_among(rng, draws, theta) for theta, draws in _by_bank(rng, made, prior, n, RANK_DRAWS)])


def bank_widths(rng: np.random.Generator, made: Bank, prior: Any, n: int) -> Floats:
    """Return the posterior sd [p] that a bank gives, on average over n simulated releases of fresh truths."""
    return np.asarray(np.mean([draws.std(axis=0) for _, draws in _by_bank(rng, made, prior, n, WIDTH_DRAWS)], axis=0))


def _by_bank(rng: np.random.Generator, made: Bank, prior: Any, n: int, n_draws: int) -> Iterator[tuple[Floats, Floats]]:
    """Yield n truths [p] and draws [n_draws, p] of the posteriors of their releases, all independent of the bank.

    A release that the bank refuses gives its place to another truth's. Whether it does depends on the release alone, and given
    any release the rank of its truth is uniform where the posterior is right.
    """
    done = refused = 0
    while done < n:
        theta, pseudo = pseudo_release(rng, made.problem.observation, prior)
        if is_near(made, pseudo.released):
            done += 1
            yield theta, made.problem.unknowns.theta(nearest(made, pseudo.released).draw(rng, n_draws))
            continue
        refused += 1
        if refused > ALLOWED + MOST_REFUSED * n:
            msg = f"{refused} of {refused + done} simulated releases lie far from all simulations of the prior; simulate more"
            raise InferenceError(msg)


def _shares_bank(like: SimulatedObservation) -> bool:
    """Whether one bank serves all releases like this one: it does not where the law of n is that given a noisy count."""
    return not (like.draws_n and like.count is not None)
