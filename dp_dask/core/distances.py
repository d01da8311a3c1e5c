"""Distances on a public grid of whole numbers, and how far one record can then move one."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

__all__ = ["FAILED", "FARTHEST", "grid_sensitivity", "on_grid"]

FAILED = 2**63 - 1  # the distance of a simulation that failed: infinite, whatever the records are
FARTHEST = 2**60  # grid units; farther distances count as this far, so that none overflows with its noise


def on_grid(distances: NDArray[np.float64], unit: float) -> NDArray[np.int64]:
    """Round distances to whole numbers of grid units; one that is NaN or infinite becomes ``FAILED``.

    A distance must be NaN or infinite because of its simulation alone: on any records, or on none. The unit is a power of two,
    as it is then that the division is exact. Raises ValueError for another unit.
    """
    if not (unit > 0 and math.isfinite(unit) and math.frexp(unit)[0] == 0.5):  # noqa: PLR2004  (the mantissa of a power of two)
        msg = f"the grid's unit is {unit}; it must be a power of two"
        raise ValueError(msg)
    with np.errstate(over="ignore"):
        cells = np.clip(np.rint(distances / unit), -FARTHEST, FARTHEST)
    is_finite = np.isfinite(distances)
    return np.where(is_finite, np.where(is_finite, cells, 0).astype(np.int64), FAILED)


def grid_sensitivity(sensitivity: float, unit: float, *, error: float = 0.0) -> int:
    """Return the most grid units by which ``on_grid`` of a distance differs between neighbours.

    ``sensitivity`` is that of the distance as defined, ``error`` the most by which the computed distance is off it.

    Theorem: it is floor((sensitivity + 2 error) / unit) + 1. Proof: the computed distances a, b of neighbours are at most
    s = sensitivity + 2 error apart. Each is moved by at most half a unit, so that the whole numbers differ by at most
    s / unit + 1, and, being whole, by its floor. A bound on both sides brings two numbers no farther apart.
    """
    if not (sensitivity > 0 and error >= 0 and math.isfinite(sensitivity + error)):
        msg = f"sensitivity {sensitivity} and error {error} must be finite, the first above 0, the second not below it"
        raise ValueError(msg)
    return math.floor((Fraction(sensitivity) + 2 * Fraction(error)) / Fraction(unit)) + 1
