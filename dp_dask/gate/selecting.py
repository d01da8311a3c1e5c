"""Selecting: candidate simulations are compared with the sealed records, and which were accepted is all that comes out.

All candidates are simulated and compared first, then answered in the order of their indices, whatever order they were simulated
in. So nothing that can be seen of a run before its commit, how long it takes among it, depends on an answer.
"""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.candidates import CandidateBatch
from dp_dask.core.distances import FAILED, FARTHEST
from dp_dask.core.of_sums import OfSums
from dp_dask.core.selected import Selection, SelectionRequest, mechanism_of
from dp_dask.core.selection import Accepted, SparseVector, TopC
from dp_dask.core.sensitive import Sensitive, reveal
from dp_dask.core.statistic import Total
from dp_dask.errors import DpDaskError, SourceError
from dp_dask.gate.noise import Noise, NoiseScale
from dp_dask.gate.records import refusal
from dp_dask.gate.select import select, selection_scale
from dp_dask.gate.sparse_vector import begin, check_distances, feed, outcome, scales

__all__ = ["Compare", "compare_sums", "noise_of", "run"]

T = TypeVar("T")
Ints = NDArray[np.int64]
Compare = Callable[[CandidateBatch], Sensitive[Ints]]
FARTHEST_SUM = 2**61  # all coordinates of a sum together: differences stay in int64


def noise_of(request: SelectionRequest) -> tuple[NoiseScale, ...]:
    """Find the noise that a request is answered with; raises ConfigError where no workable scale will do."""
    question = request.question
    return scales(question) if isinstance(question, SparseVector) else (selection_scale(question),)


def compare_sums(request: SelectionRequest, sealed: Sensitive[Total]) -> Compare:
    """Return the comparison of candidates' sums with the records' sealed ones.

    Sums are first moved into a public box, wide enough for n records, in which no difference overflows. That moves no two
    data sets apart in any coordinate, hence in no norm, and the distance's sensitivity holds.

    Raises SourceError where n is public and the data have another number of records, without telling it, and ValueError for a
    distance that is not of sums or a total of other sums.
    """
    distance = request.distance
    reason = refusal(reveal(sealed).n_records, [request.n])
    if reason:
        raise SourceError(reason)  # while no local variable of this frame holds an open total: reporters keep them
    if not isinstance(distance, OfSums) or len(reveal(sealed).sums) != len(distance.statistic.units):
        msg = "the sums are not those of the requested distance"
        raise ValueError(msg)
    edge = FARTHEST_SUM // len(distance.statistic.units)
    observed = Sensitive(np.array([min(max(value, -edge), edge) for value in reveal(sealed).sums], dtype=np.int64))

    def compare(batch: CandidateBatch) -> Sensitive[Ints]:
        return Sensitive(distance.between(np.clip(batch.data, -edge, edge), reveal(observed)))

    return compare


def run(
    request: SelectionRequest,
    batches: Iterable[CandidateBatch],
    compare: Compare,
    noise: Noise,
    *,
    deadline: float = float("inf"),
    clock: Callable[[], float] = time.monotonic,
    progress: Callable[[int], None] = lambda _: None,
) -> Selection:
    """Answer the request; what is returned must reach the ledger before anything is shown: see ``Ledger.commit``.

    All batches are simulated and compared before the first answer, also where a sparse vector will end early: else whoever
    watches or kills a run, or counts the batches that it kept, would learn of answers that were not charged. Where ``clock``
    reaches ``deadline`` after a batch no other is asked for: a sparse vector is one of fewer queries, a choice one among those
    that there are. How long it takes to compare is up to the records, and so would be how many batches come in time: with a
    deadline all are simulated, and held, before the first is compared. ``progress`` is told how many simulations were made,
    and nothing else. A candidate that failed is at an infinite distance whatever ``compare`` says.

    Private by the theorem of ``scales`` or ``selection_scale``. Raises ConfigError as ``noise_of`` does, DpDaskError where
    a comparison or the noise fails, and what ``batches`` raise. None of them carries an open distance or a noisy value.
    """
    found = noise_of(request)
    question = request.question
    told: list[NDArray[np.bool_]] = []
    blocks: list[Sensitive[Ints]] = []
    with closing(_in_order(request, batches, told, deadline, clock, progress)) as awaited:
        simulated = awaited if math.isinf(deadline) else list(awaited)
        blocks.extend(_checked(_guarded(partial(_compared, batch, compare))) for batch in simulated)
    if not told:
        msg = "no candidate was simulated; nothing was released or charged"
        raise DpDaskError(msg)
    accepted = _checked(_guarded(partial(_answer, question, blocks, noise)))
    return _checked(_selection(request, found, noise.sampler, accepted, np.concatenate(told)))


def _in_order(
    request: SelectionRequest,
    batches: Iterable[CandidateBatch],
    told: list[NDArray[np.bool_]],
    deadline: float,
    clock: Callable[[], float],
    progress: Callable[[int], None],
) -> Generator[CandidateBatch, None, None]:
    """Yield batches until the deadline, noting which of their candidates were simulated; ValueError where one is out of order."""
    done = 0
    awaited = iter(batches)
    try:
        for batch in awaited:
            if batch.first != done or done + len(batch.data) > request.n_simulations:
                msg = f"candidate {done} of {request.n_simulations} is next; {len(batch.data)} came from {batch.first} on"
                raise ValueError(msg)
            told.append(batch.is_whole)
            done += len(batch.data)
            progress(done)
            yield batch
            if clock() >= deadline:
                return
    finally:
        close = getattr(awaited, "close", None)
        if close is not None:
            close()


def _answer(question: SparseVector | TopC, blocks: Sequence[Sensitive[Ints]], noise: Noise) -> Sensitive[Accepted]:
    joined = Sensitive(np.concatenate([reveal(block) for block in blocks]))
    if isinstance(question, TopC):
        return Sensitive(Accepted(select(question, joined, noise), len(reveal(joined))))
    # At once: to draw noise takes seconds, and block by block it would end where the answers do.
    return Sensitive(outcome(feed(begin(question, noise), joined, noise)))


def _compared(batch: CandidateBatch, compare: Compare) -> Sensitive[Ints]:
    """Return a distance for each candidate of the batch, ``FAILED`` for those, and only those, that could not be simulated."""
    sealed = compare(batch)
    check_distances(sealed)
    if len(reveal(sealed)) != len(batch.data):
        msg = "there must be one distance for each candidate"
        raise ValueError(msg)
    return Sensitive(np.where(batch.is_whole, np.clip(reveal(sealed), -FARTHEST, FARTHEST), FAILED))


def _selection(
    request: SelectionRequest,
    found: tuple[NoiseScale, ...],
    sampler: str,
    accepted: Sensitive[Accepted],
    is_whole: NDArray[np.bool_],
) -> Selection | DpDaskError:
    return _guarded(
        lambda: Selection(
            id=uuid.uuid4().hex,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            request=request,
            mechanism=mechanism_of(request.question),
            sampler=sampler,
            scales=tuple(each.scale for each in found),
            privacy_losses=tuple(each.privacy_loss for each in found),
            accepted=reveal(accepted).indices,
            n_answered=reveal(accepted).n_answered,
            n_failed=int(np.sum(~is_whole[: reveal(accepted).n_answered])),
        )
    )


def _guarded(step: Callable[[], T]) -> T | DpDaskError:
    """Return what a step makes, or its failure without the frames that it passed: they hold open values."""
    kind = ""
    try:
        return step()
    except DpDaskError as error:  # its text says nothing of a record
        failure = error.with_traceback(None)
        failure.__cause__ = failure.__context__ = None
    except Exception as error:  # noqa: BLE001  (whatever it is, its text may quote a distance)
        kind = type(error).__name__
    if kind:
        failure = DpDaskError(
            f"candidates could not be compared with the records ({kind}); nothing was released or charged, run again"
        )
    return failure


def _checked(made: T | DpDaskError) -> T:
    if isinstance(made, DpDaskError):
        raise made
    return made
