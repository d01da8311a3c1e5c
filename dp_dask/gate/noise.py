"""Noise: the only source of privacy noise, OpenDP's exact integer sampler on the system's entropy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Protocol

import numpy as np

from dp_dask.errors import ConfigError

__all__ = ["LaplaceScale", "Noise", "OpenDPNoise", "laplace_scale"]

MAX_SCALE = 2.0**57  # above, a draw could leave int64


class Noise(Protocol):
    """A sampler of integer noise."""

    @property
    def sampler(self) -> str:
        """Its name in the release; ``insecure`` for one that is seeded, which no ledger accepts."""
        ...

    def add_discrete_laplace(self, values: Sequence[int], scale: float) -> list[int]:
        """Add independent noise, P(k) proportional to exp(-|k| / scale), to each value."""
        ...


@dataclass(frozen=True, slots=True)
class LaplaceScale:
    """A noise scale and the privacy loss that OpenDP's own map gives for it, rounded outwards."""

    scale: float
    privacy_loss: float


class OpenDPNoise:
    """Canonne, Kamath & Steinke's exact sampler as OpenDP implements it; entropy from the operating system."""

    @property
    def sampler(self) -> str:
        """OpenDP and its version."""
        from importlib.metadata import version  # noqa: PLC0415

        return f"opendp {version('opendp')}"

    def add_discrete_laplace(self, values: Sequence[int], scale: float) -> list[int]:
        """Add noise to all values in one call."""
        return [int(value) for value in _mechanism(scale)(np.asarray(values, dtype=np.int64))]


def laplace_scale(sensitivity: int, epsilon: Decimal) -> LaplaceScale:
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
        loss = float(_mechanism(scale).map(sensitivity))
        if Decimal(loss) <= epsilon:
            return LaplaceScale(scale, loss)
        scale = math.nextafter(scale, math.inf)


def _mechanism(scale: float) -> Any:
    import opendp.prelude as dp  # noqa: PLC0415  (0.3 s; nothing of it can be pickled, so it stays on the driver)

    dp.enable_features("contrib")
    return dp.m.make_laplace(dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64"), scale=scale)
