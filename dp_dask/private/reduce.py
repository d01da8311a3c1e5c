"""Reduce: records to one sealed total, a Dask task a split.

A task returns its sums sealed, or a failure as a value: an exception that crossed the cluster would carry
records to logs and to the client (CONTRIBUTING.md, rule 3). Tasks do not log, write or draw noise, because Dask
runs a task at least once; integer sums make a second run harmless and every order the same.

Clusters and persons span splits. Where clusters' bands are asked for, a split's task also gives sealed tables
(``private.keyed``), where persons are protected it gives theirs (``private.persons``). They stay on the workers: tasks merge
them two by two, and the last one makes sums of them. Only these reach the coordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from operator import add
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dp_dask.core.categories import CategoryCounts
from dp_dask.core.cluster_bands import ClusterBands
from dp_dask.core.grouped import GroupedSum
from dp_dask.core.sensitive import Sensitive, reveal
from dp_dask.core.statistic import Total
from dp_dask.core.unit import RECORD, UnitOfProtection
from dp_dask.errors import SourceError
from dp_dask.private.attempts import Failure, Place, attempt
from dp_dask.private.kernels import new_scratch
from dp_dask.private.keyed import Partial, add_batch, count_bands, merge_tables
from dp_dask.private.outcomes import outcomes
from dp_dask.private.persons import Persons
from dp_dask.private.sources import Look, Source, Split, here
from dp_dask.private.stopping import stop_where_closing
from dp_dask.private.sums import Summable, sum_batch
from dp_dask.private.tasks import Tasks

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["Failure", "Reducible", "collect_split", "columns_of", "persons_of", "reduce", "reduce_split"]

Reducible = Summable | ClusterBands
CLUSTERS = ("clusters", "ask for coarser clusters")  # what is merged, and what to do where it fails
PERSONS = ("persons", "more passes (dataset.unit.passes)")
Summed = Sensitive[Total] | Sensitive[Partial] | Sensitive[Total | Partial] | Failure


def reduce_split(source: Source, split: Split, statistics: Sequence[Reducible]) -> Summed:
    """Sum the statistics over one split, on a worker.

    Where bands of clusters are among them, the outcome is a ``Partial``, to be merged with those of the other splits.
    """
    return attempt(split.index, partial(_sum_split, source, split, statistics))


def _sum_split(source: Source, split: Split, statistics: Sequence[Reducible], place: Place) -> Total | Partial:
    total = Total((0,) * sum(len(statistic.units) for statistic in statistics), 0)
    tables: dict[ClusterBands, list[Any]] = {statistic: [] for statistic in _keyed(statistics)}
    for part in split.parts:
        place.name = part.path
        total += _sum_part(source, Split(split.index, (part,)), statistics, tables)
    if not tables:
        return total
    return Partial(total, tuple(merge_tables(statistic, found) for statistic, found in tables.items()))


def _sum_part(source: Source, split: Split, statistics: Sequence[Reducible], tables: Mapping[ClusterBands, list[Any]]) -> Total:
    scratch = new_scratch()
    columns, texts = columns_of(statistics)
    sums = [(0,) * len(statistic.units) for statistic in statistics]
    n_records = 0
    for batch in source.read(split, columns, texts):
        stop_where_closing()
        n_records += batch.n_records
        for keyed, found in tables.items():
            add_batch(found, keyed, batch.columns)
        for j, statistic in enumerate(statistics):
            if not isinstance(statistic, ClusterBands):
                sums[j] = tuple(map(add, sums[j], sum_batch(statistic, batch.columns, scratch)))
        del batch  # or its memory is held while the next is read, and both fall out of the cache
    return Total(tuple(chain.from_iterable(sums)), n_records)


def _keyed(statistics: Sequence[Reducible]) -> list[ClusterBands]:
    """Return the different statistics of clusters, in order."""
    return list(dict.fromkeys(statistic for statistic in statistics if isinstance(statistic, ClusterBands)))


def merge(statistics: Sequence[Reducible], first: Summed, second: Summed) -> Summed:
    """Merge what two parts of the records gave, on a worker; of two failures the first is kept."""
    return _on_open(CLUSTERS, partial(_merge_open, statistics), first, second)


def conclude(statistics: Sequence[Reducible], whole: Summed) -> Summed:
    """Make sums of what all records gave, on a worker."""
    return _on_open(CLUSTERS, partial(_conclude_open, statistics), whole)


def persons_of(statistics: Sequence[Any], unit: UnitOfProtection, dataset: str, passes: int) -> Persons:
    """Say what is to be summed of persons, in the first of so many passes."""
    columns = sorted({column for statistic in statistics for column in statistic.columns})
    return Persons(unit, tuple(statistics), tuple(columns), columns_of(statistics, unit)[1], dataset, passes)


def collect_split(source: Source, split: Split, persons: Persons) -> Sensitive[tuple[pa.Table, ...]] | Failure:
    """Make tables of persons of one split, on a worker."""
    return attempt(split.index, partial(_collect, source, split, persons))


def merge_persons(persons: Persons, first: Any, second: Any) -> Any:
    """Merge the tables of two parts of the records, on a worker; of two failures the first is kept."""
    return _on_open(PERSONS, lambda *tables: persons.gathered([*tables[0], *tables[1]]), first, second)


def conclude_persons(persons: Persons, whole: Any) -> Any:
    """Make sums of the table of all records, on a worker."""
    return _on_open(PERSONS, persons.total, whole)


def _collect(source: Source, split: Split, persons: Persons, place: Place) -> tuple[pa.Table, ...]:
    tables: tuple[pa.Table, ...] = ()
    columns, texts = columns_of(persons.statistics, persons.unit)
    for part in split.parts:
        place.name = part.path
        for batch in source.read(Split(split.index, (part,)), columns, texts):
            stop_where_closing()
            tables = persons.gathered([*tables, persons.table(batch.columns)])
    return (persons.merged(tables),)


def _on_open(told: tuple[str, str], work: Callable[..., Any], *outcomes: Any) -> Any:
    message = ""
    for outcome in outcomes:
        if isinstance(outcome, Failure):
            return outcome
    try:
        opened: list[Any] = [reveal(outcome) for outcome in outcomes]
        return Sensitive(work(*opened))
    except SourceError as error:
        message = str(error)
    except BaseException as error:  # noqa: BLE001  (as in ``attempt``)
        what, advice = told
        message = f"merging {what} failed with {type(error).__name__}; give the workers more memory, or {advice}"
    return Failure(None, message)


def _merge_open(statistics: Sequence[Reducible], first: Partial, second: Partial) -> Partial:
    pairs = zip(_keyed(statistics), first.tables, second.tables, strict=True)
    return Partial(first.total + second.total, tuple(merge_tables(statistic, (a, b)) for statistic, a, b in pairs))


def _conclude_open(statistics: Sequence[Reducible], whole: Partial) -> Total:
    tables = dict(zip(_keyed(statistics), whole.tables, strict=True))
    sums: list[int] = []
    for statistic in statistics:
        if isinstance(statistic, ClusterBands):
            sums += count_bands(statistic, tables[statistic])
        else:
            sums += whole.total.sums[len(sums) : len(sums) + len(statistic.units)]
    return Total(tuple(sums), whole.total.n_records)


def columns_of(statistics: Sequence[Reducible], unit: UnitOfProtection = RECORD) -> tuple[list[str], frozenset[str]]:
    """Return the columns that are read, of the statistics and of the persons, and which of them hold texts."""
    columns = {column for statistic in statistics for column in statistic.columns}
    listed = [s.by if isinstance(s, GroupedSum) else s for s in statistics]
    texts = {s.column for s in listed if isinstance(s, CategoryCounts) and s.is_text}
    if unit.column is not None:
        columns.add(unit.column)
        texts |= {unit.column} if unit.type == "text" else set()
    return sorted(columns), frozenset(texts.union(*(statistic.texts for statistic in _keyed(statistics))))


def reduce(
    client: Client,
    source: Source,
    statistics: Sequence[Reducible],
    *,
    progress: Callable[[int, int], None],
    stall_timeout: float,
    unit: UnitOfProtection = RECORD,
    dataset: str = "",
    passes: int = 1,
    look: Look = here,
) -> Sensitive[Total]:
    """Sum the statistics over all splits on the cluster; ``progress`` is told (splits done, splits).

    Where persons are protected the sums are over what counts of each, by a rule that takes its key from the public name
    ``dataset``, and ``passes`` over all splits are made, each for a part of the persons.

    Raises SourceError for the first split, in file order, that could not be read, and ClusterError where the
    cluster is lost or no split finishes for ``stall_timeout`` seconds. Nothing is charged by then.
    """
    each, splits = tuple(statistics), look(source.plan)
    if unit.is_person:
        return _reduce_persons(client, source, splits, persons_of(each, unit, dataset, passes), progress, stall_timeout)
    arguments = [(source, split, each) for split in splits]

    def submit(tasks: Tasks) -> None:
        if _keyed(each):
            tasks.submit_tree(reduce_split, arguments, partial(merge, each), partial(conclude, each))
        else:
            tasks.submit(reduce_split, arguments)

    return _run(client, submit, progress, stall_timeout)


def _reduce_persons(
    client: Client,
    source: Source,
    splits: Sequence[Split],
    persons: Persons,
    progress: Callable[[int, int], None],
    stall_timeout: float,
) -> Sensitive[Total]:
    totals = []
    for i, part in enumerate(persons.each_pass):
        arguments = [(source, split, part) for split in splits]
        tree = partial(_submit_tree, arguments, part)
        told = partial(_of_pass, progress, i, persons.passes)
        totals.append(_run(client, tree, told, stall_timeout))
    return Sensitive(sum((reveal(total) for total in totals[1:]), start=reveal(totals[0])))


def _submit_tree(arguments: list[tuple[Any, ...]], persons: Persons, tasks: Tasks) -> None:
    tasks.submit_tree(collect_split, arguments, partial(merge_persons, persons), partial(conclude_persons, persons))


def _of_pass(progress: Callable[[int, int], None], i: int, passes: int, done: int, of: int) -> None:
    progress(i * of + done, passes * of)


def _run(
    client: Client, submit: Callable[[Tasks], None], progress: Callable[[int, int], None], stall_timeout: float
) -> Sensitive[Total]:
    """Submit tasks, wait for them and add up what they give."""
    totals = [reveal(sealed) for sealed in outcomes(client, "reduce", submit, progress=progress, stall_timeout=stall_timeout)]
    return Sensitive(sum(totals[1:], start=totals[0]))
