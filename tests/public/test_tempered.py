"""Tempering against the toy's exact posterior, and the traps on the way to it; fixed seeds."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import pytest
from toy import PRIOR, Broken, compare, exact, release

from dp_dask.core.dirichlet import Dirichlet
from dp_dask.errors import InferenceError
from dp_dask.public import tempering
from dp_dask.public.engines import tempered
from dp_dask.public.noise_law import Gaussian
from dp_dask.public.proposals import StudentT, effective_size, normalised
from dp_dask.public.simulated_infer import infer_simulated
from dp_dask.public.spread import spread_by
from dp_dask.public.tempering import Effort, first_cloud, temper

EFFORT = Effort(per_generation=2_000, most=40_000, wanted=1_000)
N = 500


def cloud(like, prior=PRIOR, effort=EFFORT, seed=1):
    return temper(first_cloud(np.random.default_rng(seed), like, prior, effort.per_generation), effort)


def agrees(made, reference, log_weight=None):
    """Means within 5 standard errors of 1,000 draws, sds on average within 5 %, which is 4 of theirs: fails once in 1e4."""
    weight = normalised(made.log_weight(1.0) if log_weight is None else log_weight)
    error, ratio = compare(weight, made.problem.unknowns.theta(made.made.w), reference)
    return bool(np.abs(error).max() < 0.16 and abs(np.log(ratio).mean()) < 0.05)


@pytest.mark.parametrize("law", [tempering.Gaussian, None], ids=["gaussian", "laplace"])
def test_where_lambda_is_one_the_posterior_is_exact(law):
    facts = {"law": Gaussian} if law else {}
    like = release(np.random.default_rng(3), n=N, scale=9.0, **facts)
    made = cloud(like)
    assert made.multiple == 1
    assert made.exact_size >= 1_000
    assert agrees(made, exact(like))
    for factor in (0.7, 1.3):
        assert not agrees(made, exact(replace(like, scale=factor * like.scale)))


def test_noise_used_twice_is_seen():
    """Particles weighed by the noise twice over, as when fresh noise is added to those that it has chosen."""
    like = release(np.random.default_rng(3), n=N, scale=9.0)
    made = cloud(like)
    twice = made.log_weight(1.0) + made.log_fit(like.released, 1.0)
    assert not agrees(made, exact(like), twice)


@dataclass(frozen=True)
class Scaled:
    """The toy's prior, its density times a constant."""

    log_factor: float

    def __getattr__(self, name):
        return getattr(PRIOR, name)

    def log_density(self, v):
        return PRIOR.log_density(v) + self.log_factor


def test_an_unnormalised_prior_is_refused_because_it_would_be_wrong(monkeypatch):
    like = release(np.random.default_rng(3), n=N, scale=9.0)
    for factor in (0.5, 2.0):
        with pytest.raises(InferenceError, match="the prior's density adds up to about"):
            first_cloud(np.random.default_rng(1), like, Scaled(np.log(factor)), 100)
    monkeypatch.setattr(tempering, "_check_normalised", lambda *_: None)
    assert not agrees(cloud(like, Scaled(12.0)), exact(like))


def test_the_tempered_posterior_is_that_of_wider_noise():
    like = release(np.random.default_rng(4), n=N, scale=1.0)
    made = cloud(like)
    assert 2 < made.multiple < 20
    assert effective_size(made.log_weight(made.multiple)) == pytest.approx(250, rel=0.01)
    _, narrow = compare(normalised(made.log_weight(made.multiple)), made.problem.unknowns.theta(made.made.w), exact(like))
    assert narrow.mean() > 1.05
    told = tempered.conclude(np.random.default_rng(1), made, 100)
    assert told.error is None
    assert told.reason.startswith("conservative: the posterior under noise lambda times as wide; lambda = ")


def test_batches_may_run_anywhere_in_any_order():
    like = release(np.random.default_rng(3), n=50, scale=5.0)
    effort = Effort(per_generation=1_200, most=5_000, wanted=1_000)
    here = cloud(like, effort=effort)

    def backwards(function, items):
        with ThreadPoolExecutor(3) as pool:
            futures = [pool.submit(function, item) for item in reversed(items)]
            return [future.result() for future in reversed(futures)]

    with spread_by(backwards):
        there = cloud(like, effort=effort)
    np.testing.assert_array_equal(here.made.w, there.made.w)
    np.testing.assert_array_equal(here.made.sums, there.made.sums)
    assert here.multiple == there.multiple
    assert not np.array_equal(here.made.w, cloud(like, effort=effort, seed=2).made.w)


@pytest.mark.parametrize("how", ["raise", "nan"])
def test_failures_are_rejections_that_are_counted(how):
    """The toy fails where p[1] > 1/2: the posterior is the exact one below, and the reason says so."""
    like = replace(release(np.random.default_rng(3), n=20, scale=9.0), simulator=Broken(how))
    made = infer_simulated(np.random.default_rng(1), like, PRIOR, 4_000, "tempered", effort=EFFORT)
    reference = exact(like)
    reference = reference[reference[:, 0] <= 0.5]
    draws = made.draws.reshape(-1, 5)
    assert draws[:, 0].max() <= 0.5
    assert np.abs((draws.mean(axis=0) - reference.mean(axis=0)) / reference.std(axis=0)).max() < 0.16
    assert "simulations failed (" in made.reason
    assert "given that they succeed" in made.reason
    assert np.isfinite(draws).all()


def test_a_simulator_that_always_fails_is_refused():
    like = replace(release(np.random.default_rng(3), n=20, scale=9.0), simulator=Broken("raise"))
    with pytest.raises(InferenceError, match=r"only \d+ simulations are of use; .*no such process"):
        cloud(like, Dirichlet((400.0, 1.0, 1.0, 1.0, 1.0)))


def test_a_private_n_is_inferred_beside_theta():
    """Without a count, n's geometric prior and the noisy counts alone tell it."""
    prior = Dirichlet((0.2,) * 5)
    like = release(np.random.default_rng(5), n=150, scale=9.0, truth=np.full(5, 0.2))
    like = replace(like, n=None, expected_n=100.0)
    made = cloud(like, prior, Effort(per_generation=4_000, most=60_000, wanted=1_000))
    assert made.multiple == 1
    assert agrees(made, exact(like, prior))


def test_the_t_law_is_normalised():
    """Its density over that of a wider one adds up to 1, within 5 standard errors."""
    wide = StudentT(np.array([0.5, 0.0]), np.array([[3.0, 0.0], [1.0, 2.0]]))
    narrow = StudentT(np.array([1.0, -1.0]), np.array([[1.0, 0.0], [0.3, 0.8]]))
    w = wide.draw(np.random.default_rng(1), 50_000)
    ratio = np.exp(narrow.log_density(w) - wide.log_density(w))
    assert abs(ratio.mean() - 1) < 5 * ratio.std() / np.sqrt(50_000)
    assert abs(narrow.draw(np.random.default_rng(2), 50_000).mean(axis=0) - narrow.centre).max() < 0.04
