"""lattice: the exact posterior, because a sum of bounded integers has a finite law.

One record's contribution takes finitely many integers with known probabilities g_theta(j), so S = sum c(x_i) has the
n-fold convolution of g_theta as its law, and ``p(y | theta) = sum_s P(S = s | theta) P(noise = y - s)``. No normal
approximation is made: exact at every n, clamped or truncated (methods 4.1; research/inference_engines.md 3.1).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from dp_dask.core.priors import Prior
from dp_dask.errors import InferenceError
from dp_dask.public.engines import Inference, guide, independent
from dp_dask.public.grid import Cells, GridPosterior, find_cells, tabulate
from dp_dask.public.observation import Observation

__all__ = ["cost", "log_likelihood", "plugin", "tabulated"]

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]
Ranges = list[tuple[int, int]]  # first and last of each
PER_POINT = 60.0  # multiplications that one point of the support, or one frequency, takes beside the products
MOST_POINTS = 2**20
NEGLIGIBLE = 39.0  # nats: a frequency damped to 1e-17 adds nothing in float64
TAIL = 40.0  # noise scales kept on each side
DIGITS = 1e9  # times its rounding error, at least, at its peak: the posterior is kept 18 nats, 7e7, below it
STEEPEST = 0.9  # of the noise's own decay, the most that a law is tilted by
ROUNDING = 1e-16  # of the sum of a Fourier sum's terms: below, it holds nothing else
CHUNK = 2**17  # complex numbers worked on at a time: they stay in the cache


def lattice(rng: np.random.Generator, observation: Observation, prior: Prior, n_draws: int) -> Inference:
    """Draw independently from the exact posterior, tabulated on 256 cells."""
    posterior = tabulated(observation, prior, find_cells(prior, guide(observation)))
    return independent(rng, posterior, n_draws, engine="lattice", reason="asked for", error=0.0)


def tabulated(observation: Observation, prior: Prior, cells: Cells) -> GridPosterior:
    """Tabulate the exact posterior on and around the cells."""
    return tabulate(prior, lambda theta: log_likelihood(observation, theta), cells)


def cost(observation: Observation, theta: Floats) -> float:
    """Estimate the multiplications that ``log_likelihood`` takes for these parameters."""
    cells, pmf = observation.pmf(theta)
    ranges, _ = _frequencies(observation, cells, pmf)
    return min(_convolution_cost(observation, len(theta)), _inversion_cost(ranges, pmf))


def log_likelihood(observation: Observation, theta: Floats) -> Floats:
    """Return log p(y | theta), up to a constant that is the same for every theta."""
    if observation.n == 0:
        return np.zeros(len(theta))
    cells, pmf = observation.pmf(theta)
    ranges, period = _frequencies(observation, cells, pmf)
    with np.errstate(divide="ignore"):
        beyond = None if observation.n is None else _beyond(observation, observation.n, cells, pmf)
        if beyond is not None:
            return beyond
        if _convolution_cost(observation, len(theta)) <= _inversion_cost(ranges, pmf):
            density, rounding = _convolve(observation, cells, pmf)
        else:
            density, rounding = _invert(observation, cells, pmf, ranges, period)
        if density.max() > DIGITS * rounding:
            return np.log(np.maximum(density, rounding))
        if observation.n is not None:
            return _tilted(observation, observation.n, cells, pmf)
    msg = (
        "the release lies so far from all that model, bounds and prior can produce that its likelihood has no digits left; "
        "one of the three is wrong: infer again from the release with another prior"
    )
    raise InferenceError(msg)


def _beyond(observation: Observation, n: int, cells: Floats, pmf: Floats) -> Floats | None:
    """Return the likelihood of a y that no n records can sum to, None for any other.

    There |y - S| has one sign, so p(y | theta) is E[exp(-+c / scale)]^n, stable however far y lies.
    """
    grid = observation.statistic.grid
    if observation.y <= n * grid.low:
        sign, nearest = 1, cells[0]
    elif observation.y >= n * grid.high:
        sign, nearest = -1, cells[-1]
    else:
        return None
    return n * np.log(pmf @ np.exp(-sign * (cells - nearest) / observation.scale))


def _tilted(observation: Observation, n: int, cells: Floats, pmf: Floats) -> Floats:
    """Fourier inversion with digits to spare wherever y lies: each theta's law is tilted until its mean is y.

    With g_t(j) = g(j) exp(t j) / Z, p(y) = Z^n exp(-t y) sum_m exp(-i w_m y) phi_t(w_m)^n noise(w_m - i t) / M, for every
    |t| < 1 / scale. At the t where n times the mean of g_t is y, the sum is of the order of its largest term (saddlepoint).
    """
    y, scale = observation.y, observation.scale
    low, high = np.full(len(pmf), -STEEPEST / scale), np.full(len(pmf), STEEPEST / scale)
    centre = y / n
    for _ in range(50):
        t = (low + high) / 2
        law = pmf * np.exp(t[:, None] * (cells - centre))
        is_low = law @ (cells - centre) < 0
        low, high = np.where(is_low, t, low), np.where(is_low, high, t)
    t = (low + high) / 2
    law = pmf * np.exp(t[:, None] * (cells - centre))
    norm = law.sum(axis=1)
    law = law / norm[:, None]
    # The tilted noise decays as slowly as one of scale / (1 - 0.9).
    ranges, period = _frequencies(replace(observation, scale=scale / (1 - STEEPEST)), cells, law)
    m = np.concatenate([np.arange(first, last + 1) for first, last in ranges])
    total = np.zeros(len(pmf))
    step = max(CHUNK // max(pmf.shape), 1)
    gap = -math.expm1(-1 / scale)
    for start in range(0, len(m), step):
        chunk = m[start : start + step]
        w = 2 * np.pi * chunk / period
        turns = (chunk * (y % period)) % period
        half = (1j * w + t[:, None]) / 2
        noise = gap**2 / (gap**2 - 4 * (1 - gap) * np.sinh(half) ** 2)
        terms = _power(_characteristic(cells, law, w), n) * noise * np.exp(-2j * np.pi * turns / period)
        total += terms.real @ np.where(chunk == 0, 1.0, 2.0)
    return np.log(np.maximum(total, 0)) + n * np.log(norm)


def _n_largest(observation: Observation) -> int:
    """Return n, or where it is private the largest n that the noisy count leaves any weight."""
    if observation.n is not None:
        return observation.n
    return math.ceil(observation.n_guess + TAIL * observation.scale / observation.statistic.count_weight)


def _support(observation: Observation) -> int:
    """Return the number of values that S can take."""
    grid = observation.statistic.grid
    return _n_largest(observation) * (grid.high - grid.low) + 1


def _convolution_cost(observation: Observation, n_theta: int) -> float:
    points = _support(observation)
    return PER_POINT * n_theta * points if points <= MOST_POINTS else math.inf


def _inversion_cost(ranges: Ranges, pmf: Floats) -> float:
    n_theta, n_cells = pmf.shape
    return float(sum(last - first + 1 for first, last in ranges)) * n_theta * (n_cells + PER_POINT)


def _convolve(observation: Observation, cells: Floats, pmf: Floats) -> tuple[Floats, float]:
    """Sum P(S = s) P(noise = y - s) over the support of S; return the density and its rounding error.

    S lies on a circle that is as long as its support; the sum's law is H of the contribution's, in Fourier space.
    """
    length = fft.next_fast_len(_support(observation), real=True)
    places = cells.astype(np.int64) % length
    sums = np.arange(length)
    highest = _n_largest(observation) * observation.statistic.grid.high
    distance = np.abs(observation.y - np.where(sums <= highest, sums, sums - length))
    weights = np.exp(-(distance - distance.min()) / observation.scale)
    density = np.empty(len(pmf))
    step = max(CHUNK // length, 1)
    for start in range(0, len(pmf), step):
        around = np.zeros((len(pmf[start : start + step]), length))
        around[:, places] = pmf[start : start + step]
        law = fft.irfft(_of_sum(observation, fft.rfft(around)), length)
        density[start : start + step] = np.maximum(law, 0) @ weights
    largest = np.abs(_of_sum(observation, np.ones(1, dtype=np.complex128)))[0]
    return density, float(ROUNDING * math.sqrt(weights @ weights) * largest)


def _invert(observation: Observation, cells: Floats, pmf: Floats, ranges: Ranges, period: int) -> tuple[Floats, float]:
    """Fourier inversion over the frequencies that any theta leaves undamped; return the density and its rounding error.

    p(y | theta) = (1 / M) sum_m exp(-i w_m y) H(phi(w_m)) noise(w_m), w_m = 2 pi m / M, with phi the characteristic
    function of one contribution and H(G) = G^n, or the generating function of a private n.
    """
    m = np.concatenate([np.arange(first, last + 1) for first, last in ranges])
    total = np.zeros(len(pmf))
    weight_sum = 0.0
    step = max(CHUNK // max(pmf.shape), 1)
    for start in range(0, len(m), step):
        chunk = m[start : start + step]
        w = 2 * np.pi * chunk / period
        # The phase of y is reduced in integers, exactly, before it is rounded.
        turns = (chunk * (observation.y % period)) % period
        terms = _of_sum(observation, _characteristic(cells, pmf, w)) * np.exp(-2j * np.pi * turns / period)
        weights = _noise(observation.scale, w) * np.where(chunk == 0, 1.0, 2.0)
        total += terms.real @ weights
        weight_sum += weights.sum()
    largest = np.abs(_of_sum(observation, np.ones(1, dtype=np.complex128)))[0]
    return total, float(ROUNDING * weight_sum * largest)


def _characteristic(cells: Floats, pmf: Floats, w: Floats) -> Complexes:
    """Return E[exp(i w c)], [theta, frequency], as two real products."""
    angles = cells[:, None] * w
    return pmf @ np.cos(angles) + 1j * (pmf @ np.sin(angles))


def _noise(scale: float, w: Floats) -> Floats:
    """Return the characteristic function of discrete Laplace noise, 1 at w = 0."""
    gap = -math.expm1(-1 / scale)
    return gap**2 / (gap**2 + 4 * (1 - gap) * np.sin(w / 2) ** 2)


def _of_sum(observation: Observation, phi: Complexes) -> Complexes:
    """Return H(phi): phi^n, or the sum over a private n of its prior times the law of the noisy count.

    With count = weight n + noise, a = exp(-1 / scale), a0 = a^weight, prior g^n and G = g phi, the sum of
    a^|count - weight n| G^n is two geometric series that meet at k = floor(count / weight).
    """
    n = observation.n
    if n is not None:
        return _power(phi, n)
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
        before = _power(base, k)
        power = before * base
        below = (power - ratio ** (k + 1)) / (base - ratio)
        below = np.where(np.abs(base - ratio) < 1e-6 * ratio / (k + 1), (k + 1) * before, below)
        above = max(g, a0) * power / (1 - a0 * g * phi)
        return math.exp(-rest / scale) * below + math.exp(-(weight - rest) / scale) * above


def _power(phi: Complexes, n: int) -> Complexes:
    """Return phi^n by repeated squaring, several times as fast as the logarithm."""
    result = np.ones_like(phi)
    square = phi
    while n:
        if n & 1:
            result = result * square
        n >>= 1
        if n:
            square = square * square
    return result


def _frequencies(observation: Observation, cells: Floats, pmf: Floats) -> tuple[Ranges, int]:
    """Choose the period M, odd, and the frequencies m <= M / 2 that are not damped to nothing for every theta.

    M is so long that the law of y, wrapped around it, has no weight at the wrong place: the whole support with 40 noise
    scales a side, or for large n the distance of y from its mean with 12 standard deviations and 40 scales.
    """
    mean = pmf @ cells
    variance = np.maximum(pmf @ cells**2 - mean**2, 0)
    n, y, scale = _n_largest(observation), observation.y, observation.scale
    reach = np.abs(y - observation.n_guess * mean) + 12 * np.sqrt(n * variance) + TAIL * scale
    if observation.n is None:
        reach = reach + np.abs(mean) * (n - observation.n_guess)
    grid = observation.statistic.grid
    outside = max(y - n * grid.high, n * grid.low - y, 0)
    period = math.ceil(min(2 * reach.max(), n * (grid.high - grid.low) + 2 * TAIL * scale + 2 * outside)) + 2
    period += 1 - period % 2
    return _undamped(observation, cells, pmf, period), period


def _undamped(observation: Observation, cells: Floats, pmf: Floats, period: int) -> Ranges:
    """List the ranges of frequencies m in which |H(phi)| may exceed 1e-17 of its value at 0, for some theta.

    Up to w = pi / range |phi| falls steadily, because every cos(w (c_i - c_j)) does: the last frequency is found by
    search. Beyond, |phi| is looked up on a grid of 16 points a cell by one FFT, with the step to the neighbouring points
    as a margin for what lies between them.
    """
    top = math.log(np.abs(_of_sum(observation, np.ones(1, dtype=np.complex128)))[0])
    probes = np.vstack([pmf[:: max(len(pmf) // 16, 1)], pmf[-1:]])

    def is_kept(size: Floats) -> NDArray[np.bool_]:
        with np.errstate(divide="ignore"):
            return np.log(np.abs(_of_sum(observation, size.astype(np.complex128)))) > top - NEGLIGIBLE

    half = period // 2
    monotone = min(int(period / (2 * max(len(cells) - 1, 1))), half)
    steps = np.unique(np.geomspace(1, monotone, 128).astype(np.int64)) if monotone else np.zeros(0, np.int64)
    sizes = np.abs(_characteristic(cells, probes, 2 * np.pi * steps / period)).max(axis=0)
    fallen = np.flatnonzero(~is_kept(sizes))
    ranges = [(0, int(steps[fallen[0]]) if len(fallen) else monotone)]
    reached = monotone

    fine = 16 * len(cells)
    size = np.abs(fft.rfft(probes, fine)).max(axis=0)
    margin = np.maximum(np.abs(np.diff(size, prepend=size[0])), np.abs(np.diff(size, append=size[-1])))
    kept = np.concatenate([[False], is_kept(np.minimum(size + margin, 1)), [False]])
    changes = np.flatnonzero(np.diff(kept))
    for begin, end in zip(changes[::2], changes[1::2], strict=True):
        first = max(math.floor((begin - 1) * period / fine), reached + 1)
        reached = max(min(math.ceil(end * period / fine), half), reached)
        ranges.append((first, reached))
    return [(first, last) for first, last in ranges if first <= last]


plugin = lattice
