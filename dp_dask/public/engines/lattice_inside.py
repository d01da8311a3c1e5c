"""lattice_inside: the exact likelihood of a truncated sum that is released with the count of its records.

Given that m records lie inside, their sum is one of m independent integers, whose law has the characteristic function phi^m; m is
summed out with its binomial law and the noise of its own release. Both sums are of finitely many terms, so that nothing is
approximated but by rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from dp_dask.errors import InferenceError
from dp_dask.public import grid, zoom
from dp_dask.public.characteristic import of_record, turned, undamped
from dp_dask.public.engines import Inference, first_guide, independent
from dp_dask.public.inside_counts import inside_counts, log_weights
from dp_dask.public.joint import JointObservation
from dp_dask.public.observation import gather
from dp_dask.public.private_n import private_counts

__all__ = ["AFFORDABLE", "log_likelihood", "plugin"]

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]
LEAST = 39.0  # nats below the best m at which one adds nothing in float64
ROUNDING, DIGITS = 1e-15, 1e3
SURE = 20.0  # nats below the best parameter at which the digits of another do not matter
AFFORDABLE = 1e9  # multiplications for one call, about two seconds
PER_TERM = 10.0  # multiplications, what a binomial weight costs
CHUNK = 2**18  # complex numbers held at a time


@dataclass(frozen=True, slots=True)
class _Law:
    """The law of one record inside, and of how many there are, for some parameters."""

    support: Floats  # consecutive whole numbers
    pmf: Floats  # [theta, support], summing to 1
    m: Floats
    weights: Floats  # [theta, m], the largest being 1
    log_top: Floats  # [theta], the log of what the largest was


def lattice_inside(rng: np.random.Generator, observation: JointObservation, prior: Any, n_draws: int) -> Inference:
    """Draw independently from the exact posterior, tabulated; raises InferenceError for another release or too long a sum."""
    if not observation.statistic.inside_weight or len(observation.y) != 2 or len(observation.model.parameters) != 1:  # noqa: PLR2004
        msg = "engine lattice_inside serves truncated sums of one parameter that were released with inside_count: use auto"
        raise InferenceError(msg)
    cells = zoom.find_cells(prior, first_guide(observation))
    peak = -math.inf

    def likelihood(theta: Floats) -> Floats:
        nonlocal peak
        values = log_likelihood(observation, theta, peak)
        peak = max(peak, values.max())
        return values

    posterior = grid.tabulate(prior, likelihood, cells)
    return independent(rng, posterior, n_draws, engine="lattice_inside", reason="asked for", error=0.0)


def log_likelihood(observation: JointObservation, theta: Floats, peak: float = -math.inf) -> Floats:
    """Return log p(y | theta) [k], up to a constant that is the same for every theta and call.

    ``peak`` is the largest value met before: what lies far below it needs no digits of its own.

    p(y) = sum over m of P(m) noise(y_2 - w m) f_m(y_1), f_m(y_1) = (1 / M) sum_j exp(-i w_j y_1) phi(w_j)^m noise(w_j). The inner
    sum runs over the frequencies that no m damps to nothing, the outer one is a polynomial in phi (Horner). Raises
    InferenceError where that takes too long, or where y lies so far out that no digits are left.
    """
    if observation.n == 0:
        return np.zeros(len(theta))
    m = inside_counts(observation)
    of_weights = PER_TERM * len(theta) * len(m) * (1 if observation.n is not None else len(private_counts(observation)[0]))
    _check_price(of_weights)
    law = _law(observation, theta, m)
    period = _period(observation, law)
    least = float(law.m[(law.weights > math.exp(-LEAST)).argmax(axis=1)].min())
    with np.errstate(divide="ignore"):
        ranges = undamped(lambda size: -least * np.log(size) if least else np.zeros_like(size), law.support, law.pmf, period)
    n_frequencies = sum(last - first + 1 for first, last in ranges)
    of_runs, of_fft = n_frequencies * len(law.support), 4 * period * math.log2(period)
    _check_price(of_weights + len(theta) * (4.0 * n_frequencies * len(law.m) + min(of_runs, of_fft)))
    is_whole = of_fft < of_runs
    j = np.concatenate([np.arange(first, last + 1) for first, last in ranges])
    of_noise = observation.noise.characteristic(2 * np.pi * j / period)
    waves = turned(j, observation.y[0], period) * of_noise * np.where(j == 0, 1.0, 2.0)
    density = np.empty(len(theta))
    step = max(CHUNK // (period if is_whole else max(len(j), len(law.support))), 1)
    for start in range(0, len(theta), step):
        part = slice(start, start + step)
        phi = _by_fft(law, part, period)[:, j] if is_whole else of_record(law.support, law.pmf[part], j, period)
        density[part] = (_horner(law, part, phi) * waves).real.sum(axis=1)
    return _log(density / period, law, ROUNDING * float(np.abs(waves).sum()) / period, peak)


def _check_price(price: float) -> None:
    if price > AFFORDABLE:
        msg = f"engine lattice_inside would take {price:.0e} operations for this release; use clt_grid, or auto"
        raise InferenceError(msg)


def _law(observation: JointObservation, theta: Floats, m: Floats) -> _Law:
    statistic = observation.statistic
    cells, outside = observation.probabilities(theta[:, None])
    row = statistic.rows[0]
    low, high = int(row.min()), int(row.max())
    pmf = gather(cells, np.zeros(len(theta)), row - low, 0, high - low + 1)
    inside = pmf.sum(axis=1)
    logs = log_weights(observation, m, inside, outside)
    top = logs.max(axis=1)
    pmf = np.where(inside[:, None] > 0, pmf / np.where(inside > 0, inside, 1)[:, None], 1 / pmf.shape[1])
    with np.errstate(invalid="ignore"):
        weights = np.where(np.isfinite(top)[:, None], np.exp(logs - top[:, None]), 0.0)
    used = np.flatnonzero((weights > math.exp(-LEAST)).any(axis=0))
    kept = slice(used[0], used[-1] + 1) if len(used) else slice(0, 1)
    return _Law(np.arange(low, high + 1, dtype=np.float64), pmf, m[kept], weights[:, kept], top)


def _period(observation: JointObservation, law: _Law) -> int:
    """Return an odd period, so long that the law of y_1, wrapped around it, has no weight at the wrong place."""
    mean = law.pmf @ law.support
    variance = np.maximum(law.pmf @ law.support**2 - mean**2, 0)
    y, tail, largest = observation.y[0], observation.noise.reach, law.m[-1]
    low, high = min(law.support[0], 0) * largest, max(law.support[-1], 0) * largest
    ends = np.abs(y - np.multiply.outer(mean, law.m[[0, -1]])).max(axis=1)
    reach = float((ends + 12 * np.sqrt(largest * variance) + 26 * (law.support[-1] - law.support[0])).max()) + tail
    whole = high - low + 2 * tail + 2 * max(y - high, low - y, 0)
    period = math.ceil(max(min(2 * reach, whole), len(law.support))) + 2
    return period + 1 - period % 2


def _by_fft(law: _Law, part: slice, period: int) -> Complexes:
    """Return phi at every frequency up to half the period."""
    pmf = law.pmf[part]
    around = np.zeros((len(pmf), period))
    around[:, law.support.astype(np.int64) % period] = pmf
    return np.conj(fft.rfft(around))


def _horner(law: _Law, part: slice, phi: Complexes) -> Complexes:
    """Return the sum over m of weight phi^m."""
    weights = law.weights[part]
    total = np.broadcast_to(weights[:, -1:], phi.shape).astype(np.complex128)
    for k in range(weights.shape[1] - 2, -1, -1):
        np.multiply(total, phi, out=total)
        total += weights[:, k : k + 1]
    return np.asarray(total * phi ** law.m[0])


def _log(density: Floats, law: _Law, rounding: float, peak: float) -> Floats:
    """Return the logs, unless a parameter that may matter has no digits left."""
    values = law.log_top + np.log(np.maximum(density, rounding))
    is_sound = density > DIGITS * rounding
    best = values[is_sound].max(initial=peak)
    if not np.isfinite(best) or (law.log_top[~is_sound] + math.log(DIGITS * rounding) > best - SURE).any():
        msg = (
            "the release lies so far from all that model, bounds and prior can produce that its likelihood has no digits left; "
            "one of the three is wrong: infer again from the release with another prior, or with engine clt_grid"
        )
        raise InferenceError(msg)
    return np.asarray(values)


plugin = lattice_inside
