"""Moments of a record's linear and product terms, against simulation and quadrature."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, special, stats

from dp_dask.public.gram_moments import clamped_moments, moments, normal_points

MEAN = np.array([0.3, -0.5, 0.1])
COVARIANCE = np.array([[0.2, 0.1, -0.05], [0.1, 0.3, 0.02], [-0.05, 0.02, 0.1]])


def root_of(covariance):
    return np.linalg.cholesky(covariance).T


def terms(u):
    i, j = np.triu_indices(u.shape[1])
    return np.concatenate([u, u[:, i] * u[:, j]], axis=1)


@pytest.mark.parametrize("is_clamped", [0, 1], ids=["free", "clamped"])
def test_moments_equal_those_of_simulated_records(is_clamped):
    """2e6 draws; 63 comparisons at 5.5 standard errors: false alarm 2e-6. The clamped covariance is a cubature: 4 % beside."""
    rng = np.random.default_rng(1)
    u = rng.multivariate_normal(MEAN, COVARIANCE, 2_000_000)
    t = terms(np.clip(u, -1, 1) if is_clamped else u)
    if is_clamped:
        mu, sigma = clamped_moments(MEAN[None], root_of(COVARIANCE)[None])
    else:
        mu, sigma = moments(MEAN[None], COVARIANCE[None])
    sd = t.std(axis=0)
    assert np.abs((mu[0] - t.mean(axis=0)) / sd).max() < 5.5 / np.sqrt(len(t))
    d = (t - t.mean(axis=0)) / sd
    expected = d.T @ d / len(d)
    error = np.sqrt(np.maximum((d**2).T @ (d**2) / len(d) - expected**2, 0) / len(d))
    found = sigma[0] / sd / sd[:, None]
    assert (np.abs(found - expected) < 5.5 * error + 0.04 * is_clamped).all()


@pytest.mark.parametrize(("mean", "sd"), [(0.2, 0.3), (0.9, 0.2), (-1.5, 0.5), (0.0, 3.0), (0.4, 1e-3)])
def test_one_clamped_column_equals_quadrature(mean, sd):
    def expect(power):
        inside, _ = integrate.quad(
            lambda x: x**power * stats.norm.pdf(x, mean, sd), -1, 1, points=[mean] if abs(mean) < 1 else None
        )
        return inside + stats.norm.sf(1, mean, sd) + (-1) ** power * stats.norm.cdf(-1, mean, sd)

    mu, sigma = clamped_moments(np.array([[mean]]), np.array([[[sd]]]))
    raw = [expect(power) for power in range(5)]
    np.testing.assert_allclose(mu[0], raw[1:3], atol=1e-9)
    expected = np.array([[raw[2] - raw[1] ** 2, raw[3] - raw[1] * raw[2]], [0, raw[4] - raw[2] ** 2]])
    scale = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
    assert (np.abs(np.triu(sigma[0]) - expected) < 0.04 * scale + 1e-9).all()


@pytest.mark.parametrize("correlation", [0.0, 0.5, -0.95, 0.9999, -1.0])
@pytest.mark.parametrize(("sd_1", "sd_2"), [(0.3, 0.4), (2.0, 0.5), (0.01, 5.0)])
def test_a_clamped_product_equals_quadrature(correlation, sd_1, sd_2):
    """E[clip(u) clip(v)] by a fine trapezium over the first column and the closed conditional mean of the second."""
    mean = np.array([0.4, -0.7])
    rest = sd_2 * np.sqrt(1 - correlation**2)
    root = np.array([[[sd_1, sd_2 * correlation], [0.0, rest]]])
    e = np.linspace(-9, 9, 400_001)
    centre = mean[1] + correlation * sd_2 * e
    if rest > 0:
        a, b = (-1 - centre) / rest, (1 - centre) / rest
        within = special.ndtr(b) - special.ndtr(a)
        second = within * centre + rest * (stats.norm.pdf(a) - stats.norm.pdf(b)) + special.ndtr(-b) - special.ndtr(a)
    else:
        second = np.clip(centre, -1, 1)
    expected = integrate.trapezoid(np.clip(mean[0] + sd_1 * e, -1, 1) * second * stats.norm.pdf(e), e)
    mu, _ = clamped_moments(mean[None], root)
    assert mu[0, 3] == pytest.approx(expected, abs=1e-8 if abs(correlation) <= 0.5 else 5e-6)


@pytest.mark.parametrize("c", [1, 2, 4, 6])
def test_without_clamping_both_ways_agree(c):
    rng = np.random.default_rng(c)
    root = 0.02 * rng.standard_normal((5, c, c))
    mean = rng.uniform(-0.3, 0.3, (5, c))
    free, clamped = moments(mean, root.transpose(0, 2, 1) @ root), clamped_moments(mean, root)
    for one, other in zip(free, clamped, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-8 * np.abs(one).max())


@pytest.mark.parametrize("c", range(1, 7))
def test_the_points_have_the_moments_of_a_normal_law(c):
    points, weights = normal_points(c)
    assert (weights > 0).all()
    assert len(weights) > 400
    rng = np.random.default_rng(c)
    for direction in rng.standard_normal((20, c)):
        x = points @ direction / np.linalg.norm(direction)
        np.testing.assert_allclose([weights @ x**k for k in range(6)], [1, 0, 1, 0, 3, 0], atol=1e-7)


@pytest.mark.filterwarnings("error")
def test_extreme_parameters_give_finite_moments_within_their_range():
    scales = 10.0 ** np.arange(-8, 14)
    root = scales[:, None, None] * np.array([[1.0, 0.7], [0.0, 0.1]])
    for mean in ([0.0, 0.0], [1.0, -1.0], [1e6, -3.0]):
        mu, sigma = clamped_moments(np.tile(mean, (len(scales), 1)), root)
        assert (np.abs(mu) <= 1 + 1e-9).all()
        assert np.isfinite(sigma).all()
        assert (np.linalg.eigvalsh(sigma) > -1e-12).all()
