"""Birth-death: an outbreak of two kinds of hosts, event by event, compiled with numba.

Hosts comply with treatment or do not, and belong to the cluster of the case that infected them. Events race: a case of a new
cluster (rate ``beta``), a transmission by a host of kind k (rate a_k each), a removal (rate d_k each). A new host complies with
probability 0.95, whatever its source. After a burn-in two years are watched, and a host that is removed in them is observed with
probability 0.8 (Lintusaari et al. 2019, Methods; the constants are theirs). Parameters (beta, R1, t1, R2) with 1 the kind that
does not comply: R = a / d, t = a - d, and d_2 = 5.95.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["COMPLIANT", "OBSERVED", "Watched", "births_per_year", "check_numba", "compiled", "rates", "run", "watch"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
COMPLIANT = 0.95
OBSERVED = 0.8
REMOVAL = 5.95  # a year, of a host that complies
LEAST_BURN_IN = 15  # years
LAST_YEAR = 150  # of looking for balance
YEARS = 2  # watched
MONTHS = 12
FIRST_CAPACITY = 1024


@dataclass(frozen=True, slots=True, eq=False)
class Watched:
    """Observed cases of B outbreaks: how many each has [B], when its watch began [B] in years, cluster and month of each [k]."""

    counts: Ints
    start: Ints
    cluster: NDArray[np.int32]
    month: NDArray[np.int32]


def births_per_year(theta: Floats) -> Floats:
    """New cases a year [..] in balance, beta / (1 - 0.95 R2 - 0.05 R1), for theta [.., (beta, R1, t1, R2)]."""
    beta, r1, _, r2 = np.moveaxis(theta, -1, 0)
    return beta / (1 - COMPLIANT * r2 - (1 - COMPLIANT) * r1)


def rates(theta: Floats) -> Floats:
    """Return (beta, a_2, a_1, d_2, d_1, n_2*, n_1*) [B, 7], the last two the hosts in balance.

    Raises ValueError for a theta that has no balance.
    """
    beta, r1, t1, r2 = theta.T
    has_balance = (beta > 0) & (r1 > 1) & (t1 > 0) & (r2 >= 0) & (COMPLIANT * r2 + (1 - COMPLIANT) * r1 < 1)
    if not has_balance.all():
        shown = ", ".join(map(str, theta[~has_balance][0].tolist()))
        msg = f"(beta, R1, t1, R2) = ({shown}) never settles: beta, t1 > 0, R1 > 1, R2 >= 0 and 0.95 R2 + 0.05 R1 < 1 are needed"
        raise ValueError(msg)
    births = births_per_year(theta)
    d1 = t1 / (r1 - 1)
    removal = np.full(len(theta), REMOVAL)
    in_balance = COMPLIANT * births / REMOVAL, (1 - COMPLIANT) * births / d1
    return np.ascontiguousarray(np.stack([beta, REMOVAL * r2, t1 + d1, removal, d1, *in_balance], axis=1))


def watch(theta: Floats, rng: np.random.Generator) -> Watched:
    """Simulate and watch one outbreak for each theta [B, 4]."""
    return Watched(*compiled()(rates(theta), rng))


def check_numba() -> None:
    """Raise ValueError where numba is not installed."""
    if find_spec("numba") is None:
        msg = "outbreaks are simulated event by event, which needs numba: pip install 'dp-dask[numba]', here and on the workers"
        raise ValueError(msg)


@cache
def compiled() -> Callable[[Floats, np.random.Generator], tuple[Ints, Ints, Any, Any]]:
    """Return ``run``, compiled once a process; the machine code is kept on disk where there is a place for it."""
    from numba import njit  # noqa: PLC0415  (an extra: nothing else needs it)

    try:
        return njit(nogil=True, cache=True, error_model="numpy")(run)
    except RuntimeError:
        return njit(nogil=True, error_model="numpy")(run)


def run(rates: Floats, rng: np.random.Generator) -> tuple[Ints, Ints, Any, Any]:  # noqa: C901, PLR0912, PLR0915
    """Run each outbreak of ``rates`` [B, 7]; return the four arrays of ``Watched``.

    The burn-in lasts twice the time until each kind has once had its hosts in balance, looked at once a year, and at least 15
    years. One uniform chooses the event, what is left of it the host, and what is left again whether
    a new host complies or a removed one is observed: 40 bits of 53 remain for that.
    """
    size = len(rates)
    counts, start = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    hosts = np.empty((2, FIRST_CAPACITY), dtype=np.int32)  # cluster of each host, by kind: 0 complies, 1 does not
    found = np.empty((2, FIRST_CAPACITY), dtype=np.int32)  # cluster and month of each observed case
    n_found = 0
    for b in range(size):
        beta, a0, a1, d0, d1, balance0, balance1 = rates[b]
        n0, n1, clusters, year = 0, 0, 0, 1
        time, watch, end = 0.0, np.inf, np.inf
        had0, had1 = False, False
        while True:
            births0 = beta + a0 * n0
            births = births0 + a1 * n1
            removals0 = births + d0 * n0
            total = removals0 + d1 * n1
            time += rng.standard_exponential() / total
            if time >= end:
                break
            u = rng.random() * total
            if u < births:
                if u < beta:
                    left = u / beta
                    cluster = clusters
                    clusters += 1
                elif u < births0:
                    left = (u - beta) / a0
                    slot = min(int(left), n0 - 1)
                    left -= slot
                    cluster = hosts[0, slot]
                else:
                    left = (u - births0) / a1
                    slot = min(int(left), n1 - 1)
                    left -= slot
                    cluster = hosts[1, slot]
                if max(n0, n1) == hosts.shape[1]:
                    more = np.empty((2, 2 * hosts.shape[1]), dtype=np.int32)
                    more[:, : hosts.shape[1]] = hosts
                    hosts = more
                if left < COMPLIANT:
                    hosts[0, n0] = cluster
                    n0 += 1
                else:
                    hosts[1, n1] = cluster
                    n1 += 1
            else:
                if n0 > 0 and (u < removals0 or n1 == 0):
                    left = (u - births) / d0
                    slot = min(int(left), n0 - 1)
                    left -= slot
                    n0 -= 1
                    cluster = hosts[0, slot]
                    hosts[0, slot] = hosts[0, n0]
                elif n1 > 0:
                    left = (u - removals0) / d1
                    slot = min(int(left), n1 - 1)
                    left -= slot
                    n1 -= 1
                    cluster = hosts[1, slot]
                    hosts[1, slot] = hosts[1, n1]
                else:  # u was rounded up to the total, and nobody is there to be removed
                    continue
                if time >= watch and left < OBSERVED:
                    if n_found == found.shape[1]:
                        more = np.empty((2, 2 * n_found), dtype=np.int32)
                        more[:, :n_found] = found
                        found = more
                    found[0, n_found] = cluster
                    found[1, n_found] = min(int((time - watch) * MONTHS), YEARS * MONTHS - 1)
                    n_found += 1
                    counts[b] += 1
            while end == np.inf and time >= year:
                had0 = had0 or n0 >= balance0
                had1 = had1 or n1 >= balance1
                if (had0 and had1) or year == LAST_YEAR:
                    start[b] = max(2 * year, LEAST_BURN_IN)
                    watch, end = float(start[b]), float(start[b] + YEARS)
                year += 1
    return counts, start, found[0, :n_found].copy(), found[1, :n_found].copy()
