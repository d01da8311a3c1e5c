"""TableSum: the sum of any bounded function t(x) of one column, as a table over cells of x."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.bounds import Bounds, Outside
from dp_dask.core.cells import Cells
from dp_dask.core.privacy import Neighbours
from dp_dask.core.simulated import Simulated

__all__ = ["TableSum", "make_table", "tabulate", "with_inside_count"]

Floats = NDArray[np.float64]
MOST_COORDINATES = 256
FEW_COORDINATES = 6  # of which the sensitivity is cheap whatever the table
MOST_STEPS = 2**31  # of looking at every pair of columns, or every pattern of signs
EXACT_ROOT = 2**30  # values times the root of their number, below which squared differences add up to less than 2^63
EXACT = 2**53  # whole numbers below are exact in float64
PAIRS = 2**20  # of columns' coordinates, looked at together
AT_ONCE = 2**16  # simulated records added up together, about


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSum:
    """The sum over records of ``table[:, cell of x]``, with the weighted count where n is private.

    A record outside the bounds is first moved to the nearest bound (clamp) or contributes 0 (truncate); a null or NaN
    contributes 0. ``table`` holds, for each coordinate, its integers over all cells, written out as text: the release needs no
    formula to be understood. Coordinate j of a value t is ``t = units[j] * (integer + origins[j])``.
    """

    column: str
    bounds: Bounds
    outside: Outside
    cells: Cells
    table: tuple[str, ...]
    units: tuple[float, ...]
    origins: tuple[int, ...]
    count_weight: int = 0

    def __post_init__(self) -> None:
        if not 1 <= len(self.table) <= MOST_COORDINATES or not len(self.table) == len(self.units) == len(self.origins):
            msg = f"a table has 1 to {MOST_COORDINATES} coordinates, with a unit and an origin for each"
            raise ValueError(msg)
        if self.rows.shape[1] != self.cells.count or self.count_weight < 0:
            msg = "each coordinate of a table needs one integer for each cell, and count_weight must not be negative"
            raise ValueError(msg)
        if len(self.table) > FEW_COORDINATES:
            _check_size(self.table)

    @property
    def columns(self) -> tuple[str, ...]:
        """The one column."""
        return (self.column,)

    @property
    def rows(self) -> NDArray[np.int64]:
        """The table as integers [coordinate, cell]; do not write to it."""
        return _parse(self.table)

    @property
    def largest(self) -> int:
        """The largest magnitude in the table."""
        return int(np.abs(self.rows).max())

    @property
    def inside_weight(self) -> int:
        """The grid units that each record inside the bounds adds to the last coordinate; 0 where that is no count of them."""
        last = self.rows[-1]
        is_count = self.outside is Outside.TRUNCATE and len(self.table) > 1 and last[0] > 0 and bool((last == last[0]).all())
        return int(last[0]) if is_count else 0

    def sensitivity(self, neighbours: Neighbours) -> int:
        """Return the largest L1 change of the released vector between neighbours, in grid units.

        Theorem: with C = {0} u {columns of the table}, the sum moves by at most max over c, c' in C of |c - c'|_1 when one
        record is replaced, and (count, sum) by at most weight + max |c|_1 when one is added or removed. Proof: the sum is
        over records, so all terms but one cancel, and every contribution is in C, a null's and a truncated record's 0
        included. |v|_1 is the maximum of s . v over sign vectors s, so the first maximum is that of
        max s . c - min s . c over the 2^d of them. That is exact without looking at pairs; pairs of different columns are
        looked at where there are fewer of them than of signs.

        Corollary: of a partition, each column a one and zeros, 2 and 1 however many cells it has.
        """
        if neighbours is Neighbours.ADD_REMOVE:
            return self.count_weight + int(np.abs(self.rows).sum(axis=0).max())
        return _diameter(self.table)

    def squared_sensitivity(self, neighbours: Neighbours) -> int:
        """Return the square of the largest L2 change of the released vector between neighbours, in grid units.

        Theorem: with C = {0} u {columns of the table}, it is the largest |c - c'|^2 over c, c' in C where a record is replaced,
        and weight^2 plus the largest |c|^2 where one is added or removed. Proof: the change is that of ``sensitivity``.
        """
        if neighbours is Neighbours.REPLACE:
            return _squared_diameter(self.table)
        return self.count_weight**2 + max(
            sum(value * value for value in column) for column in zip(*self.rows.tolist(), strict=True)
        )

    def contributions(self, values: Floats) -> NDArray[np.int64]:
        """Return each value's integers [record, coordinate], NaN standing for a null; the kernels are held to this."""
        return _padded(self.table)[:, self._find(values)].T

    def totals(self, values: Floats, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Add up the contributions of consecutive groups of ``counts`` [group] values each, as [group, coordinate]."""
        if len(values) * (len(self.table) - 1) >= len(counts) * self.cells.count:
            return self._totals_by_cell(values, counts)
        found = np.zeros((len(counts), len(self.table)), dtype=np.int64)
        is_filled = counts > 0
        if is_filled.any():
            starts = np.cumsum(counts)[is_filled] - counts[is_filled]
            cells = self._find(values)
            for j, row in enumerate(_padded(self.table)):
                found[is_filled, j] = np.add.reduceat(row[cells], starts)
        return found

    def totals_of(self, simulated: Simulated) -> NDArray[np.int64]:
        """Add up the contributions of each simulated data set's records [size, coordinate], some data sets at a time."""
        empty = np.empty((0, len(self.table)), dtype=np.int64)
        parts = simulated.parts(AT_ONCE)
        return np.concatenate([empty, *(self.totals(part.values[self.column], part.counts) for part in parts)])

    def _totals_by_cell(self, values: Floats, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Count the values in each cell first: where groups are large, far fewer products than values times coordinates."""
        width, (table, largest) = self.cells.count + 1, _factors(self.table)
        place = self._find(values)
        place += np.repeat(np.arange(len(counts)) * width, counts)
        in_cell = np.bincount(place, minlength=len(counts) * width).reshape(len(counts), width)
        if counts.max(initial=0) * largest < EXACT:  # so is every partial sum of the product, in any order
            return (in_cell.astype(np.float64) @ table).astype(np.int64)
        return in_cell @ _padded(self.table).T

    def _find(self, values: Floats) -> NDArray[np.int64]:
        """Return each value's cell, the one after the last for a value that contributes nothing."""
        lower, upper = self.bounds.lower, self.bounds.upper
        counts = values >= lower if self.outside is Outside.TRUNCATE else ~np.isnan(values)
        if self.outside is Outside.TRUNCATE:
            counts &= values <= upper
        if counts.all():
            return self.cells.find(np.clip(values, lower, upper))
        return np.where(counts, self.cells.find(np.clip(np.where(counts, values, lower), lower, upper)), self.cells.count)


@lru_cache(maxsize=64)
def _diameter(table: tuple[str, ...]) -> int:
    """Return the largest L1 distance between columns of the table, 0 among them."""
    points = _points(table)
    n_rows, n_points = points.shape
    if _is_fewer_signs(n_rows, n_points):
        signs = (np.array((1, *rest), dtype=np.int64) @ points for rest in itertools.product((1, -1), repeat=n_rows - 1))
        return max(int(projected.max()) - int(projected.min()) for projected in signs)
    return max(int(np.abs(points[:, i:] - points[:, i : i + 1]).sum(axis=0).max()) for i in range(n_points))


@lru_cache(maxsize=64)
def _squared_diameter(table: tuple[str, ...]) -> int:
    """Return the largest squared distance between columns of the table, 0 among them, by looking at all pairs."""
    points = _points(table)
    if len(points) == 1:
        return int(points.max() - points.min()) ** 2
    if np.abs(points).max() * math.sqrt(len(points)) >= EXACT_ROOT:
        points = points.astype(object)  # integers of any size
    widest, step = 0, max(PAIRS // points.size, 1)
    for start in range(0, points.shape[1], step):
        d = points[:, start : start + step, None] - points[:, None, start:]
        widest = max(widest, int((d * d).sum(axis=0).max()))
    return widest


@lru_cache(maxsize=64)
def _points(table: tuple[str, ...]) -> NDArray[np.int64]:
    """Return the different columns of the table [coordinate, k], 0 among them."""
    rows = _parse(table)
    return np.unique(np.append(rows, np.zeros((len(rows), 1), dtype=np.int64), axis=1), axis=1)


def _is_fewer_signs(n_rows: int, n_points: int) -> bool:
    return n_rows <= FEW_COORDINATES or 2**n_rows <= n_points


def _check_size(table: tuple[str, ...]) -> None:
    """Raise ValueError where the sensitivity of so wide a table would take too long to find."""
    n_rows, n_points = _points(table).shape
    if n_rows * n_points**2 > MOST_STEPS:
        msg = f"a table of {n_rows} coordinates over {n_points} different cells is too large; give fewer of either"
        raise ValueError(msg)


@lru_cache(maxsize=64)
def _parse(table: tuple[str, ...]) -> NDArray[np.int64]:
    rows = np.array([[int(value) for value in line.split()] for line in table], dtype=np.int64)
    rows.setflags(write=False)
    return rows


@lru_cache(maxsize=64)
def _padded(table: tuple[str, ...]) -> NDArray[np.int64]:
    """Return the table with a cell of zeros after the last."""
    rows = _parse(table)
    return np.append(rows, np.zeros((len(rows), 1), dtype=np.int64), axis=1)


@lru_cache(maxsize=64)
def _factors(table: tuple[str, ...]) -> tuple[Floats, int]:
    """Return the padded table [cell, coordinate] as floats, and its largest magnitude."""
    rows = _padded(table)
    return np.ascontiguousarray(rows.T, dtype=np.float64), int(np.abs(rows).max())


def make_table(t: Floats, *, n_units: int, is_centred: bool) -> tuple[tuple[str, ...], tuple[float, ...], tuple[int, ...]]:
    """Round the statistic's values t [coordinate, cell] to integers; return the table, the units and the origins.

    All coordinates share one unit, the power of two that gives the widest ``n_units`` steps or more: the noise is
    then the same in each, so that the statistic's own scales decide how epsilon is shared. A null counts as the value at
    the origin: where the table is centred, the middle of each coordinate's range, else 0.
    """
    if not np.isfinite(t).all():
        msg = "the statistic is not finite everywhere inside the bounds; keep the bounds away from where it is not"
        raise ValueError(msg)
    width = float((t.max(axis=1) - t.min(axis=1)).max())
    if not width > 0:
        msg = "the statistic is the same everywhere inside the bounds; give bounds over which it varies"
        raise ValueError(msg)
    return tabulate(t, unit=2.0 ** math.floor(math.log2(width / n_units)), is_centred=is_centred)


def tabulate(t: Floats, *, unit: float, is_centred: bool) -> tuple[tuple[str, ...], tuple[float, ...], tuple[int, ...]]:
    """Round the statistic's values t [coordinate, cell] to this unit, a power of two; return what ``make_table`` does."""
    rows = np.rint(t / unit)
    if np.abs(rows).max() >= 2**40:
        msg = "the statistic lies too far from zero for its width inside these bounds; move or rescale the column"
        raise ValueError(msg)
    origins = np.rint((rows.max(axis=1) + rows.min(axis=1)) / 2) if is_centred else np.zeros(len(rows))
    moved = (rows - origins[:, None]).astype(np.int64)
    table = tuple(" ".join(map(str, line)) for line in moved.tolist())
    return table, (unit,) * len(rows), tuple(int(origin) for origin in origins)


def with_inside_count(statistic: TableSum, share: float) -> TableSum:
    """Add the weighted count of the records inside the bounds as the last coordinate of a truncated statistic.

    With T the largest |t|_1 of the table, the weight is the whole number nearest to T share / (1 - share), at least 1: of what
    one record adds to the vector, ``share`` is then the count's. It is a row like any other, weight in every cell, so that
    ``TableSum.sensitivity`` holds as it stands, and gives: where a record is replaced max(max |t - t'|_1, T + weight), where
    one is added or removed T + weight (and the weight of the count of all). Proof: two records inside have the same count, so
    that only t differs; one inside differs from 0 by |t|_1 + weight. A t centred in [-T, T] differs by up to 2 T by
    itself, so that under replace a share of up to one half costs nothing. Raises ValueError for a statistic that clamps and
    for a share outside (0, 1).
    """
    if statistic.outside is not Outside.TRUNCATE:
        msg = "inside_count is for outside: truncate; clamp leaves no record outside to be told from the others"
        raise ValueError(msg)
    if not 0 < share < 1:
        msg = f"inside_count is {share:g}; give true, or its share of epsilon: above 0 and below 1"
        raise ValueError(msg)
    weight = max(1, round(statistic.sensitivity(Neighbours.ADD_REMOVE) * share / (1 - share)))
    row = " ".join([str(weight)] * statistic.cells.count)
    return replace(
        statistic,
        table=(*statistic.table, row),
        units=(*statistic.units, 1 / weight),
        origins=(*statistic.origins, 0),
    )
