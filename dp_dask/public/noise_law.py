"""Noise laws: discrete Laplace and discrete Gaussian noise as inference sees them, in grid units."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dp_dask.public.normal_laplace import cdf as cdf_laplace
from dp_dask.public.normal_laplace import log_density as log_density_laplace

__all__ = ["Gaussian", "Laplace", "NoiseLaw", "Noisy"]

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]
TAIL = 40.0  # nats below the mode at which noise ends
DAMPED = 39.0  # nats: a frequency damped to 1e-17 adds nothing in float64
STEEPEST = 0.9  # of Laplace noise's own decay, the most that a law is tilted by
NARROW = 0.4  # scale of Gaussian noise: below, sums over whole numbers are short; above, those over frequencies (Poisson)
NEAREST = np.arange(-8.0, 9.0)  # whole numbers about the mode that hold all of narrow Gaussian noise
WIDE = 5.0  # scale of Gaussian noise from which its variance is the scale's square to every digit


@dataclass(frozen=True, slots=True)
class Laplace:
    """P(k) proportional to exp(-|k| / scale)."""

    scale: float

    name: ClassVar[str] = "Laplace"

    @property
    def variance(self) -> float:
        """The variance, 2 a / (1 - a)^2 with a = exp(-1 / scale)."""
        return 2 * math.exp(-1 / self.scale) / math.expm1(-1 / self.scale) ** 2

    @property
    def continuous_variance(self) -> float:
        """The variance of the continuous law of the same scale."""
        return 2 * self.scale**2

    @property
    def reach(self) -> float:
        """How far from 0 the probability has fallen by 40 nats."""
        return TAIL * self.scale

    @property
    def last_frequency(self) -> float:
        """The frequency beyond which noise damps everything to nothing: none does."""
        return math.inf

    def decay(self, k: Floats | float, other: Floats | float = 0.0) -> Floats:
        """Return log P(k) - log P(other)."""
        return -(np.abs(k) - np.abs(other)) / self.scale

    def log_pmf(self, k: Floats | float) -> Floats:
        """Return log P(k) of whole numbers k."""
        return self.decay(k) + math.log(math.tanh(1 / (2 * self.scale)))

    def characteristic(self, w: Floats) -> Floats:
        """Return E[exp(i w Z)], real because the law is even, 1 at w = 0."""
        gap = -math.expm1(-1 / self.scale)
        return gap**2 / (gap**2 + 4 * (1 - gap) * np.sin(w / 2) ** 2)

    def transform(self, t: Floats, w: Floats) -> tuple[Floats, Complexes]:
        """Return a [k] and b [k, m] with E[exp((t + i w) Z)] = exp(a) b for tilts t [k], |t| < 1 / scale, and w [m]."""
        gap = -math.expm1(-1 / self.scale)
        half = (1j * w + t[:, None]) / 2
        return np.zeros(len(t)), gap**2 / (gap**2 - 4 * (1 - gap) * np.sinh(half) ** 2)

    def tilts(self, _below: float, _above: float) -> tuple[float, float]:
        """Return the range of tilts that are tried; arguments as for ``Gaussian.tilts``."""
        return -STEEPEST / self.scale, STEEPEST / self.scale

    def tilted_mean(self, _t: Floats) -> float:
        """Return the mean of noise tilted by exp(t Z), here as if it were the mode: all of the tilt is the sum's to follow."""
        return 0.0

    @property
    def tilted_scale(self) -> float:
        """The scale of noise that decays as slowly as the tilted one."""
        return self.scale / (1 - STEEPEST)

    def log_density(self, z: Floats, sd: Floats) -> Floats:
        """Return the log density at z of N(0, sd^2) plus continuous noise; shapes broadcast."""
        return log_density_laplace(z, sd, self.scale)

    def cdf(self, z: Floats, sd: Floats) -> Floats:
        """Return P(N(0, sd^2) + continuous noise <= z), accurate in the lower tail too; shapes broadcast."""
        return cdf_laplace(z, sd, self.scale)

    def draw(self, rng: np.random.Generator, size: int | None = None) -> Any:
        """Draw pseudo-noise for simulated releases, as the difference of two geometric variables; it protects nobody."""
        p = -math.expm1(-1 / self.scale)
        return rng.geometric(p, size) - rng.geometric(p, size)


@dataclass(frozen=True, slots=True)
class Gaussian:
    """P(k) proportional to exp(-k^2 / (2 scale^2)) (Canonne, Kamath & Steinke 2020); the members are those of ``Laplace``."""

    scale: float

    name: ClassVar[str] = "Gaussian"

    @property
    def variance(self) -> float:
        """The variance, a little below the scale's square where that is small."""
        if self.scale >= WIDE:
            return self.scale**2
        k = np.arange(-64.0, 65.0)
        return float(k**2 @ np.exp(self.log_pmf(k)))

    @property
    def continuous_variance(self) -> float:
        """The variance of the normal law of the same scale."""
        return self.scale**2

    @property
    def reach(self) -> float:
        """How far from 0 the probability has fallen by 40 nats."""
        return math.sqrt(2 * TAIL) * self.scale

    @property
    def last_frequency(self) -> float:
        """The frequency beyond which noise damps everything to nothing."""
        return math.sqrt(2 * DAMPED) / self.scale

    def decay(self, k: Floats | float, other: Floats | float = 0.0) -> Floats:
        """Return log P(k) - log P(other), by factors: far out the squares' difference would cancel."""
        return np.asarray((np.abs(other) - np.abs(k)) / self.scale * ((np.abs(other) + np.abs(k)) / self.scale) / 2)

    def log_pmf(self, k: Floats | float) -> Floats:
        """Return log P(k) of whole numbers k."""
        return self.decay(k) - self._log_sum()

    def characteristic(self, w: Floats) -> Floats:
        """Return E[exp(i w Z)], real because the law is even, 1 at w = 0.

        Over frequencies it is the sum over m of exp(-scale^2 (w + 2 pi m)^2 / 2) over the same sum at w = 0 (Poisson).
        """
        return np.asarray(self.transform(np.zeros(1), np.asarray(w, dtype=np.float64).ravel())[1][0].real.reshape(np.shape(w)))

    def transform(self, t: Floats, w: Floats) -> tuple[Floats, Complexes]:
        """Return a [k] and b [k, m] with E[exp((t + i w) Z)] = exp(a) b for tilts t [k] and frequencies w [m].

        The sum over frequencies of ``characteristic`` continued to w - i t, or for narrow noise that over whole numbers near
        the tilted mode.
        """
        square = self.scale**2
        if self.scale < NARROW:
            mode = np.rint(square * t)
            log_norm = self.decay(mode) + t * mode
            k = mode[:, None] + NEAREST
            weights = np.exp(self.decay(k) + t[:, None] * k - log_norm[:, None] - self._log_sum())
            return log_norm, np.einsum("kj,kjm->km", weights, np.exp(1j * k[:, :, None] * w))
        near = np.mod(w + math.pi, 2 * math.pi) - math.pi
        terms = self._aliases()
        total = np.zeros((len(t), len(w)), dtype=np.complex128)
        for m in range(-terms, terms + 1):
            at = near + 2 * math.pi * m
            total += np.exp(-square * at**2 / 2) * np.exp(1j * square * t[:, None] * at)
        norm = float(np.exp(-square * (2 * math.pi * np.arange(-terms, terms + 1)) ** 2 / 2).sum())
        return square * t**2 / 2, total / norm

    def tilts(self, below: float, above: float) -> tuple[float, float]:
        """Return the tilts at which the noise's mean alone is y less the largest sum, ``below``, or the least, ``above``."""
        return below / self.scale**2, above / self.scale**2

    def tilted_mean(self, t: Floats) -> Floats:
        """Return the mean of noise tilted by exp(t Z)."""
        return np.asarray(self.scale**2 * t)

    @property
    def tilted_scale(self) -> float:
        """The scale of noise that decays as the tilted one does: a tilt moves a Gaussian law, no more."""
        return self.scale

    def log_density(self, z: Floats, sd: Floats) -> Floats:
        """Return the log density at z of N(0, sd^2) plus continuous noise; shapes broadcast."""
        total = np.hypot(sd, self.scale)
        return np.asarray(-0.5 * (z / total) ** 2 - np.log(total * math.sqrt(2 * math.pi)))

    def cdf(self, z: Floats, sd: Floats) -> Floats:
        """Return P(N(0, sd^2) + continuous noise <= z), accurate in the lower tail too; shapes broadcast."""
        return np.asarray(special.ndtr(z / np.hypot(sd, self.scale)))

    def draw(self, rng: np.random.Generator, size: int | None = None) -> Any:
        """Draw pseudo-noise for simulated releases; it protects nobody.

        Discrete Laplace draws of scale t = floor(scale) + 1, each kept with probability
        exp(-(|k| - scale^2 / t)^2 / (2 scale^2)) (Canonne, Kamath & Steinke 2020, algorithm 3).
        """
        wanted = 1 if size is None else size
        width = math.floor(self.scale) + 1
        kept = np.empty(0, dtype=np.int64)
        while len(kept) < wanted:
            k = Laplace(width).draw(rng, 2 * (wanted - len(kept)) + 8)
            chance = np.exp(-(((np.abs(k) - self.scale**2 / width) / self.scale) ** 2) / 2)
            kept = np.append(kept, k[rng.random(len(k)) < chance])
        return kept[0] if size is None else kept[:size]

    def _log_sum(self) -> float:
        """Return the log of the sum over whole numbers of exp(-k^2 / (2 scale^2))."""
        if self.scale < NARROW:
            return float(special.logsumexp(self.decay(NEAREST)))
        m = np.arange(-self._aliases(), self._aliases() + 1)
        return math.log(self.scale * math.sqrt(2 * math.pi) * float(np.exp(-((2 * math.pi * self.scale * m) ** 2) / 2).sum()))

    def _aliases(self) -> int:
        """Return the largest m whose term, at any frequency up to pi, is not below 1e-17."""
        return max(math.ceil((self.last_frequency + math.pi) / (2 * math.pi)), 1)


NoiseLaw = Laplace | Gaussian


class Noisy:
    """What a release seen through its model knows of its noise: its law and that law's scale, in grid units."""

    __slots__ = ()

    scale: float
    law: type[Laplace | Gaussian]

    @property
    def noise(self) -> NoiseLaw:
        """The law of the noise in each coordinate."""
        return self.law(self.scale)
