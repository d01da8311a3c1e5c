"""Simulated releases of several columns, many at once: their ranks and widths."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.wishart import NormalInverseWishart
from dp_dask.public.gram_likelihood import GramObservation
from dp_dask.public.gram_posterior import GramDraws, draw_posteriors
from dp_dask.public.gram_report import GramPrior, reported
from dp_dask.public.randomness import draw_n, rank_among

__all__ = ["gram_ranks", "gram_widths", "simulate_gram"]

Floats = NDArray[np.float64]
AT_ONCE = 25  # releases whose chains run as one batch
WIDTH_DRAWS = 640
BLOCK = 2**16


def simulate_gram(rng: np.random.Generator, like: GramObservation, prior: GramPrior) -> tuple[GramObservation, Floats, Floats]:
    """Return a release of simulated records, the truth [p] behind it and the records' exact sums [K + 1], n first."""
    phi = prior.wishart.rvs(rng, 1)
    m, root = prior.wishart.mean_and_root(phi)
    n = draw_n(rng, like.n, like.expected_n)
    statistic = like.statistic
    half = np.array([each.width / 2 for each in statistic.bounds])
    middle = np.array([each.lower / 2 + each.upper / 2 for each in statistic.bounds])
    exact = np.zeros(statistic.size, dtype=np.int64)
    own = np.zeros((len(half) + 1, len(half) + 1))
    for start in range(0, n, BLOCK):
        u = m[0] + rng.standard_normal((min(BLOCK, n - start), len(half))) @ root[0]
        exact += statistic.sum_block(middle + half * u)
        full = np.column_stack([np.ones(len(u)), u])
        own += full.T @ full
    noise = like.noise.draw(rng, statistic.size + 1)
    y = tuple(int(value) for value in exact + noise[1:])
    count = None if like.count is None else int(statistic.count_weight * n + noise[0])
    return replace(like, y=y, count=count), prior.at(phi)[0], own


def gram_ranks(rng: np.random.Generator, like: GramObservation, prior: GramPrior, n: int) -> Floats:
    """Return the randomised rank of each truth's reported parameters among 63 thinned draws, [n, p]."""
    ranks: list[Floats] = []
    for start in range(0, n, AT_ONCE):
        pseudo = [simulate_gram(rng, like, prior) for _ in range(min(AT_ONCE, n - start))]
        for draws, (_, truth, _) in zip(_draw(rng, like, prior, [p[0] for p in pseudo]), pseudo, strict=True):
            ranks.append(rank_among(rng, draws, truth))
    return np.array(ranks)


def gram_widths(rng: np.random.Generator, like: GramObservation, prior: GramPrior, replicates: int) -> tuple[Floats, Floats]:
    """Return each reported parameter's posterior sd [replicate, p], with the release and with the records themselves."""
    pseudo = [simulate_gram(rng, like, prior) for _ in range(replicates)]
    private = [draws.std(axis=(0, 1)) for draws in _draw(rng, like, prior, [p[0] for p in pseudo])]
    exact = []
    for _, _, own in pseudo:
        updated = _update(prior.wishart, own)
        draws = reported(prior.model, prior.statistic, *updated.parameters(updated.rvs(rng, WIDTH_DRAWS)))
        exact.append(draws.std(axis=0))
    return np.array(private), np.array(exact)


def _draw(rng: np.random.Generator, like: GramObservation, prior: GramPrior, releases: list[GramObservation]) -> list[Floats]:
    made: list[GramDraws] = draw_posteriors(rng, releases, prior.wishart, WIDTH_DRAWS)
    return [reported(prior.model, like.statistic, each.m, each.v) for each in made]


def _update(prior: NormalInverseWishart, own: Floats) -> NormalInverseWishart:
    """Conjugate-Update with the sums of (1, u)(1, u)^T over n records (Murphy 2007, equations 250 to 254)."""
    n, total, squares = own[0, 0], own[0, 1:], own[1:, 1:]
    m0 = np.array(prior.m0)
    k = prior.k0 + n
    m = (prior.k0 * m0 + total) / k
    psi = np.array(prior.psi0) + squares + prior.k0 * np.outer(m0, m0) - k * np.outer(m, m)
    psi = (psi + psi.T) / 2
    return NormalInverseWishart(m0=tuple(m), k0=float(k), psi0=tuple(map(tuple, psi.tolist())), nu0=float(prior.nu0 + n))
