"""Keyed: records by cluster and period, in tables that are merged across splits before the bands of clusters can be counted.

A table holds each different pair of cluster and period once (each cluster, where there is no period), a record without a period
as a pair of its own, and how many records have it. Numbers take 8 bytes, a text its own and 4 more, the records 8: 24 bytes a
pair of numbers. To merge two tables takes about 140 bytes a pair of theirs together, 2.3 GB at the most pairs that are allowed.
Beyond, a run is refused. Whether it is depends on the different pairs of all records alone, as a part never has more of them
than the whole: not on files, splits or the order in which anything ran. Like the death that it stands for, the refusal is
not covered by epsilon; it comes before anything is released.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dp_dask.core.cluster_bands import ClusterBands, is_whole
from dp_dask.core.statistic import Total
from dp_dask.errors import SourceError
from dp_dask.private.arrow import as_bytes, values_and_validity

__all__ = ["MOST_PAIRS", "MOST_TEXT", "Partial", "add_batch", "count_bands", "merge_tables", "one_piece", "whole_numbers"]

MOST_PAIRS = 2**24
MOST_TEXT = 2**30  # bytes of clusters and periods that are texts
AT_ONCE = 2**20  # rows that wait to be merged
BLOCK = 2**16  # clusters whose bands are held at once
CLUSTER, PERIOD, RECORDS = "cluster", "period", "records"


@dataclass(frozen=True, slots=True, eq=False)
class Partial:
    """What a part of the records gives: the sums, 0 for clusters' bands, and a table for each statistic of clusters."""

    total: Total
    tables: tuple[pa.Table, ...]


def add_batch(tables: list[pa.Table], statistic: ClusterBands, columns: Mapping[str, pa.Array]) -> None:
    """Add a batch's table to those of the batches before, and merge them where much waits."""
    keys = {
        name: as_bytes(columns[column]) if column in statistic.texts else whole_numbers(columns[column])
        for name, column in zip((CLUSTER, PERIOD), statistic.columns, strict=False)
    }
    records = pa.table(keys)
    records = records.filter(pc.is_valid(records[CLUSTER]))
    counted = records.group_by(list(keys), use_threads=False).aggregate([([], "count_all")])
    tables.append(counted.rename_columns([*keys, RECORDS]))
    if sum(table.num_rows for table in tables[1:]) >= max(AT_ONCE, tables[0].num_rows):
        tables[:] = [merge_tables(statistic, tables)]


def merge_tables(statistic: ClusterBands, tables: Sequence[pa.Table]) -> pa.Table:
    """Add up the records of equal pairs; raises SourceError for more than ``MOST_PAIRS``, or texts longer than ``MOST_TEXT``."""
    whole = one_piece(pa.concat_tables([_empty(statistic), *tables]))
    names = whole.column_names
    merged = one_piece(whole.group_by(names[:-1], use_threads=False).aggregate([(RECORDS, "sum")]).rename_columns(names))
    texts = sum(pc.sum(pc.binary_length(merged[name])).as_py() or 0 for name in names[:-1] if merged[name].type == pa.binary())
    if merged.num_rows > MOST_PAIRS or texts > MOST_TEXT:
        msg = (
            f"the bands of {', '.join(statistic.columns)}: more than {MOST_PAIRS} different "
            f"{'clusters' if statistic.period is None else 'pairs of cluster and period'}, or {MOST_TEXT} bytes of their texts, "
            "which one worker may not hold; give coarser clusters or periods, numbers for texts, or fewer records"
        )
        raise SourceError(msg)
    return merged


def count_bands(statistic: ClusterBands, table: pa.Table) -> tuple[int, ...]:
    """Return the bands of a merged table of all records."""
    records = periods = np.asarray(table[RECORDS])
    if statistic.period is not None:
        clusters = table.group_by(CLUSTER, use_threads=False).aggregate([(RECORDS, "sum"), (PERIOD, "count")])
        records, periods = np.asarray(clusters[f"{RECORDS}_sum"]), np.asarray(clusters[f"{PERIOD}_count"])
    total = np.zeros(len(statistic.units), dtype=np.int64)
    for start in range(0, len(records), BLOCK):
        total += statistic.bands(records[start : start + BLOCK], periods[start : start + BLOCK]).sum(axis=1)
    return tuple(int(value) for value in total)


def _empty(statistic: ClusterBands) -> pa.Table:
    names = (CLUSTER, PERIOD)[: len(statistic.columns)]
    kinds = [pa.binary() if column in statistic.texts else pa.int64() for column in statistic.columns]
    return pa.schema([*zip(names, kinds, strict=True), (RECORDS, pa.int64())]).empty_table()


def one_piece(table: pa.Table) -> pa.Table:
    """Copy a table's pieces to one: pieces may share memory, which each of them would take along to another worker.

    What came from there may also lie askew in memory, of which Arrow warns.
    """
    return table.combine_chunks()


def whole_numbers(array: pa.Array) -> pa.Array:
    """Return whole numbers as int64, null for what is none; those of a uint64 from 2^63 on as negative, which it has none of."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_uint64(array.type):
        return array.view(pa.int64())
    if pa.types.is_integer(array.type):
        return array.cast(pa.int64())
    values, valid = values_and_validity(array)
    known = is_whole(values)
    if valid is not None:
        known &= valid
    return pa.array(np.where(known, values, 0).astype(np.int64), mask=~known)
