"""The outbreak prior against its own definition, by redrawing the triple; false-alarm rates below 1e-5."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats

from dp_dask.outbreaks.birth_death import births_per_year
from dp_dask.outbreaks.prior import LARGEST_BETA, OutbreakPrior, acceptance

SPREADS = [30.0, 30**0.5]


def uniform_triples(beta, rng):
    """The triples before anything is rejected, and which of them are accepted."""
    size = len(beta)
    r1, t1 = rng.uniform(1.01, 20, size), rng.uniform(0.01, 30, size)
    r2 = rng.uniform(0.01, 1, size) * (1 - 0.05 * r1) / 0.95
    theta = np.stack([beta, r1, t1, r2], axis=1)
    observed = 0.8 * births_per_year(theta)
    return theta, (t1 + t1 / (r1 - 1) < 40) & (observed > 0) & (observed < 350)


def by_redrawing(beta_sd, rng, size):
    beta = 200 + beta_sd * rng.standard_normal(size)
    theta, accepted = uniform_triples(beta, rng)
    while not accepted.all():
        again, good = uniform_triples(beta[~accepted], rng)
        theta[~accepted] = again
        accepted[~accepted] = good
    return theta


@pytest.mark.parametrize("beta_sd", SPREADS)
def test_draws_have_the_law_of_redrawing_the_triple_with_beta_held(beta_sd):
    rng = np.random.default_rng(1)
    prior = OutbreakPrior(beta_sd)
    mine, defined = prior.rvs(rng, 20_000), by_redrawing(beta_sd, rng, 20_000)
    pairs = [lambda t: t[:, 0] * t[:, 1], lambda t: t[:, 1] * t[:, 2], lambda t: t[:, 1] * t[:, 3], births_per_year]
    for of in [*(lambda t, j=j: t[:, j] for j in range(4)), *pairs]:
        assert stats.ks_2samp(of(mine), of(defined)).pvalue > 1e-6
    for moment, draws in ((prior.mean, mine.mean(axis=0)), (prior.mean, defined.mean(axis=0))):
        assert np.all(np.abs(draws - moment) < 5 * prior.sd / np.sqrt(20_000))
    np.testing.assert_allclose(mine.std(axis=0), prior.sd, rtol=0.03)
    assert prior.mean[0] == pytest.approx(200, abs=1e-6)
    assert prior.sd[0] == pytest.approx(beta_sd, rel=1e-6)


def test_beta_is_held_and_not_redrawn():
    """Were beta redrawn with the triple, it would be lower: small ones are accepted more often."""
    rng = np.random.default_rng(2)
    theta, accepted = uniform_triples(200 + 30 * rng.standard_normal(100_000), rng)
    assert stats.ks_2samp(OutbreakPrior(30).rvs(rng, 10_000)[:, 0], theta[accepted, 0]).pvalue < 1e-6


@pytest.mark.parametrize("beta", [60.0, 150.0, 200.0, 260.0, 350.0])
def test_the_probability_of_acceptance_is_that_of_a_double_integral_and_of_trials(beta):
    trials = 200_000
    _, accepted = uniform_triples(np.full(trials, beta), np.random.default_rng(3))
    exact = float(acceptance(np.array(beta)))

    def share(r1):
        of_t1 = (min(30, 40 * (r1 - 1) / r1) - 0.01) / 29.99
        return of_t1 * max(1 - 0.8 * beta / (350 * (1 - r1 / 20)) - 0.01, 0) / 0.99 / 18.99

    numeric = integrate.quad(share, 1.01, 19.999, points=[4, 20 * (1 - 0.8 * beta / 346.5)], epsabs=1e-11)[0]
    assert exact == pytest.approx(numeric, abs=1e-8)
    assert abs(accepted.mean() - exact) < 5 * np.sqrt(exact / trials)


@pytest.mark.parametrize("beta_sd", SPREADS)
def test_the_density_is_normalised_and_is_that_of_the_draws(beta_sd):
    """By importance sampling from logistic coordinates, whose density is that of a uniform place in each interval."""
    prior = OutbreakPrior(beta_sd)
    rng = np.random.default_rng(4)
    size = 300_000
    spread = 8 * beta_sd / LARGEST_BETA
    place = rng.random((size, 4))
    place[:, 0] = np.clip(200 / LARGEST_BETA + spread * (place[:, 0] - 0.5), 1e-12, 1 - 1e-12)
    v = np.log(place) - np.log1p(-place)
    logistic = np.sum(np.log(place) + np.log1p(-place), axis=1) - np.log(spread)
    weight = np.exp(prior.log_density(v) - logistic)
    error = weight.std() / np.sqrt(size)
    assert abs(weight.mean() - 1) < 5 * error + 1e-4  # 6e-5 lies beyond four sd of beta
    assert error < 0.005
    theta = prior.parameter(v)
    for j in range(4):
        values = weight * (theta[:, j] - prior.mean[j])
        assert abs(values.mean()) < 5 * values.std() / np.sqrt(size) + 1e-3 * prior.sd[j]


def test_coordinates_go_forth_and_back_and_end_at_the_support():
    prior = OutbreakPrior(30)
    theta = prior.rvs(np.random.default_rng(5), 1_000)
    np.testing.assert_allclose(prior.parameter(prior.coordinate(theta)), theta, rtol=1e-9)
    box = prior.coordinate_box()
    assert box.shape == (4, 2)
    assert np.all(np.isfinite(box))
    v = prior.coordinate(theta)
    assert np.all((v > box[:, 0]) & (v < box[:, 1]))
    assert np.all(np.isfinite(prior.log_density(v)))
    for row in ([-1, 3, 2, 0.3], [200, 1, 2, 0.3], [200, 3, 29, 0.3], [200, 3, 2, 0.9], [500, 3, 2, 0.3]):
        with pytest.raises(ValueError, match="outside the prior's support"):
            prior.coordinate(np.array([row], dtype=float))


@pytest.mark.parametrize("beta_sd", [0.0, -1.0, 201.0, np.nan])
def test_the_spread_of_beta_must_be_given_and_possible(beta_sd):
    with pytest.raises(ValueError, match="beta_sd is"):
        OutbreakPrior(beta_sd)
    with pytest.raises(TypeError):
        OutbreakPrior()
