"""The additive release: sealed sums to noisy sums, each statistic at its own epsilon or rho."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime

from dp_dask.core.grid import MAX_PRIVATE_RECORDS
from dp_dask.core.privacy import Unit
from dp_dask.core.release import Mechanism, Release, Request
from dp_dask.core.sensitive import Sensitive, reveal
from dp_dask.core.statistic import Total
from dp_dask.errors import SourceError
from dp_dask.gate.noise import Noise, gaussian_scale, laplace_scale

__all__ = ["release"]


def release(sealed: Sensitive[Total], requests: Sequence[Request], noise: Noise) -> list[Release]:
    """Add noise to every coordinate of every request's sums (and weighted count), once.

    Each request is private by the theorem of ``laplace_scale`` with the statistic's own ``sensitivity``, or of
    ``gaussian_scale`` with its ``squared_sensitivity``. The whole is (sum of the epsilons)-differentially private by basic
    composition, or zero-concentrated differentially private at the sum of all rho, where one is asked for: see ``Loss.priced``.
    The result must reach the ledger before anything else: see ``Ledger.commit``.

    Raises SourceError where n is public and the data have another number of records: n is the same
    for every neighbour, so the refusal tells nothing that epsilon protects.
    """
    refusal = _refusal(reveal(sealed).n_records, requests)
    if refusal:
        raise SourceError(refusal)  # while no local variable of this frame holds an open total: reporters keep them
    ends = list(itertools.accumulate((len(request.statistic.units) for request in requests), initial=0))
    if ends[-1] != len(reveal(sealed).sums):
        refusal = "the sums are not those of the requested statistics"
        raise ValueError(refusal)
    total = reveal(sealed)
    parts = itertools.pairwise(ends)
    return [
        _release_one(total.sums[start:end], total.n_records, request, noise)
        for (start, end), request in zip(parts, requests, strict=True)
    ]


def _refusal(n_records: int, requests: Sequence[Request]) -> str:
    for request in requests:
        if request.n is not None and n_records != request.n:
            return (
                f"privacy.n is {request.n}, but the data have another number of records; under replace n is public "
                "and must be exact: correct it, or use add_remove"
            )
    if n_records > MAX_PRIVATE_RECORDS:
        return f"more than {MAX_PRIVATE_RECORDS} records: beyond what the integer sums are proven for"
    return ""


def _release_one(values: tuple[int, ...], n_records: int, request: Request, noise: Noise) -> Release:
    statistic, loss = request.statistic, request.loss
    exact = list(values)
    if request.has_count:
        exact.append(statistic.count_weight * n_records)
    if loss.unit is Unit.RHO:
        mechanism: Mechanism = "discrete_gaussian"
        sensitivity = statistic.squared_sensitivity(request.neighbours)
        found = gaussian_scale(sensitivity, loss.amount)
        noisy = noise.add_discrete_gaussian(exact, found.scale)
    else:
        mechanism = "discrete_laplace"
        sensitivity = statistic.sensitivity(request.neighbours)
        found = laplace_scale(sensitivity, loss.amount)
        noisy = noise.add_discrete_laplace(exact, found.scale)
    return Release(
        id=uuid.uuid4().hex,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        request=request,
        mechanism=mechanism,
        sampler=noise.sampler,
        sensitivity=sensitivity,
        scale=found.scale,
        privacy_loss=found.privacy_loss,
        noisy_sums=tuple(noisy[: len(values)]),
        noisy_count=noisy[-1] if request.has_count else None,
    )
