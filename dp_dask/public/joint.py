"""JointObservation: a release of several sums seen through its model, with the exact law of one record's contribution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.bounds import Outside
from dp_dask.core.table_sum import TableSum
from dp_dask.public.noise_law import Gaussian, Laplace
from dp_dask.public.observation import Counted, of_table

__all__ = ["JointMoments", "JointObservation"]

Floats = NDArray[np.float64]
MOST_AT_ONCE = 2**20  # records in memory
NODES, WEIGHTS = np.polynomial.legendre.leggauss(4)
NODES, WEIGHTS = (NODES + 1) / 2, WEIGHTS / 2
BELIEVED = 1e-7  # of probability that the quadrature may miss


class JointMoments(NamedTuple):
    """Mean [theta, d] and covariance [theta, d, d] of one record's contribution, in grid units."""

    mean: Floats
    covariance: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class JointObservation(Counted):
    """y = S + noise, with S [d] the sum of n contributions c(x), x from the model; all in grid units.

    The members are those of ``Observation``. The parameters are arrays theta [k, p].
    """

    model: Any
    statistic: TableSum
    n: int | None
    scale: float
    y: tuple[int, ...]
    count: int | None
    expected_n: float | None
    law: type[Laplace | Gaussian] = Laplace

    def probabilities(self, theta: Floats) -> tuple[Floats, Floats]:
        """Return P(cell) [k, cells] and P(outside, contributing 0) [k], 0 where records are clamped.

        By differences of the cdf; where that is slow by quadrature of the density, for all theta for which the cells add up to
        what lies between the bounds.
        """
        columns = theta.T[:, :, None]
        if not getattr(self.model, "has_slow_cdf", False):
            return of_table(self.model, self.statistic, *columns)
        inside, outside, is_good = self._by_density(columns)
        if not is_good.all():
            inside[~is_good], outside[~is_good] = of_table(self.model, self.statistic, *columns[:, ~is_good])
        return inside, outside

    def _by_density(self, columns: Floats) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """Return cells' and outside's probabilities by four Gauss-Legendre nodes a cell, and where they may be believed."""
        bounds = self.statistic.bounds
        ends = np.concatenate([[bounds.lower], self.statistic.cells.edges, [bounds.upper]])
        width = np.diff(ends)
        x = (ends[:-1, None] + width[:, None] * NODES).ravel()
        with np.errstate(all="ignore"):
            density = np.exp(self.model.log_density(x, *columns)).reshape(-1, len(width), len(NODES))
        inside = (density @ WEIGHTS) * width
        low = self.model.cdf(np.array([bounds.lower]), *columns)[:, 0]
        high = self.model.sf(np.array([bounds.upper]), *columns)[:, 0]
        with np.errstate(invalid="ignore"):
            is_good = np.abs(inside.sum(axis=1) + low + high - 1) < BELIEVED
        if self.statistic.outside is Outside.TRUNCATE:
            return inside, low + high, is_good
        inside[:, 0] += low
        inside[:, -1] += high
        return inside, np.zeros_like(low), is_good

    def moments(self, theta: Floats) -> JointMoments:
        """Sum the moments over the cells: exact for the rounded statistic, and stable at extreme theta."""
        rows = self.statistic.rows.astype(np.float64)
        inside, outside = self.probabilities(theta)
        # About the middle of each coordinate's range: the sums then lose no digits to a distant origin.
        centre = np.rint((rows.max(axis=1) + rows.min(axis=1)) / 2)
        moved = rows - centre[:, None]
        first = inside @ moved.T - outside[:, None] * centre
        products = (moved[:, None, :] * moved[None, :, :]).reshape(-1, moved.shape[1])
        second = inside @ products.T + outside[:, None] * np.outer(centre, centre).ravel()
        covariance = second.reshape(len(theta), len(rows), len(rows)) - first[:, :, None] * first[:, None, :]
        return JointMoments(first + centre, covariance)

    def records(self, rng: np.random.Generator, theta: Floats, size: int) -> Floats:
        """Draw ``size`` records for each theta [k, p], as [k, size]."""
        if hasattr(self.model, "features"):
            return np.asarray(self.model.simulate(tuple(theta.T[:, :, None]), (len(theta), size), rng))
        drawn = self.model.simulate(np.repeat(theta[:, 0], size), len(theta) * size, rng)
        return np.asarray(drawn, dtype=np.float64).reshape(len(theta), size)

    def sums(self, rng: np.random.Generator, theta: Floats, n: NDArray[np.int64]) -> Floats:
        """Draw S [k, d] of n [k] simulated records for each theta [k, p]."""
        rows = self.statistic.rows.astype(np.float64)
        total = np.zeros((len(theta), len(rows)))
        size = int(n.max(initial=0))
        if size == 0:
            return total
        step = max(MOST_AT_ONCE // size, 1)
        for start in range(0, len(theta), step):
            part = slice(start, start + step)
            of_part = n[part]
            records = self.records(rng, theta[part], size)
            bounds = self.statistic.bounds
            counted = np.arange(size) < of_part[:, None]
            if self.statistic.outside is Outside.TRUNCATE:
                counted &= (records >= bounds.lower) & (records <= bounds.upper)
            cells = self.statistic.cells.find(np.clip(records, bounds.lower, bounds.upper))
            for j, row in enumerate(rows):
                total[part, j] = np.where(counted, row[cells], 0).sum(axis=1)
        return total
