"""Exact, independent draws of a histogram from its noisy counts, where the total n is public.

Given noisy counts y the counts S have the law ``prod_k f_k(s_k)`` on ``sum_k s_k = n``. Sums of cells are tabulated up a binary
tree of convolutions and totals are split down it. A factor exp(-tilt s_k) in every cell cancels once the total is fixed; it is
chosen so that the cells' means add up to n: then n lies in the body of every law, however far the release is from the prior.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dp_dask.errors import InferenceError
from dp_dask.public.count_law import CountLaw, check, moments, tables
from dp_dask.public.count_law_gaussian import make_law
from dp_dask.public.count_sums import TRIM, Table, add, convolve, split
from dp_dask.public.noise_law import Gaussian, Laplace

__all__ = ["draw_counts", "expected_counts"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Law = type[Laplace | Gaussian]
CUT = 46.0  # nats below a cell's largest weight at which its table ends
MOST_RECORDS = 10**12
WORST = 1e-5  # total variation from the exact law, at most, by all that was cut
MOST_ENTRIES = 2**25  # of the cells' tables: with their sums about a gigabyte
NEAR, CLOSE = 0.25, 0.01  # standard deviations and counts that the means' sum may miss n by


def draw_counts(rng: np.random.Generator, y: Ints, alpha: Floats, scale: float, n: int, n_draws: int, law: Law = Laplace) -> Ints:
    """Draw the counts S [n_draws, K] independently from p(S | y), exactly, for public n.

    y [K] is S plus independent noise of that law and scale; alpha [K] is the Dirichlet prior of the cells'
    probabilities; each row adds up to n. It is the posterior that Bernstein & Sheldon (2018) approximate for the multinomial
    model, without the normal approximation; tails that are cut come to at most 1e-5 in total variation, else InferenceError is
    raised, as it is where the tables would not fit in memory.
    """
    _check_n(n)
    check(y, alpha, scale)
    if len(y) == 1 or n == 0:
        return np.full((n_draws, len(y)), n, dtype=np.int64)
    order, levels = _build(y, alpha, scale, n, law)
    totals = np.full((1, n_draws), n)
    for level in reversed(levels):
        parts = np.empty((len(level), n_draws), dtype=np.int64)
        for i, total in enumerate(totals):
            if 2 * i + 1 < len(level):
                parts[2 * i] = split(rng, level[2 * i], level[2 * i + 1], total)
                parts[2 * i + 1] = total - parts[2 * i]
            else:
                parts[2 * i] = total
        totals = parts
    counts = np.empty_like(totals)
    counts[order] = totals
    return counts.T


def expected_counts(y: Ints, alpha: Floats, scale: float, n: int, law: Law = Laplace) -> tuple[Floats, Floats]:
    """Return the exact posterior means [K] and variances [K] of the counts; arguments and errors as for ``draw_counts``."""
    _check_n(n)
    check(y, alpha, scale)
    if len(y) == 1 or n == 0:
        return np.full(len(y), float(n)), np.zeros(len(y))
    order, levels = _build(y, alpha, scale, n, law)
    rests = [Table(n, np.ones(1))]  # of each node: the weight that the cells outside it give to its total
    for level in reversed(levels):
        deeper = []
        for i, rest in enumerate(rests):
            if 2 * i + 1 < len(level):
                a, b = level[2 * i], level[2 * i + 1]
                deeper += [_without(rest, b, a), _without(rest, a, b)]
            else:
                deeper.append(rest)
        rests = deeper
    mean, variance = np.empty(len(y)), np.empty(len(y))
    for cell, leaf, rest in zip(order, levels[0], rests, strict=True):
        weights = leaf.weights * rest.weights
        weights /= weights.sum()
        step = np.arange(len(weights))
        centre = weights @ step
        mean[cell], variance[cell] = leaf.low + centre, weights @ (step - centre) ** 2
    return mean, variance


def _check_n(n: int) -> None:
    if not 0 <= n <= MOST_RECORDS:
        msg = f"n = {n}: the number of records must lie in [0, {MOST_RECORDS:.0e}]"
        raise InferenceError(msg)


def _without(rest: Table, other: Table, own: Table) -> Table:
    """Sum rest(T) other(T - j) over T for the counts j of ``own``, up to a constant."""
    weights = convolve(rest.weights, other.weights[::-1])
    skip = own.low - (rest.low - other.low - len(other) + 1)
    found = np.zeros(len(own))
    kept = weights[max(skip, 0) : skip + len(own)]
    found[max(-skip, 0) : max(-skip, 0) + len(kept)] = kept
    return Table(own.low, found / found.max())


def _build(y: Ints, alpha: Floats, scale: float, n: int, kind: Law) -> tuple[list[int], list[list[Table]]]:
    """Tabulate the cells, narrow ones first, and the sums of neighbours up to two; return the cells' order and the levels."""
    law = _tilted(make_law(y, np.full(len(y), n), alpha, scale, 0.0, kind), n)
    low, high = law.windows(CUT)
    entries = int((high - low + 1).sum())
    if entries > MOST_ENTRIES:
        msg = (
            f"{len(y)} cells, n = {n} and noise of scale {scale:g} need tables of {entries:.2g} entries; at most "
            f"{MOST_ENTRIES:.2g} fit in memory: merge cells, or release with less noise"
        )
        raise InferenceError(msg)
    order, leaves = [], []
    for cell, weights in tables(law, low, high):
        order.append(cell)
        leaves.append(Table(int(low[cell]), weights))
    levels = [leaves]
    while len(levels[-1]) > 2:  # noqa: PLR2004
        below = levels[-1]
        sums = [add(a, b, n) for a, b in zip(below[::2], below[1::2], strict=False)]
        levels.append(sums + below[2 * len(sums) :])
    _check_cut(law, entries, levels[-1], n)
    return order, levels


def _check_cut(law: CountLaw, entries: int, top: list[Table], n: int) -> None:
    """Raise InferenceError if what was cut from tails may matter beside the weight of the one total that is left, n."""
    a, b = top
    index = n - a.low - b.low - np.arange(len(a))
    is_held = (index >= 0) & (index < len(b))
    weight = float(a.weights[is_held] @ b.weights[index[is_held]])
    cut = math.exp(-CUT) * (entries + law.beyond(n) * len(law.alpha)) + 4 * TRIM * len(law.alpha)
    if not cut <= WORST * weight:
        msg = (
            f"the counts add up to n = {n} with probability {weight:.1e} only, against {cut:.1e} of rounding: the release "
            "contradicts the prior; infer with a larger alpha"
        )
        raise InferenceError(msg)


def _tilted(law: CountLaw, n: int) -> CountLaw:
    """Tilt the law until the cells' means add up to n within a quarter of a standard deviation.

    Their sum falls in the tilt. At the ends of the bracket every cell's weights grow, or fall, so fast from count to count that
    the sum lies beyond n. Newton steps, and bisection where they leave the bracket or do not halve the miss.
    """
    falling, rising = law.slopes
    low = falling + min(math.log(law.alpha.min()), 0.0) - math.log(2)
    high = rising + max(math.log(law.alpha.max()), 0.0) + math.log(2 * len(law.alpha))
    wanted = n - int(law.centre.sum())
    tilt, before = 0.0, math.inf
    while True:
        law = replace(law, tilt=tilt)
        means, variances = moments(law, *law.windows(CUT))
        excess, variance = float(means.sum()) - wanted, float(variances.sum())
        if abs(excess) <= NEAR * math.sqrt(variance) + CLOSE:
            return law
        low, high = (tilt, high) if excess > 0 else (low, tilt)
        step = tilt + excess / variance if variance > 0 else math.nan
        tilt = step if low < step < high and abs(excess) < before / 2 else (low + high) / 2
        before = abs(excess)
        if tilt in (low, high):
            return law
