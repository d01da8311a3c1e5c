"""What is reported of several columns: a regression's coefficients, or means, sds and correlations, in their own units."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.gram import GramSum
from dp_dask.core.wishart import NormalInverseWishart

__all__ = ["GramPrior", "reported"]

Floats = NDArray[np.float64]
DRAWS, SEED = 20_000, 0  # for means and sds of the prior, which have no closed form; the same every time


def reported(model: Any, statistic: GramSum, m: Floats, v: Floats) -> Floats:
    """Return the model's parameters [.., p] at means m [.., c] and covariances V [.., c, c] of the columns mapped to [-1, 1]."""
    half = np.array([each.width / 2 for each in statistic.bounds])
    mean = np.array([each.lower / 2 + each.upper / 2 for each in statistic.bounds]) + half * m
    if hasattr(model, "response"):
        return _regression(mean, v, half)
    sd = np.sqrt(np.diagonal(v, axis1=-2, axis2=-1))
    one, other = np.triu_indices(len(half), 1)
    correlation = v[..., one, other] / (sd[..., one] * sd[..., other])
    return np.concatenate([mean, half * sd, correlation], axis=-1)


def _regression(mean: Floats, v: Floats, half: Floats) -> Floats:
    """Regress the last column on the others: slopes = Vxx^-1 Vxy, sigma^2 = Vyy - Vyx Vxx^-1 Vxy."""
    # Solved on the common scale: the columns' units may differ by many orders of magnitude.
    across = v[..., :-1, -1]
    slopes = np.linalg.solve(v[..., :-1, :-1], across[..., None])[..., 0]
    rest = v[..., -1, -1] - (across * slopes).sum(axis=-1)
    slopes = slopes * half[-1] / half[:-1]
    intercept = mean[..., -1] - (slopes * mean[..., :-1]).sum(axis=-1)
    sigma = half[-1] * np.sqrt(np.maximum(rest, 0))
    return np.concatenate([slopes, intercept[..., None], sigma[..., None]], axis=-1)


@dataclass(frozen=True)
class GramPrior:
    """The normal-inverse-Wishart prior, seen as a prior of the reported parameters."""

    wishart: NormalInverseWishart
    model: Any
    statistic: GramSum

    def __str__(self) -> str:
        return str(self.wishart)

    def at(self, phi: Floats) -> Floats:
        """Return the reported parameters [k, p] at the prior's own coordinates [k, P]."""
        return reported(self.model, self.statistic, *self.wishart.parameters(phi))

    def rvs(self, rng: np.random.Generator, size: int) -> Floats:
        """Draw reported parameters [size, p]."""
        return self.at(self.wishart.rvs(rng, size))

    @cached_property
    def _draws(self) -> Floats:
        return self.rvs(np.random.default_rng(SEED), DRAWS)

    @property
    def mean(self) -> Floats:
        """The prior means, of 20,000 draws."""
        return self._draws.mean(axis=0)

    @property
    def sd(self) -> Floats:
        """The prior standard deviations, of 20,000 draws."""
        return self._draws.std(axis=0)
