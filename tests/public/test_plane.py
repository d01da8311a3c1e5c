"""The plane of cells against densities known in closed form or on fine grids, and on releases of normal(mu, sigma)."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special, stats

from dp_dask.errors import InferenceError
from dp_dask.public.modes import Box, find_modes
from dp_dask.public.normal_laplace_2d import log_density
from dp_dask.public.plane import tabulate

BOX = Box(np.array([-40.0, -40.0]), np.array([40.0, 40.0]))
STARTS = np.random.default_rng(0).normal(size=(60, 2)) * 5
QUANTILES = np.array([0.001, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999])


def normal(mean, s1, s2, rho):
    covariance = np.array([[s1 * s1, rho * s1 * s2], [rho * s1 * s2, s2 * s2]])
    precision = np.linalg.inv(covariance)
    constant = -0.5 * np.log(np.linalg.det(covariance))
    return lambda v: constant - 0.5 * np.einsum("ki,ij,kj->k", v - mean, precision, v - mean)


@pytest.mark.parametrize("rho", [0.0, 0.8, -0.9999, 0.999999])
@pytest.mark.parametrize("scale", [(1.0, 2.0), (1e-4, 1e-3), (3.0, 0.001)])
def test_a_correlated_normal(rho, scale):
    mean = np.array([0.3, -1.0])
    found = tabulate(normal(mean, *scale, rho), BOX, STARTS)
    sd = np.array(scale)
    np.testing.assert_allclose((found.mean - mean) / sd, 0, atol=1e-3)
    np.testing.assert_allclose(np.sqrt(np.diag(found.covariance)), sd, rtol=3e-3)
    across = np.array([-rho / sd[0], 1 / sd[1]])  # the narrow direction, of variance 1 - rho^2
    v, weights = found.nodes()
    assert weights @ ((v - mean) @ across) ** 2 == pytest.approx(1 - rho**2, rel=6e-3)
    for axis in (0, 1):
        for p in QUANTILES:
            assert found.cdf(mean[axis] + sd[axis] * stats.norm.ppf(p), axis) == pytest.approx(p, abs=1.5e-3)
    assert found.evaluations < 2500


@pytest.mark.parametrize(("bend", "width"), [(0.3, 1.0), (0.5, 0.5), (1.0, 0.5), (1.0, 0.3)])
def test_a_banana(bend, width):
    """v_1 ~ N(0, 1), v_2 | v_1 ~ N(bend v_1^2, width^2)."""
    found = tabulate(lambda v: -0.5 * v[:, 0] ** 2 - 0.5 * ((v[:, 1] - bend * v[:, 0] ** 2) / width) ** 2, BOX, STARTS)
    assert found.mean == pytest.approx([0, bend], abs=0.01)
    assert np.sqrt(np.diag(found.covariance)) == pytest.approx([1, np.sqrt(width**2 + 2 * bend**2)], rel=0.01)
    for p in QUANTILES:
        assert found.cdf(stats.norm.ppf(p), 0) == pytest.approx(p, abs=4e-3)
    rest = found.probability(lambda v: v[:, 1] - bend * v[:, 0] ** 2 <= width)
    assert rest == pytest.approx(special.ndtr(1), abs=4e-3)


def test_a_banana_too_thin_for_the_cells_is_refused():
    with pytest.raises(InferenceError, match="did not settle"):
        tabulate(lambda v: -0.5 * (v[:, 0] / 2) ** 2 - 0.5 * ((v[:, 1] - v[:, 0] ** 2) / 0.02) ** 2, BOX, STARTS)


def test_a_funnel():
    """v_1 ~ N(0, 1), v_2 | v_1 ~ N(0, exp(2 v_1))."""
    found = tabulate(lambda v: -0.5 * v[:, 0] ** 2 - 0.5 * v[:, 1] ** 2 * np.exp(-2 * v[:, 0]) - v[:, 0], BOX, STARTS)
    for p in QUANTILES:
        assert found.cdf(stats.norm.ppf(p), 0) == pytest.approx(p, abs=3e-3)
    assert found.probability(lambda v: v[:, 1] <= np.exp(v[:, 0])) == pytest.approx(special.ndtr(1), abs=3e-3)


@pytest.mark.parametrize("share", [0.01, 0.5, 0.9])
def test_two_modes_far_apart_each_with_its_own_axes(share):
    one, two = normal(np.array([-6, -6.0]), 0.1, 0.1, 0.5), normal(np.array([6, 5.0]), 0.5, 0.02, -0.7)
    found = tabulate(lambda v: np.logaddexp(np.log(1 - share) + one(v), np.log(share) + two(v)), BOX, STARTS)
    assert found.probability(lambda v: v[:, 0] > 0) == pytest.approx(share, abs=2e-3)


def test_a_spike_on_a_broad_mode_is_kept_where_a_start_lies_near_it():
    broad, spike = normal(np.array([-1.5, 0.0]), 2.0, 2.0, 0.5), normal(np.array([1.5, 0.5]), 0.05, 0.05, -0.7)
    starts = np.concatenate([STARTS, [[1.45, 0.55]]])
    found = tabulate(lambda v: np.logaddexp(np.log(0.7) + broad(v), np.log(0.3) + spike(v)), BOX, starts)
    inside = found.probability(lambda v: (np.abs(v - [1.5, 0.5]) < 0.25).all(axis=1))
    assert inside == pytest.approx(0.3 + 0.7 * 0.5**2 * np.exp(broad(np.array([[1.5, 0.5]])))[0] / (2 * np.pi), abs=3e-3)


def test_kinks_and_heavy_tails_against_a_fine_grid():
    def kinked(v):
        return -np.abs(v[:, 0]) - 3 * np.abs(v[:, 1] - v[:, 0])

    def heavy(v):
        return stats.t.logpdf(v[:, 0], 4) + stats.t.logpdf(v[:, 1] / 2, 4)

    found = tabulate(kinked, BOX, STARTS)
    for p in QUANTILES:
        assert found.cdf(stats.laplace.ppf(p), 0) == pytest.approx(p, abs=3e-3)
    found = tabulate(heavy, BOX, STARTS)
    for p in QUANTILES:
        assert found.cdf(stats.t.ppf(p, 4), 0) == pytest.approx(p, abs=2e-3)


def test_draws_have_the_density():
    """20,000 draws, KS p over 1e-5 on three functions; draws shrunk by 15 % fail."""
    bend, width = 0.5, 0.5
    found = tabulate(lambda v: -0.5 * v[:, 0] ** 2 - 0.5 * ((v[:, 1] - bend * v[:, 0] ** 2) / width) ** 2, BOX, STARTS)
    v = found.draw(np.random.default_rng(3), 20_000)
    rest = (v[:, 1] - bend * v[:, 0] ** 2) / width
    for value in (v[:, 0], rest, (v[:, 0] + rest) / np.sqrt(2)):
        assert stats.kstest(value, "norm").pvalue > 1e-5
        assert stats.kstest(0.85 * value, "norm").pvalue < 1e-5


@pytest.mark.parametrize(
    ("density", "message"),
    [
        (lambda v: 0 * v[:, 0], "contradicts the prior"),
        (normal(np.array([200.0, 0]), 1.0, 1.0, 0.0), "contradicts the prior"),
        (lambda v: np.where(v[:, 0] > 1, np.nan, -(v[:, 0] ** 2)), "not a number"),
        (lambda v: np.full(len(v), -np.inf), "not finite"),
    ],
)
def test_refusals(density, message):
    with pytest.raises(InferenceError, match=message):
        tabulate(density, BOX, STARTS)


def test_a_start_very_far_off_finds_a_narrow_mode():
    modes, _, _ = find_modes(normal(np.array([3.3, -1.0]), 1e-5, 1e-3, 0.99), BOX, STARTS[:1])
    np.testing.assert_allclose(modes[0].point, [3.3, -1.0], atol=1e-5)


BOUND, UNITS = 9.0, 100.0


def clamped_normal_moments(mu, sigma):
    """Mean and covariance of (z, z^2) for z = clamp(x, +-9) / 9, x normal, in grid units."""
    a, b = (-BOUND - mu) / sigma, (BOUND - mu) / sigma
    fa, fb = stats.norm.pdf(a), stats.norm.pdf(b)
    below, above = special.ndtr(a), special.ndtr(-b)
    parts = [np.where(a > 0, special.ndtr(-a) - above, special.ndtr(b) - below), fa - fb]
    parts += [np.zeros(0)] * 3
    for k in (2, 3, 4):
        parts[k] = a ** (k - 1) * fa - b ** (k - 1) * fb + (k - 1) * parts[k - 2]
    raw = [
        (
            sum(special.comb(k, j) * mu ** (k - j) * sigma**j * parts[j] for j in range(k + 1))
            + (-BOUND) ** k * below
            + BOUND**k * above
        )
        / BOUND**k
        for k in range(1, 5)
    ]
    covariance = np.empty((len(mu), 2, 2))
    covariance[:, 0, 0] = raw[1] - raw[0] ** 2
    covariance[:, 1, 1] = raw[3] - raw[1] ** 2
    covariance[:, 0, 1] = covariance[:, 1, 0] = raw[2] - raw[0] * raw[1]
    return np.stack(raw[:2], axis=1) * UNITS, covariance * UNITS**2


def release(rng, n, epsilon):
    """A truth, its log posterior in (asinh(mu / 1.5), log sigma), and starts; NIG(0, .1, 2, 2) prior."""
    s2 = 2 / rng.gamma(2, size=61)
    v = np.stack([np.arcsinh(rng.normal(size=61) * np.sqrt(s2 / 0.1) / 1.5), 0.5 * np.log(s2)], axis=1)
    truth, starts = v[0], v[1:]
    z = np.clip(rng.normal(1.5 * np.sinh(truth[0]), np.exp(truth[1]), n), -BOUND, BOUND) / BOUND
    scale = UNITS * 2.25 / epsilon
    y = UNITS * np.array([z.sum(), (z**2).sum()]) + rng.laplace(size=2) * scale

    def log_posterior(v):
        mu, sigma = 1.5 * np.sinh(v[:, 0]), np.exp(v[:, 1])
        prior = -4 * v[:, 1] - 2 / sigma**2 - v[:, 1] - 0.05 * (mu / sigma) ** 2 + np.log(np.cosh(v[:, 0]))
        mean, covariance = clamped_normal_moments(mu, sigma)
        return prior + log_density(y, n * mean, n * covariance, scale)

    m, q = y[0] / n / UNITS * BOUND, y[1] / n / UNITS * BOUND**2
    guesses = [[np.arcsinh(a * m / 1.5), 0.5 * np.log(max(q - (a * m) ** 2, 1e-3) * b)] for a in (1, 1.3) for b in (1, 4)]
    return truth, log_posterior, np.concatenate([guesses, starts])


def test_releases_of_a_normal_are_calibrated_and_their_mode_is_never_missed():
    """120 releases, n from 30 to 1e5 and epsilon from 0.1 to 10: KS p over 1e-5 for both parameters (false alarm 2e-5)."""
    rng = np.random.default_rng(11)
    box = Box(np.array([-9.0, -2.5]), np.array([9.0, 8.0]))
    ranks = []
    for _ in range(120):
        n, epsilon = int(10 ** rng.uniform(1.5, 5)), 10 ** rng.uniform(-1, 1)
        truth, log_posterior, starts = release(rng, n, epsilon)
        found = tabulate(log_posterior, box, starts)
        assert log_posterior(truth[None])[0] <= log_posterior(found.centre).max() + 0.3
        ranks.append([found.cdf(truth[axis], axis) for axis in (0, 1)])
    for u in np.array(ranks).T:
        assert stats.kstest(u, "uniform").pvalue > 1e-5


@pytest.mark.parametrize(("n", "epsilon"), [(1, 1.0), (20, 0.3), (1000, 10.0), (100_000, 1.0)])
def test_a_release_of_a_normal_equals_a_fine_grid(n, epsilon):
    _, log_posterior, starts = release(np.random.default_rng(n), n, epsilon)
    found = tabulate(log_posterior, Box(np.array([-9.0, -2.5]), np.array([9.0, 8.0])), starts)
    v, _ = found.nodes()
    low, high = v[found.nodes()[1] > 1e-9].min(axis=0), v[found.nodes()[1] > 1e-9].max(axis=0)
    x = [low[j] + (high[j] - low[j]) * (np.arange(250) + 0.5) / 250 for j in (0, 1)]
    grid = np.stack(np.meshgrid(*x, indexing="ij"), axis=-1).reshape(-1, 2)
    density = log_posterior(grid)
    weights = np.exp(density - density.max())
    weights /= weights.sum()
    mean = weights @ grid
    sd = np.sqrt(weights @ (grid - mean) ** 2)
    np.testing.assert_allclose((found.mean - mean) / sd, 0, atol=4e-3)
    np.testing.assert_allclose(np.sqrt(np.diag(found.covariance)) / sd, 1, atol=5e-3)
