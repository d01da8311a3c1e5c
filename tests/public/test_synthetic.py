"""The synthetic likelihood against the toy's exact posterior, where the noise is too narrow for tempering; fixed seeds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from toy import PRIOR, TRUTH, Broken, compare, exact, release

from dp_dask.core.dirichlet import Dirichlet
from dp_dask.errors import InferenceError
from dp_dask.public.emulator import half_exponential, polynomial
from dp_dask.public.engines import synthetic
from dp_dask.public.noise_law import Gaussian
from dp_dask.public.proposals import normalised
from dp_dask.public.simulated_infer import infer_simulated
from dp_dask.public.tempering import Effort, first_cloud, temper

EFFORT = Effort(per_generation=2_000, most=20_000, wanted=1_000, emulating=6_000)


def refined(like, prior=PRIOR, effort=EFFORT):
    rng = np.random.default_rng(1)
    return synthetic.refine(rng, temper(first_cloud(rng, like, prior, effort.per_generation), effort), effort, 1_000)


def agrees(fitted, reference):
    """Means within 0.07 sd, sds on average within 2 %, some 4 standard errors of 6,000 emulating simulations."""
    theta = fitted.cloud.problem.unknowns.theta(fitted.posterior.w)
    error, ratio = compare(normalised(fitted.posterior.log_weight), theta, reference)
    return bool(np.abs(error).max() < 0.07 and abs(np.log(ratio).mean()) < 0.02 and np.abs(np.log(ratio)).max() < 0.06)


@pytest.mark.parametrize("scale", [4 / 3, 2 / 3, 0.1])
def test_it_is_the_exact_posterior_where_the_noise_is_narrow(scale):
    like = release(np.random.default_rng(6), n=600, scale=scale)
    fitted = refined(like)
    assert fitted.doubts == ()
    assert fitted.cloud.multiple > 2
    reference = exact(like)
    assert agrees(fitted, reference)
    mean = reference.mean(axis=0)
    for factor in (0.85, 1.15):
        assert not agrees(fitted, mean + factor * (reference - mean))


def test_wide_and_gaussian_noise_are_exact_too():
    for like in (
        release(np.random.default_rng(6), n=600, scale=8.0),
        release(np.random.default_rng(7), n=600, scale=8.0, law=Gaussian),
    ):
        fitted = refined(like)
        assert agrees(fitted, exact(like))
        for factor in (0.7, 1.3):
            assert not agrees(fitted, exact(replace(like, scale=factor * like.scale)))


def test_sums_that_are_not_normal_are_refused():
    """Components of one or two records: their counts are Poisson, and skew."""
    truth = np.array([0.49, 0.005, 0.25, 0.005, 0.25])
    like = replace(release(np.random.default_rng(9), n=200, scale=0.2, truth=truth), y=(98, 1, 50, 1, 50))
    with pytest.raises(InferenceError, match=r"engine synthetic does not fit this simulator: .*the sums' .* \(at most "):
        infer_simulated(np.random.default_rng(1), like, PRIOR, 100, "synthetic", effort=EFFORT)


def test_a_private_n_is_inferred_beside_theta():
    prior = Dirichlet((0.5, 0.5))
    like = replace(release(np.random.default_rng(5), n=600, scale=2.0, truth=np.array([0.3, 0.7])), n=None, expected_n=400.0)
    fitted = refined(like, prior=prior)
    assert fitted.doubts == ()
    assert agrees(fitted, exact(like, prior))


def test_failures_near_the_posterior_are_a_doubt():
    like = replace(
        release(np.random.default_rng(6), n=600, scale=1.0, truth=np.array([0.5, 0.2, 0.1, 0.1, 0.1])), simulator=Broken("nan")
    )
    assert "of the simulations near the posterior failed (at most 0.01)" in refined(like).doubts[0]


def test_auto_takes_it_and_says_what_it_took():
    like = release(np.random.default_rng(6), n=600, scale=0.1)
    made = infer_simulated(np.random.default_rng(1), like, PRIOR, 1_001, effort=EFFORT, checks=60)
    assert made.engine == "synthetic"
    assert made.draws.shape == (4, 251, 5)
    for part in (
        "lambda = ",
        "effective particles at lambda = 1",
        "simulations failed",
        "self-check on 60 simulated releases passed",
    ):
        assert part in made.reason
    np.testing.assert_allclose(made.draws.sum(axis=-1), 1)
    assert np.abs(made.draws.reshape(-1, 5).mean(axis=0) - TRUTH).max() < 0.1


def test_polynomials_and_exponentials():
    u = np.array([[2.0, 3.0]])
    np.testing.assert_array_equal(polynomial(u, 3)[0], [1, 2, 3, 4, 6, 9, 8, 12, 18, 27])
    slopes = np.array([np.diag([0.3, -0.2]), np.zeros((2, 2))])
    np.testing.assert_allclose(half_exponential(u, slopes)[0], np.diag(np.exp([0.3, -0.2])), rtol=0.01)
