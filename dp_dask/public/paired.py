"""Paired: a design's simulated posterior widths, and their ratio to another design's on the same simulated records."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_dask.public.observe import ModelObservation
from dp_dask.public.simulation import replicate_widths

__all__ = ["PairedWidths", "compare", "simulate_widths", "widths_like"]

Floats = NDArray[np.float64]
RESAMPLES = 400  # of a bootstrap: its standard error is then itself known to 4 %


@dataclass(frozen=True, slots=True, eq=False)
class PairedWidths:
    """Widths [replicate, parameter] of posteriors from the release, and from the records (NaN where there is no way to them).

    With ``has_sd`` a width is a posterior sd and the average a mean, else half a central 68 % interval and a median.
    """

    private: Floats
    exact: Floats
    has_sd: bool

    def __len__(self) -> int:
        return len(self.private)

    def average(self, widths: Floats) -> Floats:
        """Average over the last axis but one."""
        made: Floats = (np.mean if self.has_sd else np.median)(widths, axis=-2)
        return made


def simulate_widths(
    seed: Sequence[int], like: ModelObservation, prior: Any, count: int, done: PairedWidths | None = None
) -> PairedWidths:
    """Simulate replicates up to number ``count``, in addition to those that are done.

    Replicate i has its own generator, of the seed and i alone: designs of one model and n are tried on the same records.
    """
    has_sd = bool(np.isfinite(prior.sd).all())
    start = 0 if done is None else len(done)
    made = [replicate_widths(np.random.default_rng([*seed, i]), like, prior, has_sd=has_sd) for i in range(start, count)]
    if not made:
        return done if done is not None else PairedWidths(np.empty((0, 1)), np.empty((0, 1)), has_sd)
    private, exact = np.array(made).swapaxes(0, 1)
    if done is not None:
        private, exact = np.concatenate([done.private, private]), np.concatenate([done.exact, exact])
    return PairedWidths(private, exact, has_sd)


def compare(one: PairedWidths, other: PairedWidths) -> tuple[float, float]:
    """Return the ratio of one design's average width to another's, and its Monte Carlo standard error.

    Of several parameters the geometric mean. Over the replicates that both have, pair by pair; the error is that of a bootstrap
    of pairs, with n / (n - 1) for its too small variance (Efron & Tibshirani 1993, section 6).
    """
    n = min(len(one), len(other))
    a, b = one.private[:n], other.private[:n]

    def log_ratio(rows: NDArray[np.int64]) -> Floats:
        made: Floats = (np.log(one.average(a[rows])) - np.log(one.average(b[rows]))).mean(axis=-1)
        return made

    ratio = math.exp(float(log_ratio(np.arange(n))))
    resampled = log_ratio(np.random.default_rng(0).integers(n, size=(RESAMPLES, n)))
    return ratio, ratio * float(resampled.std()) * math.sqrt(n / (n - 1))


def widths_like(one: PairedWidths, whole: PairedWidths) -> Floats:
    """Return a design's average widths [p], scaled from the replicates that it shares with one that has more of them."""
    n = min(len(one), len(whole))
    made: Floats = whole.average(whole.private) * one.average(one.private[:n]) / one.average(whole.private[:n])
    return made
