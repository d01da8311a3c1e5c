"""A release seen through a simulator: sums of simulated records, what is unknown, and simulators that fail."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
from scipy import integrate, stats
from toy import PRIOR, TRUTH, Broken, Visits, one_hot, release

from dp_dask.core.cluster_bands import ClusterBands
from dp_dask.core.dirichlet import Dirichlet
from dp_dask.core.joint_priors import Independent
from dp_dask.core.plugins import load
from dp_dask.core.priors import Gamma, Normal
from dp_dask.core.simulated import Simulated
from dp_dask.errors import InferenceError
from dp_dask.public.noise_law import Gaussian
from dp_dask.public.possible import check_possible
from dp_dask.public.simulated import SimulatedObservation
from dp_dask.public.unknowns import unknowns


def test_sums_are_those_of_the_contributions():
    like = release(np.random.default_rng(1), n=70, scale=2.0)
    theta = PRIOR.rvs(np.random.default_rng(2), 9)
    made = like.sums(np.random.default_rng(3), theta)
    assert made.values.dtype == np.int64
    assert made.is_whole.all()
    np.testing.assert_array_equal(made.values.sum(axis=1), 70)
    sizes = np.array([0, 3, 0, 0, 500_000, 1, 0, 2, 0])  # the reduction's blocks begin inside data sets, and data sets are empty
    np.testing.assert_array_equal(like.sums(np.random.default_rng(4), theta, sizes).values.sum(axis=1), sizes)
    records = np.array([0.2, 1.0, 1.99, 2.0, 3.5, 4.9, 4.999, np.nan, 7.0, -2.0])
    np.testing.assert_array_equal(one_hot().contributions(records).sum(axis=0), [2, 2, 1, 1, 3])


def test_many_sums_have_the_multinomial_law():
    """Means and variances of 4,000 data sets: beyond 5 standard errors once in 1e5."""
    like = release(np.random.default_rng(1), n=200, scale=2.0)
    values = like.sums(np.random.default_rng(2), np.tile(TRUTH, (4_000, 1))).values
    variance = 200 * TRUTH * (1 - TRUTH)
    assert np.all(np.abs(values.mean(axis=0) - 200 * TRUTH) < 5 * np.sqrt(variance / 4_000))
    assert np.all(np.abs(values.var(axis=0) / variance - 1) < 5 * np.sqrt(2 / 4_000) * 1.1)


@pytest.mark.parametrize("how", ["raise", "nan", "empty"])
def test_a_failure_is_marked_and_is_no_nan(how):
    like = replace(release(np.random.default_rng(1), n=30, scale=2.0), simulator=Broken(how))
    theta = np.array([TRUTH, [0.6, 0.1, 0.1, 0.1, 0.1], TRUTH])
    made = like.sums(np.random.default_rng(2), theta)
    np.testing.assert_array_equal(made.is_whole, [True, False, True])
    np.testing.assert_array_equal(made.values.sum(axis=1), [30, 0, 30])
    assert [(failure.row, failure.theta) for failure in made.failures] == [(1, tuple(theta[1]))]
    assert like.pseudo(np.random.default_rng(3), theta[1]) is None
    with pytest.raises(InferenceError, match=r"the simulator failed at p\[1\] = 0.6"):
        replace(like, policy="raise").sums(np.random.default_rng(2), theta)


def test_a_count_that_the_simulator_decides_is_one_more_sum():
    statistic = one_hot(count_weight=3)
    like = SimulatedObservation(
        simulator=Visits(), statistic=statistic, n=None, scale=2.0, y=(5, 5, 0, 0, 0), count=30, expected_n=None
    )
    np.testing.assert_array_equal(like.released, [5, 5, 0, 0, 0, 30])
    values = like.sums(np.random.default_rng(1), np.array([[20.0], [0.0001]])).values
    assert values[0, -1] == 3 * values[0, :-1].sum() > 0
    np.testing.assert_array_equal(values[1], 0)
    pseudo = like.pseudo(np.random.default_rng(2), np.array([20.0]))
    assert len(pseudo.y) == 5
    assert pseudo.count != 30


def test_a_pseudo_release_has_noise_of_the_law():
    """600 releases of no records: five standard errors of the variance."""
    for law in (Gaussian,):
        like = release(np.random.default_rng(1), n=0, scale=6.0, law=law)
        rng = np.random.default_rng(2)
        y = np.array([like.pseudo(rng, TRUTH).y for _ in range(120)]).ravel()
        assert abs(y.var() / 36 - 1) < 5 * np.sqrt(2 / 600)


def test_observations_that_cannot_be_are_refused():
    good = release(np.random.default_rng(1), n=30, scale=2.0)
    with pytest.raises(InferenceError, match="the release is of column 'y'; the simulator makes x"):
        replace(good, statistic=replace(one_hot(), column="y"))
    with pytest.raises(InferenceError, match="give expected_records"):
        replace(good, n=None)
    with pytest.raises(InferenceError, match="the simulator decides how many records"):
        replace(good, simulator=Visits())


@dataclass(frozen=True)
class Houses:
    """n records, each of one of so many equally likely clusters."""

    parameters: ClassVar = ("clusters",)
    domains: ClassVar = ("positive",)
    columns: ClassVar = ("house",)
    decides_n: ClassVar = False

    def simulate(self, theta, n, rng):
        return Simulated.of_dense({"house": np.floor(theta * rng.random((len(theta), n)))})


def test_a_release_of_bands_of_clusters_is_seen_through_its_columns_and_a_public_n():
    statistic = ClusterBands(cluster="house", sizes=(1, 2, 4))
    facts = {"n": 40, "scale": 2.0, "count": None, "expected_n": None}
    like = SimulatedObservation(simulator=Houses(), statistic=statistic, y=(20, 15, 5), **facts)
    values = like.sums(np.random.default_rng(1), np.array([[1.0], [30.0]])).values
    assert values[0].tolist() == [1, 2, 37]
    assert values.sum(axis=1).tolist() == [40, 40]
    check_possible(like)
    with pytest.raises(InferenceError, match="beyond what n = 40 records"):
        check_possible(replace(like, y=(20, 15, 50_000)))
    with pytest.raises(InferenceError, match="the release is of column 'week'; the simulator makes house"):
        replace(like, statistic=replace(statistic, period="week", spans=(2,)))


def test_the_density_of_log_ratios_is_normalised_and_that_of_the_draws():
    prior = Dirichlet((0.7, 2.0))
    total, _ = integrate.quad(lambda v: float(np.exp(prior.log_density(np.array([[v]])))[0]), -60, 60, points=[0])
    assert total == pytest.approx(1, abs=1e-6)
    x = np.array([[-1.2], [0.4]])
    np.testing.assert_allclose(prior.coordinate(prior.parameter(x)), x)
    p = prior.parameter(x)[:, 0]
    np.testing.assert_allclose(np.exp(prior.log_density(x)), stats.beta(0.7, 2).pdf(p) * p * (1 - p))


@pytest.mark.parametrize("expected", [None, 40.0])
def test_a_private_n_has_its_law_given_the_count(expected):
    like = release(np.random.default_rng(1), n=25, scale=3.0)
    like = replace(like, n=None, count=51, expected_n=expected, statistic=one_hot(count_weight=2))
    asked = unknowns(like, PRIOR)
    n = np.arange(0, 400)
    law = np.exp(-np.abs(51 - 2 * n) / 3.0) * (1 if expected is None else (40 / 41) ** n)
    law /= law.sum()
    w = np.zeros((400, 5))
    w[:, -1] = n + 0.3
    density = asked.log_density(w) - PRIOR.log_density(w[:, :4])
    np.testing.assert_allclose(np.exp(density), law, atol=1e-12)
    drawn = asked.rvs(np.random.default_rng(2), 20_000)
    assert abs(np.floor(drawn[:, -1]).mean() - law @ n) < 5 * np.sqrt(law @ n**2 - (law @ n) ** 2) / np.sqrt(20_000)
    np.testing.assert_array_equal(asked.n(drawn), np.floor(drawn[:, -1]))


def test_priors_of_one_and_of_several_parameters_give_coordinates():
    like = SimulatedObservation(
        simulator=Visits(), statistic=one_hot(), n=None, scale=2.0, y=(0,) * 5, count=None, expected_n=None
    )
    asked = unknowns(like, Gamma(2.0, 0.1))
    w = asked.rvs(np.random.default_rng(1), 3)
    assert w.shape == asked.theta(w).shape == (3, 1)
    assert asked.n(w) is None
    both = Independent((Normal(0.0, 1.0), Gamma(2.0, 0.1)))
    two = replace(like, simulator=load("dp_dask.simulators", "sir")(200, 3, 6), statistic=replace(one_hot(), column="week"))
    assert unknowns(two, both).theta(unknowns(two, both).rvs(np.random.default_rng(1), 3)).shape == (3, 2)
    with pytest.raises(InferenceError, match="has no density in unconstrained coordinates"):
        unknowns(like, object())
