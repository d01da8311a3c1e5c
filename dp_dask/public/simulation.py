"""The release, simulated: pseudo-data and pseudo-noise from a seed, for calibration and planning only.

Nothing here protects anybody: privacy noise comes from ``gate.noise`` alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dp_dask.core.dirichlet import Dirichlet
from dp_dask.core.joint_priors import Independent
from dp_dask.core.pooled import PooledGroups
from dp_dask.public.counts import CountsObservation
from dp_dask.public.gram_likelihood import GramObservation
from dp_dask.public.gram_simulation import gram_widths, simulate_gram
from dp_dask.public.grid import GridPosterior
from dp_dask.public.groups import GroupedObservation
from dp_dask.public.infer import infer
from dp_dask.public.joint import JointObservation
from dp_dask.public.non_private import non_private
from dp_dask.public.observation import Observation
from dp_dask.public.observe import ModelObservation
from dp_dask.public.pooling import pool
from dp_dask.public.randomness import check_expected, draw_n

__all__ = ["Pseudo", "Width", "expected_widths", "replicate_widths", "simulate"]

Floats = NDArray[np.float64]
DRAWS = 400  # for an sd, where the engine tabulates no posterior
SOME, FEW = 12, 4  # replicates where each takes a tenth of a second, or seconds
MOST_JOINT = 2  # replicates where each takes chains
MOST_RECORDS = 10**6  # above, counts in the grid's cells are drawn in place of records: the same law of the sum


@dataclass(frozen=True, slots=True)
class Pseudo:
    """A simulated release, and what nobody sees of it: the number of records, the sum of their statistic and the exact sum."""

    observation: Any
    n: int
    total: Any  # a number, counts [K], or None where the family has no sufficient statistic of its own
    exact: int | None = None  # of contributions, clamped or truncated, in grid units, where one sum is released


@dataclass(frozen=True, slots=True)
class Width:
    """Average posterior sd over the prior predictive, with this release and with the records themselves."""

    private: float
    non_private: float | None  # None where no closed form exists

    @property
    def ratio(self) -> float | None:
        """How much wider privacy and bounds make the posterior."""
        return None if self.non_private is None else self.private / self.non_private


def simulate(rng: np.random.Generator, like: ModelObservation, theta: Any, prior: Any = None) -> Pseudo:
    """Draw records from the model, reduce them as the statistic does, and add noise of the same law and scale.

    ``theta`` is one parameter or an array [p]; the truth behind several columns is drawn from ``prior``. A private n is drawn
    from its prior, which for categories is a part of theirs (``CountsObservation``) and needs ``prior``; raises ValueError where
    it is flat.
    """
    check_expected(like.n, like.expected_n)
    if isinstance(like, CountsObservation):
        return _simulate_counts(rng, like, np.asarray(theta), prior)
    if isinstance(like, GroupedObservation):
        of_groups = theta[len(like.model.shared) :]
        parts = [simulate(rng, each, value) for each, value in zip(like.of_groups, of_groups, strict=True)]
        y = tuple(value for part in parts for value in (part.observation.y, part.observation.count))
        return Pseudo(replace(like, y=y), sum(part.n for part in parts), [(part.n, part.total) for part in parts])
    if isinstance(like, GramObservation):
        return Pseudo(simulate_gram(rng, like, prior)[0], like.n or 0, None)
    n = draw_n(rng, like.n, like.expected_n)
    count = None if like.count is None else like.statistic.count_weight * n + int(like.noise.draw(rng))
    if isinstance(like, JointObservation):
        exact, total = _joint_sums(rng, like, np.atleast_1d(theta), n)
        y = tuple(int(value) + int(like.noise.draw(rng)) for value in exact)
        return Pseudo(replace(like, y=y, count=count), n, total)
    summed, of_all = _sums(rng, like, float(np.ravel(theta)[0]), n)
    return Pseudo(replace(like, y=summed + int(like.noise.draw(rng)), count=count), n, of_all, summed)


def _sums(rng: np.random.Generator, like: Observation, theta: float, n: int) -> tuple[int, float]:
    """Return the sum of the contributions of n records, and that of their statistic."""
    if n <= MOST_RECORDS:
        records = like.model.simulate(theta, n, rng)
        return int(like.statistic.contributions(records).sum()), float(like.model.statistic(records).sum())
    cells, pmf = like.pmf(np.array([theta]))
    exact = int(rng.multinomial(n, pmf[0] / pmf[0].sum()) @ cells.astype(np.int64))
    everything = (np.array([theta]), -math.inf, math.inf)
    mean = like.model.partial_moments(*everything, 0.0).first[0]
    variance = like.model.partial_moments(*everything, float(mean)).second[0]
    low, high = like.model.support if like.model.spacing is None else (0.0, math.inf)
    return exact, float(np.clip(rng.normal(n * mean, math.sqrt(n * variance)), n * low, n * high))


def _joint_sums(rng: np.random.Generator, like: JointObservation, theta: Floats, n: int) -> tuple[NDArray[np.int64], Any]:
    """Return the sums of the contributions of n records, and those of the family's own statistic where it has one."""
    if n <= MOST_RECORDS:
        records = like.records(rng, theta[None], n)[0]
        exact = like.statistic.contributions(records).sum(axis=0)
        return exact, like.model.statistic(records).sum(axis=-1) if hasattr(like.model, "update") else None
    inside, outside = like.probabilities(theta[None])
    p = np.append(inside[0], outside[0])
    counts = rng.multinomial(n, p / p.sum())[:-1]
    return like.statistic.rows @ counts, None


def _simulate_counts(rng: np.random.Generator, like: CountsObservation, theta: Floats, prior: Dirichlet) -> Pseudo:
    n = like.n
    if n is None:  # negative binomial, with the Dirichlet's total as shape: a gamma mixture of Poisson laws
        shape = float(sum(prior.alpha))
        n = int(rng.poisson(rng.gamma(shape, (like.expected_n or 0.0) / shape)))
    counts = like.model.simulate(theta, n, rng)
    y = tuple(int(value) + int(like.noise.draw(rng)) for value in counts)
    return Pseudo(replace(like, y=y), n, counts)


def expected_widths(rng: np.random.Generator, like: ModelObservation, prior: Any, replicates: int) -> tuple[Width, ...]:
    """Average each parameter's posterior sd over truths and releases drawn from the prior.

    Where the prior has no finite sd, neither has the posterior (noise of full support excludes no parameter), nor the average of
    its widths: there the medians of half the central 68 % interval.
    """
    if isinstance(like, GramObservation):
        both = gram_widths(rng, like, prior, min(replicates, MOST_JOINT))
        return tuple(Width(float(one), float(other)) for one, other in zip(*(each.mean(axis=0) for each in both), strict=True))
    if isinstance(like, JointObservation | GroupedObservation):
        replicates = min(replicates, SOME if like.n is not None else FEW)
    has_sd = bool(np.isfinite(prior.sd).all())
    made = [replicate_widths(rng, like, prior, has_sd=has_sd) for _ in range(replicates)]
    private, exact = np.array(made).swapaxes(0, 1)
    average = np.mean if has_sd else np.median
    pairs = zip(average(private, axis=0), average(exact, axis=0), strict=True)
    return tuple(Width(float(one), float(other) if np.isfinite(other) else None) for one, other in pairs)


def replicate_widths(rng: np.random.Generator, like: ModelObservation, prior: Any, *, has_sd: bool) -> tuple[Floats, Floats]:
    """Return the posterior's width [p] for a truth and a release drawn from the prior, and that from the records, NaN if unknown.

    The truth is drawn first, then the records, then the noise: releases of one model and n from equal generators are of the
    same records, and their noise is nearly proportional to its scale. A width without ``has_sd`` is half the central 68 %
    interval.
    """
    pseudo = simulate(rng, like, prior.rvs(rng, 1)[0], prior)
    inference = infer(rng, pseudo.observation, prior, DRAWS)
    private = np.broadcast_to(_width(inference.grid, inference.draws, has_sd=has_sd), len(like.model.parameters))
    exact = np.full(len(private), np.nan)
    if pseudo.total is not None:
        exact[:] = _non_private(rng, like, prior, pseudo, has_sd=has_sd)
    return private, exact


def _width(grid: Any, draws: Floats, *, has_sd: bool) -> Any:
    """Return the sd [p] of a posterior, or half its central 68 % interval."""
    if not has_sd:
        below, above = np.quantile(draws.reshape(-1, draws.shape[-1]), [special.ndtr(-1), special.ndtr(1)], axis=0)
        return (above - below) / 2
    return grid.sd if isinstance(grid, GridPosterior) else draws.std(axis=(0, 1))


def _non_private(rng: np.random.Generator, like: ModelObservation, prior: Any, pseudo: Pseudo, *, has_sd: bool) -> Any:
    """Return the width [p] of the posterior from the records themselves, NaN where there is no way to it."""
    if isinstance(like, GroupedObservation):
        return _non_private_groups(rng, like, prior, pseudo, has_sd=has_sd)
    if not hasattr(like.model, "update") and not isinstance(like, CountsObservation):
        return math.nan
    if not isinstance(prior, like.model.prior_type):
        if hasattr(like.model, "features"):
            return math.nan
        grid = non_private(prior, like.model, pseudo.n, pseudo.total)
        return _width(grid, grid.draw(rng, DRAWS)[None, :, None], has_sd=has_sd)
    if isinstance(like, CountsObservation):
        return Dirichlet(tuple(like.model.update(prior, pseudo.total))).sd
    updated = like.model.update(prior, pseudo.n, pseudo.total)
    made = updated if hasattr(like.model, "features") else type(prior)(*map(float, updated))
    return np.atleast_1d(made.sd)


def _non_private_groups(
    rng: np.random.Generator, like: GroupedObservation, prior: Independent | PooledGroups, pseudo: Pseudo, *, has_sd: bool
) -> Any:
    """The same of all groups."""
    model = like.model
    if isinstance(prior, Independent):
        groups = zip(like.of_groups, prior.priors, pseudo.total, strict=True)
        parts = [_non_private(rng, each, one, Pseudo(each, *told), has_sd=has_sd) for each, one, told in groups]
        return np.concatenate([np.atleast_1d(part) for part in parts])
    if not hasattr(model.within, "update"):
        return math.nan
    grids = [non_private(prior.pooled, model.within, n, total) for n, total in pseudo.total]
    draws, _ = pool(rng, grids, prior.pooled, [str(group) for group in model.groups], DRAWS)
    return _width(None, draws[None], has_sd=has_sd)
