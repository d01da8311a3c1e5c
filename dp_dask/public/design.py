"""Design: how well a noisy sum will tell of a simulator's parameters, from simulations alone and before any budget is spent.

At a prior draw theta_0 the sum S is taken as normal with mean linear in theta, so that the posterior covariance after a release
with noise of covariance R is that of the normal linear model, V = [P0^-1 + J' (C + R)^-1 J]^-1, with P0 the prior covariance,
J = dE[S] / dtheta and C = Cov[S | theta], n times a record's covariance where records are independent.

J is found by regression of independent simulations on theta about theta_0, not by finite differences with common random
numbers: where theta changes how many random numbers a simulator draws they are not common, and regression needs nothing of the
simulator but its law. The information in J's own error is taken off.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.privacy import Loss, Neighbours, Unit
from dp_dask.core.table_sum import TableSum
from dp_dask.errors import InferenceError
from dp_dask.public.simulated_cells import Counted

__all__ = [
    "Cloud",
    "Clouds",
    "Linear",
    "Whitened",
    "are_independent",
    "fit_cloud",
    "linearise",
    "noise_variance",
    "predicted_variances",
    "whiten",
]

Floats = NDArray[np.float64]
DEGENERATE = 1e-9  # of the largest variance: below, a direction is none
UNKNOWN_N = 1.0  # prior sd of log n where n is private: far more than any data leave
SIMULATIONS_A_ROW = 20  # that its covariances with the others need: the information is then right to 5 %
INDEPENDENT = (
    0.8,
    1.25,
)  # ratio of the sums' variances to n times the records', within which records are independent given theta


@dataclass(frozen=True, slots=True, eq=False)
class Whitened:
    """theta = mean + root u with u of covariance 1 under the prior; root [p, r], where r < p if the parameters are tied."""

    mean: Floats
    root: Floats

    @property
    def variances(self) -> Floats:
        """The prior variances [p]."""
        return (self.root**2).sum(axis=1)

    def coordinates(self, theta: Floats) -> Floats:
        """Return u [k, r] of theta [k, p]."""
        return (theta - self.mean) @ np.linalg.pinv(self.root).T


@dataclass(frozen=True, slots=True, eq=False)
class Cloud:
    """Counts about theta_0: their mean there [cell], slopes in u [r, cell], residuals [K, cell], and (X'X)^-1 of the slopes.

    The last cell is one that holds every record: the number of records of a data set.
    """

    mean: Floats
    slopes: Floats
    residuals: Floats
    slopes_covariance: Floats
    freedom: int


@dataclass(frozen=True, slots=True, eq=False)
class Clouds:
    """Clouds about several prior draws.

    Simulated with ``records`` a data set; the release has ``n``, whose sums are n / records as large where records are
    independent. ``records`` is None where the simulator decides how many there are.
    """

    prior: Whitened
    each: tuple[Cloud, ...]
    records: int | None
    n: int | None

    @property
    def factor(self) -> float:
        """How many times as large as a simulated data set the released one is."""
        return 1.0 if self.records is None or self.n is None else self.n / self.records


@dataclass(frozen=True, slots=True, eq=False)
class Linear:
    """The sum at a prior draw: its mean [d], slopes in u [r, d] and covariance [d, d].

    The slopes' own error has covariance ``slopes_error`` [r, r] times the sum's.
    """

    mean: Floats
    slopes: Floats
    covariance: Floats
    slopes_error: Floats


def whiten(theta: Floats) -> Whitened:
    """Whiten prior draws [T, p]; raises InferenceError where they do not vary or are not finite."""
    covariance = np.atleast_2d(np.cov(theta.T))
    if not np.isfinite(covariance).all() or not np.diag(covariance).max() > 0:
        msg = "the prior's draws do not vary or are not finite; give a proper prior with a finite variance"
        raise InferenceError(msg)
    scale = np.sqrt(np.maximum(np.diag(covariance), np.finfo(np.float64).tiny))
    variances, vectors = np.linalg.eigh(covariance / np.outer(scale, scale))
    kept = variances > DEGENERATE * variances[-1]
    return Whitened(theta.mean(axis=0), scale[:, None] * vectors[:, kept] * np.sqrt(variances[kept]))


def fit_cloud(counted: Counted, centre: Floats, prior: Whitened) -> Cloud:
    """Regress the counts on u - u_0; raises InferenceError where too few data sets were simulated."""
    u = prior.coordinates(counted.theta) - prior.coordinates(centre[None])
    x = np.column_stack([np.ones(len(u)), u])
    freedom = len(x) - x.shape[1]
    if freedom < x.shape[1]:
        msg = f"only {len(x)} simulations about a prior draw succeeded; keep the prior away from where the simulator fails"
        raise InferenceError(msg)
    y = np.column_stack([counted.counts, counted.sizes])  # the number of records as one cell more, which holds them all
    inverse = np.linalg.pinv(x.T @ x, hermitian=True)
    fitted = inverse @ (x.T @ y)
    return Cloud(fitted[0], fitted[1:], y - x @ fitted, inverse[1:, 1:], freedom)


def noise_variance(statistic: TableSum, loss: Loss, neighbours: Neighbours) -> float:
    """Return the variance of each coordinate's noise in grid units: 2 (D1 / epsilon)^2 (Laplace), D2^2 / (2 rho) (Gaussian)."""
    if loss.unit is Unit.EPSILON:
        return 2 * (statistic.sensitivity(neighbours) / float(loss.amount)) ** 2
    return statistic.squared_sensitivity(neighbours) / (2 * float(loss.amount))


def linearise(statistic: TableSum, clouds: Clouds) -> list[Linear]:
    """Return mean, slopes and covariance of the statistic's sum, with the weighted count, at each prior draw."""
    rows = statistic.rows.astype(np.float64)
    rows = np.column_stack([rows, np.zeros(len(rows))])
    if statistic.count_weight:
        rows = np.vstack([rows, np.append(np.zeros(rows.shape[1] - 1), statistic.count_weight)])
    spreads, _ = _spreads(rows, clouds)
    factor = clouds.factor
    return [
        Linear(factor * (rows @ cloud.mean), factor * (cloud.slopes @ rows.T), factor * spread, factor * cloud.slopes_covariance)
        for cloud, spread in zip(clouds.each, spreads, strict=True)
    ]


def predicted_variances(each: Sequence[Linear], prior: Whitened, noise: float, n: int | None) -> Floats:
    """Return diag V [draw, parameter] after a release with noise of this variance (0: none).

    n: where it is private and not the simulator's to decide, the public guess of it, else None.
    """
    made = []
    for linear in each:
        mean, covariance = linear.mean, linear.covariance
        if n is not None:  # n ~ Poisson(L) with L unknown: the sum's covariance is L E[c c']
            covariance = covariance + np.outer(mean, mean) / n
        precision = np.linalg.pinv(covariance + noise * np.eye(len(mean)), rcond=DEGENERATE, hermitian=True)
        by_chance = np.sum(precision * linear.covariance) * linear.slopes_error
        information = linear.slopes @ precision @ linear.slopes.T - by_chance
        if n is not None:
            with_n = linear.slopes @ precision @ mean
            information = information - np.outer(with_n, with_n) / (mean @ precision @ mean + UNKNOWN_N**-2)
        made.append(np.diag(prior.root @ _posterior(information) @ prior.root.T))
    return np.array(made)


def are_independent(statistic: TableSum, clouds: Clouds) -> bool:
    """Tell whether the statistic's sums vary as sums of independent records do."""
    rows = np.column_stack([statistic.rows.astype(np.float64), np.zeros(len(statistic.rows))])
    return _spreads(rows, clouds)[1]


def _posterior(information: Floats) -> Floats:
    """Return (1 + information)^-1, with what the correction may have pushed below 0 put there."""
    values, vectors = np.linalg.eigh(information)
    shrunk: Floats = vectors / (1 + np.maximum(values, 0))
    return shrunk @ vectors.T


def _spreads(rows: Floats, clouds: Clouds) -> tuple[list[Floats], bool]:
    """Return Cov[S | theta] [d, d] at each prior draw, and whether it is that of independent records.

    Where it is, n times the covariance of one record is the better estimate by far. Else it is the cloud's own; of many
    coordinates only the variances are, and the correlations, which are d^2 numbers, those of all clouds together.
    """
    residuals = [cloud.residuals @ rows.T for cloud in clouds.each]
    free = [cloud.freedom for cloud in clouds.each]
    of_sums = [(each**2).sum(axis=0) / f for each, f in zip(residuals, free, strict=True)]
    if clouds.records is not None:
        of_records = [_of_independent(rows, cloud, clouds.records) for cloud in clouds.each]
        seen, expected = sum(map(np.sum, of_sums)), sum(map(np.trace, of_records))
        nothing = DEGENERATE * clouds.records * float((rows**2).max())  # all records in one bin
        if INDEPENDENT[0] * expected - nothing <= seen <= INDEPENDENT[1] * expected + nothing:
            return of_records, True
    if len(rows) * SIMULATIONS_A_ROW <= min(free):
        return [each.T @ each / f for each, f in zip(residuals, free, strict=True)], False
    scales = [np.sqrt(np.maximum(each, math.ulp(0))) for each in of_sums]
    correlation = sum((each / s).T @ (each / s) for each, s in zip(residuals, scales, strict=True)) / sum(free)
    return [correlation * np.outer(s, s) for s in scales], False


def _of_independent(rows: Floats, cloud: Cloud, records: int) -> Floats:
    """Return n Cov[c] for one record's c, from its probabilities of the cells."""
    p = np.maximum(cloud.mean[:-1] / records, 0)  # a regression may fall below 0
    p *= max(float(cloud.mean[:-1].sum()), 0.0) / records / max(float(p.sum()), math.ulp(0))
    inside = rows[:, :-1]
    mean = inside @ p
    return records * ((inside * p) @ inside.T - np.outer(mean, mean))
