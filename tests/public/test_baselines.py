"""Baselines on simulated data: closed forms, the privacy of one posterior draw, and what naive inference gets wrong.

Statistical checks are five standard errors wide at fixed seeds, some twenty of them: false alarms below 1e-4.
"""

from __future__ import annotations

import inspect
import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from cases import BY_NAME, CASES, IDS, Case, observation
from scipy import special, stats

from dp_dask.core import plugins
from dp_dask.core.bounds import Bounds, Outside
from dp_dask.core.categories import CategoryCounts
from dp_dask.core.dirichlet import Dirichlet
from dp_dask.core.prior_kinds import make
from dp_dask.core.priors import Beta, Gamma
from dp_dask.core.privacy import Neighbours
from dp_dask.errors import InferenceError
from dp_dask.public import baselines, gibbs_counts
from dp_dask.public import ops as one_posterior_sampling
from dp_dask.public.count_tree import expected_counts
from dp_dask.public.counts import CountsObservation
from dp_dask.public.infer import ENGINES
from dp_dask.public.mmd import squared_mmd
from dp_dask.public.simplex import nearest_counts
from dp_dask.public.simulation import Pseudo, simulate
from dp_dask.public.trials import Outcome, Trial, outcome
from dp_dask.public.uniformity import gamma, gamma_p_value


def counts_like(n_categories, n, epsilon, y=None):
    categories = tuple(range(n_categories))
    return CountsObservation(
        model=plugins.load("dp_dask.models", "categorical")(categories),
        statistic=CategoryCounts(column="x", categories=categories),
        n=n,
        scale=2 / epsilon,
        y=tuple(y or [0] * n_categories),
        expected_n=None,
    )


TRUNCATED = Case("exponential", {}, Gamma(8, 2), Bounds(0.00633, 0.92222), ())


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_non_private_is_conjugate_update_on_the_records_themselves(case):
    """Its draws against the posterior's mean and sd from the updated prior."""
    rng = np.random.default_rng(1)
    pseudo = simulate(rng, observation(case, n=40, epsilon=0.1), case.theta[0])
    wanted = type(case.prior)(*map(float, case.model.update(case.prior, 40, pseudo.total)))
    draws = baselines.non_private(rng, pseudo, case.prior, 10_000)
    assert draws.mean() == pytest.approx(wanted.mean, abs=5 * wanted.sd / 100)
    assert draws.std() == pytest.approx(wanted.sd, rel=0.08)


def test_non_private_beta_binomial_is_its_closed_form():
    like = observation(BY_NAME["bernoulli"], n=10, epsilon=1.0)
    draws = baselines.non_private(np.random.default_rng(1), Pseudo(like, 10, 3.0, 3), Beta(2, 5), 20_000)
    assert stats.kstest(draws[:, 0], stats.beta(5, 12).cdf).pvalue > 1e-6
    counts = Pseudo(counts_like(3, 7, 1.0), 7, np.array([1, 4, 2]))
    p = baselines.non_private(np.random.default_rng(2), counts, Dirichlet((1.0, 0.5, 2.0)), 20_000)
    for k, (a, b) in enumerate([(2, 8.5), (4.5, 6), (4, 6.5)]):
        assert stats.kstest(p[:, k], stats.beta(a, b).cdf).pvalue > 1e-6


@pytest.mark.parametrize(("y", "valid"), [(-7, 0), (3, 3), (25, 10)])
def test_naive_takes_the_noisy_sum_for_exact_once_it_is_valid(y, valid):
    like = observation(BY_NAME["bernoulli"], n=10, epsilon=1.0, y=y)
    draws = baselines.naive(np.random.default_rng(1), Pseudo(like, 10, 5.0, 5), Beta(1, 1), 20_000)
    assert stats.kstest(draws[:, 0], stats.beta(1 + valid, 11 - valid).cdf).pvalue > 1e-6


def test_naive_counts_are_moved_to_the_nearest_that_add_up():
    """(6, -2, 3) with n = 5: (4, 0, 1), and p_1 ~ Beta(1 + 4, 2 + 1)."""
    pseudo = Pseudo(counts_like(3, 5, 1.0, y=[6, -2, 3]), 5, np.array([3, 1, 1]))
    p = baselines.naive(np.random.default_rng(1), pseudo, Dirichlet((1.0, 1.0, 1.0)), 20_000)
    assert stats.kstest(p[:, 0], stats.beta(5, 3).cdf).pvalue > 1e-6


def test_another_prior_has_its_own_non_private_posterior():
    """Beta(2, 5) by another name: the table must give what Conjugate-Update does."""
    like = observation(BY_NAME["bernoulli"], n=10, epsilon=1.0)
    prior = make("scipy", name="beta", a=2.0, b=5.0)
    draws = baselines.non_private(np.random.default_rng(1), Pseudo(like, 10, 3.0, 3), prior, 20_000)
    assert stats.kstest(draws[:, 0], stats.beta(5, 12).cdf).pvalue > 1e-6


def test_naive_knows_the_grids_origin():
    """A clamped sum is released less the origin of each record."""
    case = BY_NAME["normal"]
    like = observation(case, n=4000, epsilon=50.0)
    pseudo = simulate(np.random.default_rng(3), like, 0.4)
    draws = baselines.naive(np.random.default_rng(1), pseudo, case.prior, 4000)
    assert draws.mean() == pytest.approx(pseudo.total / 4000, abs=0.05)


def test_the_nearest_counts_are_those_of_quadratic_programming():
    """Against the optimality conditions: what is kept is y less one number, what is zero lies below it."""
    rng = np.random.default_rng(4)
    for n, k in itertools.product((0, 1, 7, 100), (2, 3, 9)):
        y = rng.integers(-30, 60, (50, k))
        found = nearest_counts(y, n)
        np.testing.assert_allclose(found.sum(axis=1), n, atol=1e-9)
        assert (found >= 0).all()
        for row, near in zip(y, found, strict=True):
            if n > 0:
                shift = (row - near)[near > 0]
                np.testing.assert_allclose(shift, shift[0], atol=1e-9)
                assert (row[near == 0] <= shift[0] + 1e-9).all()
    np.testing.assert_allclose(nearest_counts(np.array([3, 4, 0]), 7), [3, 4, 0])


@pytest.mark.parametrize("name", ["bernoulli", "exponential", "poisson", "weibull"])
@pytest.mark.parametrize("outside", list(Outside))
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_one_posterior_draw_is_as_private_as_it_says(name, outside, epsilon):
    """The density's log ratio between neighbours, over every theta and every sum: at most epsilon, and not far below."""
    case = BY_NAME[name]
    n = 5
    like = observation(case, n=n, epsilon=epsilon, outside=outside)
    sums = np.unique(np.linspace(n * like.low, n * like.high, 13).astype(int))
    worst = 0.0
    for one in sums:
        for step in np.unique(np.linspace(like.low - like.high, like.high - like.low, 9).astype(int)):
            if n * like.low <= one + step <= n * like.high:
                a = one_posterior_sampling.law(like, case.prior, int(one))
                b = one_posterior_sampling.law(like, case.prior, int(one + step))
                is_held = (a.weights > 1e-280) & (b.weights > 1e-280)
                worst = max(worst, float(np.abs(np.log(a.weights[is_held] / b.weights[is_held])).max()))
    assert worst <= epsilon * (1 + 1e-9)
    rho = one_posterior_sampling.temperature(like, case.prior, a.cells)
    assert worst > 0.25 * epsilon or rho == 1.0  # half of the range at most is lost to the normaliser


def test_twice_the_temperature_would_break_epsilon(monkeypatch):
    right = one_posterior_sampling.temperature
    monkeypatch.setattr(one_posterior_sampling, "temperature", lambda *given: 2 * right(*given))
    like = observation(BY_NAME["bernoulli"], n=1, epsilon=1.0)
    a, b = (one_posterior_sampling.law(like, Beta(1, 1), s) for s in (0, 1))
    assert np.abs(np.log(a.weights / b.weights)).max() > 1.0


def test_the_law_of_a_posterior_draw_is_the_tempered_posterior_on_theta():
    """Bernoulli, flat prior: Beta(1 + rho S, 1 + rho (n - S)) on [0.01, 0.99], rho = epsilon / (2 logit(0.99))."""
    like = observation(BY_NAME["bernoulli"], n=50, epsilon=1.0)
    rho = 1 / (2 * special.logit(0.99))
    law = one_posterior_sampling.law(like, Beta(1, 1), 20)
    assert one_posterior_sampling.temperature(like, Beta(1, 1), law.cells) == pytest.approx(rho, rel=1e-3)
    tempered = stats.beta(1 + 20 * rho, 1 + 30 * rho)
    span = tempered.cdf(0.99) - tempered.cdf(0.01)
    for p in (0.05, 0.2, 0.4, 0.7):
        assert law.cdf(p) == pytest.approx((tempered.cdf(p) - tempered.cdf(0.01)) / span, abs=1e-3)


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_one_dirichlet_draw_is_as_private_as_it_says(epsilon):
    """Three categories: the density's log ratio between neighbours, normalised on a fine grid of Theta."""
    floor, rho = one_posterior_sampling.temperature_counts(3, epsilon)
    axis = np.linspace(floor, 1 - 2 * floor, 401)
    p = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    p = np.column_stack([p, 1 - p.sum(axis=1)])
    p = p[p[:, 2] >= floor - 1e-12]

    def log_density(counts):
        logs = (rho * np.array(counts)) @ np.log(p.T)
        return logs - special.logsumexp(logs)

    worst = max(
        np.abs(log_density(a) - log_density(b)).max()
        for a, b in [([4, 0, 0], [3, 1, 0]), ([2, 2, 0], [1, 2, 1]), ([0, 1, 3], [0, 0, 4])]
    )
    assert 0.25 * epsilon < worst <= epsilon
    like = counts_like(3, 100, epsilon)
    pseudo = simulate(np.random.default_rng(5), like, np.array([0.98, 0.01, 0.01]))
    draws = one_posterior_sampling.ops(np.random.default_rng(6), pseudo, Dirichlet((1.0,) * 3), 500)
    assert draws.shape == (500, 3)
    assert draws.min() >= floor


def test_a_posterior_outside_theta_is_an_error():
    pseudo = Pseudo(counts_like(3, 10**6, 1e6), 10**6, np.array([10**6, 0, 0]))
    with pytest.raises(InferenceError, match="hardly any draw"):
        one_posterior_sampling.ops(np.random.default_rng(1), pseudo, Dirichlet((1.0,) * 3), 10)


def test_naive_is_miscalibrated_where_exact_is_not():
    """n = 100, epsilon 0.1, 150 releases: p < 1e-6 for naive, above it for the exact posterior."""
    trials = [
        Trial(observation(BY_NAME["bernoulli"], n=100, epsilon=0.1), Beta(1, 1)),
        Trial(observation(TRUNCATED, n=100, epsilon=0.1, outside=Outside.TRUNCATE), TRUNCATED.prior),
        Trial(counts_like(4, 100, 0.1), Dirichlet((1.0,) * 4)),
    ]
    for trial in trials:
        p = {}
        for method in ("naive", "exact", "non_private"):
            found = outcome(trial, method, (7,), 150, 63)
            assert isinstance(found, Outcome)
            p[method] = gamma_p_value(gamma(found.ranks[:, 0]), 150)
        assert p["naive"] < 1e-6
        assert p["exact"] > 1e-6
        assert p["non_private"] > 1e-6


def test_methods_see_the_same_releases_and_unlike_seeds_do_not():
    trial = Trial(counts_like(3, 30, 1.0), Dirichlet((1.0,) * 3))
    one, same, other = (outcome(trial, "non_private", seed, 5, 31) for seed in ((1,), (1,), (2,)))
    np.testing.assert_array_equal(one.ranks, same.ranks)
    assert not np.array_equal(one.ranks, other.ranks)


def test_the_published_gibbs_of_counts_is_near_the_exact_means_where_counts_are_many():
    """n = 2,000, epsilon 0.2: noise as wide as the counts' own spread; and the chains' sums add up to one."""
    y, alpha, scale, n = np.array([610, 1180, 230]), np.array([1.0, 2.0, 0.5]), 10.0, 2000
    draws = gibbs_counts.chains(np.random.default_rng(8), np.tile(y, (200, 1)), alpha, scale, n, 50)
    np.testing.assert_allclose(draws.sum(axis=2), 1, rtol=1e-12)
    mean, variance = expected_counts(y, alpha, scale, n)
    total = n + alpha.sum()
    wanted = (alpha + mean) / total
    spread = np.sqrt((wanted * (1 - wanted) + variance / total) / (total + 1))
    np.testing.assert_allclose(draws.mean(axis=(0, 1)), wanted, atol=0.05 * spread.max())
    np.testing.assert_allclose(draws.std(axis=(0, 1)), spread, rtol=0.06)


def test_the_counts_of_the_published_gibbs_have_the_normal_law_given_the_release():
    """One step, against the closed conditional of N(n p, n (diag p - p p')) given y = S + N(0, diag omega)."""
    p, omega, y, n, size = np.array([0.2, 0.5, 0.3]), np.array([4.0, 9.0, 30.0]), np.array([25, 40, 45]), 100, 200_000
    drawn = gibbs_counts._counts(np.random.default_rng(9), y, np.tile(p, (size, 1)), np.tile(omega, (size, 1)), n)
    sigma = n * (np.diag(p) - np.outer(p, p))
    gain = sigma @ np.linalg.inv(sigma + np.diag(omega))
    np.testing.assert_allclose(drawn.mean(axis=0), n * p + gain @ (y - n * p), atol=0.06)
    np.testing.assert_allclose(np.cov(drawn.T), sigma - gain @ sigma, atol=0.3)
    np.testing.assert_allclose(drawn.sum(axis=1), n, rtol=1e-9)


def test_squared_mmd_is_unbiased_for_the_closed_form_of_two_normals():
    """Gaussian kernel, bandwidth h, N(0, 1) and N(m, 1): 2 h / sqrt(h^2 + 2) (1 - exp(-m^2 / (2 (h^2 + 2))))."""
    rng, h = np.random.default_rng(10), 1.5
    for m in (0.0, 0.5, 2.0):
        found = np.array([squared_mmd(rng.normal(0, 1, (20, 1)), rng.normal(m, 1, (30, 1)), np.array([h])) for _ in range(2000)])
        wanted = 2 * h / math.sqrt(h * h + 2) * (1 - math.exp(-(m**2) / (2 * (h * h + 2))))
        assert found.mean() == pytest.approx(wanted, abs=5 * found.std() / math.sqrt(2000))


def test_baselines_take_a_simulated_release_and_nothing_that_a_ledger_could_hold():
    every = (baselines.naive, baselines.non_private, one_posterior_sampling.ops)
    assert {inspect.signature(each).parameters["pseudo"].annotation for each in every} == {"Pseudo"}
    assert not {"naive", "non_private", "ops"} & set(ENGINES)


def test_baselines_refuse_a_private_n():
    like = observation(BY_NAME["bernoulli"], n=5, epsilon=1.0, neighbours=Neighbours.ADD_REMOVE)
    pseudo = Pseudo(replace(like, expected_n=5.0), 5, 2.0, 2)
    for each in (baselines.naive, one_posterior_sampling.ops):
        with pytest.raises(InferenceError, match="public n only"):
            each(np.random.default_rng(1), pseudo, Beta(1, 1), 10)


@pytest.mark.parametrize("method", ["ops", "gibbs", "augment"])
def test_methods_that_update_refuse_a_prior_that_is_not_conjugate(method):
    trial = Trial(observation(BY_NAME["bernoulli"], n=5, epsilon=1.0), make("scipy", name="beta", a=2.0, b=5.0))
    assert "needs the conjugate prior Beta" in outcome(trial, method, (1,), 2, 15)
