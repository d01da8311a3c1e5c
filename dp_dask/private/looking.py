"""Looking: at a source's names, columns and state, from where its records are: here, or in a task where the driver has no way."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from dp_dask.core.sensitive import Sensitive, reveal
from dp_dask.private.attempts import Failure, Place, attempt
from dp_dask.private.outcomes import outcomes

if TYPE_CHECKING:
    from distributed import Client

    from dp_dask.private.sources import Look

__all__ = ["from_worker"]

T = TypeVar("T")


def from_worker(client: Client, stall_timeout: float) -> Look:
    """Return what does a source's work in a task of its own and gives what it gives; raises SourceError and ClusterError."""

    def look(work: Callable[[], T], /) -> T:
        [found] = outcomes(client, "look", lambda tasks: tasks.submit(look_at, [(work,)]), stall_timeout=stall_timeout)
        seen: T = reveal(found)
        return seen

    return look


def look_at(work: Callable[[], T]) -> Sensitive[T] | Failure:
    """Do the work on a worker, and seal what it gives: what tells the state of the data is private."""
    return attempt(0, partial(_look, work))


def _look(work: Callable[[], T], place: Place) -> T:
    place.name = "the source, seen from a worker"
    return work()
