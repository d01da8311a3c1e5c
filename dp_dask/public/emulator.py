"""Emulator: the mean of the simulated sums as a cubic function of the unknowns around a centre, and their covariance there.

Simulations are weighed by their unknowns alone. Weights that depended on the sums too, as those of a posterior do, would flatten
the mean's slope: posteriors twice as wide were measured.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dp_dask.errors import InferenceError
from dp_dask.public.proposals import Normal, normalised
from dp_dask.public.tempering import Cloud

__all__ = ["Emulator", "emulate", "polynomial"]

Floats = NDArray[np.float64]
DEGREES = (2, 3)
BEYOND = 1e-4  # of a normal posterior, where a polynomial may turn back and nothing is believed
BROAD = 2.0  # times the sd: the width of the normal weights that the mean is fitted with
PER_COEFFICIENT = 10  # effective simulations
JITTER, CONSTANT = 1e-10, 1e-4  # of a correlation matrix's determinant's factors; below it sums follow from each other
SQUARINGS = 4


@dataclass(frozen=True, slots=True)
class Emulator:
    """S | w ~ N(mean(w), covariance(w)) within reach of the centre, u being w in units of the posterior's sd.

    The covariance is F F', F = root exp(sum_k u_k slopes_k / 2) core, near the centre a matrix whose logarithm is linear in u: a
    constant one moves the posterior by the order of 1 / sqrt(n) of its sd. ``skewness`` and ``kurtosis`` (excess) [d] are those
    of the sums given w, ``variation`` [d] the sd, over the posterior, of the log of a sum's variance.

    Where fewer records were simulated than there are (``SimulatedObservation.each``), F F' is ``factor`` times the covariance of
    the sums, and the error of the emulated mean is no longer small beside it: ``covariance`` is F F' (1 / factor + leverage),
    with x' A x the leverage of the weighted regression, x the polynomial's terms and A = ``spread`` its coefficients' covariance
    in units of F F'.
    """

    around: Normal
    degree: int
    coefficients: Floats  # [features, d]
    root: Floats  # [d, d]
    slopes: Floats  # [q, d, d], each symmetric
    core: Floats  # [d, d]
    skewness: Floats
    kurtosis: Floats
    variation: Floats
    failures: float  # share of the simulations near the centre
    size: float  # effective simulations that the covariance is from
    factor: float = 1.0
    spread: Floats | None = None  # [features, features], where the factor is not 1

    def mean(self, w: Floats) -> Floats:
        """Return the mean sums [k, d]."""
        return polynomial(self.around.whiten(w), self.degree) @ self.coefficients

    def covariance(self, w: Floats) -> Floats:
        """Return the sums' covariances [k, d, d]."""
        factor = self.root @ half_exponential(self.around.whiten(w), self.slopes) @ self.core
        found = np.asarray(factor @ factor.transpose(0, 2, 1))
        return found if self.spread is None else found * (1 / self.factor + self.leverage(w))[:, None, None]

    @property
    def variance(self) -> Floats:
        """The sums' variances [d] at the centre."""
        return np.asarray(((self.root @ self.core) ** 2).sum(axis=1) / self.factor)

    def leverage(self, w: Floats) -> Floats:
        """Return the variance [k] of the emulated mean's error, in units of that of a simulated sum; 0 where it is neglected."""
        if self.spread is None:
            return np.zeros(len(w))
        x = polynomial(self.around.whiten(w), self.degree)
        return np.asarray(np.einsum("kf,fg,kg->k", x, self.spread, x))

    def is_near(self, w: Floats) -> NDArray[np.bool_]:
        """Tell which unknowns [k] the emulator may be believed at."""
        return np.asarray((self.around.whiten(w) ** 2).sum(axis=1) < _reach(w.shape[1]))


def half_exponential(u: Floats, slopes: Floats) -> Floats:
    """Return exp(sum_k u_k slopes_k / 2) [n, d, d], as the power 16 of a first-order term, which no large slope can overthrow."""
    found = np.eye(slopes.shape[1]) + np.tensordot(u, slopes, axes=1) / (2 * 2**SQUARINGS)
    for _ in range(SQUARINGS):
        found = found @ found
    return np.asarray(found)


def polynomial(u: Floats, degree: int) -> Floats:
    """Return all products of up to ``degree`` of u's columns [k, features], 1 first."""
    columns = [np.ones(len(u))]
    for order in range(1, degree + 1):
        columns += [u[:, chosen].prod(axis=1) for chosen in itertools.combinations_with_replacement(range(u.shape[1]), order)]
    return np.stack(columns, axis=1)


def emulate(cloud: Cloud, around: Normal) -> Emulator:
    """Fit the mean with normal weights twice as wide as ``around``, and the covariance with its own.

    Raises InferenceError where too few simulations lie there.
    """
    w = cloud.made.w
    u = around.whiten(w)
    squares = (u**2).sum(axis=1)
    near = np.isfinite(cloud.log_prior) & (squares < _reach(u.shape[1]))
    density = np.where(near, np.exp(-squares / 2 - cloud.log_mixture), 0.0)
    near &= cloud.made.is_whole
    u, squares, sums = u[near], squares[near], cloud.made.sums[near].astype(np.float64)
    if len(u) == 0:
        raise InferenceError(_too_few(0.0, PER_COEFFICIENT))
    base = -cloud.log_mixture[near]
    narrow, broad = normalised(base - squares / 2), normalised(base - squares / (2 * BROAD**2))
    size = float(min(1 / (narrow**2).sum(), 1 / (broad**2).sum()))
    needed = {each: PER_COEFFICIENT * math.comb(u.shape[1] + each, each) for each in DEGREES}
    degree = max((each for each in DEGREES if needed[each] <= size), default=0)
    if not degree:
        raise InferenceError(_too_few(size, needed[DEGREES[0]]))
    x = polynomial(u, degree)
    root = np.sqrt(broad)[:, None]
    centre = broad @ sums  # so that no digits are lost
    coefficients, *_ = np.linalg.lstsq(root * x, root * (sums - centre), rcond=None)
    residual = sums - centre - x @ coefficients
    coefficients[0] += centre
    root, slopes = _second_moments(u, residual, broad)
    factor = root @ half_exponential(u, slopes)
    z = np.linalg.solve(factor, residual[:, :, None])[:, :, 0]
    core = np.linalg.cholesky((narrow[:, None] * z).T @ z / (1 - (narrow**2).sum()) + JITTER * np.eye(len(root)))
    scaled = factor @ core
    standard = residual / np.sqrt((scaled**2).sum(axis=2))
    factor_of_n = cloud.problem.observation.factor
    changes = np.einsum("jr,krs,js->kj", root, slopes, root) / (root**2).sum(axis=1)
    return Emulator(
        around,
        degree,
        coefficients,
        root,
        slopes,
        core,
        skewness=narrow @ standard**3 / math.sqrt(factor_of_n),
        kurtosis=(narrow @ standard**4 - 3) / factor_of_n,
        variation=np.sqrt((changes**2).sum(axis=0)),
        failures=float(density[~cloud.made.is_whole].sum() / density.sum()),
        size=float(1 / (narrow**2).sum()),
        factor=float(factor_of_n),
        spread=None if factor_of_n == 1 else _spread(x, broad),
    )


def _spread(x: Floats, weight: Floats) -> Floats:
    """Return the covariance of a weighted regression's coefficients, for residuals of variance 1: (X'WX)^-1 X'W^2X (X'WX)^-1."""
    inverse = np.linalg.pinv((weight[:, None] * x).T @ x, hermitian=True)
    return np.asarray(inverse @ ((weight**2)[:, None] * x).T @ x @ inverse)


def _second_moments(u: Floats, residual: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """Regress the residuals' products on u: return a root of their mean [d, d], and their slopes in its units [q, d, d].

    Where sums follow from each other, as those of all cells do from a public n, the root is tiny and the slopes are 0.
    """
    x = np.concatenate([np.ones((len(u), 1)), u], axis=1)
    d = residual.shape[1]
    products = (residual[:, :, None] * residual[:, None, :]).reshape(len(u), d * d)
    half = np.sqrt(weight)[:, None]
    fitted = np.linalg.lstsq(half * x, half * products, rcond=None)[0].reshape(-1, d, d)
    scale = np.sqrt(np.maximum(np.diag(fitted[0]), np.finfo(float).tiny))
    values, vectors = np.linalg.eigh(fitted[0] / scale / scale[:, None])
    free = values > CONSTANT
    root = scale[:, None] * vectors * np.sqrt(np.maximum(values, JITTER))
    inverse = (vectors / np.sqrt(np.where(free, values, 1)) * free).T / scale
    return root, inverse @ fitted[1:] @ inverse.T


def _reach(n_unknowns: int) -> float:
    """Return the squared Mahalanobis distance to which the emulator reaches."""
    return float(special.chdtri(n_unknowns, BEYOND))


def _too_few(found: float, enough: int) -> str:
    return f"only {found:.0f} simulations near the posterior where {enough} are needed to emulate the sums; simulate more"
