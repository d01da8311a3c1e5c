"""Reduce: records to one sealed total, a Dask task a split.

A task returns its sums sealed, or a failure as a value: an exception that crossed the cluster would carry
records to logs and to the client (CONTRIBUTING.md, rule 3). Tasks do not log, write or draw noise, because Dask
runs a task at least once; integer sums make a second run harmless and every order the same.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from operator import add
from typing import TYPE_CHECKING, Any

from dp_dask.core.categories import CategoryCounts
from dp_dask.core.grouped import GroupedSum
from dp_dask.core.sensitive import Sensitive, reveal
from dp_dask.core.statistic import Total
from dp_dask.errors import ClusterError, SourceError
from dp_dask.private.attempts import Failure, Place, attempt
from dp_dask.private.kernels import new_scratch
from dp_dask.private.sources import Source, Split
from dp_dask.private.sums import Summable, sum_batch

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["Failure", "columns_of", "gather", "reduce", "reduce_split", "wait"]


def reduce_split(source: Source, split: Split, statistics: Sequence[Summable]) -> Sensitive[Total] | Failure:
    """Sum the statistics over one split, on a worker."""
    return attempt(split.index, partial(_sum_split, source, split, statistics))


def _sum_split(source: Source, split: Split, statistics: Sequence[Summable], place: Place) -> Total:
    total = Total((0,) * sum(len(statistic.units) for statistic in statistics), 0)
    for part in split.parts:
        place.name = part.path
        total += _sum_part(source, Split(split.index, (part,)), statistics)
    return total


def _sum_part(source: Source, split: Split, statistics: Sequence[Summable]) -> Total:
    scratch = new_scratch()
    columns, texts = columns_of(statistics)
    sums = [(0,) * len(statistic.units) for statistic in statistics]
    n_records = 0
    for batch in source.read(split, columns, texts):
        n_records += batch.n_records
        for j, statistic in enumerate(statistics):
            sums[j] = tuple(map(add, sums[j], sum_batch(statistic, batch.columns, scratch)))
        del batch  # or its memory is held while the next is read, and both fall out of the cache
    return Total(tuple(chain.from_iterable(sums)), n_records)


def columns_of(statistics: Sequence[Summable]) -> tuple[list[str], frozenset[str]]:
    """Return the columns that the statistics read, and which of them hold texts."""
    columns = {column for statistic in statistics for column in statistic.columns}
    listed = [s.by if isinstance(s, GroupedSum) else s for s in statistics]
    texts = {s.column for s in listed if isinstance(s, CategoryCounts) and s.is_text}
    return sorted(columns), frozenset(texts)


def reduce(
    client: Client,
    source: Source,
    statistics: Sequence[Summable],
    *,
    progress: Callable[[int, int], None],
    stall_timeout: float,
) -> Sensitive[Total]:
    """Sum the statistics over all splits on the cluster; ``progress`` is told (splits done, splits).

    Raises SourceError for the first split, in file order, that could not be read, and ClusterError where the
    cluster is lost or no split finishes for ``stall_timeout`` seconds. Nothing is charged by then.
    """
    splits = source.plan()
    run = uuid.uuid4().hex  # explicit keys: Dask's own would be digests of the arguments
    futures = [
        client.submit(reduce_split, source, split, tuple(statistics), key=f"dp-reduce-{run}-{split.index}", retries=2)
        for split in splits
    ]
    try:
        wait(futures, progress, stall_timeout)
        outcomes = gather(client, futures)
    finally:
        with suppress(Exception):  # a lost cluster has nothing to cancel, and must not hide what was raised
            client.cancel(futures, force=True)
    failures = [outcome for outcome in outcomes if isinstance(outcome, Failure)]
    if failures:
        raise SourceError(failures[0].message)
    totals = [reveal(outcome) for outcome in outcomes]
    return Sensitive(sum(totals[1:], start=totals[0]))


def wait(futures: list[Future], progress: Callable[[int, int], None], stall_timeout: float) -> None:
    """Return when all futures have ended, however they ended."""
    changed = threading.Condition()
    done = 0

    def count(_: Any) -> None:
        nonlocal done
        with changed:
            done += 1
            changed.notify_all()

    for future in futures:
        future.add_done_callback(count)
    with changed:
        while done < len(futures):
            progress(done, len(futures))
            if not changed.wait(stall_timeout):
                msg = (
                    f"no split finished for {stall_timeout:g} s ({done} of {len(futures)} done); "
                    "look at the workers, or raise cluster.stall_timeout"
                )
                raise ClusterError(msg)
    progress(len(futures), len(futures))


def gather(client: Client, futures: list[Future]) -> list[Any]:
    """Fetch the outcomes; a task that died, and so could not return a failure, is the cluster's fault."""
    kind = ""
    try:
        return list(client.gather(futures))
    except Exception as error:  # noqa: BLE001  (its text may name keys and addresses, never needed here)
        kind = type(error).__name__
    msg = f"the cluster lost tasks ({kind}); nothing was released or charged, run again"
    raise ClusterError(msg)
