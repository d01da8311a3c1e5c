"""Laws that every model obeys; a new model's file is found by itself, its case is demanded here."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from cases import CASES, IDS, JOINT_IDS, observation
from scipy import integrate, stats

from dp_dask.core import plugins
from dp_dask.core.bounds import Outside
from dp_dask.core.priors import Beta, Gamma, Normal
from dp_dask.core.privacy import Neighbours
from dp_dask.public.moments import closed

PLAIN = [case for case in CASES if case.model.spacing is None]  # summed as they are, not through a table
every_model = pytest.mark.parametrize("case", CASES, ids=IDS)

ORACLES = {
    "bernoulli": stats.bernoulli,
    "exponential": lambda t: stats.expon(scale=1 / t),
    "gamma": lambda t: stats.gamma(3.0, scale=1 / t),
    "geometric": lambda t: stats.geom(t, loc=-1),
    "half_normal": lambda t: stats.halfnorm(scale=t**-0.5),
    "inverse_gamma": lambda t: stats.invgamma(3.0, scale=t),
    "laplace": lambda t: stats.laplace(1.0, 1 / t),
    "negative_binomial": lambda t: stats.nbinom(2.5, t),
    "normal": lambda t: stats.norm(t, 1.5),
    "pareto": lambda t: stats.pareto(t, scale=2.0),
    "poisson": stats.poisson,
    "rayleigh": lambda t: stats.rayleigh(scale=t**-0.5),
    "weibull": lambda t: stats.weibull_min(1.7, scale=t ** (-1 / 1.7)),
}


def test_every_model_has_a_case():
    assert sorted(IDS) == sorted(ORACLES)
    assert plugins.names("dp_dask.models") == sorted(
        [*IDS, *JOINT_IDS, "categorical", "linear_regression", "multivariate_normal"]
    )


@every_model
def test_cdf_and_sf_are_those_of_scipy(case):
    x = np.array([-3.0, -0.5, 0.0, 0.3, 1.0, 2.7, 5.0, 40.0])
    for theta in case.theta:
        np.testing.assert_allclose(case.model.cdf(x, np.array(theta)), ORACLES[case.name](theta).cdf(x), rtol=1e-9, atol=1e-300)
        np.testing.assert_allclose(case.model.sf(x, np.array(theta)), ORACLES[case.name](theta).sf(x), rtol=1e-9, atol=1e-300)


@every_model
@pytest.mark.parametrize("about", [0.0, 1.7])
def test_partial_moments_equal_quadrature(case, about):
    """Closed form against a sum over whole numbers or numerical integration."""
    for theta in case.theta:
        law = ORACLES[case.name](theta)
        for low, high in ((case.bounds.lower, case.bounds.upper), (0.0, 1.0), (2.0, 3.0), (-math.inf, math.inf)):
            found = case.model.partial_moments(np.array([theta]), low, high, about, 4)
            for k in range(5):
                wanted = _partial_moment(case.model, law, low, high, about, k)
                assert found[k][0] == pytest.approx(wanted, rel=1e-7, abs=1e-9), (theta, low, high, k)


def _partial_moment(model, law, low, high, about, k):
    """E[(t(x) - about)^k; low <= x <= high]."""
    if model.is_integer:
        x = np.arange(max(low, 0), min(high, law.ppf(1 - 1e-15) + 50) + 1)
        return float(np.sum((x - about) ** k * law.pmf(x)))
    a, b = max(low, law.ppf(1e-18)), min(high, law.isf(1e-18))
    if a >= b:
        return 0.0
    middle = sorted({a, b, *[q for q in [*law.ppf([1e-6, 0.01, 0.5]), *law.isf(0.1 ** np.arange(1, 18))] if a < q < b]})
    pieces = itertools.pairwise(middle)
    t = model.statistic
    return sum(integrate.quad(lambda x: (t(x) - about) ** k * law.pdf(x), *piece, epsabs=1e-14)[0] for piece in pieces)


@every_model
def test_partial_moments_are_finite_wherever_a_grid_may_lie(case):
    """Priors of shape 0.05 reach parameters of 1e-300 and 1e300; zooming starts there."""
    v = np.linspace(-690, 690, 61)
    theta = v if case.name == "normal" else case.prior.parameter(v)
    with np.errstate(all="ignore"):
        moments = case.model.partial_moments(theta, case.bounds.lower, case.bounds.upper, 0.5, 4)
    assert all(np.isfinite(moment).all() for moment in moments)


@every_model
def test_partial_moments_equal_simulation(case):
    rng = np.random.default_rng(11)
    theta = case.theta[0]
    x = case.model.simulate(theta, 400_000, rng)
    inside = (x >= case.bounds.lower) & (x <= case.bounds.upper)
    found = case.model.partial_moments(np.array([theta]), case.bounds.lower, case.bounds.upper, 0.5)
    for k in range(3):
        sample = np.where(inside, (case.model.statistic(x) - 0.5) ** k, 0)
        error = sample.std() / math.sqrt(len(x))
        assert abs(found[k][0] - sample.mean()) <= 5 * error + 1e-12  # two-sided 6e-7 each


@every_model
def test_each_record_may_have_a_parameter_of_its_own(case):
    """Half the records of one theta and half of another, interleaved: the probability transform of each is uniform."""
    rng = np.random.default_rng(12)
    theta = np.tile([case.theta[0], case.theta[0] * 0.7], 4000)
    x = case.model.simulate(theta, len(theta), rng)
    assert x.shape == theta.shape
    assert x.dtype == np.float64
    below = case.model.cdf(x - 1, theta) if case.model.is_integer else case.model.cdf(x, theta)
    u = below + rng.random(len(x)) * (case.model.cdf(x, theta) - below)
    for half in (u[::2], u[1::2]):
        assert stats.kstest(half, "uniform").pvalue > 1e-6


@every_model
@pytest.mark.parametrize("outside", list(Outside))
@pytest.mark.parametrize("neighbours", ["replace", "add_remove"])
def test_the_law_of_a_contribution_is_that_of_simulated_records(case, outside, neighbours):
    """Chi-square of 200,000 reduced records against the pmf; false alarms below 1e-6 a test."""
    like = observation(case, n=20, epsilon=1.0, outside=outside, neighbours=Neighbours(neighbours))
    theta = case.theta[0]
    cells, pmf = like.pmf(np.array([theta]))
    assert pmf.sum() == pytest.approx(1, abs=1e-12)
    records = case.model.simulate(theta, 200_000, np.random.default_rng(5))
    contributions = like.statistic.contributions(records).ravel()
    counts = np.array([np.sum(contributions == cell) for cell in cells])
    assert counts.sum() == len(records)
    expected = pmf[0] * len(records)
    is_common = expected > 20
    assert counts[~is_common].sum() <= expected[~is_common].sum() + 10 * math.sqrt(expected[~is_common].sum() + 1)
    distance = np.sum((counts[is_common] - expected[is_common]) ** 2 / expected[is_common])
    assert distance < stats.chi2.isf(1e-6, max(is_common.sum() - 1, 1))


@every_model
@pytest.mark.parametrize("outside", list(Outside))
def test_closed_form_moments_equal_the_sum_over_cells(case, outside):
    """They differ by the rounding alone, at most half a unit in the mean."""
    like = observation(case, n=10**6, epsilon=1.0, outside=outside)
    theta = np.array(case.theta)
    mean, variance = like.quick_moments(theta)
    exact = like.moments(theta)
    slack = 0.0 if case.model.is_integer else 0.01 if case.model.spacing is None else 0.05  # a table rounds x as well
    np.testing.assert_allclose(mean, exact.mean, atol=slack + 1e-6)
    np.testing.assert_allclose(variance, exact.variance, rtol=1e-3, atol=slack * 10 + 1e-6)


@pytest.mark.parametrize("case", PLAIN, ids=[case.name for case in PLAIN])
@pytest.mark.parametrize("outside", list(Outside))
@pytest.mark.parametrize("neighbours", list(Neighbours))
@pytest.mark.parametrize(("n", "epsilon"), [(30, 0.1), (1000, 1.0), (10**7, 0.1)])
def test_closed_form_cumulants_are_those_of_the_cells(case, outside, neighbours, n, epsilon):
    """All four, rounding included, on the default grids: n times each is right to 3e-6 of a power of the sd of y.

    Without the terms for the rounding the exponential and the normal fail.
    """
    like = observation(case, n=n, epsilon=epsilon, outside=outside, neighbours=neighbours)
    theta = case.prior.parameter(np.linspace(*np.quantile(case.prior.coordinate(np.array(case.theta)), [0, 1]), 60))
    exact = like.moments(theta)
    m1, m2, m3, m4 = closed(like.model, like.statistic, theta, 4)
    variance = m2 - m1**2
    third = m3 - 3 * m1 * m2 + 2 * m1**3
    fourth = m4 - 4 * m1 * m3 + 6 * m1**2 * m2 - 3 * m1**4 - 3 * variance**2
    sd = np.sqrt(n * exact.variance + 2 * like.scale**2)
    for k, (one, other) in enumerate(zip((m1, variance, third, fourth), exact, strict=True), start=1):
        assert (n * np.abs(one - other) / sd**k).max() < 3e-6, k


@every_model
def test_cumulants_of_a_contribution_are_those_of_its_pmf(case):
    like = observation(case, n=20, epsilon=1.0)
    theta = np.array([case.theta[0]])
    cells, pmf = like.pmf(theta)
    law = stats.rv_discrete(values=(cells, pmf[0] / pmf[0].sum()))
    found = like.moments(theta)
    mean, variance, skewness, kurtosis = law.stats(moments="mvsk")
    assert found.mean[0] == pytest.approx(mean)
    assert found.variance[0] == pytest.approx(variance)
    assert found.third[0] == pytest.approx(skewness * variance**1.5, rel=1e-6, abs=1e-9)
    assert found.fourth[0] == pytest.approx(kurtosis * variance**2, rel=1e-6, abs=1e-6)


@every_model
def test_conjugate_update_equals_prior_times_likelihood(case):
    """The density of the updated prior against brute force on a grid of theta."""
    rng = np.random.default_rng(3)
    records = case.model.simulate(case.theta[0], 7, rng)
    updated = type(case.prior)(*map(float, case.model.update(case.prior, len(records), case.model.statistic(records).sum())))
    low, high = updated.coordinate_range()
    v = np.linspace(low / 2 + high / 2 - (high - low) / 4, low / 2 + high / 2 + (high - low) / 4, 50)
    theta = case.prior.parameter(v)
    law = [ORACLES[case.name](t) for t in theta]
    log_likelihood = [np.sum(one.logpmf(records) if case.model.is_integer else one.logpdf(records)) for one in law]
    brute = case.prior.log_density(v) + np.array(log_likelihood)
    direct = updated.log_density(v)
    np.testing.assert_allclose(brute - brute[0], direct - direct[0], atol=1e-7)


@every_model
def test_draws_follow_the_hyperparameters(case):
    rng = np.random.default_rng(8)
    hyper = case.model.update(case.prior, np.full(50_000, 9), np.full(50_000, 9 * 0.6))
    draws = case.model.draw(hyper, rng)
    law = type(case.prior)(*[float(h[0]) for h in np.broadcast_arrays(*hyper)])
    assert abs(draws.mean() - law.mean) < 5 * law.sd / math.sqrt(len(draws))
    assert draws.std() == pytest.approx(law.sd, rel=0.03)


@pytest.mark.parametrize("prior", [Beta(0.5, 3), Gamma(2, 0.1), Gamma(0.05, 3), Normal(3, 10)], ids=str)
def test_a_prior_is_normalised_in_its_coordinate(prior):
    low, high = prior.coordinate_range()
    v = np.linspace(low, high, 400_001)
    assert np.trapezoid(np.exp(prior.log_density(v)), v) == pytest.approx(1, abs=1e-4)
    np.testing.assert_allclose(prior.coordinate(prior.parameter(v[::1000])), v[::1000], atol=1e-6 * max(abs(low), abs(high)))
