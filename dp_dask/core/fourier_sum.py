"""FourierSum: the sum of cosines and sines of several columns, in integers alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.bounds import Bounds
from dp_dask.core.cells import Cells
from dp_dask.core.privacy import Neighbours
from dp_dask.core.simulated import Simulated

__all__ = ["TURN", "FourierSum", "phase_error"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
TURN = 2**40  # units of a frequency in one turn a cell
PHASES = 2**14  # of a turn, that are told apart
ONE = 2**16  # the cosine of 0
MOST_FEATURES = 2**12
MOST_COLUMNS = 2**6  # so that a phase stays below 2^63
LARGEST = 2**30
AT_ONCE = 2**22  # numbers held


@dataclass(frozen=True, slots=True, kw_only=True)
class FourierSum:
    """The sums over records of ``a_m cos(p_m)`` and ``a_m sin(p_m)``, the phase p_m a sum over columns of frequency times cell.

    A value outside its bounds is moved to the nearest; a record with a null in any column contributes 0. The cosines come first,
    then the sines. ``frequencies`` [feature, column] are in 2^-40 turns a cell, ``amplitudes`` [feature] in grid units, each
    worth ``unit``. All is integer arithmetic on a table of whole cosines: a record counts the same on every machine.
    ``least`` is a number that no dot product of two records' vectors lies below, None where none is proven.
    """

    columns: tuple[str, ...]
    bounds: tuple[Bounds, ...]
    cells: tuple[Cells, ...]
    frequencies: tuple[tuple[int, ...], ...]
    amplitudes: tuple[int, ...]
    unit: float
    least: int | None = None
    count_weight: int = 0

    def __post_init__(self) -> None:
        size = len(self.columns)
        if not 1 <= size <= MOST_COLUMNS or len(set(self.columns)) < size or not size == len(self.bounds) == len(self.cells):
            msg = f"give 1 to {MOST_COLUMNS} different columns, with bounds and cells for each"
            raise ValueError(msg)
        if not 1 <= len(self.amplitudes) <= MOST_FEATURES or len(self.frequencies) != len(self.amplitudes):
            msg = f"give 1 to {MOST_FEATURES} features, with an amplitude for each"
            raise ValueError(msg)
        if any(len(row) != size or not all(0 <= each < TURN for each in row) for row in self.frequencies):
            msg = "each feature needs a frequency for each column, at least 0 and below 2^40"
            raise ValueError(msg)
        if not all(0 <= each <= LARGEST for each in self.amplitudes) or not any(self.amplitudes) or self.count_weight < 0:
            msg = "amplitudes must lie between 0 and 2^30, one of them above 0, and count_weight must not be negative"
            raise ValueError(msg)
        if self.least is not None and self.least > 0:
            msg = f"least is {self.least}; a null contributes 0, so no dot product is bounded by more than that"
            raise ValueError(msg)

    @property
    def units(self) -> tuple[float, ...]:
        """One unit for all."""
        return (self.unit,) * (2 * len(self.amplitudes))

    @property
    def largest(self) -> int:
        """The largest amplitude: a cosine is at most 1."""
        return max(self.amplitudes)

    def sensitivity(self, neighbours: Neighbours) -> int:
        """Return a bound on the L1 change of the released vector between neighbours, in grid units.

        Theorem: a record contributes at most sum_m L_m, L_m the largest |cos| + |sin| of feature m in whole units over all
        phases that there are; so adding one moves (count, sum) by at most weight plus that, and replacing one by twice it.
        """
        widest = sum(_norms(amplitude)[0] for amplitude in self.amplitudes)
        return 2 * widest if neighbours is Neighbours.REPLACE else self.count_weight + widest

    def squared_sensitivity(self, neighbours: Neighbours) -> int:
        """Return a bound on the squared L2 change of the released vector between neighbours, in grid units.

        Theorem: a record contributes c with |c|^2 at most B = sum_m R_m, R_m the largest cos^2 + sin^2 of feature m over all
        phases; so adding one moves (count, sum) by at most weight^2 + B, squared. Replacing one moves it by
        |c - c'|^2 = |c|^2 + |c'|^2 - 2 c . c' <= 2 B - 2 ``least``, and by at most 4 B without it (the triangle inequality).
        With features of a kernel that is never negative ``least`` is close to 0, and the bound half as large.
        """
        widest = sum(_norms(amplitude)[1] for amplitude in self.amplitudes)
        if neighbours is Neighbours.ADD_REMOVE:
            return self.count_weight**2 + widest
        return 4 * widest if self.least is None else min(4 * widest, 2 * widest - 2 * self.least)

    def contributions(self, values: Floats) -> Ints:
        """Return the integers [record, coordinate] of values [record, column], NaN standing for a null."""
        counts: NDArray[np.bool_] = ~np.any(np.isnan(values), axis=1)
        phase = np.zeros((len(values), len(self.amplitudes)), dtype=np.int64)
        for j, (bounds, cells) in enumerate(zip(self.bounds, self.cells, strict=True)):
            column = np.where(counts, values[:, j], bounds.lower)
            frequency = np.array([row[j] for row in self.frequencies], dtype=np.int64)
            phase += cells.find(np.clip(column, bounds.lower, bounds.upper))[:, None] * frequency
        step = TURN // PHASES
        place = ((phase + step // 2) // step) % PHASES
        amplitudes = np.array(self.amplitudes, dtype=np.int64)
        made = np.concatenate([_scale(amplitudes, each) for each in (_waves()[0][place], _waves()[1][place])], axis=1)
        return np.where(counts[:, None], made, 0)

    def totals_of(self, simulated: Simulated) -> Ints:
        """Add up the contributions of each simulated data set's records [size, coordinate], some records at a time."""
        values = np.stack([simulated.values[name] for name in self.columns], axis=1)
        sums = np.zeros((simulated.size, len(self.units)), dtype=np.int64)
        step, of_records = max(AT_ONCE // len(self.units), 1), simulated.dataset
        for start in range(0, len(values), step):
            dataset = of_records[start : start + step]
            first = np.flatnonzero(np.diff(dataset, prepend=-1))
            sums[dataset[first]] += np.add.reduceat(self.contributions(values[start : start + step]), first, axis=0)
        return sums


def phase_error(amplitudes: Floats) -> Floats:
    """Return how far in grid units a feature's (cos, sin) can lie from amplitude times that of the exact phase, [feature].

    amplitudes: the exact ones, which are rounded by half a unit at most. The phase is rounded by half a step, frequencies by
    half a unit of 2^-40 turns over 2^16 cells of every column, cosines to 2^-16, and the product to a unit.
    """
    turned = 2 * math.pi * (0.5 / PHASES + 2**16 * 0.5 * MOST_COLUMNS / TURN)
    return (amplitudes + 0.5) * turned + 0.5 + math.sqrt(2) * ((amplitudes + 0.5) * 0.5 / ONE + 0.5)


def _scale(amplitude: Ints | int, wave: Ints) -> Ints:
    """Return amplitude times wave, to the nearest whole unit."""
    return (amplitude * wave + ONE // 2) // ONE


@lru_cache(maxsize=1)
def _waves() -> tuple[Ints, Ints]:
    """Return the whole cosines and sines [phase]; none lies so near to a half that another library's cosine would differ."""
    cosines = np.array([round(ONE * math.cos(2 * math.pi * k / PHASES)) for k in range(PHASES)], dtype=np.int64)
    return cosines, np.roll(cosines, PHASES // 4)


@lru_cache(maxsize=MOST_FEATURES)
def _norms(amplitude: int) -> tuple[int, int]:
    """Return the largest |cos| + |sin| and cos^2 + sin^2 of a feature over all phases."""
    cosine, sine = (_scale(amplitude, wave) for wave in _waves())
    return int((np.abs(cosine) + np.abs(sine)).max()), int((cosine**2 + sine**2).max())
