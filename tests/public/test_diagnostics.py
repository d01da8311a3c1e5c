"""Diagnostics: noise ratios, shares of width and tail probabilities against closed forms and simulated releases."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from cases import BY_NAME, CASES, IDS, laplace_pmf, observation
from posteriors import joint
from scipy import stats

from dp_dask.core.bounds import Bounds
from dp_dask.core.categories import CategoryCounts
from dp_dask.core.grouped import GroupedSum
from dp_dask.core.joint_priors import Independent, NormalInverseGamma
from dp_dask.core.priors import Beta, Gamma, Normal
from dp_dask.core.privacy import Neighbours
from dp_dask.public.counts import CountsObservation
from dp_dask.public.diagnostics import Diagnostics, Nodes, diagnose, noise_ratio, prior_nodes, tail_probability
from dp_dask.public.engines import Inference, lattice
from dp_dask.public.groups import GroupedModel, GroupedObservation
from dp_dask.public.infer import infer
from dp_dask.public.normal_laplace import cdf
from dp_dask.public.simulation import simulate

every_model = pytest.mark.parametrize("case", CASES, ids=IDS)


def rng(seed=1):
    return np.random.default_rng(seed)


@pytest.mark.parametrize("sd", [1e-3, 0.3, 1.0, 40.0])
def test_the_normal_laplace_cdf_equals_quadrature_in_both_tails(sd):
    """P(X + L <= z) as the mean of the normal cdf over the Laplace variable; far out to a relative error."""
    u = (np.arange(200_000) + 0.5) / 200_000
    steps = np.log(2 * np.minimum(u, 1 - u)) * np.where(u < 0.5, 1, -1)
    for z in (-8.0, -1.3, 0.0, 0.4, 6.0):
        wanted = stats.norm.cdf((z - 2.0 * steps) / sd).mean()
        assert cdf(np.array([z]), np.array([sd]), 2.0)[0] == pytest.approx(wanted, rel=2e-3)
    far = cdf(np.array([-200.0 - sd]), np.array([sd]), 2.0)[0]
    assert far == pytest.approx(math.exp(-(200 + sd) / 2 + sd**2 / 8) / 2, rel=1e-6 if sd < 40 else 1)


@pytest.mark.parametrize("scale", [0.0005, 0.3, 5.0, 1e6])
def test_the_noise_ratio_is_the_noises_variance_over_that_of_the_sum(scale):
    like = replace(observation(BY_NAME["bernoulli"], n=50, epsilon=1.0), scale=scale)
    k = np.arange(-400, 401)
    variance = float(np.sum(k**2 * laplace_pmf(k, scale))) if scale < 10 else 2 * scale**2
    (found,) = noise_ratio(like, np.array([0.3]))
    assert found == pytest.approx(variance / (50 * 0.3 * 0.7), rel=1e-9, abs=1e-300)
    assert noise_ratio(replace(like, n=0), np.array([0.3])) == (math.inf,)


def test_shares_of_the_width_of_a_normal_mean_are_the_closed_forms():
    """Wide bounds and large n: variances add, sd^2 = sd_1^2 (1 + r); the bounds do nothing."""
    case = replace(BY_NAME["normal"], bounds=Bounds(-20, 20), prior=Normal(0, 100))
    for epsilon in (0.05, 0.2, 5.0):
        like = observation(case, n=10_000, epsilon=epsilon, y=0)
        inference = infer(rng(), like, case.prior, 4000)
        found = diagnose(rng(), like, case.prior, inference)
        (r,) = found.noise_ratio
        sd = inference.grid.sd
        assert found.noise_share[0] == pytest.approx(1 - 0.015 / sd, abs=0.005)
        if r < 0.2:
            assert found.noise_share[0] == pytest.approx(1 - 1 / math.sqrt(1 + r), abs=0.01)
        assert found.bounds_share[0] < 0.005


def test_bounds_that_cut_most_records_are_told_from_the_noise():
    """exponential(1), known only by min(x, b): the Fisher information is 1 - exp(-b) of the whole, for every n."""
    case = replace(BY_NAME["exponential"], bounds=Bounds(0, 0.5), prior=Gamma(1, 1))
    like = observation(case, n=20_000, epsilon=50.0)
    like = replace(like, y=round(20_000 * float(like.quick_moments(np.array([1.0]))[0][0])))
    found = diagnose(rng(), like, case.prior, infer(rng(), like, case.prior, 4000, "edgeworth"))
    mean, variance = 1 - math.exp(-0.5), 1 - 2 * 0.5 * math.exp(-0.5) - math.exp(-1)
    slope = 1 - math.exp(-0.5) - 0.5 * math.exp(-0.5)
    assert mean == pytest.approx(float(like.quick_moments(np.array([1.0]))[0][0]) * like.statistic.grid.unit, abs=1e-3)
    of_full = slope / math.sqrt(variance)  # sd_1 / sd_0 at rate 1, by the delta method
    assert found.bounds_share[0] == pytest.approx(1 - of_full, abs=0.01)
    assert found.noise_share[0] < 0.01


@every_model
def test_the_width_without_noise_is_that_of_an_engine_on_a_release_without_noise(case):
    """Shares against the exact engine with epsilon 200: sd_0 within 6 %, so the share within 0.06 of it."""
    like = observation(case, n=20, epsilon=1.0)
    like = simulate(rng(4), like, case.theta[0]).observation
    inference = infer(rng(), like, case.prior, 4000, "edgeworth")
    theta = float(inference.draws.mean())
    exact = replace(like, y=round(20 * float(like.quick_moments(np.array([theta]))[0][0])), scale=like.scale / 200)
    wanted = 1 - lattice.plugin(rng(), exact, case.prior, 400).grid.sd / inference.grid.sd
    assert diagnose(rng(), like, case.prior, inference).noise_share[0] == pytest.approx(max(wanted, 0), abs=0.06)


def test_a_prior_that_is_not_conjugate_has_no_share_of_the_bounds():
    like = observation(BY_NAME["bernoulli"], n=40, epsilon=1.0, y=10)
    inference = infer(rng(), like, Beta(1, 1), 400)
    found = diagnose(rng(), like, Gamma(2, 9), inference)
    assert found.bounds_share == (None,)
    assert found.noise_share[0] is not None


@pytest.mark.parametrize("y", [-9, 0, 3, 12, 31])
def test_a_tail_probability_is_that_of_the_exact_law_of_the_release(y):
    """bernoulli, n = 30: the beta-binomial law of S, convolved with the discrete noise."""
    like = observation(BY_NAME["bernoulli"], n=30, epsilon=0.5, y=y)
    s = np.arange(31)
    of_sum = stats.betabinom(30, 2, 5).pmf(s)
    k = np.arange(-200, 300)
    law = (of_sum[:, None] * laplace_pmf(k - s[:, None], like.scale)).sum(axis=0)
    wanted = min(2 * min(law[k <= y].sum(), law[k >= y].sum()), 1)
    assert tail_probability(like, prior_nodes(rng(), Beta(2, 5))) == pytest.approx(wanted, rel=0.1)


@pytest.mark.parametrize("expected_n", [None, 60.0])
@pytest.mark.parametrize("y", [20, 80, 160])
def test_a_tail_probability_with_a_private_n_is_that_of_the_exact_law_given_the_noisy_count(y, expected_n):
    """A tight prior, so that the unknown n matters: taking the noisy count for n is wrong by a factor of 1.5 and more far out."""
    like = observation(BY_NAME["bernoulli"], n=100, epsilon=0.2, neighbours=Neighbours.ADD_REMOVE, y=y, expected_n=expected_n)
    prior = Beta(9000, 1000)
    cells, pmf = like.pmf(np.array([0.9]))
    low, high = cells[pmf[0] > 0]
    n = np.arange(600)
    weights = laplace_pmf(like.count - like.statistic.count_weight * n, like.scale)
    if expected_n is not None:
        weights *= (expected_n / (expected_n + 1)) ** n
    law = np.zeros(1201)
    for each, weight in zip(n, weights / weights.sum(), strict=True):
        ones = np.arange(each + 1)
        np.add.at(law, (low * each + (high - low) * ones).astype(int) + 600, weight * stats.betabinom(each, 9000, 1000).pmf(ones))
    k = np.arange(-2000, 2000)
    released = np.convolve(law, laplace_pmf(k, like.scale))
    at = y + 600 + 2000
    wanted = min(2 * min(released[: at + 1].sum(), released[at:].sum()), 1)
    found = tail_probability(like, prior_nodes(rng(), prior))
    assert found == pytest.approx(wanted, rel=0.15)


@every_model
@pytest.mark.parametrize("neighbours", list(Neighbours))
def test_releases_that_the_prior_makes_are_seldom_called_unexpected(case, neighbours):
    """Releases of prior and model: p < 0.05 in 5 % of them, at n = 8 where the normal approximation is worst.

    Binomial(240, 0.05) is above 32 and Binomial(80, 0.05) above 15 with probability 1e-6 and 1e-5.
    """
    replicates, most = (240, 32) if neighbours is Neighbours.REPLACE else (80, 15)
    like = observation(case, n=8, epsilon=1.0, neighbours=neighbours, expected_n=8.0)
    nodes, random, found = prior_nodes(rng(), case.prior), rng(7), []
    for _ in range(replicates):
        with np.errstate(over="ignore"):  # a Pareto record may be infinite
            pseudo = simulate(random, like, float(case.prior.rvs(random, 1)[0])).observation
        found.append(tail_probability(pseudo, nodes))
    assert sum(p < 0.05 for p in found) <= most
    assert sum(p < 0.001 for p in found) <= 3
    assert sum(p < 0.5 for p in found) > replicates / 5


@pytest.mark.parametrize("neighbours", list(Neighbours))
def test_a_release_far_from_the_prior_is_told_with_its_suspects(neighbours):
    case = BY_NAME["geometric"]
    like = simulate(rng(2), observation(case, n=2000, epsilon=1.0, neighbours=neighbours, expected_n=2000.0), 0.2).observation
    for prior, is_warned in ((Beta(1, 1), False), (Beta(16, 8), True)):
        inference = infer(rng(), like, prior, 400)
        found = diagnose(rng(), like, prior, inference)
        warned = found.warnings("geometric", prior, like)
        assert (found.prior_p < 0.001) is is_warned
        assert bool(warned) is is_warned
    assert "the model geometric, the bounds [0, 30] or the prior Beta(alpha=16, beta=8) is wrong" in warned[0]


def test_a_release_that_no_parameter_makes_is_told():
    """bernoulli with n = 100 and a noisy sum of 140 of noise scale 2."""
    like = observation(BY_NAME["bernoulli"], n=100, epsilon=0.5, y=140)
    found = diagnose(rng(), like, Beta(1, 1), infer(rng(), like, Beta(1, 1), 400))
    assert found.posterior_p < 1e-6
    assert any("does not explain its own release" in text for text in found.warnings("bernoulli", Beta(1, 1), like))


@pytest.mark.parametrize("is_public", [True, False])
def test_a_release_of_several_sums_has_a_ratio_each_and_one_tail_probability(is_public):
    prior = NormalInverseGamma(0.0, 1.0, 3.0, 2.0)
    like = joint() if is_public else joint(n=None, count=64 * 400 + 30)
    sums = like.sums(rng(), np.tile([0.3, 1.1], (4000, 1)), np.full(4000, 400))
    ratios = noise_ratio(like, np.array([0.3, 1.1]))
    assert ratios == pytest.approx(2 * 50.0**2 / sums.var(axis=0), rel=0.12)
    near = replace(like, y=tuple(int(value) for value in sums[0]))
    far = replace(like, y=(near.y[0] + 90_000, near.y[1]))
    draws = np.tile([0.3, 1.1], (4, 100, 1)) + 0.01 * rng().standard_normal((4, 100, 2))
    inference = Inference(engine="e", reason="", draws=draws, error=None)
    found = diagnose(rng(), near, prior, inference)
    assert found.noise_share == found.bounds_share == ()
    assert found.prior_p > 0.01
    assert found.posterior_p > 0.01
    assert diagnose(rng(), far, prior, inference).prior_p < 0.001


def test_groups_are_diagnosed_each_by_itself():
    """Two groups, the second far beyond its prior: its own numbers, and one probability that is twice the least."""
    case = BY_NAME["bernoulli"]
    within = observation(case, n=100, epsilon=1.0, neighbours=Neighbours.ADD_REMOVE)
    prior = Independent((Beta(30, 70), Beta(30, 70)))
    model = GroupedModel(case.model, ("a", "b"))
    statistic = GroupedSum(within=within.statistic, by=CategoryCounts(column="g", categories=("a", "b")))
    y = (-40, within.count, 90, within.count)
    like = GroupedObservation(model=model, statistic=statistic, n=None, scale=within.scale, y=y, expected_n=200.0)
    inference = infer(rng(), like, prior, 400)
    found = diagnose(rng(), like, prior, inference)
    alone = [diagnose(rng(), each, Beta(30, 70), infer(rng(), each, Beta(30, 70), 400)) for each in like.of_groups]
    assert found.noise_ratio == pytest.approx([one.noise_ratio[0] for one in alone], rel=0.05)
    assert found.noise_share == pytest.approx([one.noise_share[0] for one in alone], abs=0.06)
    assert found.prior_p == pytest.approx(2 * alone[1].prior_p)
    assert alone[0].prior_p > 0.1
    assert alone[1].prior_p < 1e-4
    assert "the model bernoulli, the bounds [0, 1] or the prior Beta(alpha=30" in found.warnings("bernoulli", prior, like)[0]
    many = replace(like, model=GroupedModel(case.model, tuple(range(51))), y=y[:2] * 51)
    draws = np.full((4, 2, 51), 0.3)
    assert diagnose(rng(), many, Independent((Beta(1, 1),) * 51), replace(inference, draws=draws)) == Diagnostics()


def test_counts_of_categories_have_no_diagnostics():
    like = CountsObservation(model=None, statistic=None, n=3, scale=1.0, y=(1, 2), expected_n=None)
    inference = Inference(engine="e", reason="", draws=np.ones((4, 2, 2)), error=None)
    assert diagnose(rng(), like, None, inference) == Diagnostics()


def test_nodes_without_moments_are_left_out_and_too_many_of_them_give_no_answer():
    like = observation(BY_NAME["exponential"], n=30, epsilon=1.0)
    theta = np.array([[1.0], [math.nan]])
    assert tail_probability(like, Nodes(theta, np.array([1.0, 0.0]))) is not None
    assert tail_probability(like, Nodes(theta, np.array([0.5, 0.5]))) is None
