"""Several sums under Gaussian noise: densities against sums over n, engines against quadrature and each other, calibration."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from cases import BY_NAME, gaussian, joint_observation, observation
from core.test_grouped import planned_groups
from public.test_gram_posterior import VAGUE, assert_alike, interest
from public.test_gram_posterior import simulate as simulate_records
from scipy import special, stats

from dp_dask.core.bounds import Bounds, Outside
from dp_dask.core.gram import gram_sum
from dp_dask.core.joint_priors import Independent
from dp_dask.core.priors import Gamma, Normal
from dp_dask.core.privacy import Neighbours
from dp_dask.errors import InferenceError
from dp_dask.public.calibration import ranks
from dp_dask.public.gram_likelihood import GramObservation
from dp_dask.public.gram_posterior import draw_posteriors
from dp_dask.public.infer import infer
from dp_dask.public.noise_law import Gaussian
from dp_dask.public.normal_gaussian_2d import log_density, log_density_private
from dp_dask.public.simulation import simulate
from dp_dask.public.uniformity import gamma, gamma_p_value, uniformity

NORMAL = BY_NAME["normal_mu_sigma"]
REPLACE, ADD_REMOVE = Neighbours.REPLACE, Neighbours.ADD_REMOVE


def test_the_density_of_two_sums_is_the_normal_one():
    y, mean, covariance = (
        np.array([3.0, -1.0]),
        np.array([[1.0, 2.0], [9.0, 0.0]]),
        np.array([[[4, 3.9], [3.9, 4]], [[0, 0], [0, 7]]]),
    )
    wanted = [stats.multivariate_normal.logpdf(y, m, c + 2.25 * np.eye(2)) for m, c in zip(mean, covariance, strict=True)]
    np.testing.assert_allclose(log_density(y, mean, covariance, 1.5) - math.log(2 * math.pi), wanted, rtol=1e-12)


@pytest.mark.parametrize("expected_n", [None, 0.5, 300.0])
@pytest.mark.parametrize(("n", "scale"), [(0, 40.0), (7, 40.0), (300, 40.0), (5000, 700.0)])
def test_the_sum_over_a_private_n_is_that_of_every_term(expected_n, n, scale):
    weight = 50
    m = np.array([[20.0, -60.0], [0.0, 0.0], [35.0, 70.0]])
    v = np.array([[[900.0, 200], [200, 400]], [[1.0, 0], [0, 2500]], [[50.0, 0], [0, 50]]])
    y0 = weight * n - 0.7 * scale
    y = n * m[0] + np.array([1.2, -0.4]) * scale
    every = np.arange(0, 20_000.0)
    log_g = 0.0 if expected_n is None else -math.log1p(1 / expected_n)
    log_weight = every * log_g - ((y0 - weight * every) / scale) ** 2 / 2
    wanted = np.array(
        [
            special.logsumexp(log_weight + log_density(y, every[:, None] * a, every[:, None, None] * b, scale))
            for a, b in zip(m, v, strict=True)
        ]
    )
    found = log_density_private(y, y0, weight, m, v, scale, expected_n)
    is_seen = wanted > wanted.max() - 25
    np.testing.assert_allclose((found - found[0])[is_seen], (wanted - wanted[0])[is_seen], atol=1e-6)
    assert is_seen.sum() >= 1


def test_a_count_that_weighs_too_little_is_refused():
    with pytest.raises(InferenceError, match="release with a larger count weight"):
        log_density_private(np.zeros(2), 10.0, 1e-4, np.full((1, 2), 50.0), np.eye(2)[None], 30.0, None)


def brute_posterior(like, theta):
    """Weights of parameters [k, 2] with equal prior mass: the exact law of n = 1 or 2 contributions, cell by cell."""
    rows = like.statistic.rows.astype(float)
    inside, tail = like.probabilities(theta)
    p = np.hstack([inside, tail[:, None]])
    values = np.hstack([rows, np.zeros((2, 1))])
    y = np.array(like.y)
    if like.n == 1:
        weight = p @ np.exp(-((y[:, None] - values) ** 2).sum(axis=0) / (2 * like.scale**2))
    else:
        squares = (y[:, None, None] - values[:, :, None] - values[:, None]) ** 2
        weight = np.einsum("ki,ij,kj->k", p, np.exp(-squares.sum(axis=0) / (2 * like.scale**2)), p, optimize=True)
    return weight / weight.sum()


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("outside", list(Outside))
def test_both_engines_equal_quadrature_over_all_records(n, outside):
    """4,000 prior draws weighed by the exact likelihood; kernel_is within Monte Carlo error, clt_grid 0.1 sd more."""
    rng = np.random.default_rng(n)
    prior = Independent((Normal(0, 3), Gamma(3, 2)))
    like = replace(gaussian(joint_observation(NORMAL, n=n, epsilon=1.0, outside=outside), 0.5), y=(150 * n, 100 * n))
    theta = prior.rvs(rng, 4_000)
    weight = brute_posterior(like, theta)
    mean = weight @ theta
    sd = np.sqrt(weight @ (theta - mean) ** 2)
    size = 1 / np.sum(weight**2)
    for engine, slack in (("kernel_is", 0.0), ("clt_grid", 0.1)):
        draws = infer(rng, like, prior, 4000, engine).draws.reshape(-1, 2)
        assert (np.abs(draws.mean(axis=0) - mean) < (5 / math.sqrt(size) + 5 / math.sqrt(4000) + slack) * sd).all()
        np.testing.assert_allclose(draws.std(axis=0), sd, rtol=0.15)


@pytest.mark.parametrize("neighbours", [REPLACE, ADD_REMOVE])
def test_clt_grid_agrees_with_kernel_is(neighbours):
    """At n = 40, rho 0.5: means within 0.25 posterior sd, of which 0.1 is Monte Carlo error, sds within 15 %."""
    rng = np.random.default_rng(40)
    like = gaussian(joint_observation(NORMAL, n=40, epsilon=1.0, neighbours=neighbours), 0.5)
    seen = simulate(rng, like, np.array(NORMAL.theta[0])).observation
    near, exact = (infer(rng, seen, NORMAL.prior, 1000, engine).draws.reshape(-1, 2) for engine in ("clt_grid", "kernel_is"))
    near, exact = (NORMAL.prior.coordinate(draws) for draws in (near, exact))
    assert (np.abs(near.mean(axis=0) - exact.mean(axis=0)) < 0.25 * exact.std(axis=0)).all()
    np.testing.assert_allclose(near.std(axis=0), exact.std(axis=0), rtol=0.15)


def one_sum(name, rho, **facts):
    return gaussian(observation(BY_NAME[name], epsilon=1, **facts), rho), BY_NAME[name].prior


ONE_SUM = [
    one_sum("exponential", 0.2, n=40),
    one_sum("poisson", 0.5, n=300, outside=Outside.TRUNCATE),
    one_sum("normal", 0.05, n=2000),
    one_sum("geometric", 0.5, n=30, neighbours=ADD_REMOVE, expected_n=30.0),
]


def narrower(u):
    """The same ranks, had the posteriors' sd been 15 % too small."""
    return special.ndtr(special.ndtri(np.clip(u, 1e-9, 1 - 1e-9)) / 0.85)


def test_auto_is_calibrated_for_one_sum():
    """300 ranks of each of four settings; a calibrated engine fails with probability 5e-6 in all. Pooled, they have the power."""
    u = []
    for i, (like, prior) in enumerate(ONE_SUM):
        assert like.law is Gaussian
        u.append(ranks(np.random.SeedSequence([7, i]), like, prior, 300, "auto")[:, 0])
        assert gamma_p_value(gamma(u[-1]), 300) > 1e-6
    pooled = np.concatenate(u)
    assert gamma_p_value(gamma(pooled), len(pooled)) > 1e-6
    assert not uniformity(narrower(pooled)).passes


def test_auto_is_calibrated_for_two_sums():
    """Both parameters; a calibrated engine fails with probability 2e-6."""
    like = gaussian(joint_observation(NORMAL, n=100, epsilon=1), 0.2)
    u = ranks(np.random.SeedSequence(8), like, NORMAL.prior, 60, "auto")
    assert all(gamma_p_value(gamma(u[:, j]), len(u)) > 1e-6 for j in range(2))


def test_auto_is_calibrated_for_groups():
    """Three groups, pooled; a calibrated engine fails with probability 1e-6."""
    like, prior = planned_groups()
    like = replace(like, law=Gaussian, scale=math.sqrt(like.statistic.squared_sensitivity(ADD_REMOVE)))
    u = ranks(np.random.SeedSequence(9), like, prior, 60, "auto").ravel()
    assert gamma_p_value(gamma(u), len(u)) > 1e-6


# Products of columns.


def observe(rng, records, rho, neighbours=REPLACE, expected_n=None):
    """Release these records [n, c], whose bounds are -1 and 1, with Gaussian noise of a request of rho."""
    n, c = records.shape
    is_public = neighbours is REPLACE
    statistic = gram_sum("abcdef"[:c], [Bounds(-1, 1)] * c, neighbours, n if is_public else None)
    scale = math.sqrt(statistic.squared_sensitivity(neighbours) / (2 * rho))
    noise = np.rint(rng.normal(0, scale, statistic.size + 1)).astype(np.int64)
    y = tuple(int(s) for s in statistic.sum_block(records) + noise[1:])
    facts = {"statistic": statistic, "scale": scale, "law": Gaussian, "y": y, "expected_n": expected_n}
    if is_public:
        return GramObservation(n=n, **facts)
    return GramObservation(n=None, count=int(statistic.count_weight * n + noise[0]), **facts)


def brute_force(rng, like, prior, size):
    """Draw from the prior, simulate records, weigh by the noise: exact but for Monte Carlo error (Gong 2022)."""
    law = rng.geometric(1 / (like.expected_n + 1), size) - 1 if like.n is None else np.full(size, like.n)
    m, root = prior.mean_and_root(prior.rvs(rng, size))
    most = int(law.max())
    u = m[:, None] + rng.standard_normal((size, most, len(prior.m0))) @ root
    contributions = like.statistic.contributions(u.reshape(size * most, -1)).reshape(size, most, -1)
    sums = (contributions * (np.arange(most) < law[:, None])[:, :, None]).sum(axis=1)
    log_weight = -(((np.array(like.y) - sums) / like.scale) ** 2).sum(axis=1) / 2
    if like.count is not None:
        log_weight -= ((like.count - like.statistic.count_weight * law) / like.scale) ** 2 / 2
    weight = np.exp(log_weight - log_weight.max())
    return np.vstack([interest(m, root.transpose(0, 2, 1) @ root), law]), weight / weight.sum()


def test_few_records_match_brute_force_over_simulated_records():
    """Tolerance .12: at an effective size of 2,500 and kurtosis below 9, 4.2 standard errors; what is 15 % too narrow fails."""
    rng = np.random.default_rng(1)
    likes = [observe(rng, simulate_records(rng, VAGUE, n)[0], rho) for n, rho in ((2, 0.1), (5, 0.3))]
    made = draw_posteriors(rng, likes, VAGUE, 12_000)
    for like, draws in zip(likes, made, strict=True):
        values, weight = brute_force(rng, like, VAGUE, 60_000)
        assert 1 / np.sum(weight**2) > 2_500
        assert_alike(draws, values[:5], weight, 0.12)


def test_a_private_n_is_one_more_unknown():
    rng = np.random.default_rng(3)
    like = observe(rng, simulate_records(rng, VAGUE, 8)[0], 0.1, ADD_REMOVE, expected_n=8.0)
    [draws] = draw_posteriors(rng, [like], VAGUE, 12_000)
    values, weight = brute_force(rng, like, VAGUE, 60_000)
    assert 1 / np.sum(weight**2) > 1_500
    assert_alike(draws, values, weight, 0.16)


def test_releases_of_two_kinds_of_noise_are_not_inferred_together():
    rng = np.random.default_rng(4)
    like = observe(rng, simulate_records(rng, VAGUE, 8)[0], 1.0)
    other = replace(like, law=type(joint_observation(NORMAL, n=1, epsilon=1).noise))
    with pytest.raises(InferenceError, match="one statistic and one noise"):
        draw_posteriors(rng, [like, other], VAGUE, 100)
