"""Outcomes: tasks submitted, waited for and fetched; what they give is sealed, and their failures are values."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from dp_dask.core.sensitive import Sensitive
from dp_dask.errors import ClusterError, SourceError
from dp_dask.private.attempts import Failure
from dp_dask.private.tasks import Tasks

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["outcomes"]


def outcomes(
    client: Client,
    name: str,
    submit: Callable[[Tasks], None],
    *,
    stall_timeout: float,
    progress: Callable[[int, int], None] = lambda _done, _of: None,
) -> list[Sensitive[Any]]:
    """Run what ``submit`` submits and return what the tasks made, in order, sealed as they sealed it.

    Raises SourceError for the first task, in order, that could not do its work, and ClusterError where the cluster is lost or no
    task ends for ``stall_timeout`` seconds.
    """
    tasks = Tasks(client, f"dp-{name}-{uuid.uuid4().hex}")  # explicit keys: Dask's own would be digests of the arguments
    try:
        submit(tasks)
        tasks.wait(progress, stall_timeout)
        found = _gather(client, tasks.results)
    finally:
        with suppress(Exception):  # a lost cluster has nothing to cancel, and must not hide what was raised
            tasks.cancel()
    failures = [outcome for outcome in found if isinstance(outcome, Failure)]
    if failures:
        raise SourceError(failures[0].message)
    return found


def _gather(client: Client, futures: list[Future]) -> list[Any]:
    """Fetch the outcomes; a task that died, and so could not return a failure, is the cluster's fault."""
    kind = ""
    try:
        return list(client.gather(futures))
    except Exception as error:  # noqa: BLE001  (its text may name keys and addresses, never needed here)
        kind = type(error).__name__
    msg = f"the cluster lost tasks ({kind}); nothing was released or charged, run again"
    raise ClusterError(msg)
