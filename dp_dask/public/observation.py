"""Observation: a release seen through its model, with the exact law of one record's contribution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.bounds import Outside
from dp_dask.core.grid import MOST_CELLS
from dp_dask.core.release import Release
from dp_dask.core.statistic import BoundedSum
from dp_dask.errors import InferenceError
from dp_dask.models import Model
from dp_dask.public.moments import closed

__all__ = ["Moments", "Observation", "observe"]

Floats = NDArray[np.float64]


class Moments(NamedTuple):
    """Mean and central moments of one record's contribution, in grid units, each with theta's shape."""

    mean: Floats
    variance: Floats
    third: Floats
    fourth: Floats  # the fourth cumulant


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """y = S + noise, with S the sum of n contributions c(x), x from the model; all in grid units.

    ``scale`` is the noise's, P(k) proportional to exp(-|k| / scale). Where n is private, ``count`` is
    weight * n + noise and the prior of n is geometric with mean ``expected_n``, flat where that is None.
    """

    model: Model
    statistic: BoundedSum
    n: int | None
    scale: float
    y: int
    count: int | None
    expected_n: float | None

    def pmf(self, theta: Floats) -> tuple[Floats, Floats]:
        """Return the possible contributions [cells] and their probabilities [theta, cells], rounding included.

        Differences of the model's cdf at the preimages of the grid's cells, each taken in the tail where both terms
        are small; clamping adds the tails to the end cells, truncation adds them to the cell of 0.
        """
        grid = self.statistic.grid
        indices = np.arange(grid.lower, grid.upper + 1)
        edges = self._upper_edges(indices[:-1])
        below, above = self._outer_edges()
        ends = np.concatenate([[below], edges, [above]])
        column = np.asarray(theta, dtype=np.float64)[:, None]
        cdf, sf = self.model.cdf(ends, column), self.model.sf(ends, column)
        inside = np.where(cdf[:, 1:] < 0.5, np.diff(cdf), -np.diff(sf))  # noqa: PLR2004
        np.maximum(inside, 0, out=inside)
        low, high = cdf[:, 0], sf[:, -1]
        cells = indices - grid.origin
        if self.statistic.outside is Outside.CLAMP:
            inside[:, 0] += low
            inside[:, -1] += high
            return cells.astype(np.float64), inside
        support = np.arange(grid.low, grid.high + 1)
        full = np.zeros((len(inside), len(support)))
        full[:, cells[0] - grid.low : cells[-1] - grid.low + 1] = inside
        full[:, -grid.low] += low + high
        return support.astype(np.float64), full

    def _upper_edges(self, indices: NDArray[np.int64]) -> Floats:
        """Return e_j with P(rint(x / unit) <= j) = cdf(e_j): ties of whole numbers go to the even cell."""
        edges: Floats = np.asarray((indices + 0.5) * self.statistic.grid.unit, dtype=np.float64)
        if not self.model.is_integer:
            return edges
        is_tie = edges == np.floor(edges)
        return np.where(is_tie & (indices % 2 != 0), edges - 1, np.floor(edges)).astype(np.float64)

    def _outer_edges(self) -> tuple[float, float]:
        """Return a, b with P(x < lower) = cdf(a) and P(x > upper) = sf(b)."""
        bounds = self.statistic.bounds
        if self.model.is_integer:
            return np.ceil(bounds.lower) - 1, np.floor(bounds.upper)
        return bounds.lower, bounds.upper

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

    @property
    def n_guess(self) -> float:
        """The number of records, or a rough estimate where it is private."""
        if self.n is not None:
            return self.n
        count = self.count if self.count is not None else 0
        return max(count / self.statistic.count_weight, 0.0)


def observe(release: Release, model: Model, expected_n: float | None = None) -> Observation:
    """See a release through a model; raises InferenceError for a grid that no engine could hold."""
    request = release.request
    grid = request.statistic.grid
    if grid.high - grid.low > MOST_CELLS or (request.n is None and request.statistic.count_weight < 1):
        msg = f"the release's grid has more than {MOST_CELLS} cells, or its count no weight: it was not written by dp_dask"
        raise InferenceError(msg)
    return Observation(
        model=model,
        statistic=request.statistic,
        n=request.n,
        scale=release.scale,
        y=release.noisy_sum,
        count=release.noisy_count,
        expected_n=expected_n,
    )
