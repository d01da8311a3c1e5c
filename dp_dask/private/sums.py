"""Sums: one batch of records to the integers of one statistic, whichever kind it is."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dp_dask.core.bounds import Outside
from dp_dask.core.categories import CategoryCounts
from dp_dask.core.release import AnyStatistic
from dp_dask.core.statistic import BoundedSum
from dp_dask.core.table_sum import TableSum
from dp_dask.private.arrow import is_text, values_and_validity
from dp_dask.private.kernels import BLOCK, sum_array

__all__ = ["sum_batch"]


def sum_batch(statistic: AnyStatistic, columns: Mapping[str, pa.Array], scratch: NDArray[np.float64]) -> tuple[int, ...]:
    """Return the sum of every record's contribution, coordinate by coordinate."""
    if isinstance(statistic, BoundedSum):
        return (sum_array(statistic, columns[statistic.column], scratch),)
    if isinstance(statistic, TableSum):
        return _sum_table(statistic, columns[statistic.column])
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
    size = len(statistic.categories)
    if is_text(array.type):
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        # Bytes are compared: a text that is not valid in its encoding is merely not listed.
        plain = pa.large_binary() if pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type) else pa.binary()
        listed = pa.array([str(category).encode() for category in statistic.categories], plain)
        found = pc.index_in(array.view(plain), value_set=listed)
        indices = found.drop_null().to_numpy(zero_copy_only=False).astype(np.int64)
    else:
        values, valid = values_and_validity(array)
        order = np.argsort(np.array(statistic.categories))
        keys = np.array(statistic.categories, dtype=np.float64)[order]
        place = np.minimum(np.searchsorted(keys, values), size - 1)
        is_listed = keys[place] == values
        if valid is not None:
            is_listed &= valid
        indices = order[place[is_listed]]
    return tuple(int(count) for count in np.bincount(indices, minlength=size))
