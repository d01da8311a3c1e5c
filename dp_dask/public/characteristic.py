"""The characteristic function of a noisy sum, and the frequencies at which it is not negligible."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from dp_dask.public.noise_law import Gaussian
from dp_dask.public.observation import Observation
from dp_dask.public.private_n import private_counts

__all__ = [
    "Ranges", "damping", "frequencies", "log_peak", "n_largest", "of_noise", "of_record", "of_sum", "power", "turned",
    "undamped",
]  # fmt: skip

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]
Ranges = list[tuple[int, int]]  # first and last of each
NEGLIGIBLE = 39.0  # nats: a frequency damped to 1e-17 adds nothing in float64
PIECE = 2**13  # complex numbers whose powers stay in the cache
LARGEST_PRODUCT = 2**63


def frequencies(observation: Observation, cells: Floats, pmf: Floats) -> tuple[Ranges, int]:
    """Choose the period M, odd, and the frequencies m <= M / 2 that are not damped to nothing for every theta.

    M is so long that the law of y, wrapped around it, has no weight at the wrong place: the whole support with the noise's
    reach of 40 nats a side, or for large n the distance of y from its mean with 12 standard deviations and that reach.
    """
    mean = pmf @ cells
    variance = np.maximum(pmf @ cells**2 - mean**2, 0)
    n, y, tail = n_largest(observation), observation.y, observation.noise.reach
    reach = np.abs(y - observation.n_guess * mean) + 12 * np.sqrt(n * variance) + tail
    if observation.n is None:
        reach = reach + np.abs(mean) * (n - observation.n_guess)
    low, high = observation.low, observation.high
    outside = max(y - n * high, n * low - y, 0)
    period = math.ceil(min(2 * reach.max(), n * (high - low) + 2 * tail + 2 * outside)) + 2
    period += 1 - period % 2
    last = min(observation.noise.last_frequency * period / (2 * math.pi), period)
    ranges = undamped(damping(observation), cells, pmf, period)
    return [(first, min(end, math.ceil(last))) for first, end in ranges if first <= last], period


def damping(observation: Observation) -> Callable[[Floats], Floats]:
    """Return the nats by which |H(phi)| is smaller than at 0, as a function of |phi|."""
    top = math.log(np.abs(of_sum(observation, np.ones(1, dtype=np.complex128)))[0])

    def nats(size: Floats) -> Floats:
        with np.errstate(divide="ignore"):
            return top - np.log(np.abs(of_sum(observation, size.astype(np.complex128))))

    return nats


def undamped(
    damping: Callable[[Floats], Floats], cells: Floats, pmf: Floats, period: int, negligible: float = NEGLIGIBLE
) -> Ranges:
    """List the ranges of frequencies m in which |H(phi)| may exceed exp(-negligible) of its value at 0, for some theta.

    ``damping`` gives the nats by which H is smaller at a given |phi| than at 1; ``cells`` are consecutive whole numbers.

    Up to w = pi / range |phi| falls steadily, because every cos(w (c_i - c_j)) does: the last frequency is found by
    search. Beyond, |phi| is looked up on a grid of at least 8 points a cell by one FFT, with the step to the neighbouring points
    as a margin for what lies between them.
    """
    probes = np.vstack([pmf[:: max(len(pmf) // 8, 1)], pmf[-1:]])

    def is_kept(size: Floats) -> NDArray[np.bool_]:
        return damping(size) < negligible

    half = period // 2
    monotone = min(int(period / (2 * max(len(cells) - 1, 1))), half)
    kept_to, last = 0, monotone
    for _ in range(2):
        if last <= kept_to + 1:
            break
        steps = np.unique(np.geomspace(kept_to + 1, last, 9).astype(np.int64))
        is_high = is_kept(np.abs(of_record(cells, probes, steps, period)).max(axis=0))
        fallen = int(np.argmin(is_high)) if not is_high.all() else len(steps) - 1
        kept_to, last = int(steps[max(fallen - 1, 0)]), int(steps[fallen])
    ranges = [(0, last)]
    reached = monotone

    fine = fft.next_fast_len(8 * len(cells), real=True)
    size = np.abs(fft.rfft(probes, fine)).max(axis=0)
    margin = np.maximum(np.abs(np.diff(size, prepend=size[0])), np.abs(np.diff(size, append=size[-1])))
    kept = np.concatenate([[False], is_kept(np.minimum(size + margin, 1)), [False]])
    changes = np.flatnonzero(np.diff(kept))
    for begin, end in zip(changes[::2].tolist(), changes[1::2].tolist(), strict=True):
        first = max(math.floor((begin - 1) * period / fine), reached + 1)
        reached = max(min(math.ceil(end * period / fine), half), reached)
        ranges.append((first, reached))
    return [(first, last) for first, last in ranges if first <= last]


def n_largest(observation: Observation) -> int:
    """Return n, or where it is private the largest n that the noisy count leaves any weight."""
    if observation.n is not None:
        return observation.n
    return math.ceil(observation.n_guess + observation.noise.reach / observation.statistic.count_weight)


def of_record(cells: Floats, pmf: Floats, m: NDArray[np.int64], period: int) -> Complexes:
    """Return E[exp(i w_m c)] for w_m = 2 pi m / period, [theta, frequency], as one real product."""
    is_run = m[-1] - m[0] == len(m) - 1
    waves = _waves(cells, m[0], len(m), period) if is_run else np.exp(2j * np.pi / period * (cells[:, None] * m))
    product: Complexes = (pmf @ waves.view(np.float64)).view(np.complex128)
    return product


def _waves(cells: Floats, first: int, count: int, period: int) -> Complexes:
    """Return exp(i w_m c), [cell, m], for a run of m, by doubling: one product a number in place of a cosine and a sine."""
    waves = np.empty((len(cells), count), dtype=np.complex128)
    waves[:, 0] = np.exp(2j * np.pi / period * (cells * first))
    done = 1
    while done < count:
        more = min(done, count - done)
        turn = np.exp(2j * np.pi / period * (cells * done))
        np.multiply(waves[:, :more], turn[:, None], out=waves[:, done : done + more])
        done += more
    return waves


def turned(m: NDArray[np.int64], y: int, period: int) -> Complexes:
    """Return exp(-i w_m y), the phase reduced in integers, exactly, before it is rounded; m ascends.

    Of many records m y is beyond int64: Python's integers then take over.
    """
    y %= period
    turns = (m * y) % period if int(m[-1]) * y < LARGEST_PRODUCT else ((m.astype(object) * y) % period).astype(np.float64)
    return np.exp(-2j * np.pi * turns / period)


def of_noise(observation: Observation, w: Floats) -> Floats:
    """Return the characteristic function of the noise, discrete and real, 1 at w = 0."""
    return observation.noise.characteristic(w)


def log_peak(observation: Observation) -> float:
    """Return the log of P(noise = 0)."""
    return float(observation.noise.log_pmf(0.0))


def of_sum(observation: Observation, phi: Complexes) -> Complexes:
    """Return H(phi): phi^n, or the sum over a private n of its prior times the law of the noisy count.

    With count = weight n + Laplace noise, a = exp(-1 / scale), a0 = a^weight, prior g^n and G = g phi, the sum of
    a^|count - weight n| G^n is two geometric series that meet at k = floor(count / weight). Gaussian noise has no such form:
    there it is a polynomial, of all n that noise and prior leave any weight.
    """
    n = observation.n
    if n is not None:
        return power(phi, n)
    if observation.law is Gaussian:
        counts, logs = private_counts(observation)
        return power(phi, int(counts[0])) * _polynomial(np.exp(logs - logs.max()), phi)
    flat = np.ascontiguousarray(phi).ravel()
    found = np.empty_like(flat)
    for start in range(0, len(flat), PIECE):
        found[start : start + PIECE] = _two_series(observation, flat[start : start + PIECE])
    return found.reshape(phi.shape)


def _two_series(observation: Observation, phi: Complexes) -> Complexes:
    """Return H(phi) of a private n under Laplace noise, phi a piece that stays in the cache."""
    with np.errstate(all="ignore"):
        count = observation.count or 0
        weight, scale = observation.statistic.count_weight, observation.scale
        g = 1.0 if observation.expected_n is None else observation.expected_n / (observation.expected_n + 1)
        a0 = math.exp(-weight / scale)
        if count < 0:
            return 1 / (1 - a0 * g * phi)
        k, rest = divmod(count, weight)
        # Both series are divided by the larger of g^k and a0^k, or a prior that is far off would underflow.
        base, ratio = (phi, a0 / g) if a0 <= g else (g * phi / a0, 1.0)
        before = power(base, k)
        following = before * base
        below = (following - ratio ** (k + 1)) / (base - ratio)
        below = np.where(np.abs(base - ratio) < 1e-6 * ratio / (k + 1), (k + 1) * before, below)
        above = max(g, a0) * following / (1 - a0 * g * phi)
        return math.exp(-rest / scale) * below + math.exp(-(weight - rest) / scale) * above


def _polynomial(coefficients: Floats, phi: Complexes) -> Complexes:
    """Return the sum of coefficients[j] phi^j: short polynomials as one product, put together by Horner's rule."""
    size = math.isqrt(len(coefficients) - 1) + 1
    table = np.zeros((-(-len(coefficients) // size), size))
    table.ravel()[: len(coefficients)] = coefficients
    flat = np.ascontiguousarray(phi).ravel()
    found = np.empty_like(flat)
    for start in range(0, len(flat), PIECE):
        piece = flat[start : start + PIECE]
        powers = np.ones((size, len(piece)), dtype=np.complex128)
        for j in range(1, size):
            np.multiply(powers[j - 1], piece, out=powers[j])
        parts = (table @ powers.view(np.float64)).view(np.complex128)
        step, total = powers[-1] * piece, parts[-1]
        for part in parts[-2::-1]:
            total = total * step + part
        found[start : start + PIECE] = total
    return found.reshape(phi.shape)


def power(phi: Complexes, n: int) -> Complexes:
    """Return phi^n by repeated squaring, several times as fast as the logarithm."""
    result = np.ones(1, dtype=np.complex128) if n & 1 == 0 else phi
    square = phi
    while n := n >> 1:
        square = square * square
        if n & 1:
            result = result * square
    return result
