"""People: records by person for tests, every kind of statistic, and the rule of what counts in plain Python.

The oracle hashes whole numbers and bytes by itself, without numpy, pyarrow or tables, and looks at one person at a time.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce as fold
from operator import add

import numpy as np
import pyarrow as pa
from core.exact import make_statistic

from dp_dask.core.bounds import Bounds, Outside
from dp_dask.core.categories import CategoryCounts
from dp_dask.core.gram import gram_sum
from dp_dask.core.grouped import GroupedSum
from dp_dask.core.privacy import Neighbours
from dp_dask.core.statistic import Total
from dp_dask.core.unit import UnitOfProtection
from dp_dask.distances.means import means
from dp_dask.distances.mmd_product import mmd_product
from dp_dask.private.kernels import new_scratch
from dp_dask.private.reduce import collect_split, conclude_persons, merge_persons, persons_of
from dp_dask.private.sources import Batch, Part, Split
from dp_dask.private.sums import sum_batch

ADD_REMOVE = Neighbours.ADD_REMOVE
MASK = 2**64 - 1
WEIGHT = 7
DATASET = "people"
SUM_X = make_statistic(-4, 12, neighbours=ADD_REMOVE, weight=WEIGHT)
TRUNCATED = make_statistic(2, 12, Outside.TRUNCATE, ADD_REMOVE, weight=WEIGHT)
COUNTS_G = CategoryCounts(column="g", categories=("a", "b"))
COUNTS_Y = CategoryCounts(column="y", categories=(0, 1, 2))
KINDS = {
    "bounded": SUM_X,
    "truncated": TRUNCATED,
    "categories": COUNTS_G,
    "numbers": COUNTS_Y,
    "groups": GroupedSum(within=SUM_X, by=COUNTS_G),
    "products": gram_sum(("x", "y"), (Bounds(-4, 12), Bounds(0, 3)), ADD_REMOVE, None),
    "stacked": means({"x": Bounds(-4, 12), "y": Bounds(0, 3)}, {"x": 1, "y": 1}, 10).statistic,
    "waves": mmd_product({"x": Bounds(-4, 12), "y": Bounds(0, 3)}, 4.0, 10, tolerance=1e-2).statistic,
}
COMBINABLE = ("bounded", "products", "stacked", "waves")
TYPES = {"id": pa.int64(), "x": pa.float64(), "y": pa.float64(), "g": pa.string()}


def at_most(m, kind="number"):
    return UnitOfProtection(kind="person", column="id", type=kind, max_records=m)


def joined(how, kind="number"):
    return UnitOfProtection(kind="person", column="id", type=kind, combine=how)


def arrays(records, **types):
    """Columns of records (id, x, y, g)."""
    types = TYPES | types
    return {name: pa.array([record[i] for record in records], types[name]) for i, name in enumerate(("id", "x", "y", "g"))}


@dataclass(frozen=True)
class Held:
    """Splits of batches that are held in memory."""

    batches: tuple[tuple[dict[str, pa.Array], ...], ...]
    failing: tuple[int, ...] = ()

    def plan(self):
        return [Split(i, (Part(f"file{i}", 0, 1),)) for i in range(len(self.batches))]

    def read(self, split, columns, texts=frozenset(), dates=frozenset()) -> Iterator[Batch]:  # noqa: ARG002
        if split.index in self.failing:
            raise ValueError("CANARY-7731")
        for batch in self.batches[split.index]:
            yield Batch({column: batch[column] for column in columns}, len(batch["id"]) + 1)  # and a line without values


def held(records, n_splits=1, batch_rows=3, **types):
    pieces = [[records[i] for i in part] for part in np.array_split(np.arange(len(records)), n_splits)]
    of_batches = [[piece[i : i + batch_rows] for i in range(0, len(piece), batch_rows)] for piece in pieces]
    return Held(tuple(tuple(arrays(batch, **types) for batch in batches) for batches in of_batches))


def here(source, statistics, unit, *, passes=1, order=lambda outcomes: outcomes):
    """The sealed totals of each pass, merged in any order, without a cluster."""
    found = []
    for persons in persons_of(statistics, unit, DATASET, passes).each_pass:
        outcomes = order([collect_split(source, split, persons) for split in source.plan()])
        while len(outcomes) > 1:
            outcomes = [*outcomes[2:], merge_persons(persons, *outcomes[:2])]
        found.append(conclude_persons(persons, outcomes[0]))
    return found


# The oracle


def total_of(statistics, records):
    """What records add up to, all of them."""
    columns, scratch = arrays(records), new_scratch()
    return Total(fold(add, (sum_batch(statistic, columns, scratch) for statistic in statistics), ()), len(records))


def scrambled(number):
    number &= MASK
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & MASK
    return number ^ (number >> 31)


def plain_hash(value, key, *, is_text):
    if is_text and value is None:
        return scrambled(key)
    if is_text:
        value = value.encode() if isinstance(value, str) else value
        return int.from_bytes(hashlib.blake2b(value, digest_size=8, key=key.to_bytes(8, "big")).digest(), "big")
    return scrambled(value ^ key)


def bits(value):
    if value is None or math.isnan(value):
        return int(np.float64(np.nan).view(np.int64)) & MASK
    return struct.unpack("<Q", struct.pack("<d", float(value) + 0.0))[0]


def count_slowly(statistics, unit, records):
    """Return the records that count, person by person: the smallest hashes of (record, how many equal ones before it)."""
    columns = sorted({column for statistic in statistics for column in statistic.columns})
    key = int.from_bytes(hashlib.blake2b(DATASET.encode(), digest_size=8, person=b"dp_dask kept").digest(), "big")
    of_person, counted = {}, []
    for record in records:
        if record[0] is not None:
            of_person.setdefault(record[0], []).append(record)
    for person, own in of_person.items():
        seen, hashed = Counter(), []
        for record in own:
            values = [(record["xyg".index(name) + 1], name == "g") for name in columns]
            made = scrambled(plain_hash(person & MASK if unit.type == "number" else person, key, is_text=unit.type == "text"))
            for value, is_text in values:
                made = scrambled(made + plain_hash(value if is_text else bits(value), key, is_text=is_text))
            seen[made] += 1
            hashed.append((scrambled(made + seen[made] * 0x9E3779B97F4A7C15), record))
        counted += [record for _, record in sorted(hashed, key=lambda pair: pair[0])[: unit.most]]
    return counted
