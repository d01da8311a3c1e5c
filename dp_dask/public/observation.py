"""Observation: a one-dimensional release seen through its model, with the exact law of one record's contribution."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dp_dask.core.bounds import Bounds, Outside
from dp_dask.core.statistic import BoundedSum
from dp_dask.core.table_sum import TableSum
from dp_dask.models import Model
from dp_dask.public.moments import closed
from dp_dask.public.noise_law import Gaussian, Laplace, Noisy

__all__ = ["Counted", "Moments", "Observation", "cell_table", "gather", "of_table", "outer_edges", "probabilities"]

Floats = NDArray[np.float64]


class Moments(NamedTuple):
    """Mean and central moments of one record's contribution, in grid units, each with theta's shape."""

    mean: Floats
    variance: Floats
    third: Floats
    fourth: Floats  # the fourth cumulant


class Counted(Noisy):
    """What an observation with a public n, or a private one and its noisy count, knows of n."""

    __slots__ = ()

    n: int | None
    count: int | None
    expected_n: float | None
    statistic: BoundedSum | TableSum

    @property
    def n_guess(self) -> float:
        """The number of records, or a rough estimate where it is private."""
        if self.n is not None:
            return self.n
        return max((self.count or 0) / self.statistic.count_weight, 0.0)

    @property
    def n_sd(self) -> float:
        """The noise's standard deviation in the estimate of n, 0 where n is public."""
        return 0.0 if self.n is not None else math.sqrt(self.noise.continuous_variance) / self.statistic.count_weight


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation(Counted):
    """y = S + noise, with S the sum of n contributions c(x), x from the model; all in grid units.

    ``scale`` is that of the noise's ``law``. Where n is private, ``count`` is
    weight * n + noise and the prior of n is geometric with mean ``expected_n``, flat where that is None.
    """

    model: Model
    statistic: BoundedSum | TableSum
    n: int | None
    scale: float
    y: int
    count: int | None
    expected_n: float | None
    law: type[Laplace | Gaussian] = Laplace

    @property
    def low(self) -> int:
        """The smallest contribution that a record can make, the zero of a null included."""
        statistic = self.statistic
        return statistic.grid.low if isinstance(statistic, BoundedSum) else min(int(statistic.rows.min()), 0)

    @property
    def high(self) -> int:
        """The largest contribution that a record can make, the zero of a null included."""
        statistic = self.statistic
        return statistic.grid.high if isinstance(statistic, BoundedSum) else max(int(statistic.rows.max()), 0)

    @property
    def origin(self) -> int:
        """What a contribution of 0 stands for, in grid units of the statistic."""
        statistic = self.statistic
        return statistic.grid.origin if isinstance(statistic, BoundedSum) else statistic.origins[0]

    def pmf(self, theta: Floats) -> tuple[Floats, Floats]:
        """Return the possible contributions [cells], consecutive integers, and their probabilities [theta, cells].

        The rounding to the grid is part of the law.
        Clamping adds the tails to the end cells of the bounds, truncation adds them to the contribution 0.
        """
        statistic = self.statistic
        column = np.asarray(theta, dtype=np.float64)[:, None]
        if isinstance(statistic, TableSum):
            inside, tails = of_table(self.model, statistic, column)
            support = np.arange(self.low, self.high + 1)
            return support.astype(np.float64), gather(inside, tails, statistic.rows[0] - self.low, -self.low, len(support))
        indices, edges, cells = cell_table(statistic)
        inside, tails = probabilities(self.model, statistic, indices, edges, column)
        grid = statistic.grid
        if statistic.outside is Outside.CLAMP:
            return cells.astype(np.float64), inside
        support = np.arange(grid.low, grid.high + 1)
        full = np.zeros((len(inside), len(support)))
        full[:, cells[0] - grid.low : cells[-1] - grid.low + 1] = inside
        full[:, -grid.low] += tails
        return support.astype(np.float64), full

    def moments(self, theta: Floats) -> Moments:
        """Sum the moments over the cells: exact for the rounded statistic, and stable at extreme theta."""
        cells, pmf = self.pmf(theta)
        mean = pmf @ cells
        d = cells - mean[:, None]
        squares = d * d
        variance = np.einsum("ij,ij->i", pmf, squares)
        third = np.einsum("ij,ij,ij->i", pmf, squares, d)
        fourth = np.einsum("ij,ij,ij->i", pmf, squares, squares)
        return Moments(mean, variance, third, fourth - 3 * variance**2)

    def quick_moments(self, theta: Floats) -> tuple[Floats, Floats]:
        """Return mean and variance of the contribution from the model's closed forms; rough where the unit is not small."""
        first, second = closed(self.model, self.statistic, theta, 2)
        return first, np.maximum(second - first**2, 0)


def cell_table(statistic: BoundedSum | TableSum) -> tuple[NDArray[np.int64], Floats, NDArray[np.int64]]:
    """Return the grid indices and the upper edges of all cells but the last, and every cell's contribution."""
    if isinstance(statistic, TableSum):
        cells = statistic.cells
        return cells.first + np.arange(cells.count - 1), cells.edges, statistic.rows[0]
    grid = statistic.grid
    indices = np.arange(grid.lower, grid.upper + 1)
    return indices[:-1], np.asarray((indices[:-1] + 0.5) * grid.unit, dtype=np.float64), indices - grid.origin


def outer_edges(model: Any, bounds: Bounds) -> tuple[float, float]:
    """Return a, b with P(x < lower) = cdf(a) and P(x > upper) = sf(b)."""
    if model.is_integer:
        return np.ceil(bounds.lower) - 1, np.floor(bounds.upper)
    return bounds.lower, bounds.upper


def probabilities(
    model: Any, statistic: BoundedSum | TableSum, indices: NDArray[np.int64], edges: Floats, *theta: Floats
) -> tuple[Floats, Floats]:
    """Return P(a record inside the bounds is in cell j) [theta, cell], and P(outside the bounds) [theta], 0 when clamping.

    ``edges`` lie between neighbouring cells, ``indices`` are the lower ones' grid indices: a whole number at an edge goes to the
    even cell. Differences of the model's cdf are taken in the tail where both terms are small; clamping adds the tails to the
    end cells.
    """
    if model.is_integer:
        is_tie = edges == np.floor(edges)
        edges = np.where(is_tie & (indices % 2 != 0), edges - 1, np.floor(edges)).astype(np.float64)
    below, above = outer_edges(model, statistic.bounds)
    ends = np.concatenate([[below], edges, [above]])
    with np.errstate(all="ignore"):  # parameters at float64's ends give 0, 1 or NaN, which has no likelihood
        cdf, sf = model.cdf(ends, *theta), model.sf(ends, *theta)
    inside = np.where(cdf[:, 1:] < 0.5, np.diff(cdf), -np.diff(sf))  # noqa: PLR2004
    np.maximum(inside, 0, out=inside)
    if statistic.outside is Outside.CLAMP:
        inside[:, 0] += cdf[:, 0]
        inside[:, -1] += sf[:, -1]
        return inside, np.zeros(len(inside))
    return inside, cdf[:, 0] + sf[:, -1]


def of_table(model: Any, statistic: TableSum, *theta: Floats) -> tuple[Floats, Floats]:
    """Return the probabilities of a table's cells [theta, cell], and of a record outside the bounds [theta], 0 when clamping."""
    indices, edges, _ = cell_table(statistic)
    return probabilities(model, statistic, indices, edges, *theta)


def gather(inside: Floats, tails: Floats, places: NDArray[np.int64], zero: int, size: int) -> Floats:
    """Add the cells' probabilities up by the contribution that they make."""
    gather = sparse.csr_array((np.ones(len(places)), places, np.arange(len(places) + 1)), shape=(len(places), size))
    full: Floats = inside @ gather
    full[:, zero] += tails
    return full
