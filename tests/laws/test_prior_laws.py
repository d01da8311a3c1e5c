"""Laws that every kind of prior obeys; an example of each is demanded in ``prior_examples``."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from prior_examples import EXAMPLES, IDS
from scipy import stats

from dp_dask.core.prior_kinds import KINDS, describe, make
from dp_dask.core.spellings import SPELLINGS

every_prior = pytest.mark.parametrize(("kind", "numbers", "truth"), EXAMPLES, ids=IDS)


def test_every_kind_has_an_example_and_spellings_of_all_its_numbers():
    assert {kind for kind, _, _ in EXAMPLES} == {*KINDS, "scipy"}
    for kind, found in KINDS.items():
        names = [argument.name for argument in found.arguments]
        assert list(SPELLINGS[kind]) == names
        others = [key for readings in SPELLINGS[kind].values() for key in readings]
        assert len(others) == len(set(others))
        assert not set(others) & set(names)


@every_prior
def test_it_is_normalised_in_its_coordinate(kind, numbers, truth):  # noqa: ARG001
    prior = make(kind, **numbers)
    v = np.linspace(*prior.coordinate_range(), 200_001)
    assert np.trapezoid(np.exp(prior.log_density(v)), v) == pytest.approx(1, abs=1e-5)


@every_prior
def test_coordinate_and_parameter_are_inverse_and_increase(kind, numbers, truth):
    prior = make(kind, **numbers)
    theta = truth.ppf(np.linspace(0.001, 0.999, 301))
    v = prior.coordinate(theta)
    assert np.all(np.diff(v) > 0)
    np.testing.assert_allclose(prior.parameter(v), theta, rtol=1e-12, atol=1e-12)


@every_prior
def test_the_log_density_is_scipys_times_the_jacobian(kind, numbers, truth):
    prior = make(kind, **numbers)
    v = prior.coordinate(truth.ppf([0.01, 0.2, 0.5, 0.8, 0.99]))
    step = 1e-3
    slope = (prior.parameter(v + step) - prior.parameter(v - step)) / (2 * step)
    np.testing.assert_allclose(prior.log_density(v), truth.logpdf(prior.parameter(v)) + np.log(slope), atol=2e-5)


@every_prior
def test_the_range_holds_the_prior_and_is_no_wider_than_that(kind, numbers, truth):
    """Beyond it 1e-30, or what is nearer to an end than float64 tells; a hundredth of it further in, more than 1e-31."""
    prior = make(kind, **numbers)
    low, high = prior.coordinate_range()
    inside = prior.parameter(np.array([low, high]) + np.array([0.01, -0.01]) * (high - low))
    beyond = prior.parameter(np.array([low, high]))
    assert truth.cdf(beyond[0]) < 1e-13 > truth.sf(beyond[1])
    if kind != "beta":  # its logit goes farther than scipy's tail, which ends where 1 - p is rounded
        assert truth.cdf(inside[0]) > 1e-31 < truth.sf(inside[1])
    v = np.linspace(low, high, 1001)
    theta = prior.parameter(v)
    start, end = truth.support()
    assert np.all(np.isfinite(theta))
    assert theta.min() >= start - 1e-15 * abs(start)
    assert theta.max() <= end + 1e-15 * abs(end)
    assert not np.any(np.isnan(prior.log_density(v)))
    assert np.all(prior.log_density(v) < math.inf)


@every_prior
def test_draws_follow_the_distribution_and_repeat(kind, numbers, truth):
    """Fixed seed; a right sampler fails one time in a million."""
    prior = make(kind, **numbers)
    draws = prior.rvs(np.random.default_rng(5), 4000)
    assert stats.kstest(draws, truth.cdf).pvalue > 1e-6
    assert (
        stats.kstest(draws * 1.2 + 0.2 * truth.std() if math.isfinite(truth.std()) else draws * 1.5 + 1, truth.cdf).pvalue < 1e-6
    )
    np.testing.assert_array_equal(draws, prior.rvs(np.random.default_rng(5), 4000))


@every_prior
def test_mean_and_sd_are_scipys_or_do_not_exist(kind, numbers, truth):
    prior = make(kind, **numbers)
    if math.isfinite(truth.mean()):
        assert prior.mean == pytest.approx(truth.mean(), rel=1e-7)
    else:
        assert math.isnan(prior.mean) if math.isinf(truth.support()[0]) else prior.mean == math.inf
    if math.isfinite(truth.std()):
        assert prior.sd == pytest.approx(truth.std(), rel=1e-7)
    else:
        assert prior.sd == math.inf


@every_prior
def test_its_description_makes_it_again(kind, numbers, truth):  # noqa: ARG001
    prior = make(kind, **numbers)
    told = describe(prior)
    assert told == {"kind": kind, **numbers}
    assert make(told.pop("kind"), **told) == prior
    again = pickle.loads(pickle.dumps(prior))  # noqa: S301  (our own bytes, as Dask sends them)
    assert again == prior
    assert again.coordinate_range() == prior.coordinate_range()
