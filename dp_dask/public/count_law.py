"""The law of a count behind a noisy count, cell by cell: where its mass lies, its moments, its table.

With Dirichlet(alpha) or independent gamma intensities integrated out, and the total of the counts fixed or free, each cell has
the weight ``Gamma(alpha + s) / (Gamma(alpha) s!) exp(-|y - s| / scale - tilt s)`` (Dirichlet-multinomial, Bernstein & Sheldon
2018, section 5). It is log-concave for alpha >= 1, and log-convex on each side of y below: then it may have modes at 0, at y
and at the highest count, far apart, and all are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dp_dask.errors import InferenceError

__all__ = ["CountLaw", "check", "edge", "log_rising", "moments", "tables"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
BLOCK = 2**18  # table cells worked on at a time
NARROW = 2048  # counts: a narrower law is summed exactly
STIRLING = 10.0  # from here on the series of four terms is good to 1e-12
SMALLEST, LARGEST = 1e-200, 1e12  # alpha whose weights neither overflow nor lose their digits


@dataclass(frozen=True, slots=True)
class CountLaw:
    """Unnormalised laws of K independent counts in [0, highest].

    ``centre`` is y moved to the nearest possible count, which multiplies the law by a constant only.
    """

    centre: Ints  # [K]
    highest: Ints  # [K]
    alpha: Floats  # [K]
    scale: float
    tilt: float

    def log_weight(self, cells: Ints, counts: Ints) -> Floats:
        """Return the log weights of counts [m] or [m, P] in cells [m], up to a constant for each cell."""
        index = cells if counts.ndim == 1 else cells[:, None]
        step = counts - self.centre[index]
        # Two slopes and no product of the tilt with a large count: their sum would cancel.
        slope = np.where(step < 0, 1 / self.scale - self.tilt, -1 / self.scale - self.tilt)
        return log_rising(self.alpha[index], counts.astype(np.float64)) + slope * step

    @property
    def slopes(self) -> tuple[float, float]:
        """The least and the largest log ratio that the noise gives two neighbouring counts."""
        return -1 / self.scale, 1 / self.scale

    def beyond(self, n: int) -> float:
        """Return how many counts' worth of its end's weight a cell may have beyond its window, at most."""
        tails = np.abs(self.tilt + np.array([1, -1]) / self.scale)
        return min(float((1 / np.maximum(tails, 1e-300)).sum()), float(n))

    def windows(self, cut: float) -> tuple[Ints, Ints]:
        """Return for each cell the lowest and the highest count whose log weight is within ``cut`` of the cell's largest."""
        cells = np.arange(len(self.alpha))
        left, right = self._peaks()
        top_left, top_right = self.log_weight(cells, left), self.log_weight(cells, right)
        floor = np.maximum(top_left, top_right) - cut
        is_left, is_right = top_left >= floor, top_right >= floor
        low = edge(self, np.where(is_left, left, right), np.where(is_left, 0, self.centre) - 1, floor)
        high = edge(self, np.where(is_right, right, left), np.where(is_right, self.highest, self.centre) + 1, floor)
        # A log-convex law may reach the floor at an end and fall below it in between.
        low = np.where(self.log_weight(cells, np.zeros_like(low)) >= floor, 0, low)
        return low, np.where(self.log_weight(cells, self.highest) >= floor, self.highest, high)

    def nodes(self, cells: Ints, low: Ints, high: Ints) -> Ints:
        """Spread nodes that are dense at both ends and at the centre, where the law has its cusps, and a tenth apart between."""
        steps = np.concatenate([np.arange(32), np.geomspace(32, 2.0**52, 320).astype(np.int64)])
        centre = np.clip(self.centre[cells, None], low, high)
        nodes = np.concatenate([low + steps, centre - steps, centre + steps, high - steps], axis=1)
        return np.sort(np.clip(nodes, low, high), axis=1)

    def _peaks(self) -> tuple[Ints, Ints]:
        """Return the count of largest weight at or below the centre, and at or above it.

        A step from s to s + 1 multiplies the weight by (alpha + s) / (s + 1) exp(+-1 / scale - tilt).
        """
        cells = np.arange(len(self.alpha))
        rising, falling = self.tilt - 1 / self.scale, self.tilt + 1 / self.scale
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            left = np.clip(np.ceil((self.alpha - 1) / np.expm1(rising)) - 1, 0, self.centre)
            right = np.clip(np.ceil((self.alpha - 1) / np.expm1(falling)) - 1, self.centre, self.highest)
        left = np.where(rising <= 0, self.centre, left).astype(np.int64)
        right = np.where(falling <= 0, self.highest, right).astype(np.int64)
        zero, at_centre, at_end = (self.log_weight(cells, s) for s in (np.zeros_like(self.centre), self.centre, self.highest))
        is_convex = self.alpha < 1
        left = np.where(is_convex, np.where(zero > at_centre, 0, self.centre), left)
        right = np.where(is_convex, np.where(at_end > at_centre, self.highest, self.centre), right)
        return left, right


def check(y: NDArray[np.integer], alpha: Floats, scale: float) -> None:
    """Raise InferenceError unless y [K] and alpha [K] are noisy counts and a prior that can be worked with."""
    if y.ndim != 1 or not len(y) or y.shape != alpha.shape or y.dtype.kind != "i":
        msg = f"y {y.dtype}{list(y.shape)}, alpha {list(alpha.shape)}: give one signed integer and one alpha for each cell"
        raise InferenceError(msg)
    if not (np.isfinite(alpha).all() and alpha.min() >= SMALLEST and alpha.max() <= LARGEST):
        msg = f"alpha from {alpha.min():g} to {alpha.max():g}: it must lie in [{SMALLEST:g}, {LARGEST:g}]; choose another prior"
        raise InferenceError(msg)
    if not (np.isfinite(scale) and scale > 0):
        msg = f"noise scale {scale:g}: it must be positive and finite"
        raise InferenceError(msg)


def tables(law: CountLaw, low: Ints, high: Ints) -> Iterator[tuple[int, Floats]]:
    """Give each cell and the probabilities of its counts low..high, narrow cells first."""
    for cells, counts in _blocks(low, high, np.arange(len(low))):
        weights = _weights(law, cells, counts, high)
        for row, cell in enumerate(cells):
            yield int(cell), weights[row, : high[cell] - low[cell] + 1].copy()


def moments(law: CountLaw, low: Ints, high: Ints) -> tuple[Floats, Floats]:
    """Return the means [K], less the centre, and the variances [K]: exact for narrow laws, else by the trapezoidal rule."""
    mean, variance = np.empty(len(low)), np.empty(len(low))
    is_wide = high - low >= NARROW

    def keep(cells: Ints, counts: Ints, weights: Floats) -> None:
        step = (counts - law.centre[cells, None]).astype(np.float64)
        mean[cells] = np.einsum("ij,ij->i", weights, step)
        variance[cells] = np.einsum("ij,ij->i", weights, (step - mean[cells, None]) ** 2)

    for cells, counts in _blocks(low, high, np.flatnonzero(~is_wide)):
        keep(cells, counts, _weights(law, cells, counts, high))
    wide = np.flatnonzero(is_wide)
    for start in range(0, len(wide), 128):
        cells = wide[start : start + 128]
        counts = law.nodes(cells, low[cells, None], high[cells, None])
        log_weight = law.log_weight(cells, counts)
        spacing = np.diff(counts, axis=1, prepend=counts[:, :1] - 1) + np.diff(counts, axis=1, append=counts[:, -1:] + 1)
        weights = np.exp(log_weight - log_weight.max(axis=1, keepdims=True)) * spacing
        keep(cells, counts, weights / weights.sum(axis=1, keepdims=True))
    return mean, variance


def _blocks(low: Ints, high: Ints, cells: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Cut the cells, in order of width, into blocks [m] and counts [m, P] that are padded little."""
    cells = cells[np.argsort(high[cells] - low[cells], kind="stable")]
    width = high[cells] - low[cells] + 1
    start = 0
    while start < len(cells):
        longest = np.maximum.accumulate(width[start : start + BLOCK])
        size = max(int(np.searchsorted(longest * np.arange(1, len(longest) + 1), BLOCK, side="right")), 1)
        block = cells[start : start + size]
        yield block, low[block, None] + np.arange(width[start + size - 1])
        start += size


def _weights(law: CountLaw, cells: Ints, counts: Ints, high: Ints) -> Floats:
    log_weight = np.where(counts <= high[cells, None], law.log_weight(cells, counts), -np.inf)
    weights = np.exp(log_weight - log_weight.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def edge(law: CountLaw, inside: Ints, outside: Ints, floor: Floats) -> Ints:
    """Bisect for the last count, from ``inside`` towards ``outside`` and before it, whose log weight reaches the floor."""
    cells = np.arange(len(inside))
    while True:
        middle = inside + ((outside - inside) / 2).astype(np.int64)
        if (middle == inside).all():
            return inside
        is_inside = law.log_weight(cells, middle) >= floor
        inside, outside = np.where(is_inside, middle, inside), np.where(is_inside, outside, middle)


def log_rising(alpha: Floats, s: Floats) -> Floats:
    """Return log Gamma(alpha + s) / s!, up to a constant in s, where a difference of log gammas would cancel."""
    ratio = np.where(s == 0, np.log(alpha), np.log1p(np.maximum((alpha - 1) / (s + 1), -0.5)))
    return (s + 0.5) * ratio + (alpha - 1) * np.log1p(s / alpha) + _remainder(s + alpha) - _remainder(s + 1)


def _remainder(x: Floats) -> Floats:
    """Return what Stirling's formula for log Gamma(x) leaves."""
    square = 1 / x**2 if x.min() >= STIRLING else 1 / np.maximum(x, STIRLING) ** 2
    value = (1 - square * (1 / 30 - square * (1 / 105 - square / 140))) / (12 * np.maximum(x, STIRLING))
    is_small = x < STIRLING
    small = x[is_small]
    value[is_small] = special.gammaln(small) - (small - 0.5) * np.log(small) + small - 0.5 * np.log(2 * np.pi)
    return value
