"""Tasks: one a split on the cluster, their results fetched or merged there two by two, and the wait for all of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from dp_dask.errors import ClusterError

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["Tasks"]

RETRIES = 2
AT_ONCE = 1000  # tasks of a message
CANCELLED = 50  # likewise: for each of a message's tasks the scheduler goes through all of them


class Tasks:
    """Tasks that count themselves as they end, and of which the workers forget what was merged; ``results`` are to be fetched."""

    def __init__(self, client: Client, prefix: str) -> None:
        self.results: list[Future] = []
        self._client, self._prefix = client, prefix
        self._unused: dict[str, Future] = {}  # the tasks that are no input of another, by key
        self._inputs: dict[str, tuple[Future, ...]] = {}  # of the tasks that have not ended
        self._splits: set[str] = set()
        self._changed = threading.Condition()
        self._submitted = self._ended = self._read = 0

    def submit(self, function: Callable[..., Any], arguments: Iterable[tuple[Any, ...]]) -> None:
        """Submit a task a split, whose results are fetched.

        Many go in one message, in which what their arguments share is written once: a task for itself takes three times the bytes
        and, of the scheduler, twice the time.
        """
        columns = list(zip(*arguments, strict=True))
        keys = [f"{self._prefix}-{i}" for i in range(len(columns[0]))]
        self._splits.update(keys)
        for start in range(0, len(keys), AT_ONCE):
            parts = [column[start : start + AT_ONCE] for column in columns]
            named = keys[start : start + AT_ONCE]
            made = self._client.map(function, *parts, key=named, retries=RETRIES, pure=False)  # else each argument is hashed
            self.results += [self._noted(future, ()) for future in made]

    def submit_tree(
        self,
        function: Callable[..., Any],
        arguments: Iterable[tuple[Any, ...]],
        merge: Callable[[Any, Any], Any],
        conclude: Callable[[Any], Any],
    ) -> None:
        """Submit a task a split, tasks that merge their results in order, and one to conclude, whose result alone is fetched.

        Each merge is submitted right after what it merges. It then runs before later splits, so that few results wait at a time.
        """
        waiting: list[tuple[int, Future]] = []  # results of 2^level splits each, levels descending
        n_merges = 0
        for i, each in enumerate(arguments):
            waiting.append((0, self._split(i, function, each)))
            while len(waiting) > 1 and waiting[-1][0] == waiting[-2][0]:
                (level, first), (_, second) = waiting[-2:]
                waiting[-2:] = [(level + 1, self._merge(f"merge-{n_merges}", merge, first, second))]
                n_merges += 1
        futures = [future for _, future in waiting]
        while len(futures) > 1:
            futures[-2:] = [self._merge(f"merge-{n_merges}", merge, *futures[-2:])]
            n_merges += 1
        self.results.append(self._merge("sums", conclude, *futures))

    def wait(self, progress: Callable[[int, int], None], stall_timeout: float) -> None:
        """Return when all tasks have ended, however they ended; ``progress`` is told (splits done, splits).

        Raises ClusterError where no task ends for ``stall_timeout`` seconds.
        """
        of = len(self._splits)
        with self._changed:
            while self._ended < self._submitted:
                progress(self._read, of)
                if not self._changed.wait(stall_timeout):
                    msg = (
                        f"no split finished for {stall_timeout:g} s ({self._read} of {of} done); "
                        "look at the workers, or raise cluster.stall_timeout"
                    )
                    raise ClusterError(msg)
        progress(of, of)

    def cancel(self) -> None:
        """Cancel what has not ended and release what has."""
        with self._changed:
            held = list(self._unused.values())
            while self._inputs:  # whose callbacks then release nothing: the scheduler must still know what it is to cancel
                held += self._inputs.popitem()[1]
        for start in range(0, len(held), CANCELLED):
            self._client.cancel(held[start : start + CANCELLED], force=True)

    def _split(self, i: int, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Future:
        self._splits.add(f"{self._prefix}-{i}")
        return self._submit(str(i), function, arguments, ())

    def _merge(self, name: str, function: Callable[..., Any], *inputs: Future) -> Future:
        future = self._submit(name, function, inputs, inputs)
        for each in inputs:
            del self._unused[each.key]
        return future

    def _submit(self, name: str, function: Callable[..., Any], arguments: tuple[Any, ...], inputs: tuple[Future, ...]) -> Future:
        key = f"{self._prefix}-{name}"
        return self._noted(self._client.submit(function, *arguments, key=key, retries=RETRIES), inputs)

    def _noted(self, future: Future, inputs: tuple[Future, ...]) -> Future:
        self._unused[future.key], self._inputs[future.key] = future, inputs
        self._submitted += 1
        future.add_done_callback(self._end)
        return future

    def _end(self, future: Future) -> None:
        with self._changed:
            self._ended += 1
            self._read += future.key in self._splits
            self._release_inputs(future.key)
            self._changed.notify_all()

    def _release_inputs(self, key: str) -> None:
        for future in self._inputs.pop(key, ()):
            self._release_inputs(future.key)  # first: a scheduler that cancels a task expects what it is for to be wanted
            future.release()
