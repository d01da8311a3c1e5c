"""Exact output probabilities of a sparse vector, by sums over whole numbers; no code is shared with the mechanism.

Sampling sees what is common; a loss in a rare answer shows here alone. Distances are relative to the threshold.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

__all__ = ["Law", "largest_ratio"]

Floats = NDArray[np.float64]
REACH = 40  # scales of the threshold's noise, beyond which its probability is below exp(-40)
REJECTIONS = (1, 20, 1000)
RAREST = -600.0  # what is rarer could not be told from a sum's rounding


@dataclass(frozen=True, slots=True)
class Law:
    """The noise that is added: discrete Laplace of a scale, or where it ``is_one_sided`` minus a geometric variable."""

    scale: float
    is_one_sided: bool

    def log_pmf(self, k: Floats) -> Floats:
        """Return log P(V = k)."""
        if self.is_one_sided:
            return np.where(k <= 0, math.log(-math.expm1(-1 / self.scale)) + np.minimum(k, 0) / self.scale, -np.inf)
        return math.log(math.tanh(0.5 / self.scale)) - np.abs(k) / self.scale

    def log_cdf(self, a: Floats) -> Floats:
        """Return log P(V <= a)."""
        if self.is_one_sided:
            return np.minimum(a, 0) / self.scale
        tail = -np.maximum(np.abs(a), np.abs(a + 1)) / self.scale - math.log1p(math.exp(-1 / self.scale))
        return np.where(a < 0, tail, np.log1p(-np.exp(tail)))

    def log_sf(self, a: Floats) -> Floats:
        """Return log P(V > a)."""
        if self.is_one_sided:
            with np.errstate(divide="ignore"):
                return np.log(-np.expm1(np.minimum(a, 0) / self.scale))
        return self.log_cdf(-a - 1)


def largest_ratio(threshold: Law, query: Law, sensitivity: int, c: int, stretches: int) -> float:
    """Return the largest log ratio, over some extreme answers, between neighbours whose distances move against each other.

    An answer is many rejections and then c acceptances at one noisy threshold, ``stretches`` times over with a new threshold.
    """
    found = -math.inf
    unit = query.scale
    for times, r, a, move in itertools.product(REJECTIONS, (-5, -2, 0, 2), (-3, 0, 3), (sensitivity, -sensitivity)):
        rejected, accepted = round(r * unit), round(a * unit)
        p = _log_probability(threshold, query, rejected, times, accepted, c)
        q = _log_probability(threshold, query, rejected - move, times, accepted + move, c)
        if p > RAREST:
            found = max(found, stretches * (p - q))
    return found


def _log_probability(threshold: Law, query: Law, rejected: int, times: int, accepted: int, c: int) -> float:
    """Return the log probability of ``times`` rejections at one distance and c acceptances at another."""
    reach = math.ceil(REACH * max(threshold.scale, query.scale))
    m = np.arange(-reach, reach + 1, dtype=np.float64)
    terms = threshold.log_pmf(m) + times * query.log_sf(m - rejected) + c * query.log_cdf(m - accepted)
    return float(special.logsumexp(terms))
