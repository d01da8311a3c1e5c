"""Uniformity: are ranks uniform? The exact test of Saeilynoja, Buerkner & Vehtari (2022).

The largest departure of ranks from the uniform law is measured by gamma, which sees a posterior that is too narrow; the KS
distance, reported beside it, hardly does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import special

__all__ = ["LEVEL", "Uniformity", "gamma", "gamma_p_value", "ks_distance", "pass_mark", "uniformity"]

Floats = NDArray[np.float64]
LEVEL = 0.01  # how often a calibrated posterior is called miscalibrated


@dataclass(frozen=True, slots=True)
class Uniformity:
    """How uniform N ranks are: ``gamma`` against its pass mark at 1 %, its exact p-value, the KS distance."""

    n: int
    gamma: float
    pass_mark: float
    p_value: float
    ks: float

    @property
    def passes(self) -> bool:
        """Whether the posterior may be believed."""
        return self.gamma >= self.pass_mark


def uniformity(u: Floats) -> Uniformity:
    """Test ranks for uniformity."""
    n = len(u)
    value = gamma(u)
    return Uniformity(n, value, pass_mark(n), gamma_p_value(value, n), ks_distance(u))


def ks_distance(u: Floats) -> float:
    """Return the largest distance between the ranks' distribution function and the uniform one."""
    n = len(u)
    ordered = np.sort(u)
    i = np.arange(1, n + 1)
    return float(np.maximum(i / n - ordered, ordered - (i - 1) / n).max())


def gamma(u: Floats) -> float:
    """Return 2 min_i min(F(c_i), 1 - F(c_i - 1)), c_i = #(u <= i / N), F the law Binomial(N, i / N) (their equation 5)."""
    n = len(u)
    i = np.arange(1, n)
    count = np.searchsorted(np.sort(u), i / n, side="right").astype(np.float64)
    below = special.bdtr(count, n, i / n)
    above = np.where(count == 0, 1.0, special.bdtrc(count - 1, n, i / n))
    return float(min(2 * np.minimum(below, above).min(), 1.0))


def gamma_p_value(value: float, n: int) -> float:
    """Return P(gamma <= value) for uniform ranks, exactly.

    gamma > value means that every count c_i stays inside its own band. Given their sum, the increments of the counts are those
    of a Poisson process, so the probability of staying inside is a product of convolutions with Poisson(1), cut to the band.
    """
    lowest, tail = _tails(n)
    jump = np.exp(-1 - special.gammaln(np.arange(min(n, 40) + 1) + 1))
    inside, begin = np.ones(1), 0  # the law of the count, from the count ``begin`` on
    log_scale = 0.0
    for start, row in zip(lowest, tail > value, strict=True):
        kept = np.flatnonzero(row)
        if len(kept) == 0:
            return 1.0
        first, last = start + kept[0], start + kept[-1]
        moved = np.convolve(inside, jump)
        inside = np.zeros(last - first + 1)
        low, high = max(first, begin), min(last, begin + len(moved) - 1)
        if low > high:
            return 1.0
        inside[low - first : high - first + 1] = moved[low - begin : high - begin + 1]
        begin = first
        total = inside.sum()
        inside /= total
        log_scale += math.log(total)
    rest = n - begin - np.arange(len(inside))
    end = inside @ np.where(rest < 0, 0, np.exp(-1 - special.gammaln(np.maximum(rest, 0) + 1)))
    log_poisson = n * math.log(n) - n - float(special.gammaln(n + 1))
    return float(np.clip(1 - math.exp(log_scale + math.log(end) - log_poisson), 0, 1)) if end > 0 else 1.0


@lru_cache(maxsize=8)
def _tails(n: int) -> tuple[list[int], Floats]:
    """Return, for each i, a first count and twice the smaller tail of it and the counts after it."""
    p = (np.arange(1, n) / n)[:, None]
    width = math.ceil(8 * math.sqrt(n / 4)) + 8
    first = np.maximum(np.floor(n * p) - width, 0)
    counts = first + np.arange(2 * width + 1)
    below = special.bdtr(np.minimum(counts, n), n, p)
    above = np.where(counts <= 0, 1.0, special.bdtrc(np.clip(counts - 1, 0, n), n, p))
    tail = np.where(counts <= n, 2 * np.minimum(below, above), -1.0)
    return [int(value) for value in first[:, 0]], tail


@lru_cache(maxsize=64)
def pass_mark(n: int, level: float = LEVEL) -> float:
    """Return the gamma that a calibrated posterior falls below with probability ``level``, by bisection."""
    low, high = -14.0, 0.0
    for _ in range(16):
        middle = (low + high) / 2
        if gamma_p_value(math.exp(middle), n) < level:
            low = middle
        else:
            high = middle
    return math.exp(low)
