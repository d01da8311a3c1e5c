"""mmd_product: the maximum mean discrepancy of a few columns with a Gaussian kernel, by the product of their lattices."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dp_dask.core.bounds import Bounds
from dp_dask.core.cells import choose_cells
from dp_dask.core.fourier import product_lattice
from dp_dask.core.fourier_sum import MOST_FEATURES, TURN, FourierSum, phase_error
from dp_dask.core.of_sums import OfSums
from dp_dask.distances import ChooseBandwidth, bounds_of

__all__ = ["mmd_product", "plugin"]

CELLS = 2**11
UNITS = 2**12  # of the kernel's root at 0
TOLERANCE = 1e-5
MOST_COLUMNS = 4


def mmd_product(columns: Mapping[str, Bounds], bandwidth: float, n: int, *, tolerance: float = TOLERANCE) -> OfSums:
    """Make the discrepancy with the kernel exp(-|x - x'|^2 / (2 bandwidth^2)) of columns of one scale.

    Sensitivity: sqrt(2) / n and a little, where a record is replaced: with exact features phi = A (cos, sin) a record's integers
    are phi + e, |e| <= E (``phase_error``), so that a dot product is at least k / unit^2 - 2 |phi| E - E^2, k the lattice's
    kernel, which ``product_lattice`` bounds from below. ``FourierSum.squared_sensitivity`` has the rest. Raises ValueError for
    too many columns or features.
    """
    if not 1 <= len(columns) <= MOST_COLUMNS or not bandwidth > 0:
        msg = f"{len(columns)} columns with a bandwidth of {bandwidth:g}; give 1 to {MOST_COLUMNS} (more: mmd_random), above 0"
        raise ValueError(msg)
    bounds = tuple(columns.values())
    cells = tuple(choose_cells(each, "even", is_integer=False, wanted=CELLS) for each in bounds)
    spans = np.array([math.ldexp(each.count - 1, each.exponent) for each in cells])
    if (1 + 2 * spans / bandwidth).prod() > 100 * MOST_FEATURES:
        _refuse(bandwidth)
    frequencies, weights, least = product_lattice(spans, bandwidth, tolerance)
    if len(weights) > MOST_FEATURES:
        _refuse(bandwidth)
    unit = 2.0 ** math.floor(math.log2(1 / UNITS))
    exact = np.sqrt(weights) / unit
    turns = frequencies * np.array([2.0**each.exponent for each in cells]) / (2 * math.pi)
    far = float(np.linalg.norm(phase_error(exact)))
    statistic = FourierSum(
        columns=tuple(columns),
        bounds=bounds,
        cells=cells,
        frequencies=tuple(tuple(int(each) for each in row) for row in (np.rint(turns * TURN).astype(np.int64) % TURN).tolist()),
        amplitudes=tuple(round(each) for each in exact.tolist()),
        unit=unit,
        least=math.floor(least / unit**2 - 2 * float(np.linalg.norm(exact)) * far - far**2) - 1,
    )
    return OfSums(statistic=statistic, n=n, norm="l2")


def _refuse(bandwidth: float) -> None:
    msg = f"a bandwidth of {bandwidth:g} needs more than {MOST_FEATURES} features; give a larger one, or use mmd_random"
    raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class MmdProduct:
    """Columns of one scale, each with its bounds; without a bandwidth that of the median heuristic, on simulated records."""

    columns: dict[str, tuple[float, float]]
    bandwidth: float | None = None

    def make(self, n: int, choose: ChooseBandwidth) -> OfSums:
        """Make the distance; raises ValueError as ``mmd_product`` does."""
        bandwidth = choose(tuple(self.columns)) if self.bandwidth is None else self.bandwidth
        return mmd_product(bounds_of(self.columns), bandwidth, n)


plugin = MmdProduct
