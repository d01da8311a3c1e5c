"""The eight summaries of an outbreak's cases, their weights, and San Francisco's (Lintusaari et al. 2019, and their code).

They are functions of the whole outbreak: when one case is left out the last two can jump from end to end, so they have no useful
sensitivity where a case is a record. They serve where an outbreak is a record.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["NAMES", "SAN_FRANCISCO", "WEIGHTS", "distance", "summarise"]

Floats = NDArray[np.float64]
NAMES = ("observed", "clusters", "largest", "decline", "singles", "pairs", "span", "months")
WEIGHTS = np.array([1, 1, 2, 10, 100, 100, 10, 10], dtype=np.float64)
SAN_FRANCISCO = np.array([473, 326, 30, 20 / 3, 282 / 473, 20 / 473, 24, 17])
RELATIVE = slice(4, 6)  # the two shares, compared by their relative error
RANKED = 4  # largest clusters that ``decline`` compares
MONTHS = 24


def summarise(counts: NDArray[np.int64], cluster: NDArray[np.int32], month: NDArray[np.int32]) -> Floats:
    """Return the summaries [B, 8] of B outbreaks with so many cases each [B], cluster and month (0 .. 23) of each case [k].

    In the order of ``NAMES``: cases; clusters; size of the largest; mean difference between successive sizes of the four
    largest, absent ones of size 0; clusters of one case, and of two, each over the number of cases; the largest cluster's months
    from first to last, both counted; its months with a case. Of equally large clusters the first founded counts; an outbreak
    without a case has zeros.
    """
    size = len(counts)
    owner = np.repeat(np.arange(size), counts)
    base = int(cluster.max(initial=0)) + 1
    keys, members = np.unique(owner * base + cluster, return_counts=True)
    of_key = keys // base
    clusters = np.bincount(of_key, minlength=size)
    order = np.lexsort((keys, -members, of_key))
    rank = np.arange(len(keys)) - (np.cumsum(clusters) - clusters)[of_key]  # within the outbreak, the largest first
    top = np.zeros((size, RANKED))
    is_top = rank < RANKED
    top[of_key[is_top], rank[is_top]] = members[order][is_top]
    largest = np.full(size, -1)
    largest[of_key[rank == 0]] = keys[order][rank == 0]
    seen = np.zeros((size, MONTHS), dtype=np.bool_)
    in_largest = owner * base + cluster == largest[owner]
    seen[owner[in_largest], month[in_largest]] = True
    has_cases = counts > 0
    span = np.where(has_cases, MONTHS - seen[:, ::-1].argmax(axis=1) - seen.argmax(axis=1), 0)
    total = np.maximum(counts, 1)
    shares = [np.bincount(of_key[members == k], minlength=size) / total for k in (1, 2)]
    decline = (top[:, 0] - top[:, -1]) / (RANKED - 1)
    return np.stack([counts, clusters, top[:, 0], decline, *shares, span, seen.sum(axis=1)], axis=1)


def distance(simulated: Floats, observed: Floats) -> Floats:
    """Return the Euclidean norm [..] of the weighted differences of summaries [.., 8]; of the two shares, relative ones.

    Raises ValueError where an observed share is 0, to which no error is relative.
    """
    if np.any(observed[..., RELATIVE] <= 0):
        msg = (
            "an observed outbreak without a cluster of one case, or of two, has no distance: errors are relative to their shares"
        )
        raise ValueError(msg)
    difference = simulated - observed
    difference[..., RELATIVE] /= observed[..., RELATIVE]
    return np.asarray(np.linalg.norm(WEIGHTS * difference, axis=-1))
