"""The additive release: sealed sums to noisy sums, each statistic at its own epsilon or rho."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from dp_dask.core.privacy import Unit
from dp_dask.core.release import Mechanism, Release, Request
from dp_dask.core.sensitive import Sensitive, reveal
from dp_dask.core.statistic import Total
from dp_dask.errors import DpDaskError, SourceError
from dp_dask.gate.noise import Noise, NoiseScale, gaussian_scale, laplace_scale
from dp_dask.gate.records import refusal

__all__ = ["Draw", "noise_of", "release"]


@dataclass(frozen=True, slots=True)
class Draw:
    """The noise that a request is released with, known before any record is."""

    request: Request
    mechanism: Mechanism
    sensitivity: int  # as ``Release`` has it
    found: NoiseScale


def release(sealed: Sensitive[Total], requests: Sequence[Request], noise: Noise) -> list[Release]:
    """Add noise to every coordinate of every request's sums (and weighted count), once.

    Each request is private for its unit by the theorem of ``laplace_scale`` with its ``sensitivity``, or of ``gaussian_scale``
    with its ``squared_sensitivity``: the statistic's own, and of persons what ``UnitOfProtection`` proves. The whole is
    (sum of the epsilons)-differentially private by basic composition, or zero-concentrated differentially private at the sum of
    all rho, where one is asked for: see ``Loss.priced``. The result must reach the ledger before anything else: see
    ``Ledger.commit``.

    Raises SourceError where n is public and the data have another number of records: n is the same
    for every neighbour, so the refusal tells nothing that epsilon protects. Raises ConfigError as ``noise_of`` does, and
    DpDaskError where the noise itself fails. None of them carries an open total.
    """
    draws = [noise_of(request) for request in requests]
    reason = refusal(reveal(sealed).n_records, (request.n for request in requests))
    if reason:
        raise SourceError(reason)  # while no local variable of this frame holds an open total: reporters keep them
    if sum(len(request.statistic.units) for request in requests) != len(reveal(sealed).sums):
        reason = "the sums are not those of the requested statistics"
        raise ValueError(reason)
    made = _release_all(reveal(sealed), draws, noise)
    if isinstance(made, str):
        msg = f"noise could not be added ({made}); nothing was released or charged, run again"
        raise DpDaskError(msg)
    return made


def noise_of(request: Request) -> Draw:
    """Find the noise that a request is released with; raises ConfigError where no scale below 2^57 grid units will do."""
    loss = request.loss
    if loss.unit is Unit.RHO:
        squared = request.squared_sensitivity
        return Draw(request, "discrete_gaussian", squared, gaussian_scale(squared, loss.amount))
    return Draw(request, "discrete_laplace", request.sensitivity, laplace_scale(request.sensitivity, loss.amount))


def _release_all(total: Total, draws: Sequence[Draw], noise: Noise) -> list[Release] | str:
    """Return the releases, or the kind of failure: its exception, whose frames hold open sums, ends here."""
    try:
        ends = itertools.accumulate((len(draw.request.statistic.units) for draw in draws), initial=0)
        return [
            _release_one(total.sums[start:end], total.n_records, draw, noise)
            for (start, end), draw in zip(itertools.pairwise(ends), draws, strict=True)
        ]
    except Exception as error:  # noqa: BLE001  (whatever it is, its text may quote a sum)
        kind = type(error).__name__
    return kind


def _release_one(values: tuple[int, ...], n_records: int, draw: Draw, noise: Noise) -> Release:
    request, scale = draw.request, draw.found.scale
    exact = list(values)
    if request.has_count:
        exact.append(request.statistic.count_weight * n_records)
    add = noise.add_discrete_gaussian if draw.mechanism == "discrete_gaussian" else noise.add_discrete_laplace
    noisy = add(exact, scale)
    return Release(
        id=uuid.uuid4().hex,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        request=request,
        mechanism=draw.mechanism,
        sampler=noise.sampler,
        sensitivity=draw.sensitivity,
        scale=scale,
        privacy_loss=draw.found.privacy_loss,
        noisy_sums=tuple(noisy[: len(values)]),
        noisy_count=noisy[-1] if request.has_count else None,
    )
