"""Laws of sums of counts: add two, and split a sum's value back into its two terms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from scipy import fft

from dp_dask.errors import InferenceError

__all__ = ["TRIM", "Table", "add", "convolve", "split"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
TRIM = 1e-15  # of a sum's law, cut from each tail
DIRECT = 256  # entries: a shorter table is convolved directly
ROUNDS = 12  # of rejection, before the stubborn rest is drawn by inversion
PER_PROPOSAL = 128  # table entries that take as long as one proposal
CHUNK = 2**18  # table entries worked on at a time


@dataclass(frozen=True, slots=True)
class Table:
    """The law of a count: ``low + i`` has the probability ``weights[i]``."""

    low: int
    weights: Floats

    def __len__(self) -> int:
        return len(self.weights)


def add(a: Table, b: Table, n: int) -> Table:
    """Return the law of the sum of two independent counts, given that it is at most n, less 1e-15 in each tail."""
    low = a.low + b.low
    weights = convolve(a.weights, b.weights)[: max(n - low, 0) + 1]
    least = TRIM * weights.sum()
    first = int(np.searchsorted(np.cumsum(weights), least, side="right"))
    last = len(weights) - int(np.searchsorted(np.cumsum(weights[::-1]), least, side="right"))
    kept = weights[first:last]
    return Table(low + first, kept / kept.sum()) if len(kept) else Table(low, np.zeros(1))


def convolve(a: Floats, b: Floats) -> Floats:
    """Convolve two tables of non-negative weights; directly, every entry to full precision, unless both are long."""
    if min(len(a), len(b)) < DIRECT:
        return np.convolve(a, b)
    size = len(a) + len(b) - 1
    length = fft.next_fast_len(size, real=True)
    return np.maximum(fft.irfft(fft.rfft(a, length) * fft.rfft(b, length), length)[:size], 0)


def split(rng: np.random.Generator, a: Table, b: Table, totals: Ints) -> Ints:
    """Draw for each total T, independently, the count j of a: its probability is proportional to a(j) b(T - j).

    Small tables of a(j) b(T - j) are inverted. Where they are large, j is proposed from the narrower law and accepted with
    probability b(T - j) / max b, and only totals that go on being refused are drawn by inversion.
    """
    if len(a) > len(b):
        return totals - split(rng, b, a, totals)
    counts = np.empty_like(totals)
    rest = np.arange(len(totals))
    cdf, peak = np.cumsum(a.weights), b.weights.max()
    for _ in range(ROUNDS):
        rows = min(len(rest), int(np.ptp(totals[rest])) + 1) if len(rest) else 0
        if rows * len(a) <= max(PER_PROPOSAL * len(rest), CHUNK // 4):
            break
        j = np.searchsorted(cdf[:-1], rng.random(len(rest)) * cdf[-1], side="right")
        other = totals[rest] - a.low - j - b.low
        chance = np.where((other >= 0) & (other < len(b)), b.weights[np.clip(other, 0, len(b) - 1)], 0)
        is_taken = rng.random(len(rest)) * peak < chance
        counts[rest[is_taken]] = a.low + j[is_taken]
        rest = rest[~is_taken]
    if len(rest):
        counts[rest] = _invert(rng, a, b, totals[rest])
    return counts


def _invert(rng: np.random.Generator, a: Table, b: Table, totals: Ints) -> Ints:
    """Draw a's counts by inversion of the cumulative sums of a(j) b(T - j), one row for each distinct T."""
    lowest, width = int(totals.min()), len(a)
    is_present = np.zeros(int(totals.max()) - lowest + 1, dtype=np.bool_)
    is_present[totals - lowest] = True
    rows = np.flatnonzero(is_present) + lowest
    row = (np.cumsum(is_present) - 1)[totals - lowest]
    padding = np.zeros(width)
    # b backwards: the window that starts at ``first[T]`` holds b(T - j) for j = a.low, a.low + 1, ...
    backwards = sliding_window_view(np.concatenate([padding, b.weights[::-1], padding]), width)
    first = len(b) - 1 + b.low + a.low + width - rows
    index = np.empty_like(totals)
    size = max(CHUNK // width, 1)
    for start in range(0, len(rows), size):
        law = backwards[first[start : start + size]] * a.weights
        np.cumsum(law, axis=1, out=law)
        mass = law[:, -1:].copy()
        if not mass.all():
            msg = "a total of the counts has no weight in float64: the release contradicts the prior; infer with a wider prior"
            raise InferenceError(msg)
        law /= mass
        # All rows are searched at once: row r lies in (r, r + 1], and a key below r + 1 ends on an entry of positive weight.
        law += np.arange(len(law))[:, None]
        here = slice(None) if len(rows) <= size else np.flatnonzero((row >= start) & (row < start + size))
        at = row[here] - start
        key = np.minimum(at + rng.random(len(at)), np.nextafter(at + 1.0, 0))
        index[here] = np.searchsorted(law.ravel(), key, side="right") - at * width
    return a.low + index
