"""Persons: records by person, in tables that are merged across splits before it can be told what counts of each person.

Of at most ``max_records`` records a table holds each different record of each person once, and how many there are of it; of
combined ones each person once, with integers to add up. A number takes 8 bytes a row, a text its own and 4 more. A worker holds
at most ``MOST_ROWS`` rows, ``MOST_BYTES`` bytes, of a pass. With one column of numbers it takes about 150 bytes a row while it
merges and sums, 2.5 GB at the most rows that are allowed (``benchmarks/persons.py``). Beyond, a run is refused; ``passes``
reads the data several times, each time for a part of the persons. Whether a run is refused depends on all records alone, as a
part never has more rows than the whole, and is not covered by epsilon, as little as a death for want of memory is. One person
adds some thousand rows at most.

What counts of a person depends on the person's records alone, neither on other persons' nor on files, splits or the order in
which anything ran. Were records told apart by their places, one person's would move another's, and no sensitivity would hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import add

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dp_dask.core.combined import Combined, combined
from dp_dask.core.statistic import Total
from dp_dask.core.unit import Combine, UnitOfProtection
from dp_dask.errors import SourceError
from dp_dask.private.arrow import as_bytes, values_and_validity
from dp_dask.private.hashes import hash_of, key_of
from dp_dask.private.kept import PERSON, RECORDS, kept_rows, with_fewer
from dp_dask.private.kernels import new_scratch
from dp_dask.private.keyed import one_piece, whole_numbers
from dp_dask.private.sums import Summable, sum_batch

__all__ = ["MOST_BYTES", "MOST_ROWS", "Persons"]

Floats = NDArray[np.float64]
Columns = Mapping[str, pa.Array]
MOST_ROWS = 2**24
MOST_BYTES = 2**30
AT_ONCE = 2**20  # rows that are summed together
WAITING = 8  # times the rows of the largest table that wait beside it, and each row is merged less often
FEW = 2**17  # rows of a table that counts as so large at least
KEPT, PART = "dp_dask kept", "dp_dask part"  # what hashes are for


@dataclass(frozen=True, slots=True)
class Persons:
    """What is summed of which persons: of those of pass ``part`` of so many ``passes``.

    ``columns`` are what the statistics read, ``texts`` those of them that hold texts, and the column of the persons where it
    does. ``dataset`` is the public name that the rule takes its key from, in every pass the same.
    """

    unit: UnitOfProtection
    statistics: tuple[Summable, ...]
    columns: tuple[str, ...]
    texts: frozenset[str]
    dataset: str
    passes: int = 1
    part: int = 0

    @property
    def each_pass(self) -> list[Persons]:
        """One for each pass: every person is in one of them."""
        return [replace(self, part=part) for part in range(self.passes)]

    def table(self, columns: Columns) -> pa.Table:
        """Return a batch's table, a row a record."""
        ids = columns[self.unit.column or ""]
        ids = as_bytes(ids) if self.unit.type == "text" else whole_numbers(ids)
        is_here = np.array(ids.is_valid())
        if self.passes > 1:
            is_here[is_here] = hash_of(ids.drop_null(), key_of(self.dataset, PART)) % np.uint64(self.passes) == self.part
        mask = pa.array(is_here)
        ids, read = ids.filter(mask), {name: columns[name].filter(mask) for name in self.columns}
        if self.unit.combine is not None:
            return pa.table({PERSON: ids, **_integers(self._combined(self.unit.combine), read)})
        values = {str(i): as_bytes(read[n]) if n in self.texts else _bits(read[n]) for i, n in enumerate(self.columns)}
        return pa.table({PERSON: ids, **values, RECORDS: np.ones(len(ids), dtype=np.int64)})

    def gathered(self, tables: Sequence[pa.Table]) -> tuple[pa.Table, ...]:
        """Return tables that are merged to one, or not yet: where that is too few rows to be worth it."""
        rows = [table.num_rows for table in tables]
        is_worth = sum(rows) >= WAITING * max(FEW, *rows)
        return (self.merged(tables),) if is_worth or _is_much(*tables) else tuple(tables)

    def merged(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Put together what is of the same person; raises SourceError for more than a worker may hold."""
        whole = one_piece(pa.concat_tables([self._empty(), *tables]))
        names = whole.column_names
        n_keys = 1 if self.unit.combine is not None else len(names) - 1
        grouped = whole.group_by(names[:n_keys], use_threads=False)
        made = one_piece(grouped.aggregate([(name, "sum") for name in names[n_keys:]]).rename_columns(names))
        if _is_much(made) and self.unit.combine is None:
            made = with_fewer(made, self._key)
        if _is_much(made):
            what = "different records of persons" if self.unit.combine is None else "persons"
            msg = (
                f"dataset.unit: more than {MOST_ROWS} {what}, or {MOST_BYTES} bytes of them, which one worker may not hold; "
                f"give more passes (dataset.unit.passes, {self.passes} now), each of which holds a part of the persons"
            )
            raise SourceError(msg)
        return made

    def total(self, tables: Sequence[pa.Table]) -> Total:
        """Return the sums over what counts of each person in the tables of all records, and how many records that is."""
        scratch, n_records = new_scratch(), 0
        sums = [(0,) * len(statistic.units) for statistic in self.statistics]
        for of_each, size in self._counted(tables[0] if len(tables) == 1 else self.merged(tables)):
            n_records += size
            for j, (statistic, columns) in enumerate(zip(self.statistics, of_each, strict=True)):
                sums[j] = tuple(map(add, sums[j], sum_batch(statistic, columns, scratch)))
        return Total(tuple(chain.from_iterable(sums)), n_records)

    @property
    def _key(self) -> int:
        return key_of(self.dataset, KEPT)

    def _empty(self) -> pa.Table:
        kinds = {name: pa.binary() if name in self.texts else pa.float64() for name in (self.unit.column or "", *self.columns)}
        return self.table({name: pa.array([], kind) for name, kind in kinds.items()})

    def _combined(self, how: Combine) -> tuple[Combined, ...]:
        """Return the different columns of combined records, in order."""
        return tuple(dict.fromkeys(one for statistic in self.statistics for one in combined(statistic, how)))

    def _counted(self, table: pa.Table) -> Iterator[tuple[list[Columns], int]]:
        """Yield the columns of the records that count, for each statistic, some at a time, and how many they are."""
        if self.unit.combine is not None:
            for start in range(0, table.num_rows, AT_ONCE):
                part = table.slice(start, AT_ONCE)
                made = _divided(self._combined(self.unit.combine), part)
                own = [combined(statistic, self.unit.combine) for statistic in self.statistics]
                yield [{one.column: made[one] for one in each} for each in own], part.num_rows
            return
        table = with_fewer(table, self._key).combine_chunks()
        for rows in kept_rows(table, self.unit.most, self._key):
            part = table.take(rows)
            arrays = {name: part[str(i)].combine_chunks() for i, name in enumerate(self.columns)}
            columns = {name: array if name in self.texts else array.view(pa.float64()) for name, array in arrays.items()}
            yield [columns] * len(self.statistics), len(rows)


def _floats(array: pa.Array) -> Floats:
    """Return numbers as float64, NaN for a null, and 0.0 for -0.0: what is equal in a sum is equal here."""
    values, valid = values_and_validity(array)
    known = ~np.isnan(values)
    if valid is not None:
        known &= valid
    return np.where(known, values + 0.0, np.nan)


def _bits(array: pa.Array) -> pa.Array:
    """Return the bits of numbers, which are keys of a table where floating point is none."""
    return pa.array(_floats(array).view(np.int64))


def _integers(of: Sequence[Combined], read: Columns) -> dict[str, NDArray[np.int64]]:
    """Return for each combined column what adds up: each record's integer, and 1 where it has a value."""
    made: dict[str, NDArray[np.int64]] = {}
    for i, one in enumerate(of):
        values = _floats(read[one.column])
        made[f"sum {i}"], made[f"count {i}"] = one.cells(values), (~np.isnan(values)).astype(np.int64)
    return made


def _divided(of: Sequence[Combined], part: pa.Table) -> dict[Combined, pa.Array]:
    """Return for each combined column the persons' values."""
    pairs = [(np.asarray(part[f"sum {i}"]), np.asarray(part[f"count {i}"])) for i in range(len(of))]
    return {one: pa.array(one.values(sums, counts)) for one, (sums, counts) in zip(of, pairs, strict=True)}


def _is_much(*tables: pa.Table) -> bool:
    """Tell whether tables are more than a worker may hold: their rows, or their numbers and texts in bytes."""
    rows, size = 0, 0
    for table in tables:
        texts = [name for name in table.column_names if table[name].type == pa.binary()]
        rows += table.num_rows
        size += 8 * table.num_rows * table.num_columns + sum(pc.sum(pc.binary_length(table[name])).as_py() or 0 for name in texts)
    return rows > MOST_ROWS or size > MOST_BYTES
