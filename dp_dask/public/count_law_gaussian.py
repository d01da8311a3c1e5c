"""The law of a count behind a count with Gaussian noise: unimodal, or for alpha < 1 with one more mode at 0."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dp_dask.public.count_law import CountLaw, edge, log_rising
from dp_dask.public.noise_law import Gaussian, Laplace

__all__ = ["GaussianCountLaw", "make_law"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
TAIL = 3.0  # noise scales: beyond a window's end the law falls as a Gaussian tail from there on, or faster


@dataclass(frozen=True, slots=True)
class GaussianCountLaw(CountLaw):
    """Unnormalised laws Gamma(alpha + s) / (Gamma(alpha) s!) exp(-(y - s)^2 / (2 scale^2) - tilt s); members as in ``CountLaw``.

    Moving y to the possible count ``centre`` leaves a slope over, ``pull`` = (y - centre) / scale^2.
    """

    pull: Floats  # [K]

    def log_weight(self, cells: Ints, counts: Ints) -> Floats:
        """Return the log weights of counts [m] or [m, P] in cells [m], up to a constant for each cell."""
        index = cells if counts.ndim == 1 else cells[:, None]
        step = (counts - self.centre[index]).astype(np.float64)
        slope = self.pull[index] - self.tilt - step / (2 * self.scale**2)
        return log_rising(self.alpha[index], counts.astype(np.float64)) + slope * step

    @property
    def slopes(self) -> tuple[float, float]:
        """The least and the largest log ratio that the noise gives two neighbouring counts, over all possible ones."""
        square = self.scale**2
        falling = self.pull - (self.highest - self.centre) / square
        return float(falling.min()), float((self.pull + self.centre / square).max())

    def beyond(self, n: int) -> float:
        """Return how many counts' worth of its end's weight a cell may have beyond its window, at most."""
        return min(TAIL * self.scale + 1, float(n))

    def windows(self, cut: float) -> tuple[Ints, Ints]:
        """Return for each cell the lowest and the highest count whose log weight is within ``cut`` of the cell's largest."""
        cells = np.arange(len(self.alpha))
        zero, mode = np.zeros_like(self.centre), self._mode()
        at_zero, at_mode = self.log_weight(cells, zero), self.log_weight(cells, mode)
        floor = np.maximum(at_zero, at_mode) - cut
        is_mode = at_mode >= floor
        low = np.where(at_zero >= floor, 0, edge(self, np.where(is_mode, mode, 0), zero - 1, floor))
        return low, edge(self, np.where(is_mode, mode, 0), np.where(is_mode, self.highest, mode) + 1, floor)

    def nodes(self, _cells: Ints, low: Ints, high: Ints) -> Ints:
        """Spread nodes evenly, and densely at the low end, where there may be a cusp."""
        steps = np.concatenate([np.arange(32), np.geomspace(32, 2.0**52, 160).astype(np.int64)])
        even = low + ((high - low) * np.linspace(0, 1, 512)).astype(np.int64)
        return np.sort(np.clip(np.concatenate([low + steps, even], axis=1), low, high), axis=1)

    def _mode(self) -> Ints:
        """Return the count of largest weight but for one at 0.

        The log ratio of counts s + 1 and s is concave in s for alpha < 1, largest at (s + alpha)(s + 1) = (1 - alpha) scale^2,
        and falls everywhere else: from its largest value on, the last count at which it is not negative is found by bisection.
        """
        cells, rest = np.arange(len(self.alpha)), np.maximum(1 - self.alpha, 0)
        top = (np.sqrt(rest**2 + 4 * rest * self.scale**2) - (1 + self.alpha)) / 2
        low = np.clip(np.floor(np.where(rest > 0, top, 0)), 0, self.highest).astype(np.int64)
        high = self.highest.copy()
        while (low < high).any():
            middle = low + (high - low) // 2
            is_rising = self._log_ratio(cells, middle) >= 0
            low, high = np.where(is_rising & (low < high), middle + 1, low), np.where(is_rising, high, middle)
        return low

    def _log_ratio(self, cells: Ints, s: Ints) -> Floats:
        step = (s - self.centre[cells]).astype(np.float64)
        rising = np.log((self.alpha[cells] + s) / (s + 1.0))
        return rising + self.pull[cells] - self.tilt - (2 * step + 1) / (2 * self.scale**2)


def make_law(y: Ints, highest: Ints, alpha: Floats, scale: float, tilt: float, law: type[Laplace | Gaussian]) -> CountLaw:
    """Return the laws of counts in [0, highest] behind noisy counts y, all [K]."""
    centre = np.clip(y, 0, highest).astype(np.int64)
    facts = (centre, highest.astype(np.int64), alpha.astype(np.float64), scale, tilt)
    if law is Laplace:
        return CountLaw(*facts)
    return GaussianCountLaw(*facts, pull=(y - centre) / scale**2)
