"""The likelihood of a noisy sum whose contributions lie on coarse nodes, by Fourier inversion with the noise as it is."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dp_dask.public.characteristic import Ranges, damping, log_peak, of_record, of_sum, turned, undamped
from dp_dask.public.coarse import CoarseLaw
from dp_dask.public.observation import Observation

__all__ = ["coarse_cost", "coarse_log_likelihood"]

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]
NEGLIGIBLE = 25.0  # nats: frequencies damped to 1e-11 are left out
TAIL = 26.0  # noise scales kept on each side, and of a private count: e^-26 is 5e-12
DIGITS = math.log(1e9)  # from the rounding error to the peak, at least: the posterior is kept 18 nats below it
ROUNDING, TINY = 1e-16, 1e-300
GROWTH = 1e-9  # by which a merged law's characteristic function may exceed 1
MOST = 2**18  # frequencies
PER_FREQUENCY, PER_CELL = 60.0, 30.0  # multiplications that a frequency and a group of cells take beside the products
CHUNK = 2**17  # complex numbers worked on at a time


def coarse_log_likelihood(law: CoarseLaw, theta: Floats, peak: float = -math.inf) -> Floats | None:
    """Return log p(y | theta) up to a constant, or None where too few digits are left or it would take too long.

    ``peak`` is the largest value met before: what lies far below it needs no digits of its own. Where merging has left a law
    whose powers would grow, every cell is taken for itself.

    p(y) = (1 / M) sum_m H(phi(w_m)) k(w_m), w_m = 2 pi m / M in steps, phi the law's characteristic function, H(phi) = phi^n or a
    private n's sum, and k(w) = sum_s exp(-i w s) P(noise = y - s) over the nodes s around y.
    """
    observation = law.observation
    pmf = law.pmf(theta)
    ranges, period = _frequencies(law, pmf)
    m = np.concatenate([np.arange(first, last + 1) for first, last in ranges])
    if len(m) > MOST:
        return None
    total, size = np.zeros(len(pmf)), 0.0
    step = max(CHUNK // max(pmf.shape), 1)
    for start in range(0, len(m), step):
        chunk = m[start : start + step]
        phi = of_record(law.nodes, pmf, chunk, period)
        if law.unmerged and np.abs(phi).max() > 1 + GROWTH:
            return coarse_log_likelihood(law.unmerged, theta, peak)
        kernel = _kernel(observation, law.step, chunk, period) * np.where((chunk == 0) | (2 * chunk == period), 1.0, 2.0)
        terms = of_sum(observation, phi)
        total += terms.real @ kernel.real - terms.imag @ kernel.imag
        size += float(np.abs(kernel).sum())
    rounding = ROUNDING * size * float(np.abs(of_sum(observation, np.ones(1, dtype=np.complex128)))[0])
    constant = log_peak(observation) - math.log(period)
    values = np.log(np.maximum(total, max(rounding, TINY))) + constant
    return values if max(values.max(), peak) > math.log(max(rounding, TINY)) + constant + DIGITS else None


def coarse_cost(law: CoarseLaw, theta: Floats) -> float:
    """Estimate the multiplications that ``coarse_log_likelihood`` takes for these parameters."""
    ranges, _ = _frequencies(law, law.pmf(theta))
    n_frequencies = sum(last - first + 1 for first, last in ranges)
    if n_frequencies > MOST:
        return math.inf
    return len(theta) * (n_frequencies * (len(law.nodes) + PER_FREQUENCY) + len(law.starts) * PER_CELL)


def _kernel(observation: Observation, step: int, m: NDArray[np.int64], period: int) -> Complexes:
    """Return k(w_m): with y = step (q + f) the nodes q, q - 1, ... and q + 1, q + 2, ... are two geometric series."""
    q, rest = divmod(observation.y, step)
    scale, f = observation.scale / step, rest / step
    turn = np.exp(-2j * np.pi / period * m)
    a = math.exp(-1 / scale)
    at_q = turned(m, q, period)
    found: Complexes = at_q * (math.exp(-f / scale) / (1 - a * turn.conj()) + math.exp((f - 1) / scale) * turn / (1 - a * turn))
    return found


def _frequencies(law: CoarseLaw, pmf: Floats) -> tuple[Ranges, int]:
    """Choose a period that keeps y's law from wrapping onto itself, and the frequencies that any theta leaves undamped."""
    observation, nodes = law.observation, law.nodes
    scale, y = observation.scale / law.step, observation.y / law.step
    guess = n = observation.n_guess
    if observation.n is None:
        n = guess + TAIL * observation.scale / observation.statistic.count_weight
    mean = pmf @ nodes
    variance = np.maximum(pmf @ nodes**2 - mean**2, 0)
    reach = np.abs(y - guess * mean) + 12 * np.sqrt(n * variance) + np.abs(mean) * (n - guess) + TAIL * scale
    outside = max(y - n * law.last, n * law.first - y, 0)
    period = math.ceil(min(2 * reach.max(), n * (law.last - law.first) + 2 * TAIL * scale + 2 * outside)) + 2
    return undamped(damping(observation), nodes, pmf, period, NEGLIGIBLE), period
