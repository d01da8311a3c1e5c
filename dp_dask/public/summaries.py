"""Summaries: functions of one column whose sums may tell of a simulator's parameters, found from simulations alone.

Each is a ``TableSum`` over the column's cells, so that its sensitivity is exact and no record is looked at to choose it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.bounds import Outside
from dp_dask.core.partition import make_partition
from dp_dask.core.privacy import Neighbours
from dp_dask.core.table_sum import TableSum, make_table
from dp_dask.public.simulated_cells import Column, Counted

__all__ = ["bins", "components", "partition", "regression", "with_count"]

Floats = NDArray[np.float64]
UNITS = 2**10  # of the widest coordinate: what rounding adds is far below any noise, and simulations are rounded likewise
COUNT_SHARE = (
    0.15  # of what a record adds at most; proportions tell of a simulator's parameters, the count only puts them to scale
)


def partition(column: Column, edges: Sequence[float] | Floats) -> TableSum:
    """Count the records between the inner edges: ``core.partition``; raises ValueError for edges that make no bins."""
    return make_partition(column.name, column.bounds, column.outside, column.cells, edges)


def bins(column: Column, count: int) -> TableSum:
    """Count the records in equal bins, as ``partition`` does."""
    return partition(column, np.linspace(column.bounds.lower, column.bounds.upper, count + 1)[1:-1])


def regression(column: Column, features: Floats, bank: Counted, scale: Floats, penalty: float) -> TableSum:
    """Sum A' phi(x), where A' mean(phi) is the ridge regression of theta / scale on the mean features, fitted to simulations.

    features: phi [feature, cell]; the penalty is in units of their mean variance. The posterior mean is the best summary of its
    size (Fearnhead & Prangle 2012); linear in the mean features it is a sum over records. In units of the prior's sd all
    parameters get a like share of epsilon.
    """
    mean = _means(features, bank)
    centred = mean - mean.mean(axis=0)
    gram = centred.T @ centred / len(mean)
    target = (bank.theta - bank.theta.mean(axis=0)) / scale
    slopes = np.linalg.solve(gram + penalty * np.trace(gram) / len(gram) * np.eye(len(gram)), centred.T @ target / len(mean))
    return _of_function(column, slopes.T @ features)


def components(column: Column, features: Floats, bank: Counted, count: int) -> TableSum:
    """Sum the leading principal components of the simulated mean embeddings: directions in which data sets differ by theta.

    features: phi [feature, cell]. Principal components of the records themselves would follow what records differ by.
    """
    mean = _means(features, bank)
    _, vectors = np.linalg.eigh(np.cov(mean.T))
    return _of_function(column, vectors[:, ::-1][:, :count].T @ features)


def with_count(statistic: TableSum, neighbours: Neighbours) -> TableSum:
    """Add the weighted count of all records where n is private; under replace return the statistic as it is."""
    if neighbours is Neighbours.REPLACE:
        return statistic
    largest = statistic.sensitivity(Neighbours.ADD_REMOVE)
    return replace(statistic, count_weight=max(1, round(COUNT_SHARE * largest)))


def _means(features: Floats, bank: Counted) -> Floats:
    """Return the features' sums [T, feature] over each data set's records, by the mean number of records."""
    return bank.counts @ features.T / max(bank.sizes.mean(), 1)


def _of_function(column: Column, values: Floats) -> TableSum:
    table, units, origins = make_table(values, n_units=UNITS, is_centred=column.outside is Outside.CLAMP)
    return _table_sum(column, table, units, origins)


def _table_sum(column: Column, table: tuple[str, ...], units: tuple[float, ...], origins: tuple[int, ...]) -> TableSum:
    return TableSum(
        column=column.name,
        bounds=column.bounds,
        outside=column.outside,
        cells=column.cells,
        table=table,
        units=units,
        origins=origins,
    )
