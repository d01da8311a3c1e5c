"""Histograms and their exact posteriors by brute force, in logs: the oracles of the categorical engines."""

from __future__ import annotations

import itertools

import numpy as np
from scipy import special, stats


def log_weight(y, alpha, scale, counts):
    """log of Gamma(alpha + s) / (Gamma(alpha) s!) exp(-|y - s| / scale), s any array."""
    s = np.asarray(counts, dtype=float)
    return special.gammaln(alpha + s) - special.gammaln(alpha) - special.gammaln(s + 1) - np.abs(y - s) / scale


def compositions(cells, n):
    """Every vector of ``cells`` counts that adds up to n."""
    return np.array([s for s in itertools.product(range(n + 1), repeat=cells) if sum(s) == n])


def posterior_of_compositions(y, alpha, scale, n):
    """All compositions and their probabilities, by enumeration."""
    every = compositions(len(y), n)
    logs = sum(log_weight(y[k], alpha[k], scale, every[:, k]) for k in range(len(y)))
    return every, np.exp(logs - special.logsumexp(logs))


def marginals(y, alpha, scale, n):
    """P(S_k = s | y) [K, n + 1], by log-sum-exp over the prefix and suffix sums of all cells."""
    j = np.arange(n + 1)
    weights = [log_weight(y[k], alpha[k], scale, j) for k in range(len(y))]

    def add(a, b):
        rest = j[:, None] - j
        return special.logsumexp(np.where(rest >= 0, a + b[np.clip(rest, 0, n)], -np.inf), axis=1)

    nothing = np.where(j == 0, 0.0, -np.inf)
    before = list(itertools.accumulate(weights, add, initial=nothing))
    after = list(itertools.accumulate(weights[::-1], add, initial=nothing))[::-1]
    logs = np.array([weights[k] + add(before[k], after[k + 1])[::-1] for k in range(len(y))])
    return np.exp(logs - special.logsumexp(logs, axis=1, keepdims=True))


def discrete_laplace(rng, scale, size):
    p = -np.expm1(-1 / scale)
    return rng.geometric(p, size) - rng.geometric(p, size)


def chi_square_p(observed, probability):
    """The p-value of counts against probabilities; cells that expect fewer than ten are pooled."""
    expected = probability * observed.sum()
    rare = expected < 10
    seen = np.append(observed[~rare], observed[rare].sum())
    wanted = np.append(expected[~rare], expected[rare].sum())
    if wanted[-1] < 1:
        # A pool that expects less than one draw is judged by its own Poisson tail.
        tail = float(stats.poisson.sf(seen[-1] - 1, wanted[-1])) if seen[-1] else 1.0
        seen, wanted = seen[:-1], wanted[:-1]
    else:
        tail = 1.0
    if len(seen) < 2:
        return tail
    statistic = np.sum((seen - wanted) ** 2 / wanted)
    return min(tail, float(stats.chi2.sf(statistic, len(seen) - 1)))
