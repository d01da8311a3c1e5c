from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, special, stats

from dp_dask.core.priors import Beta, Gamma, Normal

CASES = [
    (Beta(1, 1), stats.beta(1, 1)),
    (Beta(0.5, 0.5), stats.beta(0.5, 0.5)),
    (Beta(2, 30), stats.beta(2, 30)),
    (Beta(0.05, 3), stats.beta(0.05, 3)),
    (Beta(4000, 2500), stats.beta(4000, 2500)),
    (Gamma(1, 0.25), stats.gamma(1, scale=4)),
    (Gamma(8, 2), stats.gamma(8, scale=0.5)),
    (Gamma(0.5, 1000), stats.gamma(0.5, scale=1e-3)),
    (Gamma(0.05, 1e-6), stats.gamma(0.05, scale=1e6)),
    (Gamma(5000, 3), stats.gamma(5000, scale=1 / 3)),
    (Normal(0, 2), stats.norm(0, 2)),
    (Normal(-1e6, 1e-3), stats.norm(-1e6, 1e-3)),
    (Normal(3, 1e8), stats.norm(3, 1e8)),
]
PRIORS = pytest.mark.parametrize(("prior", "truth"), CASES, ids=[str(prior) for prior, _ in CASES])


def inner(truth, size: int = 201):
    return truth.ppf(np.linspace(0.001, 0.999, size))


@PRIORS
def test_mean_and_sd_are_scipys(prior, truth):
    assert prior.mean == pytest.approx(truth.mean(), rel=1e-12)
    assert prior.sd == pytest.approx(truth.std(), rel=1e-9)


@PRIORS
def test_the_coordinate_and_the_parameter_undo_each_other(prior, truth):
    theta = inner(truth)
    theta = theta[(theta > 1e-12) | (theta < 0)]
    theta = theta[theta < 1 - 1e-12] if isinstance(prior, Beta) else theta
    np.testing.assert_allclose(prior.parameter(prior.coordinate(theta)), theta, rtol=1e-10)
    assert np.all(np.diff(prior.coordinate(theta)) > 0)


@PRIORS
def test_the_log_density_is_scipys_times_the_jacobian(prior, truth):
    middle = prior.coordinate(truth.ppf([0.05, 0.25, 0.5, 0.75, 0.95]))
    v = middle[np.abs(middle) < 300]
    theta = prior.parameter(v)
    jacobian = {Beta: theta * (1 - theta), Gamma: theta, Normal: np.ones_like(theta)}[type(prior)]
    np.testing.assert_allclose(prior.log_density(v), truth.logpdf(theta) + np.log(jacobian), rtol=1e-8, atol=1e-8)


@PRIORS
def test_the_log_density_integrates_to_one_over_the_range(prior, truth):
    low, high = prior.coordinate_range()
    assert truth.cdf(prior.parameter(np.array(low))) < 0.5 < truth.cdf(prior.parameter(np.array(high)))
    v = np.linspace(low, high, 400_001)
    assert integrate.simpson(np.exp(prior.log_density(v)), x=v) == pytest.approx(1, abs=1e-6)


def tails(prior) -> tuple[float, float]:
    """Return the prior mass below and above the range."""
    low, high = prior.coordinate_range()
    if isinstance(prior, Beta):
        below, above = special.expit([low, -high])
        return special.betainc(prior.alpha, prior.beta, below), special.betainc(prior.beta, prior.alpha, above)
    if isinstance(prior, Gamma):
        return special.gammainc(prior.alpha, prior.beta * np.exp(low)), special.gammaincc(prior.alpha, prior.beta * np.exp(high))
    return stats.norm.cdf(low, prior.mu, prior.sigma), stats.norm.sf(high, prior.mu, prior.sigma)


@PRIORS
def test_next_to_nothing_of_the_prior_lies_outside_the_range_and_the_range_is_no_wider(prior, truth):  # noqa: ARG001
    """1e-30 on each side, or what float64 leaves beyond its own range."""
    assert max(tails(prior)) < 1e-11
    assert all(tail > 1e-33 for tail, end in zip(tails(prior), prior.coordinate_range(), strict=True) if abs(end) < 690)


@PRIORS
def test_draws_follow_scipys_distribution_and_repeat(prior, truth):
    draws = prior.rvs(np.random.default_rng(5), 4000)
    assert stats.kstest(draws, truth.cdf).pvalue > 1e-3
    np.testing.assert_array_equal(draws, prior.rvs(np.random.default_rng(5), 4000))


EXTREME = [0.05, 0.5, 1.0, 1e3, 1e6, 1e9]


@pytest.mark.parametrize("beta", EXTREME)
@pytest.mark.parametrize("alpha", EXTREME)
@pytest.mark.parametrize("family", [Beta, Gamma])
def test_the_range_of_an_extreme_prior_holds_all_but_a_billionth_at_either_end(family, alpha: float, beta: float):
    prior = family(alpha, beta)
    low, high = prior.coordinate_range()
    assert -690 <= low < high <= 690
    assert max(tails(prior)) < 2e-9


@pytest.mark.parametrize(("family", "alpha", "beta"), [(Beta, 0.01, 3), (Beta, 3, 0.01), (Gamma, 0.01, 1), (Gamma, 1e-12, 1)])
def test_a_prior_with_mass_below_the_smallest_float_has_it_in_its_range_or_is_refused(family, alpha: float, beta: float):
    try:
        prior = family(alpha, beta)
    except ValueError as error:
        assert "alpha" in str(error) or "beta" in str(error)  # noqa: PT017  (refused in words)
    else:
        assert max(tails(prior)) < 2e-9


@pytest.mark.parametrize("bad", [0, -1, math.nan, math.inf])
@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda x: Beta(x, 1), "alpha"),
        (lambda x: Beta(1, x), "beta"),
        (lambda x: Gamma(x, 1), "alpha"),
        (lambda x: Gamma(1, x), "beta"),
        (lambda x: Normal(0, x), "sigma"),
    ],
)
def test_an_improper_prior_is_refused(make, name: str, bad: float):
    with pytest.raises(
        ValueError, match=rf"^{name} is {bad}; it must be a positive finite number \(an improper prior is not supported\)$"
    ):
        make(bad)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_mean_that_is_no_number_is_refused(bad: float):
    with pytest.raises(ValueError, match=rf"^mu is {bad}; it must be a finite number$"):
        Normal(bad, 1)
