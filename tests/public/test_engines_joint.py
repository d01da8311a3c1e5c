"""Several sums: the engines against quadrature over records, against each other, and calibrated."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from cases import BY_NAME, JOINT_CASES, JOINT_IDS, joint_observation
from scipy import special

from dp_dask.core.bounds import Outside
from dp_dask.core.joint_priors import Independent
from dp_dask.core.priors import Gamma, Normal
from dp_dask.core.privacy import Neighbours
from dp_dask.errors import InferenceError
from dp_dask.public.calibration import ranks
from dp_dask.public.infer import infer
from dp_dask.public.simulation import simulate
from dp_dask.public.uniformity import gamma, gamma_p_value, uniformity

every_model = pytest.mark.parametrize("case", JOINT_CASES, ids=JOINT_IDS)
NORMAL = BY_NAME["normal_mu_sigma"]


def brute_posterior(like, theta):
    """Weights of parameters [k, 2] with equal prior mass: the exact law of n = 1 or 2 contributions, cell by cell."""
    rows = like.statistic.rows.astype(float)
    inside, tail = like.probabilities(theta)
    p = np.hstack([inside, tail[:, None]])
    values = np.hstack([rows, np.zeros((2, 1))])
    if like.n == 1:
        noise = np.exp(-np.abs(np.array(like.y)[:, None] - values).sum(axis=0) / like.scale)
        weight = p @ noise
    else:
        pair = np.exp(-np.abs(np.array(like.y)[:, None, None] - values[:, :, None] - values[:, None]).sum(axis=0) / like.scale)
        weight = np.einsum("ki,ij,kj->k", p, pair, p, optimize=True)
    return weight / weight.sum()


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("outside", list(Outside))
def test_both_engines_equal_quadrature_over_all_records(n, outside):
    """4,000 prior draws weighed by the exact likelihood; kernel_is within Monte Carlo error, clt_grid 0.1 sd more."""
    rng = np.random.default_rng(n)
    prior = Independent((Normal(0, 3), Gamma(3, 2)))
    like = replace(joint_observation(NORMAL, n=n, epsilon=1.0, outside=outside), y=(150 * n, 100 * n))
    theta = prior.rvs(rng, 4_000)
    weight = brute_posterior(like, theta)
    mean = weight @ theta
    sd = np.sqrt(weight @ (theta - mean) ** 2)
    size = 1 / np.sum(weight**2)
    for engine, slack in (("kernel_is", 0.0), ("clt_grid", 0.1)):
        draws = infer(rng, like, prior, 4000, engine).draws.reshape(-1, 2)
        assert (np.abs(draws.mean(axis=0) - mean) < (5 / math.sqrt(size) + 5 / math.sqrt(4000) + slack) * sd).all()
        np.testing.assert_allclose(draws.std(axis=0), sd, rtol=0.15)


@every_model
@pytest.mark.parametrize(("outside", "neighbours"), [("clamp", "replace"), ("truncate", "replace"), ("clamp", "add_remove")])
def test_clt_grid_agrees_with_kernel_is(case, outside, neighbours):
    """At n = 40, epsilon 1: means within 0.25 posterior sd, of which 0.1 is Monte Carlo error, sds within 15 %."""
    rng = np.random.default_rng(40)
    like = joint_observation(case, n=40, epsilon=1.0, outside=Outside(outside), neighbours=Neighbours(neighbours))
    seen = simulate(rng, like, np.array(case.theta[0])).observation
    near, exact = (infer(rng, seen, case.prior, 1000, engine).draws.reshape(-1, 2) for engine in ("clt_grid", "kernel_is"))
    near, exact = (case.prior.coordinate(draws) for draws in (near, exact))
    assert (np.abs(near.mean(axis=0) - exact.mean(axis=0)) < 0.25 * exact.std(axis=0)).all()
    np.testing.assert_allclose(near.std(axis=0), exact.std(axis=0), rtol=0.15)


@every_model
def test_auto_is_calibrated(case):
    """Ranks of both parameters, pooled over n = 5, 100 and 10,000; a calibrated engine fails with probability 1e-6 each."""
    u = []
    for n, epsilon, replicates in ((5, 1.0, 12), (100, 1.0, 25), (10_000, 1.0, 25)):
        like = joint_observation(case, n=n, epsilon=epsilon)
        u.append(ranks(np.random.SeedSequence([n, JOINT_IDS.index(case.name)]), like, case.prior, replicates, "auto"))
    pooled = np.concatenate(u)
    for j in range(2):
        assert gamma_p_value(gamma(pooled[:, j]), len(pooled)) > 1e-6


def test_a_narrow_posterior_of_two_parameters_is_seen():
    """The same ranks, had the posteriors been 30 % too narrow: 160 replicates see that."""
    like = joint_observation(NORMAL, n=100, epsilon=1.0)
    u = ranks(np.random.SeedSequence(3), like, NORMAL.prior, 160, "clt_grid")
    narrow = special.ndtr(special.ndtri(np.clip(u, 1e-9, 1 - 1e-9)) / 0.7)
    assert not all(uniformity(narrow[:, j]).passes for j in range(2))


def test_without_noise_the_posterior_is_the_conjugate_one():
    rng = np.random.default_rng(5)
    like = joint_observation(NORMAL, n=2000, epsilon=1e4)
    pseudo = simulate(rng, like, np.array([1.0, 1.5]))
    draws = infer(rng, pseudo.observation, NORMAL.prior, 8000).draws.reshape(-1, 2)
    exact = NORMAL.model.update(NORMAL.prior, 2000, pseudo.total)
    np.testing.assert_allclose(draws.mean(axis=0), exact.mean, atol=0.2 * exact.sd.max())
    np.testing.assert_allclose(draws.std(axis=0), exact.sd, rtol=0.06)


def test_no_records_give_the_prior_back():
    prior = Independent((Normal(1, 2), Gamma(4, 2)))
    draws = infer(np.random.default_rng(2), joint_observation(NORMAL, n=0, epsilon=1.0), prior, 20_000).draws.reshape(-1, 2)
    np.testing.assert_allclose(draws.mean(axis=0), prior.mean, atol=0.05)
    np.testing.assert_allclose(draws.std(axis=0), prior.sd, rtol=0.03)


def test_kernel_is_says_when_it_would_take_too_long():
    rng = np.random.default_rng(1)
    like = simulate(rng, joint_observation(NORMAL, n=100_000, epsilon=10.0), np.array([1.0, 1.5])).observation
    with pytest.raises(InferenceError, match="would simulate 1e\\+05 records for each of 4000 particles"):
        infer(rng, like, NORMAL.prior, 400, "kernel_is")


@pytest.mark.parametrize(("n", "epsilon", "y", "count"), [(100, 10.0, (-71, -61), 711), (1000, 1.0, (-3066, 1369), 7823)])
def test_a_truncated_release_with_private_n_is_inferred_whatever_the_starts(n, epsilon, y, count):
    """The prior's steep end lies beside the posterior here; coarse cells at the border were once taken for a contradiction."""
    like = joint_observation(NORMAL, n=n, epsilon=epsilon, outside=Outside.TRUNCATE, neighbours=Neighbours.ADD_REMOVE)
    seen = replace(like, y=y, count=count)
    means = [
        infer(np.random.default_rng(seed), seen, NORMAL.prior, 2000, "clt_grid").draws.reshape(-1, 2)[:, 1].mean()
        for seed in range(6)
    ]
    assert np.ptp(means) < 0.2 * np.mean(means)
