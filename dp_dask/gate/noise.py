"""Noise: the only source of privacy noise, OpenDP's exact integer sampler on the system's entropy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.privacy import EXACT, Spent, Unit, exact_delta
from dp_dask.core.release import MAX_SCALE
from dp_dask.errors import ConfigError

__all__ = [
    "Noise",
    "NoiseScale",
    "OpenDPNoise",
    "draw_geometric",
    "draw_laplace",
    "gaussian_scale",
    "gumbel_scale",
    "laplace_scale",
    "meaning",
]


class Noise(Protocol):
    """A sampler of integer noise."""

    @property
    def sampler(self) -> str:
        """Its name in the release; ``insecure`` for one that is seeded, which no ledger accepts."""
        ...

    def add_discrete_laplace(self, values: Sequence[int], scale: float) -> list[int]:
        """Add independent noise, P(k) proportional to exp(-|k| / scale), to each value."""
        ...

    def add_discrete_gaussian(self, values: Sequence[int], scale: float) -> list[int]:
        """Add independent noise, P(k) proportional to exp(-k^2 / (2 scale^2)), to each value."""
        ...

    def lowest_with_gumbel(self, values: Sequence[int], c: int, scale: float) -> list[int]:
        """Return the indices of the c smallest values, each less independent Gumbel noise, P(Z <= z) = exp(-exp(-z / scale))."""
        ...


@dataclass(frozen=True, slots=True)
class NoiseScale:
    """A noise scale and the privacy loss that OpenDP's own map gives for it, rounded outwards."""

    scale: float
    privacy_loss: float


class OpenDPNoise:
    """Canonne, Kamath & Steinke's exact samplers (2020) as OpenDP implements them; entropy from the operating system."""

    @property
    def sampler(self) -> str:
        """OpenDP and its version."""
        from importlib.metadata import version  # noqa: PLC0415

        return f"opendp {version('opendp')}"

    def add_discrete_laplace(self, values: Sequence[int], scale: float) -> list[int]:
        """Add noise to all values in one call."""
        return [int(value) for value in _laplace(scale)(np.asarray(values, dtype=np.int64))]

    def add_discrete_gaussian(self, values: Sequence[int], scale: float) -> list[int]:
        """Add noise to all values in one call."""
        return [int(value) for value in _gaussian(scale)(np.asarray(values, dtype=np.int64))]

    def lowest_with_gumbel(self, values: Sequence[int], c: int, scale: float) -> list[int]:
        """Compare as many digits of the noise as it takes; none is ever rounded."""
        return [int(index) for index in _gumbel(c, scale)(np.asarray(values, dtype=np.int64))]


def draw_laplace(noise: Noise, n: int, scale: float) -> NDArray[np.int64]:
    """Draw n discrete Laplace variables, P(k) proportional to exp(-|k| / scale)."""
    return np.asarray(noise.add_discrete_laplace([0] * n, scale), dtype=np.int64)


def draw_geometric(noise: Noise, n: int, scale: float) -> NDArray[np.int64]:
    """Draw n geometric variables, P(k) = (1 - a) a^k for k = 0, 1, .. with a = exp(-1 / scale).

    They are the discrete Laplace draws that are not negative: on k >= 0 that law is in proportion to a^k, so that
    conditioned on k >= 0 it is this one. More than half of the draws are kept, and which depends on no distance.
    """
    kept = np.empty(0, dtype=np.int64)
    while len(kept) < n:
        draws = draw_laplace(noise, 2 * (n - len(kept)) + 8, scale)
        kept = np.append(kept, draws[draws >= 0])
    return kept[:n]


def laplace_scale(sensitivity: int, epsilon: Decimal) -> NoiseScale:
    """Find the smallest float scale at which OpenDP's privacy map is at most epsilon.

    Theorem: Y = S + Z with S an integer vector of L1 sensitivity D and Z_j independent discrete Laplace of scale t is
    (D / t)-differentially private. Proof: P(Y = y | S) / P(Y = y | S') = exp(-(|y - S|_1 - |y - S'|_1) / t), at most
    exp(|S - S'|_1 / t) by the triangle inequality. ``sensitivity / epsilon`` in floats misses by one ulp in a fifth of
    cases, so the map itself is asked, and compared as an exact decimal.

    Raises ConfigError where no scale below 2^57 grid units will do.
    """
    scale = sensitivity / float(epsilon)
    if not 0 < scale < MAX_SCALE:
        msg = f"epsilon {epsilon} with sensitivity {sensitivity} needs a noise scale outside (0, 2^57) grid units; raise epsilon"
        raise ConfigError.of("epsilon", msg)
    while True:
        loss = float(_laplace(scale).map(sensitivity))
        if Decimal(loss) <= epsilon:
            return NoiseScale(scale, loss)
        scale = math.nextafter(scale, math.inf)


def gaussian_scale(squared_sensitivity: int, rho: Decimal) -> NoiseScale:
    """Find the smallest float scale at which OpenDP's privacy map is at most rho.

    Theorem (Canonne, Kamath & Steinke 2020, theorems 4 and 14): Y = S + Z with S an integer vector of squared L2 sensitivity D2
    and Z_j independent discrete Gaussian of scale t is D2 / (2 t^2) zero-concentrated differentially private. Proof, for
    one coordinate: with the two sums v apart and N the sum over k of exp(-k^2 / (2 t^2)), the Renyi divergence of order a has
    exp((a - 1) D_a) = (1 / N) sum over k of exp(-(a k^2 + (1 - a)(k - v)^2) / (2 t^2)). Completing the square makes it
    exp(a (a - 1) v^2 / (2 t^2)) times the sum of exp(-(k - c)^2 / (2 t^2)) / N with c = (1 - a) v. By Poisson summation the sum
    is largest where c is a whole number, and N there: the factor is at most 1, so that D_a <= a v^2 / (2 t^2). Divergences of
    independent coordinates add up, and sum v_j^2 <= D2. Because a sensitivity's root is seldom a float, the map is asked
    at the smallest float that is no less, and its answer, rounded outwards, compared as an exact decimal.

    Raises ConfigError where no scale below 2^57 grid units will do.
    """
    distance = math.sqrt(max(squared_sensitivity, 0))
    if Fraction(distance) ** 2 < squared_sensitivity:
        distance = math.nextafter(distance, math.inf)
    scale = distance / math.sqrt(2 * float(rho))
    if not 0 < scale < MAX_SCALE:
        msg = f"rho {rho} with squared sensitivity {squared_sensitivity} needs a scale outside (0, 2^57) grid units; raise rho"
        raise ConfigError.of("rho", msg)

    def loss(scale: float) -> float:
        return float(_gaussian(scale).map(distance))

    while Decimal(loss(scale)) > rho:
        scale = math.nextafter(scale, math.inf)
    while Decimal(loss(smaller := math.nextafter(scale, 0))) <= rho:
        scale = smaller
    return NoiseScale(scale, loss(scale))


def gumbel_scale(sensitivity: int, c: int, rho: Decimal) -> NoiseScale:
    """Find the smallest float scale at which OpenDP's privacy map of choosing c by Gumbel noise is at most rho.

    Theorem: the c smallest of q_t - G_t, with G_t independent Gumbel of scale s and every q_t moved by at most D between
    neighbours, in order, is c D^2 / (2 s^2) zero-concentrated differentially private. Proof: it is c exponential mechanisms in
    turn, each on what the earlier left and each choosing t with probability proportional to exp(-q_t / s) (Durfee & Rogers
    2019). Between neighbours q_t / s moves by at most D / s, so that the log probabilities of one of them change within an
    interval of length 2 D / s = e: it is e-bounded-range, and so e^2 / 8 zero-concentrated differentially private (Cesar &
    Rogers 2021). Composition adds up the c of them.

    Raises ConfigError where no scale below 2^57 grid units will do.
    """
    scale = sensitivity * math.sqrt(c / (2 * float(rho)))
    if not 0 < scale < MAX_SCALE:
        msg = f"rho {rho} with sensitivity {sensitivity} and c {c} needs a noise scale outside (0, 2^57) grid units; raise rho"
        raise ConfigError.of("rho", msg)
    while True:
        loss = float(_gumbel(c, scale).map(sensitivity))
        if Decimal(loss) <= rho:
            return NoiseScale(scale, loss)
        scale = math.nextafter(scale, math.inf)


def meaning(unit: Unit, amount: Decimal, delta: Decimal | None) -> Spent:
    """Say what an amount means: of rho, with a delta, the epsilon that OpenDP's conversion to (epsilon, delta) gives.

    The conversion is that of Canonne, Kamath & Steinke (2020, proposition 7), asked at a Gaussian mechanism whose own map is no
    less than the amount. Where OpenDP has no finite answer (rho of 10^5, a delta below what a float holds) it is the
    larger rho + 2 sqrt(rho log(1 / delta)) (Bun & Steinke 2016, proposition 1.3): a release that is paid for is always told.
    """
    if unit is Unit.EPSILON or delta is None:
        return Spent(unit=unit, amount=amount)
    delta = exact_delta(delta)
    if not amount:
        return Spent(unit=unit, amount=amount, epsilon=0.0, delta=delta)
    dp = _opendp()
    distance = math.sqrt(2 * float(amount))
    mechanism = _gaussian(1.0)
    while Decimal(float(mechanism.map(distance))) < amount:
        distance = math.nextafter(distance, math.inf)
    at = float(delta)
    if Decimal(at) > delta:
        at = math.nextafter(at, 0)
    epsilon = math.inf
    with suppress(dp.OpenDPException):
        epsilon, _ = dp.c.make_fix_delta(dp.c.make_zCDP_to_approxDP(mechanism), delta=at).map(distance)
    if not math.isfinite(epsilon):
        root = EXACT.sqrt(EXACT.multiply(amount, -delta.ln(EXACT)))
        epsilon = math.nextafter(float(EXACT.add(amount, EXACT.multiply(Decimal(2), root))), math.inf)
    return Spent(unit=unit, amount=amount, epsilon=float(epsilon), delta=delta)


def _laplace(scale: float) -> Any:
    dp = _opendp()
    return dp.m.make_laplace(dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64"), scale=scale)


def _gaussian(scale: float) -> Any:
    dp = _opendp()
    return dp.m.make_gaussian(dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64"), scale=scale)


def _gumbel(c: int, scale: float) -> Any:
    dp = _opendp()
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.linf_distance(T="i64")
    return dp.m.make_noisy_top_k(*space, dp.zero_concentrated_divergence(), k=c, scale=scale, negate=True)


def _opendp() -> Any:
    import opendp.prelude as dp  # noqa: PLC0415  (0.3 s; nothing of it can be pickled, so it stays on the driver)

    dp.enable_features("contrib")
    return dp
