"""Stopping: a task that reads on while its worker closes is waited for, up to half a minute, and nobody wants what it finds."""

from __future__ import annotations

import sys

__all__ = ["is_given_back", "stop_where_closing"]


def stop_where_closing() -> None:
    """Give the task back where the worker that runs it is closing: raises Dask's Reschedule, which carries nothing."""
    distributed = sys.modules.get("distributed")  # where it was never imported there are no workers
    if distributed is None:
        return
    try:
        status = distributed.get_worker().status
    except ValueError:  # called outside of a task
        return
    if status in {distributed.Status.closing, distributed.Status.closed, distributed.Status.failed}:
        raise distributed.Reschedule


def is_given_back(error: BaseException) -> bool:
    """Tell whether an exception is one that is for Dask itself."""
    distributed = sys.modules.get("distributed")
    return distributed is not None and isinstance(error, distributed.Reschedule)
