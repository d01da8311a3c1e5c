"""Exact output probabilities of sparse vector and selection, by sums over whole numbers; no code is shared with the product.

Distances are relative to the threshold. A law is the log of P(k), of P(V <= a) and of P(V > a).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class TwoSided:
    scale: float

    def log_pmf(self, k):
        return math.log(math.tanh(0.5 / self.scale)) - np.abs(k) / self.scale

    def log_cdf(self, a):
        log_tail = -np.maximum(np.abs(a), np.abs(a + 1)) / self.scale - math.log1p(math.exp(-1 / self.scale))
        return np.where(a < 0, log_tail, np.log1p(-np.exp(log_tail)))

    def log_sf(self, a):
        return self.log_cdf(-a - 1)


@dataclass(frozen=True)
class Below:
    """Minus a geometric variable: 0, -1, -2, .."""

    scale: float

    def log_pmf(self, k):
        return np.where(k <= 0, math.log(-math.expm1(-1 / self.scale)) + np.minimum(k, 0) / self.scale, -np.inf)

    def log_cdf(self, a):
        return np.minimum(a, 0) / self.scale

    def log_sf(self, a):
        with np.errstate(divide="ignore"):
            return np.log(-np.expm1(np.minimum(a, 0) / self.scale))


@dataclass(frozen=True)
class Above:
    """A geometric variable: the wrong sign."""

    scale: float

    def log_pmf(self, k):
        return Below(self.scale).log_pmf(-k)

    def log_cdf(self, a):
        return Below(self.scale).log_sf(-a - 1)

    def log_sf(self, a):
        return Below(self.scale).log_cdf(-a - 1)


@dataclass(frozen=True)
class Nothing:
    """No noise."""

    def log_pmf(self, k):
        return np.where(k == 0, 0.0, -np.inf)

    def log_cdf(self, a):
        return np.where(a >= 0, 0.0, -np.inf)

    def log_sf(self, a):
        return np.where(a < 0, 0.0, -np.inf)


def log_probability(threshold, query, rejected, accepted, times=1.0, reach=3000):
    """The log probability of answers to one noisy threshold: ``rejected`` ``times`` over, and ``accepted``, by distance."""
    m = np.arange(-reach, reach + 1, dtype=float)
    terms = threshold.log_pmf(m)
    for distance in rejected:
        terms = terms + times * query.log_sf(m - distance)
    for distance in accepted:
        terms = terms + query.log_cdf(m - distance)
    return float(special.logsumexp(terms))


def bound(hits, hits_of_neighbour, n, level=0.999):
    """The lower bound on epsilon that two counts of one event give (Clopper & Pearson 1934), wrong with probability 1 - level."""
    tail = (1 - level) / 2
    if hits == 0:
        return -math.inf
    low = stats.beta.ppf(tail, hits, n - hits + 1)
    high = stats.beta.ppf(1 - tail, hits_of_neighbour + 1, n - hits_of_neighbour)
    return math.log(low / high)
