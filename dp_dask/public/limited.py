"""Limited simulation: an end to all that is spread inside a block, by number or by the clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

from dp_dask.errors import LimitError
from dp_dask.public.spread import Mapper, iterated

__all__ = ["limited"]


def limited(
    mapper: Mapper,
    *,
    most_simulations: int | None = None,
    deadline: float | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Mapper:
    """Give a map that raises LimitError where its batches would make more simulations than so many, or the clock is past a time.

    Items count as in ``watched``, all items of a call before it begins, so that the end by number is the same on any machine;
    around a map that reads stored batches a run made again ends where the first did. ``deadline`` is a time of ``clock``, in
    seconds, looked at before each result is waited for: batches that run then are given up, and what is stored stays.
    """
    done = 0

    def through(function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        nonlocal done
        wanted = sum(getattr(item, "size", 1) for item in items)
        if most_simulations is not None and done + wanted > most_simulations:
            msg = f"{wanted} more simulations would make {done + wanted}, and the limit is {most_simulations}: raise it for more"
            raise LimitError(msg)
        with closing(iterated(mapper, function, items)) as results:
            for item in items:
                if deadline is not None and clock() >= deadline:
                    msg = (
                        f"the time for simulations was over after {done} of them: give more for more; "
                        "how many that are, and so the result, depends on the machine"
                    )
                    raise LimitError(msg)
                result = next(results)
                done += getattr(item, "size", 1)
                yield result

    return through
