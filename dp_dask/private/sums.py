"""Sums: one batch of records to the integers of one statistic, whichever kind it is."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dp_dask.core.bounds import Outside
from dp_dask.core.categories import CategoryCounts
from dp_dask.core.fourier_sum import FourierSum
from dp_dask.core.gram import GramSum
from dp_dask.core.grouped import GroupedSum
from dp_dask.core.stacked_sum import StackedSum
from dp_dask.core.statistic import BoundedSum
from dp_dask.core.table_sum import TableSum
from dp_dask.private.arrow import as_bytes, is_text, values_and_validity
from dp_dask.private.kernels import BLOCK, sum_array

__all__ = ["Summable", "sum_batch"]

Summable = BoundedSum | TableSum | CategoryCounts | GroupedSum | GramSum | StackedSum | FourierSum
DENSE = 2**16  # whole numbers between the first and the last category
AT_ONCE = 2**22  # numbers of a sum of waves, held at once


def sum_batch(statistic: Summable, columns: Mapping[str, pa.Array], scratch: NDArray[np.float64]) -> tuple[int, ...]:
    """Return the sum of every record's contribution, coordinate by coordinate."""
    if isinstance(statistic, BoundedSum):
        return (sum_array(statistic, columns[statistic.column], scratch),)
    if isinstance(statistic, TableSum | StackedSum):
        parts = (statistic,) if isinstance(statistic, TableSum) else statistic.parts
        return tuple(total for part in parts for total in _sum_table(part, columns[part.column]))
    if isinstance(statistic, GramSum):
        return _sum_gram(statistic, columns)
    if isinstance(statistic, GroupedSum):
        return _sum_groups(statistic, columns)
    if isinstance(statistic, FourierSum):
        return _sum_waves(statistic, columns)
    return _count_categories(statistic, columns[statistic.column])


def _sum_table(statistic: TableSum, array: pa.Array) -> tuple[int, ...]:
    """Count the records in each cell and weigh the counts by the table: any t(x) at the price of a histogram."""
    counts = np.zeros(statistic.cells.count, dtype=np.int64)
    low, high = statistic.bounds.lower, statistic.bounds.upper
    with np.errstate(all="ignore"):
        for start in range(0, len(array), BLOCK):
            values, valid = values_and_validity(array.slice(start, BLOCK))
            counted = ~np.isnan(values)
            if valid is not None:
                counted &= valid
            if statistic.outside is Outside.TRUNCATE:
                counted &= (values >= low) & (values <= high)
            if not counted.all():
                values = values[counted]
            counts += np.bincount(statistic.cells.find(np.clip(values, low, high)), minlength=len(counts))
    return tuple(int(total) for total in statistic.rows @ counts)


def _count_categories(statistic: CategoryCounts, array: pa.Array) -> tuple[int, ...]:
    """Count each category's records; what is null or not listed is counted nowhere."""
    found = _categories(statistic, array)
    counts = np.bincount(found[found >= 0], minlength=len(statistic.categories))
    return tuple(int(count) for count in counts)


def _categories(statistic: CategoryCounts, array: pa.Array) -> NDArray[np.int64]:
    """Return the category of each record, -1 where it is null or not listed."""
    if pa.types.is_dictionary(array.type):
        of_each = np.append(_categories(statistic, array.dictionary), -1)
        return of_each[np.asarray(pc.fill_null(array.indices.cast(pa.int64()), len(of_each) - 1))]
    if is_text(array.type):
        # Bytes are compared: a text that is not valid in its encoding is merely not listed.
        listed = pa.array([str(category).encode() for category in statistic.categories], pa.binary())
        found = pc.fill_null(pc.index_in(as_bytes(array), value_set=listed), -1)
        return np.asarray(found, dtype=np.int64)
    values, valid = values_and_validity(array)
    keys = np.array(statistic.categories, dtype=np.float64)
    low, high = keys.min(), keys.max()
    if high - low <= DENSE:  # a table is faster than a search, above all for many categories
        place = np.full(int(high - low) + 2, -1)
        place[(keys - low).astype(np.int64)] = np.arange(len(keys))
        with np.errstate(invalid="ignore"):
            inside = (values >= low) & (values <= high) & (values == np.floor(values))
        found = place[np.where(inside, values - low, high - low + 1).astype(np.int64)]
    else:
        order = np.argsort(keys)
        nearest = np.minimum(np.searchsorted(keys[order], values), len(keys) - 1)
        found = np.where(keys[order][nearest] == values, order[nearest], -1)
    return found if valid is None else np.where(valid, found, -1)


def _sum_groups(statistic: GroupedSum, columns: Mapping[str, pa.Array]) -> tuple[int, ...]:
    """Sum and count within each group, in integers."""
    size = len(statistic.by.categories)
    measured, groups = columns[statistic.within.column], _categories(statistic.by, columns[statistic.by.column])
    sums = np.zeros(size, dtype=np.int64)
    for start in range(0, len(measured), BLOCK):
        group = groups[start : start + BLOCK]
        values, valid = values_and_validity(measured.slice(start, BLOCK))
        moves = statistic.within.contributions(values if valid is None else np.where(valid, values, np.nan)).reshape(-1)
        is_listed = group >= 0
        np.add.at(sums, group[is_listed], moves[is_listed])
    counts = np.bincount(groups[groups >= 0], minlength=size)
    both = np.stack([sums, statistic.within.count_weight * counts], axis=1)
    return tuple(int(value) for value in both.ravel())


def _sum_gram(statistic: GramSum, columns: Mapping[str, pa.Array]) -> tuple[int, ...]:
    """Sum columns, squares and products; a record with a null in any column contributes nothing."""
    arrays = [columns[name] for name in statistic.columns]
    total = np.zeros(statistic.size, dtype=np.int64)
    for start in range(0, len(arrays[0]), BLOCK):
        parts = [values_and_validity(array.slice(start, BLOCK)) for array in arrays]
        valid = None
        for _, mask in parts:
            if mask is not None:
                valid = mask if valid is None else valid & mask
        with np.errstate(all="ignore"):
            total += statistic.sum_block(np.stack([values for values, _ in parts]).T, valid)
    return tuple(int(value) for value in total)


def _sum_waves(statistic: FourierSum, columns: Mapping[str, pa.Array]) -> tuple[int, ...]:
    """Sum cosines and sines; a record with a null in any column contributes nothing."""
    arrays = [columns[name] for name in statistic.columns]
    total = np.zeros(len(statistic.units), dtype=np.int64)
    step = max(AT_ONCE // len(total), 1)
    for start in range(0, len(arrays[0]), step):
        parts = [values_and_validity(array.slice(start, step)) for array in arrays]
        values = [each if valid is None else np.where(valid, each, np.nan) for each, valid in parts]
        total += statistic.contributions(np.stack(values, axis=1)).sum(axis=0)
    return tuple(int(value) for value in total)
