"""augment against the exact lattice posterior, and the bound on its acceptance.

Chains are independent, so every standard error is that of their means. Some 40 z-scores are asked to stay below 5 at fixed seeds:
a right engine fails with probability 3e-5.
"""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from cases import BY_NAME, observation
from scipy import special

from dp_dask.core.bounds import Outside
from dp_dask.core.categories import CategoryCounts
from dp_dask.core.dirichlet import Dirichlet
from dp_dask.core.priors import Gamma, Normal
from dp_dask.core.privacy import Neighbours
from dp_dask.errors import InferenceError
from dp_dask.models.categorical import plugin as categorical
from dp_dask.public import augment_counts, gibbs_counts
from dp_dask.public.counts import CountsObservation
from dp_dask.public.engines import augment, gibbs, thinning
from dp_dask.public.infer import infer
from dp_dask.public.simulation import simulate

N_CHAINS = 300


def z_scores(draws, exact):
    """Of the mean and of the mean square about the exact mean, from independent chains [chain, draw]."""
    squares = (draws - exact.mean) ** 2
    return [
        (chains.mean() - wanted) / (chains.std() / math.sqrt(len(chains)))
        for chains, wanted in ((draws.mean(axis=1), exact.mean), (squares.mean(axis=1), exact.sd**2))
    ]


@pytest.mark.parametrize("name", ["bernoulli", "exponential", "geometric", "laplace", "normal", "poisson", "weibull"])
@pytest.mark.parametrize("outside", list(Outside))
@pytest.mark.parametrize(("n", "epsilon"), [(1, 2.0), (5, 1.0)])
def test_chains_have_the_mean_and_sd_of_the_exact_posterior(name, outside, n, epsilon):
    case = BY_NAME[name]
    prior = {"exponential": Gamma(2, 0.5), "poisson": Gamma(2, 0.2)}.get(name, case.prior)
    rng = np.random.default_rng([n, len(name)])
    like = simulate(rng, observation(case, n=n, epsilon=epsilon, outside=outside), case.theta[0]).observation
    exact = infer(rng, like, prior, 4, "lattice").grid
    thin = thinning(like, prior)
    draws, rate = augment.chains(rng, like, prior, np.full(N_CHAINS, like.y), 40, thin=thin)
    draws = draws[:, :, 0]
    assert rate > math.exp(-epsilon)
    assert np.abs(z_scores(draws, exact)).max() < 5
    narrow = exact.mean + 0.85 * (draws - exact.mean)
    assert np.abs(z_scores(narrow, exact)).max() > 5  # had the posterior been 15 % too narrow


def test_no_records_leave_the_prior():
    like = observation(BY_NAME["normal"], n=0, epsilon=1.0, y=40)
    draws, _ = augment.chains(np.random.default_rng(1), like, Normal(3, 2), np.full(4, 40), 5000, thin=1)
    assert draws.mean() == pytest.approx(3, abs=5 * 2 / math.sqrt(20_000))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_every_offer_is_taken_with_probability_exp_of_minus_epsilon_at_least(epsilon):
    """Every gap and every step that a record can make, 40,000 times each; the worst is exp(-epsilon) and is attained."""
    sensitivity, times = 5, 40_000
    gaps, steps = np.meshgrid(np.arange(-8, 9), np.arange(-sensitivity, sensitivity + 1), indexing="ij")
    gap, step = np.repeat(gaps.ravel(), times), np.repeat(steps.ravel(), times)
    scale = sensitivity / epsilon
    taken = augment.refresh(np.random.default_rng(3), gap, step[:, None], scale).reshape(gaps.size, times).mean(axis=1)
    wanted = np.minimum(1, np.exp((np.abs(gaps) - np.abs(gaps - steps)) / scale)).ravel()
    se = np.sqrt(wanted * (1 - wanted) / times) + 1e-12
    assert np.abs((taken - wanted) / se).max() < 6
    assert wanted.min() == pytest.approx(math.exp(-epsilon))


def test_records_are_offered_one_after_the_other():
    """Two offers of +10 from S = 0 to y = 10: after the first is taken the second moves away from y."""
    steps = np.full((50_000, 2), 10)
    taken = augment.refresh(np.random.default_rng(4), np.full(50_000, 10), steps, 5.0)
    assert taken[:, 0].all()
    assert taken[:, 1].mean() == pytest.approx(math.exp(-2), abs=5 * math.sqrt(0.12 / 50_000))


@pytest.mark.parametrize("engine", ["augment", "gibbs"])
def test_the_engine_is_found_by_name_and_says_how_it_ran(engine):
    case = BY_NAME["bernoulli"]
    rng = np.random.default_rng(5)
    like = simulate(rng, observation(case, n=60, epsilon=1.0), 0.3).observation
    found = infer(rng, like, case.prior, 800, engine)
    assert found.draws.shape == (4, 200, 1)
    assert found.engine == engine
    assert f"every {thinning(like, case.prior)}th sweep kept" in found.reason
    exact = infer(rng, like, case.prior, 4, "lattice").grid
    assert found.draws.mean() == pytest.approx(exact.mean, abs=5 * exact.sd / math.sqrt(300))


@pytest.mark.parametrize("sampler", [augment, gibbs])
def test_thinned_draws_are_nearly_independent(sampler):
    """Where truncation hides most of the information, and where the noise does."""
    for name, prior, n, epsilon in (("exponential", Gamma(8, 2), 100, 1.0), ("exponential", Gamma(8, 2), 100, 0.1)):
        like = observation(BY_NAME[name], n=n, epsilon=epsilon, outside=Outside.TRUNCATE)
        rng = np.random.default_rng(6)
        y = np.array([simulate(rng, like, rate).observation.y for rate in prior.rvs(rng, 200)])
        thin = thinning(like, prior)
        if sampler is augment:
            draws = augment.chains(rng, like, prior, y, 20, thin=thin)[0][:, :, 0]
        else:
            draws = gibbs.chains(rng, like, prior, y.astype(float), 20, thin=thin, warmup=10 * thin)
        centred = draws - draws.mean(axis=1, keepdims=True)
        lag_1 = (centred[:, 1:] * centred[:, :-1]).mean() / (centred**2).mean() + 1 / 20  # less the bias of the chain's mean
        assert lag_1 < 0.15


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"neighbours": Neighbours.ADD_REMOVE, "n": 5}, "public n only"),
        ({"n": 200_000}, "at most 100000 are allowed"),
    ],
)
def test_what_it_cannot_serve_is_refused(change, told):
    like = observation(BY_NAME["bernoulli"], epsilon=1.0, **change)
    with pytest.raises(InferenceError, match=told):
        infer(np.random.default_rng(1), like, BY_NAME["bernoulli"].prior, 100, "augment")


def test_a_prior_that_is_not_conjugate_is_refused():
    like = observation(BY_NAME["bernoulli"], n=5, epsilon=1.0)
    with pytest.raises(InferenceError, match="needs the conjugate prior Beta"):
        infer(np.random.default_rng(1), like, Gamma(1, 1), 100, "augment")


def test_records_beyond_float64_are_an_error_and_never_a_posterior():
    """A Pareto record of rate 1e-3 overflows about once in two: the engine must not quietly keep to what does not."""
    like = observation(BY_NAME["pareto"], n=5, epsilon=1.0)
    with pytest.raises(InferenceError, match="beyond float64"):
        augment.chains(np.random.default_rng(1), like, Gamma(0.1, 10), np.full(50, like.y), 50, thin=5)


@pytest.mark.parametrize(("n", "y"), [(4, (5, -2, 1)), (6, (1, 2, 9)), (30, (12, 14, 9))])
def test_categories_have_the_moments_of_the_exact_posterior(n, y):
    """Against every vector of counts that n records can have; 15 % too narrow fails."""
    alpha, scale = np.array([0.7, 1.5, 3.0]), 2.5
    counts = np.array([(i, j, n - i - j) for i in range(n + 1) for j in range(n + 1 - i)])
    log_weight = (special.gammaln(alpha + counts) - special.gammaln(counts + 1)).sum(axis=1)
    log_weight -= np.abs(np.array(y) - counts).sum(axis=1) / scale
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    means = (alpha + counts) / (alpha.sum() + n)
    exact = weight @ means
    square = weight @ (means * (1 - means) / (alpha.sum() + n + 1) + means**2) - exact**2
    thin = gibbs_counts.thinning(alpha, scale, n)
    draws, rate = augment_counts.chains(np.random.default_rng(n), np.tile(y, (N_CHAINS, 1)), alpha, scale, n, 40, thin=thin)
    assert rate > math.exp(-2 / scale)
    scores = [z_scores(draws[:, :, k], SimpleNamespace(mean=exact[k], sd=math.sqrt(square[k]))) for k in range(3)]
    assert np.abs(scores).max() < 5
    narrow = exact + 0.85 * (draws - exact)
    scores = [z_scores(narrow[:, :, k], SimpleNamespace(mean=exact[k], sd=math.sqrt(square[k]))) for k in range(3)]
    assert np.abs(scores).max() > 5


def test_categories_through_the_engine():
    asked = CategoryCounts(column="x", categories=("a", "b"))
    like = CountsObservation(model=categorical(("a", "b")), statistic=asked, n=20, scale=2.0, y=(15, 4), expected_n=None)
    found = infer(np.random.default_rng(2), like, Dirichlet((1.0, 1.0)), 4000, "augment")
    exact = infer(np.random.default_rng(3), like, Dirichlet((1.0, 1.0)), 4000, "auto")
    assert found.draws.shape == exact.draws.shape
    assert found.draws[..., 0].mean() == pytest.approx(exact.draws[..., 0].mean(), abs=0.03)  # 5 standard errors, ESS 400
    with pytest.raises(InferenceError, match="augment serves a public n only"):
        infer(np.random.default_rng(2), replace(like, n=None), Dirichlet((1.0, 1.0)), 4, "augment")
