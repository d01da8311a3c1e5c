"""Spread: where the independent batches of a simulation run: here, one after the other, unless the caller says otherwise.

A batch is a function of its own arguments, its seed among them, so that where it runs changes nothing but the time.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from contextvars import ContextVar
from typing import Any

__all__ = ["Mapper", "iterated", "spread", "spread_by", "stream", "watched"]

Mapper = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]  # results in the order of the items, as ``map`` gives

_mapper: ContextVar[Mapper] = ContextVar("mapper", default=map)


def spread(function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """Return function(item) for every item, in order."""
    return list(_mapper.get()(function, items))


def stream(function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
    """Yield function(item) for every item, in order, as the map that is in force gives them; to close it ends that map too."""
    results = iter(_mapper.get()(function, items))
    try:
        yield from results
    finally:
        close = getattr(results, "close", None)
        if close is not None:
            close()


@contextmanager
def spread_by(mapper: Mapper) -> Iterator[None]:
    """Send all batches that are spread inside the block through another map."""
    token = _mapper.set(mapper)
    try:
        yield
    finally:
        _mapper.reset(token)


def watched(mapper: Mapper, progress: Callable[[int], None]) -> Mapper:
    """Give a map that tells, after each batch, how many simulations have come through it in all: the sum of ``item.size``.

    Around a map that reads stored batches these count too; inside it they do not. An item without a size counts for one.
    """
    done = 0

    def through(function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        nonlocal done
        with closing(iterated(mapper, function, items)) as results:
            for item, result in zip(items, results, strict=True):
                done += getattr(item, "size", 1)
                progress(done)
                yield result

    return through


def iterated(mapper: Mapper, function: Callable[[Any], Any], items: Sequence[Any]) -> Generator[Any]:
    """Yield a map's results; it does not begin before the first is asked for, and ends when this is closed."""
    yield from mapper(function, items)
