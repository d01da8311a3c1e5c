"""ClusterBands: how large clusters are, and over how many periods they are seen, as counts that one record moves by one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.privacy import Neighbours
from dp_dask.core.simulated import Simulated

__all__ = ["EXACT", "ClusterBands", "is_whole"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
MOST_BANDS = 256
LARGEST_RANK = 2**40
EXACT = 2**53  # whole numbers beyond may have been rounded to a float64, so that two of them are one
LARGEST_KEY = 2**62
AT_ONCE = 2**16  # simulated records whose bands are counted together, about
DENSE = 2**10  # codes beyond twice the records that are taken as they are


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterBands:
    """For each band of ranks k, the records that are the k-th of their cluster; and likewise the k-th periods of clusters.

    ``sizes`` are the bands' lower ends, each band ending before the next one, the last nowhere. With H_k the number of clusters
    of at least k records, a band's coordinate is the sum of H_k over its k: from bands (1, 2, 3) it is the number of clusters,
    that of clusters of two records or more, and the records beyond the second of their cluster. Where ``sizes`` begins at 1, the
    coordinates add up to the records of all clusters. ``spans`` are bands of M_k, the number of clusters seen in at least k
    different values of ``period``. The coordinates of ``sizes`` come first.

    Clusters and periods are whole numbers, or texts where ``texts`` names the column, and compare by value. A record whose
    cluster is null or no whole number contributes nothing, one whose period is so contributes to ``sizes`` only. A whole number
    of a column of floats or decimals counts up to 2^53: one beyond may have been rounded.
    """

    cluster: str
    sizes: tuple[int, ...]
    period: str | None = None
    spans: tuple[int, ...] = ()
    texts: tuple[str, ...] = ()

    count_weight: ClassVar[int] = 0  # the sizes hold the count already
    largest: ClassVar[int] = 1

    def __post_init__(self) -> None:
        _check_bands("sizes", self.sizes)
        if (self.period is None) is not (not self.spans) or self.period == self.cluster:
            msg = "give period and spans, or neither; period is another column than cluster"
            raise ValueError(msg)
        if self.spans:
            _check_bands("spans", self.spans)
        if self.texts != tuple(column for column in self.columns if column in self.texts):
            msg = f"texts is {', '.join(self.texts)}; it names columns among {', '.join(self.columns)}, in this order, each once"
            raise ValueError(msg)

    @property
    def columns(self) -> tuple[str, ...]:
        """The column of the cluster, and that of the period where there is one."""
        return (self.cluster,) if self.period is None else (self.cluster, self.period)

    @property
    def units(self) -> tuple[float, ...]:
        """Counts are whole numbers."""
        return (1.0,) * (len(self.sizes) + len(self.spans))

    def sensitivity(self, neighbours: Neighbours) -> int:
        """Return the largest L1 change of all bands between neighbours; no smaller number would do.

        Theorem: it is 1 where a record is added or removed, 2 with periods. Where one is replaced it is min(2, bands of sizes),
        and with periods 1 more, or 2 if there are several bands of spans and spans[0] < sizes[-1].

        Proof: a record that is added to a cluster of s - 1 records raises H_s by one and no other H_k. If its period is new to
        the cluster, the cluster's d-th, it raises M_d by one and no other M_k; if not, or if it has none, it raises no M_k; and
        without a cluster it raises nothing. So it adds v = (e_a, e_A), with a and A the bands of s and d and e a unit vector,
        or 0 where there is no band. Removing it subtracts such a v. |v|_1 is 1 on the sizes and 1 on the spans at most, which
        the last record of a large cluster attains of which each has a period of its own.

        Replacing is removing one and adding another: it adds v' - v. On the sizes and on the spans that is of norm 2 at most, and
        1 where there is one band only, in which two unit vectors cancel. To attain min(2, bands of sizes), not both of
        v and v' can have the last band of sizes, so that one is of a rank s < sizes[-1]; to attain 2 on the spans,
        both must have a band there, so that one is of d <= s < sizes[-1], and spans[0] <= d. So where spans[0] >= sizes[-1],
        or there is one band of spans, one of the two sums falls short by 1. The bounds are attained by a v' of the last bands of
        both, and a v of rank sizes[-1] - 1 with d = spans[0] if that is smaller than sizes[-1], else without a period.
        """
        if neighbours is Neighbours.ADD_REMOVE:
            return 2 if self.spans else 1
        of_sizes = min(len(self.sizes), 2)
        if not self.spans:
            return of_sizes
        return of_sizes + (2 if len(self.spans) > 1 and self.spans[0] < self.sizes[-1] else 1)

    def squared_sensitivity(self, neighbours: Neighbours) -> int:
        """Return the square of the largest L2 change of all bands between neighbours: it is the largest L1 change.

        Proof: a change is v or v' - v as for ``sensitivity``, each of its coordinates -1, 0 or 1 and its own square's magnitude.
        """
        return self.sensitivity(neighbours)

    def bands(self, records: Ints, periods: Ints) -> Ints:
        """Return what clusters of so many records, and of so many different periods [cluster], add to each band [d, cluster]."""
        rows = [(self.sizes, records), (self.spans, periods)]
        return np.stack([row for lowest, reached in rows for row in _ranks_within(lowest, reached)])

    def totals_of(self, simulated: Simulated) -> Ints:
        """Return the bands of each simulated data set [size, d], as of its records in any order."""
        empty = np.empty((0, len(self.units)), dtype=np.int64)
        return np.concatenate([empty, *map(self._totals_of, simulated.parts(AT_ONCE))])

    def _totals_of(self, simulated: Simulated) -> Ints:
        values = simulated.values[self.cluster]
        known = is_whole(values)
        owner = simulated.dataset[known]
        cluster = _codes(values[known])
        group = owner * (cluster.max(initial=0) + 1) + cluster
        n_periods, period = 1, np.zeros(len(group), dtype=np.int64)
        if self.period is not None:
            period = _codes_or_none(simulated.values[self.period][known])
            n_periods = int(period.max(initial=0)) + 1
        if int(group.max(initial=0) + 1) * n_periods >= LARGEST_KEY:
            group = np.unique(group, return_inverse=True)[1]
        # The data sets ascend, and so do the groups' numbers with them: sorted, each record's place is in its own data set.
        # "stable" is the faster on what ascends in runs already.
        key = np.sort(group * n_periods + period, kind="stable")
        group, period = key // n_periods, key % n_periods
        first = np.flatnonzero(np.diff(group, prepend=-1))
        is_new = (np.diff(key, prepend=-1) != 0) & (period > 0)
        records = np.diff(np.append(first, len(group)))
        periods = np.add.reduceat(is_new.astype(np.int64), first) if len(first) else records
        totals = np.zeros((simulated.size, len(self.units)), dtype=np.int64)
        if len(first):
            owner = owner[first]
            start = np.flatnonzero(np.diff(owner, prepend=-1))
            totals[owner[start]] = np.add.reduceat(self.bands(records, periods), start, axis=1).T
        return totals


def _check_bands(name: str, lowest: tuple[int, ...]) -> None:
    if not 1 <= len(lowest) <= MOST_BANDS or not 1 <= min(lowest) <= max(lowest) <= LARGEST_RANK:
        msg = f"{name} must be 1 to {MOST_BANDS} whole numbers from 1 to {LARGEST_RANK}, the lower ends of the bands"
        raise ValueError(msg)
    if any(high <= low for low, high in pairwise(lowest)):
        msg = f"{name} is {', '.join(map(str, lowest))}; the lower ends of the bands must ascend"
        raise ValueError(msg)


def _ranks_within(lowest: tuple[int, ...], reached: Ints) -> Iterator[Ints]:
    """Yield, band by band, how many of the ranks 1 .. reached [cluster] lie in it."""
    for low, end in pairwise((*lowest, LARGEST_RANK + 1)):
        yield np.clip(reached - (low - 1), 0, end - low)


def is_whole(values: Floats) -> NDArray[np.bool_]:
    """Tell which values are whole numbers that no rounding has made, up to 2^53 in magnitude."""
    return (np.abs(values) <= EXACT) & (np.floor(values) == values)


def _codes(values: Floats) -> Ints:
    """Return whole numbers from 0 on that are equal where the values are, below about twice the number of values."""
    whole = values.astype(np.int64)
    if not len(whole):
        return whole
    low = whole.min()
    if whole.max() - low <= 2 * len(whole) + DENSE:
        return whole - low
    return np.unique(whole, return_inverse=True)[1]


def _codes_or_none(values: Floats) -> Ints:
    """Return ``_codes`` from 1 on, and 0 for what is no whole number."""
    known = is_whole(values)
    codes = np.zeros(len(values), dtype=np.int64)
    codes[known] = 1 + _codes(values[known])
    return codes
