"""mmd_random: the maximum mean discrepancy of many columns with a Gaussian kernel, by random Fourier features."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dp_dask.core.bounds import Bounds
from dp_dask.core.cells import choose_cells
from dp_dask.core.fourier_sum import MOST_FEATURES, TURN, FourierSum
from dp_dask.core.of_sums import OfSums
from dp_dask.distances import ChooseBandwidth, bounds_of

__all__ = ["mmd_random", "plugin"]

CELLS = 2**11
UNITS = 2**14  # of the kernel's root at 0


def mmd_random(columns: Mapping[str, Bounds], bandwidth: float, n: int, *, features: int = 100, seed: int = 0) -> OfSums:
    """Make the discrepancy with features cos(w . x) and sin(w . x), w ~ Normal(0, 1 / bandwidth^2) (Rahimi & Recht 2007).

    Their kernel is the Gaussian one on average over w, to about 1 / sqrt(features). The seed is public, as w is.

    Sensitivity: 2 / n where a record is replaced, 1 / n where one comes or goes: every feature vector has length 1, and two of
    them may point in opposite directions, since a kernel of random features can be negative. Raises ValueError for
    no columns, a bandwidth that is not above 0, or too many features.
    """
    if not columns or not (math.isfinite(bandwidth) and bandwidth > 0) or not 1 <= features <= MOST_FEATURES:
        msg = (
            f"{len(columns)} columns, bandwidth {bandwidth:g}, {features} features; give a column at least, a bandwidth above 0 "
            f"and 1 to {MOST_FEATURES} features"
        )
        raise ValueError(msg)
    bounds = tuple(columns.values())
    cells = tuple(choose_cells(each, "even", is_integer=False, wanted=CELLS) for each in bounds)
    drawn = np.random.default_rng(seed).standard_normal((features, len(cells))) / bandwidth
    turns = drawn * np.array([2.0**each.exponent for each in cells]) / (2 * math.pi)
    amplitude = math.floor(UNITS / math.sqrt(features))
    statistic = FourierSum(
        columns=tuple(columns),
        bounds=bounds,
        cells=cells,
        frequencies=tuple(tuple(row) for row in (np.rint(turns * TURN).astype(np.int64) % TURN).tolist()),
        amplitudes=(amplitude,) * features,
        unit=1 / (amplitude * math.sqrt(features)),
    )
    return OfSums(statistic=statistic, n=n, norm="l2")


@dataclass(frozen=True, slots=True)
class MmdRandom:
    """Columns, each with its bounds, the number of random features and their public seed; bandwidth as for ``mmd``."""

    columns: dict[str, tuple[float, float]]
    bandwidth: float | None = None
    features: int = 100
    seed: int = 0

    def make(self, n: int, choose: ChooseBandwidth) -> OfSums:
        """Make the distance; raises ValueError as ``mmd_random`` does."""
        bandwidth = choose(tuple(self.columns)) if self.bandwidth is None else self.bandwidth
        return mmd_random(bounds_of(self.columns), bandwidth, n, features=self.features, seed=self.seed)


plugin = MmdRandom
