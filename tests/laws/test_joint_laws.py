"""Laws that every model of several parameters obeys; a new model's file is found by itself, its case is demanded elsewhere."""

from __future__ import annotations

import math

import numpy as np
import pytest
from cases import JOINT_CASES, JOINT_IDS, joint_observation
from scipy import stats

from dp_dask.core.bounds import Outside
from dp_dask.core.privacy import Neighbours

every_model = pytest.mark.parametrize("case", JOINT_CASES, ids=JOINT_IDS)
every_outside = pytest.mark.parametrize("outside", list(Outside))
ORACLES = {
    "beta": stats.beta,
    "gamma_shape_rate": lambda k, rate: stats.gamma(k, scale=1 / rate),
    "lognormal": lambda mu, sigma: stats.lognorm(sigma, scale=math.exp(mu)),
    "normal_mu_sigma": stats.norm,
}


def test_every_joint_model_has_an_oracle():
    assert sorted(JOINT_IDS) == sorted(ORACLES)


@every_model
def test_cdf_sf_and_density_are_those_of_scipy(case):
    x = np.array([-3.0, 0.0, 1e-3, 0.3, 0.7, 0.999, 1.0, 5.0, 40.0])
    inside = x[(x > case.model.support[0]) & (x < case.model.support[1])]
    for theta in case.theta:
        law = ORACLES[case.name](*theta)
        column = [np.array([value]) for value in theta]
        np.testing.assert_allclose(case.model.cdf(x, *column), law.cdf(x), rtol=1e-9, atol=1e-300)
        np.testing.assert_allclose(case.model.sf(x, *column), law.sf(x), rtol=1e-9, atol=1e-300)
        np.testing.assert_allclose(case.model.log_density(inside, *column), law.logpdf(inside), rtol=1e-9, atol=1e-9)


@every_model
def test_features_lie_in_the_square_and_reach_its_sides(case):
    x = np.linspace(case.bounds.lower, case.bounds.upper, 1001)
    t = case.model.features(x, case.bounds)
    assert t.shape == (2, 1001)
    assert np.abs(t).max(axis=1) == pytest.approx([1, 1], abs=1e-9)


@every_model
@every_outside
@pytest.mark.parametrize("neighbours", list(Neighbours))
def test_moments_and_sums_are_those_of_simulated_records(case, outside, neighbours):
    """Means within 5 standard errors (6e-7 a test), sums of 3 records by the same mean and covariance."""
    like = joint_observation(case, n=20, epsilon=1.0, outside=outside, neighbours=neighbours)
    rng = np.random.default_rng(3)
    theta = np.array(case.theta[0])
    mean, covariance = (each[0] for each in like.moments(theta[None]))
    records = case.model.simulate(tuple(theta), (200_000,), rng)
    moves = like.statistic.contributions(records)
    error = np.sqrt(np.diag(covariance) / len(records))
    assert (np.abs(moves.mean(axis=0) - mean) <= 5 * error + 1e-9).all()
    np.testing.assert_allclose(np.cov(moves.T), covariance, rtol=0.05, atol=0.03 * covariance.max())
    sums = like.sums(rng, np.tile(theta, (40_000, 1)), np.full(40_000, 3))
    assert (np.abs(sums.mean(axis=0) - 3 * mean) <= 5 * np.sqrt(3 * np.diag(covariance) / 40_000) + 1e-9).all()
    np.testing.assert_allclose(np.cov(sums.T), 3 * covariance, rtol=0.08, atol=0.1 * covariance.max())


@every_model
@every_outside
def test_the_law_of_a_cell_is_that_of_simulated_records(case, outside):
    """Chi-square of 100,000 records over the table's cells; false alarms 1e-6 a test."""
    like = joint_observation(case, n=20, epsilon=1.0, outside=outside)
    statistic = like.statistic
    for theta in case.theta:
        inside, tail = like.probabilities(np.array([theta]))
        assert inside.sum() + tail[0] == pytest.approx(1, abs=1e-9)
        x = case.model.simulate(tuple(map(np.asarray, theta)), (100_000,), np.random.default_rng(1))
        held = (x >= case.bounds.lower) & (x <= case.bounds.upper)
        kept = x[held] if outside is Outside.TRUNCATE else np.clip(x, case.bounds.lower, case.bounds.upper)
        counts = np.append(np.bincount(statistic.cells.find(kept), minlength=statistic.cells.count), len(x) - len(kept))
        expected = np.append(inside[0], tail) * len(x)
        common = expected > 20
        distance = np.sum((counts[common] - expected[common]) ** 2 / expected[common])
        assert distance < stats.chi2.isf(1e-6, max(common.sum(), 1))


@pytest.mark.parametrize("case", [c for c in JOINT_CASES if hasattr(c.model, "update")], ids=lambda c: c.name)
def test_conjugate_update_equals_prior_times_likelihood(case):
    records = case.model.simulate(case.theta[0], (7,), np.random.default_rng(3))
    updated = case.model.update(case.prior, 7, case.model.statistic(records).sum(axis=1))
    theta = np.array([[0.2, 0.5], [0.4, 1.3], [-1.0, 2.0], [3.0, 0.9]])
    prior, posterior = (p.log_density(p.coordinate(theta)) for p in (case.prior, updated))
    # The two densities are of coordinates that differ by the stretch of mu.
    slopes = [np.log(np.cosh(p.coordinate(theta)[:, 0]) * p._stretch) for p in (case.prior, updated)]
    likelihood = np.array([case.model.log_density(records, *[np.array([v]) for v in t]).sum() for t in theta])
    brute = prior - slopes[0] + likelihood
    direct = posterior - slopes[1]
    np.testing.assert_allclose(brute - brute[0], direct - direct[0], atol=1e-8)
