"""Moments of one record's vector (u_i; u_i u_j for i <= j) under u ~ N(m, V), as it is or clamped to [-1, 1]."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from dp_dask.core.gram import MOST_COLUMNS

__all__ = ["Floats", "clamped_moments", "moments", "normal_points"]

Floats = NDArray[np.float64]
FAR = 8.5  # standard deviations: 2e-17 of a normal law lies beyond
NODES = 10  # a panel; the error is below 1e-8, at correlation .9999 below 3e-6
FIXED_ENDS = (-FAR, -3.5, 0.0, 3.5, FAR)


def moments(mean: Floats, covariance: Floats) -> tuple[Floats, Floats]:
    """Return the vector's mean [k, K] and covariance [k, K, K] for u ~ N(mean [k, c], covariance [k, c, c]), not clamped.

    By Isserlis' theorem, as Bernstein & Sheldon (2019) use it: Cov(u_i u_j, u_k) = V_ik m_j + V_jk m_i, and
    Cov(u_i u_j, u_k u_l) = V_ik M_jl + V_il M_jk + m_i m_k V_jl + m_i m_l V_jk with M = V + m m^T.
    """
    c = mean.shape[1]
    i, j = np.triu_indices(c)
    second = covariance + mean[:, :, None] * mean[:, None, :]
    mu = np.concatenate([mean, second[:, i, j]], axis=1)
    mixed = covariance[:, i] * mean[:, j, None] + covariance[:, j] * mean[:, i, None]  # [k, products, c]
    left, right = i[:, None], j[:, None]
    v_ik, v_il = covariance[:, left, i], covariance[:, left, j]
    v_jk, v_jl = covariance[:, right, i], covariance[:, right, j]
    m_i, m_k, m_l = mean[:, i, None], mean[:, None, i], mean[:, None, j]
    products = v_ik * second[:, right, j] + v_il * second[:, right, i] + m_i * (m_k * v_jl + m_l * v_jk)
    top = np.concatenate([covariance, mixed.transpose(0, 2, 1)], axis=2)
    return mu, np.concatenate([top, np.concatenate([mixed, products], axis=2)], axis=1)


def clamped_moments(mean: Floats, root: Floats, rounding: float = 0.0) -> tuple[Floats, Floats]:
    """Return the vector's mean [k, K] and covariance [k, K, K] for u = clip(N(mean, V), -1, 1), V = root^T root [k, c, c].

    The mean, which n multiplies, is exact: closed forms, and quadrature over u_i of E[u_j | u_i] for products; ``rounding`` is a
    variance that each u_i has besides. The covariance is that of fixed normal points pushed through mean + e root and the clamp:
    a covariance for every theta, smooth in it, and Isserlis' where nothing is clamped.
    """
    c = mean.shape[1]
    covariance = root.transpose(0, 2, 1) @ root + rounding * np.eye(c)
    sd = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    i, j = np.triu_indices(c)
    mu = np.empty((len(mean), c + len(i)))
    mu[:, :c], squares = _one(mean, sd)
    mu[:, c:][:, i == j] = squares
    if c > 1:
        a, b = np.triu_indices(c, 1)
        mu[:, c:][:, i != j] = _two(mean[:, a], mean[:, b], sd[:, a], sd[:, b], covariance[:, a, b])
    points, weights = normal_points(c)
    t = np.empty((*mu.shape, len(weights)))
    u = t[:, :c]
    np.matmul(root.transpose(0, 2, 1), points.T, out=u)
    np.add(u, mean[:, :, None], out=u)
    np.clip(u, -1, 1, out=u)
    place = c
    for first in range(c):
        np.multiply(u[:, first : first + 1], u[:, first:], out=t[:, place : place + c - first])
        place += c - first
    t -= (t @ weights)[:, :, None]
    t *= np.sqrt(weights)
    return mu, t @ t.transpose(0, 2, 1)


@lru_cache(maxsize=MOST_COLUMNS)
def normal_points(c: int) -> tuple[Floats, Floats]:
    """Return points [size, c] and positive weights [size] with all moments of N(0, 1) up to the fifth, always the same.

    Sobol' points and their mirror images, under the weights nearest to equal that match the even moments.
    """
    from scipy import stats  # noqa: PLC0415  (half a second of imports)

    size = 512 if c <= 5 else 1024 if c == 6 else 2048  # noqa: PLR2004  (the fewest for which such weights exist)
    e = special.ndtri(stats.qmc.Sobol(c, rng=np.random.default_rng(1)).random(size // 2))
    powers = [np.bincount(each, minlength=c) for d in (0, 2, 4) for each in combinations_with_replacement(range(c), d)]
    monomials = np.array([np.prod(e**power, axis=1) for power in powers])
    wanted = np.array([0.0 if (power % 2).any() else np.prod(special.factorial2(np.maximum(power - 1, 0))) for power in powers])
    # Weighted so heavily, the equations of the moments hold to 1e-11.
    stiff = 1e5 / np.sqrt((monomials**2).mean(axis=1))
    rows = np.vstack([monomials * stiff[:, None], np.eye(len(e))])
    weights, _ = optimize.nnls(rows, np.concatenate([wanted * stiff * len(e), np.ones(len(e))]), maxiter=30 * len(e))
    kept = weights > 0
    points, weights = np.concatenate([e[kept], -e[kept]]), np.tile(weights[kept] / weights.sum(), 2) / 2
    for array in (points, weights):
        array.setflags(write=False)
    return points, weights


def _density(z: Floats) -> Floats:
    return np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)


def _one(mean: Floats, sd: Floats) -> tuple[Floats, Floats]:
    """Return E[u] and E[u^2] of u = clip(N(mean, sd^2), -1, 1)."""
    a, b = (-1 - mean) / sd, (1 - mean) / sd
    below, above = special.ndtr(a), special.ndtr(-b)
    phi_a, phi_b = _density(a), _density(b)
    inside = np.maximum(1 - below - above, 0)
    # Where sd is huge the terms cancel: what is inside cannot carry more than its probability.
    first = np.clip(inside * mean + sd * (phi_a - phi_b), -inside, inside)
    second = np.clip(inside * (mean**2 + sd**2) - sd * ((1 - mean) * phi_a + (1 + mean) * phi_b), 0, inside)
    return first + above - below, second + above + below


def _two(m_i: Floats, m_j: Floats, sd_i: Floats, sd_j: Floats, v_ij: Floats) -> Floats:
    """Return E[clip(u_i) clip(u_j)] = E[clip(u_i) E[clip(u_j) | u_i]] over u_i = m_i + sd_i e, from kink to kink."""
    slope = v_ij / sd_i
    rest = np.sqrt(np.maximum(sd_j**2 - slope**2, 1e-24 * sd_j**2))
    steep = np.where(np.abs(slope) > 1e-9 * sd_j, slope, 1e-9 * sd_j)  # a kink so far off is cut away
    kinks = [(-1 - m_i) / sd_i, (1 - m_i) / sd_i, (-1 - m_j) / steep, (1 - m_j) / steep]
    ends = np.stack([*kinks, *(np.full_like(m_i, end) for end in FIXED_ENDS)], axis=-1)
    ends = np.sort(np.clip(ends, -FAR, FAR), axis=-1)[..., None]
    x, w = np.polynomial.legendre.leggauss(NODES)
    width = ends[..., 1:, :] - ends[..., :-1, :]
    e = ends[..., :-1, :] + width * (x + 1) / 2

    def widen(values: Floats) -> Floats:
        return values[..., None, None]

    u_i = np.clip(widen(m_i) + widen(sd_i) * e, -1, 1)
    first, _ = _one(widen(m_j) + widen(slope) * e, widen(rest))
    return (u_i * first * _density(e) * width * w).sum(axis=(-1, -2)) / 2
