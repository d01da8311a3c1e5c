"""Fan out: simulated batches over a cluster's workers, results in order.

These tasks are of the simulation zone: they get a model, a prior, a noisy release and a seed, and never a record.
"""

from __future__ import annotations

import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from dp_dask.clusters import Cluster
from dp_dask.errors import ClusterError, InferenceError
from dp_dask.public.spread import Mapper

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["on_client", "over"]

FEWEST = 8  # batches: fewer take less time than a cluster to start
AHEAD = 2  # batches for each thread that may wait or run at once: results and arguments are held for no more
FETCH = 5.0  # seconds for which a result's first transfer is waited for; Dask itself seeks a dead worker for minutes
CUT = "Long error message"  # what Dask puts first where it has cut a text, which follows


@contextmanager
def over(cluster: Cluster) -> Iterator[Mapper]:
    """Give a map that runs on the cluster, which is started once there are enough batches to repay it, and left at the end."""
    with ExitStack() as stack:
        clients: list[Client] = []

        def mapper(function: Callable[[Any], Any], items: Sequence[Any]) -> Iterable[Any]:
            if len(items) < FEWEST:
                return map(function, items)
            if not clients:
                clients.append(stack.enter_context(cluster.client()))
            return on_client(clients[0], function, items, stall_timeout=cluster.stall_timeout)

        yield mapper


def on_client(client: Client, function: Callable[[Any], Any], items: Sequence[Any], *, stall_timeout: float) -> Iterator[Any]:
    """Yield function(item) in the order of the items; a batch whose worker died is run again, with the same seed.

    However it ends, no task stays on the cluster. Raises ClusterError where the cluster is lost or no batch ends for
    ``stall_timeout`` seconds, and what the function itself raises.
    """
    run = uuid.uuid4().hex
    window = max(AHEAD * sum(client.nthreads().values()), AHEAD)
    pending: deque[Future] = deque()
    try:
        for i, item in enumerate(items):
            if len(pending) == window:
                yield _result(pending[0], stall_timeout)
                pending.popleft()
            pending.append(client.submit(function, item, key=f"dp-simulate-{run}-{i}", retries=2))
        while pending:
            yield _result(pending[0], stall_timeout)
            pending.popleft()
    finally:
        with suppress(Exception):  # a lost cluster has nothing to cancel, and must not hide what was raised
            client.cancel(list(pending), force=True)


def _result(future: Future, stall_timeout: float) -> Any:
    """Wait for one result; what befalls the cluster is told apart from what the function raises."""
    from distributed import CancelledError, KilledWorker  # noqa: PLC0415  (heavy: not for --help)
    from distributed.comm import CommClosedError  # noqa: PLC0415

    ended = threading.Event()
    future.add_done_callback(lambda _: ended.set())  # Dask's own wait asks its default client, which a joined one is not
    kind = cut = ""
    try:
        if ended.wait(stall_timeout):
            return _fetch(future, stall_timeout)
        kind = TimeoutError.__name__
    except InferenceError as error:
        if error.args[0] != CUT:
            raise
        cut = f"{error.args[1]}.."
    except (CancelledError, KilledWorker, CommClosedError, TimeoutError) as error:
        kind = type(error).__name__
    if cut:
        raise InferenceError(cut)
    msg = f"the cluster lost simulations ({kind}); releases made before are kept and not charged again: run again"
    raise ClusterError(msg)


def _fetch(future: Future, stall_timeout: float) -> Any:
    """Fetch a result, asking anew where no answer comes: one sought at a worker that just died is elsewhere by then."""
    patience = FETCH
    while patience < stall_timeout:
        with suppress(TimeoutError):
            return future.result(timeout=patience)
        patience *= 2
    return future.result(timeout=stall_timeout)
