"""Beside: distances of simulated data sets from the records themselves, record by record, in one task beside the data.

The records are read anew for every batch: a worker that kept them might spill them to its disk. A task returns sealed distances,
or a failure as a value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.candidates import CandidateBatch
from dp_dask.core.public_n import wrong_n
from dp_dask.core.recordwise import Recordwise
from dp_dask.core.sensitive import Sensitive
from dp_dask.errors import SourceError
from dp_dask.private.arrow import values_and_validity
from dp_dask.private.attempts import Failure, Place, attempt
from dp_dask.private.listing import partition_keys
from dp_dask.private.outcomes import outcomes
from dp_dask.private.sources import Look, Source, Split, here
from dp_dask.private.stopping import stop_where_closing

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["MOST_NUMBERS", "compare_beside", "compare_records"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
MOST_NUMBERS = 2**22  # of the records' columns that one task holds


def compare_records(
    source: Source, splits: Sequence[Split], distance: Recordwise, simulated: Floats
) -> Sensitive[Ints] | Failure:
    """Return the sealed distances [B] of simulated data sets [B, n, column] from the records, on a worker."""
    return attempt(0, partial(_between, source, splits, distance, simulated))


def compare_beside(
    client: Client, source: Source, distance: Recordwise, *, stall_timeout: float, look: Look = here
) -> Callable[[CandidateBatch], Sensitive[Ints]]:
    """Return the comparison of candidates with the records, a task for each batch.

    Raises SourceError at once where the columns are not there, hold more than 2^22 numbers, or come from a source in which a
    record's values can move others to other places: there one record would change every distance. The comparison raises
    SourceError where the records cannot be read or are not n, without telling how many, and ClusterError where the cluster is
    lost or the task takes ``stall_timeout`` seconds. Nothing is charged by then.
    """
    numbers = distance.n * len(distance.columns)
    if numbers > MOST_NUMBERS:
        msg = (
            f"{distance.n} records of {len(distance.columns)} columns are {numbers} numbers; a distance record by record takes "
            f"{MOST_NUMBERS} at most: use a distance of sums, such as means or mmd"
        )
        raise SourceError(msg)
    if not source.keeps_places:
        msg = (
            "in this source a record that cannot be read moves those after it to other places, and a distance record by record "
            "would have no bound: use a distance of sums, or Parquet files"
        )
        raise SourceError(msg)
    splits = look(source.plan)
    keyed = sorted({part.path for split in splits for part in split.parts if partition_keys(part.path)})
    if keyed:
        msg = (
            f"{keyed[0]}: its folder is chosen by a record's values, so that one record may move others to other places, and a "
            "distance record by record would have no bound: use a distance of sums, or files without partition keys"
        )
        raise SourceError(msg)
    look(partial(source.check, list(distance.columns)))

    def compare(batch: CandidateBatch) -> Sensitive[Ints]:
        arguments = [(source, splits, distance, batch.data)]
        [found] = outcomes(client, "compare", lambda tasks: tasks.submit(compare_records, arguments), stall_timeout=stall_timeout)
        return found

    return compare


def _between(source: Source, splits: Sequence[Split], distance: Recordwise, simulated: Floats, place: Place) -> Ints:
    records = np.full((distance.n, len(distance.columns)), np.nan)
    done = 0
    for split in splits:
        for part in split.parts:
            place.name = part.path
            for batch in source.read(Split(split.index, (part,)), list(distance.columns)):
                stop_where_closing()
                end = done + batch.n_records
                if end > distance.n:
                    raise SourceError(wrong_n(distance.n))
                for j, column in enumerate(distance.columns):
                    values, valid = values_and_validity(batch.columns[column])
                    records[done:end, j] = values if valid is None else np.where(valid, values, np.nan)
                done = end
    if done != distance.n:
        raise SourceError(wrong_n(distance.n))
    return distance.between(simulated, records)
