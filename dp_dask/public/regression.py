"""The multivariate normal's draws in the columns' own units, and the linear regression that they are."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.gram import GramSum
from dp_dask.public.gram_posterior import GramDraws

__all__ = ["MultivariateNormal", "Regression", "multivariate_normal", "regression"]

Floats = NDArray[np.float64]


class MultivariateNormal(NamedTuple):
    """Draws of the mean [chain, draw, c] and covariance [chain, draw, c, c] in the columns' units and their products."""

    mean: Floats
    covariance: Floats


class Regression(NamedTuple):
    """Draws of y = intercept + slopes . x + N(0, sigma^2): intercept and sigma [chain, draw], slopes [chain, draw, p]."""

    intercept: Floats
    slopes: Floats
    sigma: Floats


def multivariate_normal(draws: GramDraws, statistic: GramSum) -> MultivariateNormal:
    """Undo the public map of every column to [-1, 1]."""
    middle = np.array([each.lower / 2 + each.upper / 2 for each in statistic.bounds])
    half = np.array([each.width / 2 for each in statistic.bounds])
    return MultivariateNormal(middle + half * draws.m, half[:, None] * half * draws.v)


def regression(draws: GramDraws, statistic: GramSum) -> Regression:
    """Regress the last column on the others: slopes = Vxx^-1 Vxy, sigma^2 = Vyy - Vyx Vxx^-1 Vxy (two columns or more)."""
    mean, _ = multivariate_normal(draws, statistic)
    # Solved on the common scale: the columns' units may differ by many orders of magnitude.
    half = np.array([each.width / 2 for each in statistic.bounds])
    across = draws.v[..., :-1, -1]
    slopes = np.linalg.solve(draws.v[..., :-1, :-1], across[..., None])[..., 0]
    rest = draws.v[..., -1, -1] - (across * slopes).sum(axis=-1)
    slopes = slopes * half[-1] / half[:-1]
    intercept = mean[..., -1] - (slopes * mean[..., :-1]).sum(axis=-1)
    return Regression(intercept, slopes, half[-1] * np.sqrt(np.maximum(rest, 0)))
