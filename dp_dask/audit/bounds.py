"""Lower bounds on what a mechanism loses, from how often an event happened on each of two neighbours."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy import special, stats

__all__ = ["Bound", "epsilon_bound", "rho_bound"]

Bound = Callable[[int, int, int, float], float]  # hits here, hits there, runs of each, and how often it may be wrong
ORDERS = 1 + np.geomspace(1e-3, 100, 120)


def interval(hits: int, others: int, n: int, alpha: float) -> tuple[float, float]:
    """Return p below P(event here) and q above P(event there), both but with probability alpha (Clopper & Pearson 1934)."""
    low = stats.beta.ppf(alpha / 2, hits, n - hits + 1) if hits else 0.0
    high = stats.beta.ppf(1 - alpha / 2, others + 1, n - others) if others < n else 1.0
    return float(low), float(high)


def epsilon_bound(delta: float = 0.0) -> Bound:
    """Bound epsilon, at a delta: P(event here) <= exp(epsilon) P(event there) + delta whatever the event."""

    def bound(hits: int, others: int, n: int, alpha: float) -> float:
        low, high = interval(hits, others, n, alpha)
        return math.log((low - delta) / high) if low > delta else -math.inf

    return bound


def rho_bound(hits: int, others: int, n: int, alpha: float) -> float:
    """Bound rho: the Renyi divergence of order a of an event's two laws is at most a rho, for each a > 1 (Bun & Steinke 2016).

    Telling only whether an event happened is post-processing, which raises no divergence; and of two probabilities p > q
    the divergence grows with p and falls with q. The largest over some orders is taken.
    """
    p, q = interval(hits, others, n, alpha)
    if not p > q:
        return 0.0
    happened = ORDERS * math.log(p) + (1 - ORDERS) * math.log(q)
    not_so = ORDERS * math.log1p(-p) + (1 - ORDERS) * math.log1p(-q) if p < 1 else np.full(len(ORDERS), -math.inf)
    divergences = special.logsumexp([happened, not_so], axis=0) / (ORDERS - 1)
    return float((divergences / ORDERS).max())
