"""The bivariate normal-Laplace density against double quadrature, limits, log-space brute force and simulation."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import integrate, special, stats

from dp_dask.errors import InferenceError
from dp_dask.public.normal_laplace import log_density as log_density_1d
from dp_dask.public.normal_laplace_2d import log_density
from dp_dask.public.private_count_2d import gauss, log_density_private

ZERO = np.zeros((1, 2))


def covariance(s1, s2, rho):
    return np.array([[[s1 * s1, rho * s1 * s2], [rho * s1 * s2, s2 * s2]]])


def panels(edges, count):
    """Nodes and weights of Gauss-Legendre quadrature between each pair of edges."""
    nodes, weights = np.polynomial.legendre.leggauss(count)
    half = np.diff(edges)[:, None] / 2
    return (edges[:-1, None] + half * (nodes + 1)).ravel(), (half * weights).ravel()


def log_laplace(z, scale):
    return -np.abs(z) / scale - np.log(2 * scale)


@pytest.mark.parametrize("rho", [-0.8, 0.0, 0.6, 0.97])
@pytest.mark.parametrize(("s1", "s2"), [(1.0, 1.0), (0.2, 3.0), (5.0, 0.7)])
@pytest.mark.parametrize("scales", [(1.0, 1.0), (0.5, 2.0)])
def test_equals_a_double_integral_over_the_noise(rho, s1, s2, scales):
    matrix = covariance(s1, s2, rho)
    y = np.array([0.7, -1.9])
    normal = stats.multivariate_normal([0, 0], matrix[0])
    total = 0.0
    # The quarter planes of the noise, in which the integrand has no kink; the coordinates are the noise's own cdf.
    edges = np.concatenate([np.linspace(0, 0.5, 9)[:-1], 0.5 - 0.5 ** np.arange(5.0, 20), [0.5]])
    u, w = panels(edges, 16)
    for i in (-1, 1):
        for j in (-1, 1):
            z1, z2 = -i * scales[0] * np.log1p(-2 * u), -j * scales[1] * np.log1p(-2 * u)
            grid = np.stack(np.meshgrid(y[0] - z1, y[1] - z2, indexing="ij"), axis=-1)
            total += w @ normal.pdf(grid) @ w
    assert log_density(y, ZERO, matrix, np.array(scales))[0] == pytest.approx(math.log(total), abs=2e-6)


def test_equals_scipys_double_integral():
    matrix, y = covariance(1.3, 0.6, 0.7), np.array([1.0, -0.5])
    normal = stats.multivariate_normal([0, 0], matrix[0])
    value, _ = integrate.dblquad(
        lambda b, a: normal.pdf([a, b]) * math.exp(-abs(y[0] - a) - abs(y[1] - b)) / 4, -8, 8, -4, 4, epsabs=1e-6
    )
    assert log_density(y, ZERO, matrix, 1.0)[0] == pytest.approx(math.log(value), abs=1e-5)


def test_integrates_to_one_and_has_the_right_covariance():
    matrix = covariance(1.0, 2.0, 0.9)
    x = np.linspace(-30, 30, 401)
    grid = np.stack(np.meshgrid(x, x, indexing="ij"), axis=-1).reshape(-1, 2)
    density = np.exp(log_density(np.zeros(2), grid, np.broadcast_to(matrix, (len(grid), 2, 2)), np.array([1.0, 0.5]))) * 0.15**2
    assert density.sum() == pytest.approx(1, abs=1e-5)
    found = np.einsum("k,ki,kj->ij", density, grid, grid)
    np.testing.assert_allclose(found, matrix[0] + np.diag([2, 0.5]), atol=1e-3)


def test_simulated_sums_fall_where_the_density_says():
    """Chi-square on 6 x 6 cells, 2e5 simulated y, 35 df: false alarm 1e-6, p 0 with the correlation left out."""
    rng = np.random.default_rng(5)
    n, matrix = 200_000, covariance(2.0, 1.0, 0.8)
    y = rng.multivariate_normal([0, 0], matrix[0], n) + rng.laplace(size=(n, 2))
    edges = np.array([-12, -2, -0.8, 0, 0.8, 2, 12.0])
    found = np.histogram2d(y[:, 0], y[:, 1], bins=[edges, edges])[0]
    x, w = panels(edges, 24)
    grid = np.stack(np.meshgrid(x, x, indexing="ij"), axis=-1).reshape(-1, 2)

    def p_value(of):
        density = np.exp(log_density(np.zeros(2), grid, np.broadcast_to(of, (len(grid), 2, 2)), 1.0))
        mass = (density.reshape(len(x), -1) * np.outer(w, w)).reshape(6, 24, 6, 24).sum(axis=(1, 3))
        expected = mass / mass.sum() * found.sum()
        return stats.chi2.sf(np.sum((found - expected) ** 2 / expected), 35)

    assert p_value(matrix) > 1e-6
    assert p_value(covariance(2.0, 1.0, 0.0)) < 1e-9


def test_limits():
    rng = np.random.default_rng(1)
    mean = rng.normal(size=(50, 2)) * 3
    y = np.array([0.4, -1.0])
    for rho in (0.0, 0.5, -0.95):
        matrix = covariance(2.0, 0.7, rho)
        many = np.broadcast_to(matrix, (50, 2, 2))
        normal = stats.multivariate_normal([0, 0], matrix[0]).logpdf(y - mean)
        np.testing.assert_allclose(log_density(y, mean, many, 1e-9), normal, rtol=1e-8, atol=1e-6)
        laplace = log_laplace(y - mean, 1.5).sum(axis=1)
        np.testing.assert_allclose(log_density(y, mean, 1e-20 * many, 1.5), laplace, atol=1e-8)
        np.testing.assert_allclose(log_density(y, mean, 0 * many, 1.5), laplace, atol=1e-8)
    only_first = np.broadcast_to(covariance(2.0, 0.0, 0.0), (50, 2, 2))
    wanted = log_density_1d(y[0] - mean[:, 0], np.full(50, 2.0), 1.0) + log_laplace(y[1] - mean[:, 1], 1.0)
    np.testing.assert_allclose(log_density(y, mean, only_first, 1.0), wanted, atol=1e-8)
    np.testing.assert_allclose(log_density(y[::-1], mean[:, ::-1], only_first[:, ::-1, ::-1], 1.0), wanted, atol=1e-8)


def test_independent_coordinates_give_a_product_at_every_ratio_and_distance():
    rng = np.random.default_rng(2)
    for _ in range(200):
        s = 10 ** rng.uniform(-9, 12, 2)
        scales = 10 ** rng.uniform(-1, 1, 2)
        y = rng.normal(size=2) * (s + scales) * 10 ** rng.uniform(-1, 6, 2)
        wanted = sum(log_density_1d(y[j : j + 1], s[j : j + 1], scales[j])[0] for j in range(2))
        assert log_density(y, ZERO, covariance(*s, 0.0), scales)[0] == pytest.approx(wanted, rel=1e-10, abs=1e-7)


def brute_force(y, matrix, scales):
    """The other order of integration, on thousands of nodes between the points where the integrand has fallen 40 nats."""
    o = int(matrix[0, 0] / scales[0] ** 2 > matrix[1, 1] / scales[1] ** 2)
    s, slope = math.sqrt(matrix[o, o]), matrix[0, 1] / math.sqrt(matrix[o, o])
    rest = math.sqrt(max(matrix[1 - o, 1 - o] - slope**2, 0))

    def log_f(t):
        inner = log_density_1d(y[1 - o] - slope * t, np.full_like(t, rest), scales[1 - o])
        return stats.norm.logpdf(t) + log_laplace(y[o] - s * t, scales[o]) + inner

    kinks = [0.0, y[o] / s, y[1 - o] / slope]
    low, high = min(kinks), max(kinks)
    for _ in range(200):
        a, b = low + (high - low) / 3, high - (high - low) / 3
        low, high = (a, high) if log_f(np.array(a)) < log_f(np.array(b)) else (low, b)
    mode, top = low, log_f(np.array(low))
    ends = []
    for side in (-1, 1):
        near, far = 0.0, 9.5
        for _ in range(60):
            middle = (near + far) / 2
            near, far = (middle, far) if log_f(np.array(mode + side * middle)) > top - 40 else (near, middle)
        ends.append(mode + side * far)
    soft = rest / abs(slope)
    bends = [kinks[2] + e * soft * rest / scales[1 - o] + k * soft for e in (-1, 0, 1) for k in range(-10, 11)]
    points = np.unique([p for p in [*ends, mode, kinks[1], *bends] if ends[0] <= p <= ends[1]])
    x, w = panels(np.unique([np.linspace(a, b, 6) for a, b in itertools.pairwise(points)]), 20)
    return top + math.log(w @ np.exp(log_f(x) - top))


@pytest.mark.parametrize("rho", [0.2, -0.9, 0.99, -0.9999, 0.99999])
@pytest.mark.parametrize("distance", [1.0, 30.0, 1e6])
def test_equals_brute_force_in_logs(rho, distance):
    rng = np.random.default_rng(3)
    for _ in range(8):
        s, scales = 10 ** rng.uniform(-4, 4, 2), 10 ** rng.uniform(-0.5, 0.5, 2)
        matrix = covariance(*s, rho)
        y = distance * (rng.multivariate_normal([0, 0], matrix[0], method="cholesky") + rng.laplace(size=2) * scales)
        found = log_density(y, ZERO, matrix, scales)[0]
        assert found == pytest.approx(brute_force(y, matrix[0], scales), rel=1e-9, abs=1e-7)


def test_finite_everywhere():
    rng = np.random.default_rng(4)
    k = 3000
    s = np.where(rng.random((k, 2)) < 0.1, 0, 10 ** rng.uniform(-9, 12, (k, 2)))
    rho = rng.choice([0, 0.5, -0.99, 0.99999, 1, -1], k)
    matrix = np.stack([s[:, 0] ** 2, rho * s[:, 0] * s[:, 1], rho * s[:, 0] * s[:, 1], s[:, 1] ** 2], axis=-1).reshape(k, 2, 2)
    mean = rng.normal(size=(k, 2)) * np.maximum(s, 1) * 10 ** rng.uniform(-1, 6, (k, 1))
    found = log_density(np.zeros(2), mean, matrix, 1.0)
    assert np.isfinite(found).all()
    # Noise only flattens the density, and no point can exceed that of the noise.
    assert (found <= -2 * math.log(2) + 1e-6).all()


def test_no_jumps_where_the_method_changes_branch():
    """Along lines through every kink and through equal ratios of the two coordinates, steps of the log density are smooth."""
    for s2, rho in ((1.0, 0.3), (0.999, 0.9), (1.001, -0.9999), (1e-3, 0.8)):
        x = np.linspace(-5, 5, 4001)
        mean = np.stack([x, 0.5 * x], axis=1)
        found = log_density(np.zeros(2), mean, np.broadcast_to(covariance(1.0, s2, rho), (len(x), 2, 2)), 1.0)
        assert np.abs(np.diff(found)).max() < 0.0025 * 1.6  # the largest slope is 1.5 plus the inner bends
    s = np.linspace(0.99, 1.01, 2001)
    matrix = np.array([covariance(1.0, value, 0.7)[0] for value in s])
    found = log_density(np.array([0.3, 2.0]), np.zeros((len(s), 2)), matrix, 1.0)
    assert np.abs(np.diff(found, 2)).max() < 1e-7


@pytest.mark.parametrize("length", [3, 8, 9, 50, 10**7])
def test_gauss_sums_are_exact_for_polynomials(length):
    n, log_weight = gauss(length)
    for degree in range(0, 16, 5):
        # sum of n (n - 1) .. (n - d + 1) over 0..N-1 is N (N - 1) .. (N - d) / (d + 1)
        falling = np.prod([n - j for j in range(degree)], axis=0) if degree else np.ones_like(n)
        wanted = math.prod(length - j for j in range(degree + 1)) / (degree + 1)
        assert np.exp(log_weight) @ falling == pytest.approx(wanted, rel=1e-9, abs=1e-10 * length ** (degree + 1))


@pytest.mark.parametrize("expected_n", [None, 3.0, 500.0])
@pytest.mark.parametrize(("n", "epsilon", "weight"), [(0, 1.0, 100), (2, 5.0, 100), (40, 0.3, 60), (900, 0.1, 128)])
def test_a_private_n_is_summed_out(expected_n, n, epsilon, weight):
    rng = np.random.default_rng(7)
    scale, log_g = 300 / epsilon, 0.0 if expected_n is None else math.log(expected_n / (expected_n + 1))
    m = rng.uniform(-150, 150, (8, 2))
    v = np.concatenate([covariance(*rng.uniform(10, 120, 2), rng.uniform(-0.9, 0.9)) for _ in m])
    y, y0 = n * m[0] + scale * rng.laplace(size=2), n * weight + scale * 1.3
    counts = np.arange(0, y0 / weight + 45 * scale / weight)
    prior = counts * log_g - np.abs(y0 - weight * counts) / scale
    wanted = [
        special.logsumexp(prior + log_density(y, counts[:, None] * a, counts[:, None, None] * b, scale))
        for a, b in zip(m, v, strict=True)
    ]
    found = log_density_private(y, y0, weight, m, v, scale, expected_n)
    keep = np.array(wanted) > max(wanted) - 20
    np.testing.assert_allclose(found[keep], np.array(wanted)[keep], atol=3e-3)


def test_a_count_without_weight_is_refused():
    with pytest.raises(InferenceError, match="larger count weight"):
        log_density_private(np.zeros(2), 1e4, 1e-3, np.array([[100.0, 100]]), covariance(1, 1, 0), 1000.0, None)
