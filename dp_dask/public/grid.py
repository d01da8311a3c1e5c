"""Grid posteriors: tabulate a one-dimensional posterior where it lies (``public.zoom``), draw independently from it.

A posterior may have several narrow modes far apart (a truncated sum is not monotone in the parameter), so it is kept on
a set of cells, not on one interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.priors import Prior
from dp_dask.errors import InferenceError

__all__ = ["CUT", "NARROWEST", "Cells", "GridPosterior", "LogLikelihood", "check_width", "tabulate"]

Floats = NDArray[np.float64]
LogLikelihood = Callable[[Floats], Floats]  # theta [k] -> log p(y | theta) [k], up to one constant for all calls
CUT = 18.0  # nats below the best cell at which one is dropped: 1.5e-8 of its density
FALLEN = 14.0  # nats by which the posterior must have fallen at every open end
HEAVIEST, WIDEST = 0.03, 1e-4  # of the posterior in one cell; of its variance by one cell's width
RESOLVING = 16  # computed cells that the posterior must span before others are interpolated
NARROWEST = 1e-14  # of a cell, relative to where it lies
FINE = 256  # cells, at least
STRIDE = 4  # of the cells, how many share one evaluation of the likelihood
INTERPOLATED = 3e-4  # nats, on average, by which interpolation may be wrong where it is checked


@dataclass(frozen=True, slots=True)
class Cells:
    """Disjoint intervals of the prior's unconstrained coordinate, in order."""

    left: Floats
    right: Floats

    @property
    def middle(self) -> Floats:
        """The midpoints."""
        return (self.left + self.right) / 2

    def __len__(self) -> int:
        return len(self.left)

    def split(self, pieces: int) -> Cells:
        """Cut each cell into equal pieces."""
        steps = np.arange(pieces + 1) / pieces
        edges = self.left[:, None] + (self.right - self.left)[:, None] * steps
        return Cells(edges[:, :-1].ravel(), edges[:, 1:].ravel())

    def split_some(self, mask: NDArray[np.bool_], pieces: int) -> Cells:
        """Cut each marked cell into equal pieces."""
        fine = Cells(self.left[mask], self.right[mask]).split(pieces)
        left = np.concatenate([self.left[~mask], fine.left])
        order = np.argsort(left)
        return Cells(left[order], np.concatenate([self.right[~mask], fine.right])[order])

    def keep(self, mask: NDArray[np.bool_]) -> Cells:
        """Keep the marked cells and one neighbour on each side."""
        near = self.near(mask)
        return Cells(self.left[near], self.right[near])

    @staticmethod
    def near(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Mark the neighbours too."""
        near = mask.copy()
        near[1:] |= mask[:-1]
        near[:-1] |= mask[1:]
        return near


@dataclass(frozen=True, slots=True)
class GridPosterior:
    """A posterior whose density is constant on each cell."""

    prior: Prior
    cells: Cells
    weights: Floats  # of each cell, summing to 1

    def draw(self, rng: np.random.Generator, size: int) -> Floats:
        """Draw parameters independently, by inversion of the cdf."""
        total = np.cumsum(self.weights)
        u = rng.random(size) * total[-1]
        i = np.minimum(np.searchsorted(total, u, side="right"), len(total) - 1)
        share = np.clip(1 - (total[i] - u) / self.weights[i], 0, 1)
        left, right = self.cells.left[i], self.cells.right[i]
        return self.prior.parameter(left + (right - left) * share)

    def cdf(self, theta: float) -> float:
        """Return P(parameter <= theta), the rank of theta among infinitely many draws."""
        v = self.prior.coordinate(np.array([theta]))
        share = np.clip((v - self.cells.left) / (self.cells.right - self.cells.left), 0, 1)
        return min(float(self.weights @ share), 1.0)  # the weights sum to 1 within rounding

    @property
    def theta(self) -> Floats:
        """The cells' midpoints as parameters."""
        return self.prior.parameter(self.cells.middle)

    @property
    def mean(self) -> float:
        """The posterior mean."""
        return float(self.weights @ self.theta)

    @property
    def sd(self) -> float:
        """The posterior standard deviation, the spread inside cells included."""
        width = self.prior.parameter(self.cells.right) - self.prior.parameter(self.cells.left)
        return float(np.sqrt(self.weights @ ((self.theta - self.mean) ** 2 + width**2 / 12)))

    def distance(self, other: GridPosterior) -> float:
        """Return the total variation distance to a posterior on the same cells."""
        return float(0.5 * np.abs(self.weights - other.weights).sum())


def tabulate(prior: Prior, likelihood: LogLikelihood, cells: Cells) -> GridPosterior:
    """Tabulate the posterior on at least 256 cells, after widening or narrowing the set to where it really lies.

    The likelihood is computed at a quarter or half of the cells and interpolated to the others, which moves 2e-5 of the
    probability on average and 2e-4 at most, measured over 1,500 releases. Raises InferenceError where the posterior lies beyond
    the prior's extreme quantiles: the prior has fallen far there by itself, so that a posterior which has not contradicts it.
    """
    start, end = prior.coordinate_range()
    cells = _refine(cells)
    known = _Known(prior, likelihood)
    values, is_smooth = _evaluate(prior, known, cells)
    stride = 1.0  # how much wider than its neighbour an added cell is: a plateau is crossed in a few steps
    for _ in range(60):
        density = _log_prior(prior, cells) + values
        top = density.max()
        if not np.isfinite(top):
            msg = "the likelihood of this release is not finite under the prior; look at the bounds, n and the prior"
            raise InferenceError(msg)
        weights = np.exp(density - top)
        weights /= weights.sum()
        wider = _extend(cells, density >= top - FALLEN, start, end, stride)
        held = cells.keep(density >= top - CUT)
        if len(wider) > len(cells):
            cells, stride = wider, 2 * stride
        elif len(held) < FINE // 2 and len(held) < len(cells):
            cells = _refine(held)
        elif (is_heavy := _is_heavy(prior, cells, weights)).any():
            coarse, cells = cells, cells.split_some(is_heavy, 4)
            if is_smooth and weights.max() <= 2 * HEAVIEST:
                check_width(cells)
                values = _cubics(coarse.middle, values, cells.middle)
                continue
        else:
            _check_ends(prior, cells, density >= top - FALLEN, start, end)
            return GridPosterior(prior, cells, weights)
        check_width(cells)
        values, is_smooth = _evaluate(prior, known, cells)
    msg = "the posterior did not settle on a grid; look at the bounds, n and the prior"
    raise InferenceError(msg)


def check_width(cells: Cells) -> None:
    """Raise InferenceError where cells are so narrow that float64 hardly tells their ends apart."""
    if (cells.right - cells.left <= NARROWEST * np.maximum(np.abs(cells.middle), 1)).any():
        msg = "the posterior is narrower than float64 can tell where it lies; subtract a public constant from the column first"
        raise InferenceError(msg)


def _log_prior(prior: Prior, cells: Cells) -> Floats:
    """Return the log of the prior's probability of each cell."""
    return prior.log_density(cells.middle) + np.log(cells.right - cells.left)


class _Known:
    """The likelihood where it was computed, so that no point is computed twice."""

    def __init__(self, prior: Prior, likelihood: LogLikelihood) -> None:
        self.prior, self.likelihood = prior, likelihood
        self.v, self.values = np.empty(0), np.empty(0)

    def __call__(self, v: Floats) -> Floats:
        """Return the log likelihood at coordinates v, in order."""
        new = np.setdiff1d(v, self.v)
        if len(new):
            joined = np.concatenate([self.v, new])
            order = np.argsort(joined)
            self.values = np.concatenate([self.values, self.likelihood(self.prior.parameter(new))])[order]
            self.v = joined[order]
        found: Floats = self.values[np.searchsorted(self.v, v)]
        return found

    def put_into(self, values: Floats, v: Floats) -> Floats:
        """Replace the values at coordinates where the likelihood is known."""
        at = np.minimum(np.searchsorted(self.v, v), len(self.v) - 1)
        return np.where(self.v[at] == v, self.values[at], values)


def _evaluate(prior: Prior, known: _Known, cells: Cells) -> tuple[Floats, bool]:
    """Return the log likelihood at each cell's midpoint, up to a constant, and whether it is smooth enough to interpolate.

    Every fourth cell is computed and the others are interpolated by cubics; one cell in eight, midway between the computed ones,
    holds the cubics to the truth. Where they are off by more than 3e-4 there, averaged over the posterior, every other cell is
    computed, and where that would not do either, every cell.
    """
    v = cells.middle
    for stride in (STRIDE, STRIDE // 2) if len(v) >= FINE // 2 else ():
        nodes = np.unique(np.append(np.arange(0, len(v), stride), len(v) - 1))
        checks = np.setdiff1d(np.arange(stride // 2, len(v), 2 * STRIDE), nodes)
        asked = np.union1d(nodes, checks)
        values = known(v[asked])
        density = _log_prior(prior, cells)[asked] + values
        # Cubics over a peak that lies between nodes go astray.
        if not np.isfinite(values).all() or np.count_nonzero(density >= density.max() - CUT) < RESOLVING:
            break
        is_node = np.isin(asked, nodes)
        cubic = _cubics(v[nodes], values[is_node], v)
        error = (cubic[asked] - values)[~is_node]
        weights = np.exp(density[~is_node] - density[~is_node].max())
        weights /= weights.sum()
        if weights @ np.abs(error - weights @ error) <= INTERPOLATED:
            return known.put_into(cubic, v), True
    return known(v), False


def _cubics(nodes: Floats, values: Floats, v: Floats) -> Floats:
    """Interpolate through the two nodes on each side of v (Lagrange), at least four nodes in order."""
    first = np.clip(np.searchsorted(nodes, v) - 2, 0, len(nodes) - 4)
    x = [nodes[first + i] for i in range(4)]
    total = np.zeros(len(v))
    for i in range(4):
        others = [j for j in range(4) if j != i]
        total += values[first + i] * math.prod((v - x[j]) / (x[i] - x[j]) for j in others)
    return total


def _check_ends(prior: Prior, cells: Cells, is_high: NDArray[np.bool_], start: float, end: float) -> None:
    """Raise InferenceError where the posterior is still high at an end where the prior itself has fallen."""
    slack = 1e-9 * (end - start)
    at_start = bool(cells.left[0] - start < slack and is_high[0])
    at_end = bool(end - cells.right[-1] < slack and is_high[-1])
    if not (at_start or at_end):
        return
    of_prior = prior.log_density(np.linspace(start, end, FINE))
    has_fallen = of_prior < of_prior.max() - FALLEN
    if (at_start and has_fallen[0]) or (at_end and has_fallen[-1]):
        msg = "the release contradicts the prior: the posterior lies beyond its extreme quantiles; infer with a wider prior"
        raise InferenceError(msg)


def _is_heavy(prior: Prior, cells: Cells, weights: Floats) -> NDArray[np.bool_]:
    """Mark the cells that hold too much of the posterior, or whose width adds too much to its variance."""
    posterior = GridPosterior(prior, cells, weights)
    width = prior.parameter(cells.right) - prior.parameter(cells.left)
    return (weights > HEAVIEST) | (weights * width**2 > WIDEST * posterior.sd**2)


def _refine(cells: Cells) -> Cells:
    return cells.split(max(-(-FINE // len(cells)), 1))


def _extend(cells: Cells, is_high: NDArray[np.bool_], start: float, end: float, stride: float) -> Cells:
    """Add cells beside each open end, outer or at a gap, where the density has not fallen yet."""
    slack = 1e-9 * (end - start)
    count = FINE // 8
    left_gap = cells.left - np.concatenate([[start], cells.right[:-1]])
    right_gap = np.concatenate([cells.left[1:], [end]]) - cells.right
    reach = stride * count * (cells.right - cells.left)
    new = [cells]
    new += [
        Cells(cells.right[[i]], cells.right[[i]] + min(reach[i], right_gap[i])).split(count)
        for i in np.flatnonzero(is_high & (right_gap > slack))
    ]
    for i in np.flatnonzero(is_high & (left_gap > slack)):
        is_filled = i > 0 and is_high[i - 1]
        free = left_gap[i] - (min(reach[i - 1], left_gap[i]) if is_filled else 0)
        if free > slack:
            new.append(Cells(cells.left[[i]] - min(reach[i], free), cells.left[[i]]).split(count))
    left = np.concatenate([piece.left for piece in new])
    order = np.argsort(left)
    return Cells(left[order], np.concatenate([piece.right for piece in new])[order])
