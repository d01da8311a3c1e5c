"""What is refused as a prior, each in words; and priors that are only just proper."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from scipy import stats

from dp_dask.core.continuous import Continuous
from dp_dask.core.prior_kinds import make, outside
from dp_dask.core.priors import Beta, Gamma, Normal
from dp_dask.core.spellings import respell

REFUSED = [
    ("uniform", {"lower": 0, "upper": math.inf}, "upper is inf; it must be a finite number (an improper prior"),
    ("uniform", {"lower": -math.inf, "upper": 0}, "lower is -inf; it must be a finite number (an improper prior"),
    ("uniform", {"lower": 3, "upper": 3}, "lower must be below upper"),
    ("gamma", {"alpha": 0, "beta": 1}, "alpha is 0.0; it must be a positive finite number (an improper prior"),
    ("inverse_gamma", {"alpha": 0, "beta": 0}, "alpha is 0.0; it must be a positive"),
    ("half_cauchy", {"beta": math.inf}, "beta is inf; it must be a positive finite number (an improper prior"),
    ("exponential", {"lam": 0}, "lam is 0.0; it must be a positive"),
    ("exponential", {"lam": -1}, "lam is -1.0; it must be a positive"),
    ("lognormal", {"mu": math.nan, "sigma": 1}, "mu is nan; it must be a finite number"),
    ("lognormal", {"mu": 1000, "sigma": 1}, "lies beyond what float64 can hold"),
    ("student_t", {"nu": 0.01, "mu": 0, "sigma": 1}, "farther out, than float64 can tell"),
    ("weibull", {"alpha": 0.01, "beta": 1}, "closer to an end, or farther out, than float64 can tell"),
    ("truncated_normal", {"mu": 0, "sigma": 1, "lower": 2, "upper": 1}, "lower must be below upper"),
    ("truncated_normal", {"mu": 0, "sigma": 1, "lower": 40}, "next to nothing of normal(mu=0.0, sigma=1.0) lies between"),
    ("truncated_normal", {"mu": 0, "sigma": 1, "lower": math.nan}, "lower is nan; it must be a finite number"),
    ("truncated_normal", {"mu": 0, "sigma": math.inf}, "sigma is inf; it must be a positive"),
    ("normal", {"mu": 0}, "normal takes mu, sigma, not mu"),
    ("half_norml", {"sigma": 1}, "unknown kind of prior 'half_norml'; did you mean 'half_normal'?"),
    ("scipy", {"name": "poisson"}, "'poisson' is no continuous distribution of scipy.stats"),
    ("scipy", {"name": "lognorm", "sigma": 1.0}, "takes s, loc, scale; missing: s, unknown: sigma"),
    ("scipy", {"name": "t", "df": -1.0}, "is no proper distribution"),
    ("scipy", {"name": "beta", "a": 1.0, "b": 0.05}, "kind: beta and kind: gamma hold more of it"),
]


@pytest.mark.parametrize(("kind", "numbers", "message"), REFUSED, ids=[message for *_, message in REFUSED])
def test_a_prior_that_is_none_is_refused_in_words(kind, numbers, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make(kind, **numbers)


@pytest.mark.parametrize(
    "given", [stats.poisson(3), stats.norm, 3.0, stats.norm([0.0, 1.0]), stats.gaussian_kde([1.0, 2.0, 4.0])]
)
def test_only_one_frozen_continuous_distribution_is_a_prior(given):
    with pytest.raises(ValueError, match=r"must be a frozen continuous distribution such as|must be one distribution"):
        Continuous(given)


def test_scipys_own_distribution_is_a_prior_with_its_name():
    prior = Continuous(stats.lognorm(0.5, scale=3))
    assert prior == make("scipy", name="lognorm", s=0.5, loc=0.0, scale=3.0)
    assert str(prior) == "scipy(name=lognorm, s=0.5, loc=0.0, scale=3.0)"
    assert prior != Continuous(stats.lognorm(0.6, scale=3))


def test_our_families_are_the_conjugate_priors_where_there_are_such():
    assert make("beta", alpha=1, beta=2) == Beta(1, 2)
    assert make("gamma", alpha=1, beta=2) == Gamma(1, 2)
    assert make("normal", mu=1, sigma=2) == Normal(1, 2)


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [
        ("student_t", {"nu": 0.2, "mu": 0, "sigma": 1e3}),
        ("half_cauchy", {"beta": 1e12}),
        ("inverse_gamma", {"alpha": 0.1, "beta": 1e-6}),
        ("lognormal", {"mu": 0, "sigma": 80}),
        ("weibull", {"alpha": 0.05, "beta": 1}),
        ("truncated_normal", {"mu": 0, "sigma": 1, "lower": 29}),
        ("truncated_normal", {"mu": 0, "sigma": 1, "lower": -1e-9, "upper": 2e-9}),
        ("uniform", {"lower": 1e6, "upper": 1e6 + 1e-3}),
    ],
)
def test_an_extreme_prior_is_still_normalised(kind, numbers):
    prior = make(kind, **numbers)
    v = np.linspace(*prior.coordinate_range(), 100_001)
    assert np.trapezoid(np.exp(prior.log_density(v)), v) == pytest.approx(1, abs=1e-4)
    assert prior.sd > 0


def test_the_sd_of_a_narrow_truncated_normal_is_that_of_a_uniform():
    """scipy's own is 1e5 times too large here."""
    assert make("truncated_normal", mu=0, sigma=1, lower=-1e-9, upper=2e-9).sd == pytest.approx(3e-9 / math.sqrt(12), rel=1e-6)


@pytest.mark.parametrize(
    ("prior", "domain", "fits"),
    [
        (Beta(1, 1), "probability", True),
        (Beta(1, 1), "positive", True),
        (Gamma(1, 1), "positive", True),
        (Gamma(1, 1), "probability", False),
        (Normal(10, 0.1), "positive", False),
        (Normal(0, 1), "real", True),
        (make("uniform", lower=0, upper=1), "probability", True),
        (make("uniform", lower=0, upper=1.001), "probability", False),
        (make("truncated_normal", mu=0.1, sigma=0.3, lower=0), "positive", True),
        (make("truncated_normal", mu=0.1, sigma=0.3, lower=0), "probability", False),
        (make("half_cauchy", beta=1), "real", True),
    ],
    ids=str,
)
def test_a_prior_with_mass_outside_its_parameters_domain_is_named(prior, domain, fits):
    problem = outside(prior, "theta", domain)
    assert (problem is None) is fits
    if problem is not None:
        assert problem.startswith("prior outside the support: theta lies in (0, ")
        assert str(prior) in problem
        assert f"mean {prior.mean:.4g} and sd {prior.sd:.4g}" in problem


@pytest.mark.parametrize(
    ("kind", "key", "given", "told"),
    [
        (
            "gamma",
            "scale",
            {"alpha": 1, "scale": 4},
            "gamma takes beta, the rate = 1 / scale: 0.25; beta 4 gives mean 0.25 and sd 0.25, beta 0.25 gives mean 4 and sd 4",
        ),
        ("gamma", "theta", {"theta": 4}, "gamma takes beta, the rate = 1 / theta: 0.25"),
        ("gamma", "sd", {"alpha": 4, "sd": 2}, "sqrt(alpha) / sd: 1; beta 2 gives mean 2 and sd 1, beta 1 gives mean 4 and sd 2"),
        (
            "gamma",
            "var",
            {"alpha": 4, "var": 4},
            "sqrt(alpha / var): 1; beta 4 gives mean 1 and sd 0.5, beta 1 gives mean 4 and sd 2",
        ),
        (
            "normal",
            "tau",
            {"mu": 0, "tau": 4},
            "1 / sqrt(tau): 0.5; sigma 4 gives mean 0 and sd 4, sigma 0.5 gives mean 0 and sd 0.5",
        ),
        ("normal", "precision", {"mu": 0, "precision": 4}, "the standard deviation = 1 / sqrt(precision): 0.5"),
        ("normal", "variance", {"mu": 0, "variance": 4}, "sigma, the standard deviation = sqrt(variance): 2"),
        ("normal", "sd", {"mu": 1, "sd": 4}, "the standard deviation; write sigma: 4; sigma 4 gives mean 1 and sd 4"),
        ("normal", "loc", {"loc": 1, "scale": 4}, "normal takes mu, the mean; write mu: 1; mu 1 gives mean 1 and sd 4"),
        ("exponential", "scale", {"scale": 4}, "lam 4 gives mean 0.25 and sd 0.25, lam 0.25 gives mean 4 and sd 4"),
        ("uniform", "scale", {"loc": 1, "scale": 4}, "the upper end = loc + scale: 5"),
        ("student_t", "sd", {"nu": 4, "mu": 0, "sd": 2}, "sigma 1.414 gives mean 0 and sd 2"),
        ("half_cauchy", "scale", {"scale": 2}, "write beta: 2; beta 2 gives infinite mean and infinite sd"),
        ("cauchy", "scale", {"alpha": 0, "scale": 2}, "write beta: 2; beta 2 gives no mean and infinite sd"),
        ("gamma", "scale", {"alpha": 1, "scale": 0}, "gamma takes beta, the rate = 1 / scale"),
    ],
)
def test_a_number_by_another_name_is_told_with_what_it_would_mean(kind, key, given, told):
    assert told in respell(kind, key, given)
