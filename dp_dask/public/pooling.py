"""Pooling: the joint posterior of mu, tau and all groups' parameters under a hierarchical prior, without a chain.

p(mu, tau | y) is proportional to p(mu, tau) prod_g integral L_g(v) Normal(v; mu, tau^2) dv and is tabulated on a plane of cells;
given mu and tau the groups are independent, and each is drawn by inversion (Gelman et al. 2013, Bayesian Data Analysis,
section 5.4, with L_g for their normal likelihood).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dp_dask.core.normal_scores import FURTHEST, NormalScores
from dp_dask.core.pooled import Pooled
from dp_dask.errors import InferenceError
from dp_dask.public import plane
from dp_dask.public.grid import GridPosterior
from dp_dask.public.modes import Box
from dp_dask.public.pooled_cells import Block, Known, blocks, integrals, known

__all__ = ["pool"]

Floats = NDArray[np.float64]
STARTS = 100  # prior draws, and as many means of all groups, among which the walks to the modes begin
NUMBERS, CACHED = 2**20, 2**17  # worked on at a time
MOST_BESIDE = 1e-4  # posterior probability that a group's parameter lies where its own likelihood is only bounded


def pool(
    rng: np.random.Generator, grids: Sequence[GridPosterior], prior: Pooled, names: Sequence[str], n_draws: int
) -> tuple[Floats, float]:
    """Return independent draws of mu, tau and the groups' parameters [draw, 2 + group], and the plane's error estimate.

    ``grids`` are the posteriors that each group's release gives by itself under ``prior``. Raises InferenceError, naming the
    group, where the others pull a group's parameter to where its own release all but excludes it.
    """
    groups = [known(grid, prior) for grid in grids]
    made = blocks(groups)
    of_mu, of_tau = NormalScores(prior.mean_prior), NormalScores(prior.sd_prior)

    def log_density(z: Floats) -> Floats:
        log_prior = of_mu.log_density(z[:, 0]) + of_tau.log_density(z[:, 1])
        return np.asarray(log_prior + _log_evidence(made, of_mu.parameter(z[:, 0]), of_tau.parameter(z[:, 1])))

    box = Box(np.full(2, -FURTHEST), np.full(2, FURTHEST))
    starts = [of.scores(guess) for of, guess in zip((of_mu, of_tau), _starts(rng, groups, prior), strict=True)]
    found = plane.tabulate(log_density, box, np.stack(starts, axis=1))
    drawn = found.draw(rng, n_draws)
    mu, tau = of_mu.parameter(drawn[:, 0]), of_tau.parameter(drawn[:, 1])
    draws = np.empty((n_draws, 2 + len(groups)))
    draws[:, 0], draws[:, 1] = mu, tau
    for block in made:
        v = _draw_block(rng, block, groups, mu, tau, names)
        draws[:, [2 + i for i in block.members]] = prior.scale.parameter(np.clip(v, *prior.scale.ends))
    return draws, found.error


def _log_evidence(made: Sequence[Block], mu: Floats, tau: Floats) -> Floats:
    total = np.zeros(len(mu))
    for block in made:
        step = max(NUMBERS // len(block.nodes), 1)
        for start in range(0, len(mu), step):
            part = slice(start, start + step)
            total[part] += block.log_evidence(mu[part], tau[part])
    return total


def _starts(rng: np.random.Generator, groups: Sequence[Known], prior: Pooled) -> tuple[Floats, Floats]:
    """Guess mu and tau: draws from their prior, and for each tau, that of the groups' own means too, the mean of them all."""
    drawn = prior.hyper.rvs(rng, STARTS)
    means, sds = np.array([group.mean for group in groups]), np.array([group.sd for group in groups])
    tau = np.append(drawn[:, 1], max(float(means.std()), np.finfo(np.float64).tiny))
    precision = 1 / (sds**2 + tau[:, None] ** 2)
    mu = precision @ means / precision.sum(axis=1)
    return np.append(mu, drawn[:, 0]), np.append(tau, drawn[:, 1])


def _draw_block(
    rng: np.random.Generator, block: Block, groups: Sequence[Known], mu: Floats, tau: Floats, names: Sequence[str]
) -> Floats:
    """Draw v [k, member], given mu and tau [k]."""
    nodes = block.nodes
    v, beside = np.empty((len(mu), len(block.members))), np.zeros(len(block.members))
    step = max(CACHED // len(nodes), 1)
    for start in range(0, len(mu), step):
        part = slice(start, start + step)
        falling, rising, below, above = integrals(nodes, mu[part], tau[part])
        for j, i in enumerate(block.members):
            likelihood = block.likelihood[j]
            weights = np.empty((len(below), len(nodes) + 1))
            weights[:, 0], weights[:, -1] = below * likelihood[0], above * likelihood[-1]
            weights[:, 1:-1] = falling * likelihood[:-1] + rising * likelihood[1:]
            is_beside = np.concatenate([[True], ~groups[i].holds((nodes[:-1] + nodes[1:]) / 2), [True]])
            beside[j] += (weights @ is_beside / weights.sum(axis=1)).sum() / len(mu)
            v[part, j] = _draw(rng, nodes, likelihood, weights, mu[part], tau[part])
    worst = int(beside.argmax())
    # A share of draws is known up to its Monte Carlo error: a single draw far in the tail, of a few thousand, refuses nothing.
    if beside[worst] > MOST_BESIDE + 5 * math.sqrt(MOST_BESIDE / len(mu)):
        name = names[block.members[worst]]
        msg = (
            f"the release contradicts the pooled prior: group {name} is drawn to where its own release all but excludes "
            "its parameter; infer with a wider prior of sd, or with a prior for each group by itself"
        )
        raise InferenceError(msg)
    return v


def _draw(rng: np.random.Generator, nodes: Floats, likelihood: Floats, weights: Floats, mu: Floats, tau: Floats) -> Floats:
    """Draw v [k] from linear likelihoods times normal densities: an interval by its weight [k, 1 + node], then inside it.

    Inside, the normal distribution is inverted and the draw kept in proportion to the likelihood.
    """
    total = np.cumsum(weights, axis=1)
    u = rng.random(len(mu)) * total[:, -1]
    chosen = np.minimum((total <= u[:, None]).sum(axis=1), len(nodes))
    low, high = np.append(-np.inf, nodes)[chosen], np.append(nodes, np.inf)[chosen]
    padded = np.concatenate([likelihood[:1], likelihood, likelihood[-1:]])
    at_low, at_high = padded[chosen], padded[chosen + 1]
    v = np.empty(len(mu))
    todo = np.arange(len(mu))
    while len(todo):
        a, b = low[todo], high[todo]
        v[todo] = x = _truncated_normal(rng, mu[todo], tau[todo], a, b)
        is_inner = np.isfinite(a) & np.isfinite(b)
        with np.errstate(invalid="ignore"):
            share = np.where(is_inner, (x - a) / (b - a), 0)
        kept = at_low[todo] * (1 - share) + at_high[todo] * share
        todo = todo[rng.random(len(todo)) * np.maximum(at_low[todo], at_high[todo]) > kept]
    return v


def _truncated_normal(rng: np.random.Generator, mu: Floats, tau: Floats, low: Floats, high: Floats) -> Floats:
    """Draw from Normal(mu, tau^2) between low and high, by inversion in the tail where probabilities are small."""
    a, b = (low - mu) / tau, (high - mu) / tau
    sign = np.where(a > 0, -1.0, 1.0)
    p, q = special.ndtr(np.where(a > 0, -b, a)), special.ndtr(np.where(a > 0, -a, b))
    return np.clip(mu + tau * sign * special.ndtri(p + (q - p) * rng.random(len(mu))), low, high)
