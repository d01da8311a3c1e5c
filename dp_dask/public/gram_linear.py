"""Linear: the normal sum seen as linear in the parameters, as draws suggest it; proposals follow it, correctness does not."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dp_dask.public.gram_likelihood import State

__all__ = ["Conditional", "Linear", "conditional", "linearise"]

Floats = NDArray[np.float64]
RIDGE = 1e-9  # of each coordinate's variance, for draws that lie in a plane


class Linear(NamedTuple):
    """For each release, S about ``at + slope (x - centre)`` with variance ``rest``; x about N(prior_mean, prior_precision^-1)."""

    slope: Floats  # [release, K, P]
    centre: Floats  # [release, P]
    at: Floats  # [release, K]
    rest: Floats  # [release, K, K]
    prior_mean: Floats  # [P]
    prior_precision: Floats  # [P, P]


class Conditional(NamedTuple):
    """The normal law of x given y and omega in the linear model: mean [k, P] and root [k, P, P], root root^T its covariance."""

    mean: Floats
    root: Floats

    def whiten(self, x: Floats) -> Floats:
        """Return root^-1 (x - mean) [k, P]."""
        z: Floats = np.asarray(np.linalg.solve(self.root, (x - self.mean)[:, :, None]), dtype=np.float64)[:, :, 0]
        return z

    def colour(self, z: Floats, rows: NDArray[np.int64]) -> Floats:
        """Return mean + root z for z [k, P] of the rows [k]."""
        return self.mean[rows] + (self.root[rows] @ z[:, :, None])[:, :, 0]


def linearise(x: Floats, state: State, prior_draws: Floats) -> Linear:
    """Fit E[S] by least squares to draws x [release, k, P]; what the line misses counts as further variance.

    ``state`` is that of x in the same order, its first axis release and draw as one. Statistical linear regression, as in
    Garcia-Fernandez et al., "Posterior linearization filter" (2015).
    """
    count, k, size = x.shape
    means = state.mean.reshape(count, k, -1)
    centre, at = x.mean(axis=1), means.mean(axis=1)
    inputs, outputs = x - centre[:, None], means - at[:, None]
    across = inputs.transpose(0, 2, 1)
    gram = across @ inputs
    gram += (RIDGE * np.diagonal(gram, axis1=1, axis2=2) + 1e-300)[:, :, None] * np.eye(size)
    slope = np.linalg.solve(gram, across @ outputs).transpose(0, 2, 1)
    missed = outputs - inputs @ slope.transpose(0, 2, 1)
    covariance = state.covariance.reshape(count, k, *state.covariance.shape[1:]).mean(axis=1)
    rest = missed.transpose(0, 2, 1) @ missed / k + covariance
    prior_mean = prior_draws.mean(axis=0)
    precision: Floats = np.linalg.inv((prior_draws - prior_mean).T @ (prior_draws - prior_mean) / len(prior_draws))
    return Linear(slope, centre, at, rest, prior_mean, precision)


def conditional(linear: Linear, y: Floats, omega: Floats, of: NDArray[np.int64]) -> Conditional:
    """Return the law of x given y and omega [k, K] for the releases ``of`` [k]."""
    slope, centre = linear.slope[of], linear.centre[of]
    noise = linear.rest[of] + omega[:, None, :] * np.eye(y.shape[1])
    weighted = np.linalg.solve(noise, slope)
    precision = linear.prior_precision + slope.transpose(0, 2, 1) @ weighted
    pull = (linear.prior_mean - centre) @ linear.prior_precision + ((y - linear.at[of])[:, None] @ weighted)[:, 0]
    root = np.linalg.inv(np.linalg.cholesky((precision + precision.transpose(0, 2, 1)) / 2)).transpose(0, 2, 1)
    mean = (root @ (root.transpose(0, 2, 1) @ pull[:, :, None]))[:, :, 0]
    return Conditional(centre + mean, root)
