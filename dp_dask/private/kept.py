"""Kept: which records of each person count, at most so many, by a keyed hash of the records themselves.

The j-th of a person's records that are equal is hashed with j. Of all these hashes a person's smallest count, so that each record
is as likely to count as any other, however many equal it has. What counts is a function of the person's records alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dp_dask.core.unit import MOST_RECORDS
from dp_dask.private.hashes import STEP, hash_of, mixed

__all__ = ["MOST_COPIES", "MOST_DIFFERENT", "PERSON", "RECORDS", "kept_rows", "with_fewer"]

Ints = NDArray[np.int64]
Hashes = NDArray[np.uint64]
PERSON, RECORDS = "person", "records"  # the first and the last column of a table
MOST_DIFFERENT = MOST_RECORDS  # of a person's different records are looked at: those of the smallest hashes, others never count
MOST_COPIES = 2**16  # of a person are told apart: of one with more records, each different one has its share of these
AT_ONCE = 2**20  # copies that are hashed together, about


def with_fewer(table: pa.Table, key: int) -> pa.Table:
    """Leave out what ``MOST_DIFFERENT`` leaves out: of a person with more different records, those of larger hashes.

    A part of the records leaves out nothing that all of them do not, so that it may be done to any part, or to none.
    """
    people = _people(table)
    if _is_within(people):
        return table
    order, _, sizes = _in_order(people)
    is_many = np.repeat(sizes > MOST_DIFFERENT, sizes)
    rows, person = order[is_many], np.repeat(np.arange(len(sizes)), sizes)[is_many]
    hashes = _hashes(table.take(rows), key)
    first = np.flatnonzero(np.diff(person, prepend=-1))
    last = hashes[np.lexsort((hashes, person))[first + MOST_DIFFERENT - 1]]
    is_left = np.ones(table.num_rows, dtype=np.bool_)
    is_left[rows] = hashes <= np.repeat(last, np.diff(np.append(first, len(person))))
    return table.filter(pa.array(is_left))


def kept_rows(table: pa.Table, most: int, key: int) -> Iterator[Ints]:
    """Yield the rows of the records that count, each as often as it does, some persons at a time.

    Of a person with at most ``most`` records all count, of others exactly so many. The table is one that ``with_fewer`` gave.
    """
    if not table.num_rows:
        return
    order, starts, sizes = _in_order(_people(table))
    counts = np.asarray(table[RECORDS])[order]
    totals = np.repeat(np.add.reduceat(counts, starts), sizes)
    copies = np.where(totals > MOST_COPIES, np.maximum(counts * MOST_COPIES // totals, 1), counts)
    group = (np.cumsum(np.add.reduceat(copies, starts)) - 1) // AT_ONCE
    first = np.append(starts[np.diff(group, prepend=-1) > 0], len(order))
    person = np.repeat(np.arange(len(sizes)), sizes)
    for begin, end in pairwise(first):
        rows, n = order[begin:end], copies[begin:end]
        is_over = totals[begin:end] > most
        some = rows[is_over]
        chosen = _chosen(table.take(some), person[begin:end][is_over], n[is_over], most, key)
        yield np.concatenate([np.repeat(rows[~is_over], n[~is_over]), some[chosen]])


def _people(table: pa.Table) -> Ints:
    """Return a number for each row, from 0 on and the same for the same person."""
    return np.asarray(table[PERSON].combine_chunks().dictionary_encode().indices)


def _is_within(people: Ints) -> bool:
    return not len(people) or int(np.bincount(people).max()) <= MOST_DIFFERENT


def _in_order(people: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the rows in order of their persons, and where each person begins and how many rows it has."""
    order = np.argsort(people, kind="stable")
    starts = np.flatnonzero(np.diff(people[order], prepend=-1))
    return order, starts, np.diff(np.append(starts, len(order)))


def _chosen(part: pa.Table, person: Ints, copies: Ints, most: int, key: int) -> Ints:
    """Return the rows of the copies with the ``most`` smallest hashes of each person, ``person`` ascending."""
    which = np.repeat(np.arange(len(copies)), copies)
    if not len(which):
        return which
    number = np.arange(len(which)) - np.repeat(np.cumsum(copies) - copies, copies)
    hashes, owner = mixed(_hashes(part, key)[which] + (number + 1).astype(np.uint64) * STEP), person[which]
    ranked = _ranked(hashes, owner)
    if ranked is None:  # two hashes of a person are equal, or nearly: where equal, the values decide, never the places
        ranked = np.lexsort((*(code[which] for code in _codes(part)), hashes, owner))
    first = np.flatnonzero(np.diff(owner, prepend=-1))
    rank = np.arange(len(owner)) - np.repeat(first, np.diff(np.append(first, len(owner))))
    chosen: Ints = which[ranked[rank < most]]
    return chosen


def _ranked(hashes: Hashes, owner: Ints) -> Ints | None:
    """Return the order by owner, which ascends, and then by the first bits of the hash; None where they do not decide."""
    size = int(owner[-1] - owner[0]).bit_length()
    keys = hashes if size == 0 else hashes >> np.uint64(size) | (owner - owner[0]).astype(np.uint64) << np.uint64(64 - size)
    order: Ints = np.argsort(keys)
    return None if (np.diff(keys[order]) == 0).any() else order


def _hashes(part: pa.Table, key: int) -> Hashes:
    """Hash each record, that is its person and its values."""
    made = np.zeros(part.num_rows, dtype=np.uint64)
    for name in part.column_names[:-1]:
        made = mixed(made + hash_of(part[name].combine_chunks(), key))
    return made


def _codes(part: pa.Table) -> list[Ints]:
    """Return numbers that order the values of each column alike, whatever the order of the rows."""
    made = []
    for name in part.column_names[1:-1]:
        array = part[name].combine_chunks()
        if pa.types.is_binary(array.type):
            encoded = array.dictionary_encode()
            place = np.append(np.argsort(np.argsort(encoded.dictionary.to_pylist())), -1)
            made.append(place[np.asarray(encoded.indices.fill_null(len(place) - 1))])
        else:
            made.append(np.asarray(array))
    return made
