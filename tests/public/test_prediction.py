"""Predictions: a new record against closed posterior predictive laws, repeated bit for bit, with both simulation protocols."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cases import BY_NAME, observation
from posteriors import asked, joint
from scipy import stats

from dp_dask.core.categories import CategoryCounts
from dp_dask.core.grouped import GroupedSum
from dp_dask.core.joint_priors import Independent
from dp_dask.core.privacy import Neighbours
from dp_dask.public.counts import CountsObservation
from dp_dask.public.engines import Inference
from dp_dask.public.groups import GroupedModel, GroupedObservation
from dp_dask.public.posterior import datatree
from dp_dask.public.prediction import predict

N = 40_000


def predicted(model, draws, **known):
    posterior = asked("m", draws, model=model).posterior
    case = replace(BY_NAME[model], known={**BY_NAME[model].known, **known})
    (found,) = predict(replace(posterior, observation=observation(case, n=50, epsilon=1.0)))
    return found


def test_new_records_follow_the_closed_predictive_laws():
    """KS at 1e-6 each; plugging the posterior mean in, with no spread of theta, fails all three."""
    rng = np.random.default_rng(1)
    waits = predicted("exponential", rng.gamma(3, 1 / 2, N))
    assert stats.kstest(waits.draws.ravel(), stats.lomax(3, scale=2).cdf).pvalue > 1e-6
    assert stats.kstest(rng.exponential(2 / 3, N), stats.lomax(3, scale=2).cdf).pvalue < 1e-6
    values = predicted("normal", rng.normal(5, 2, N))
    assert stats.kstest(values.draws.ravel(), stats.norm(5, np.hypot(2, 1.5)).cdf).pvalue > 1e-6
    assert values.mean == pytest.approx(5, abs=0.06)
    assert values.sd == pytest.approx(2.5, rel=0.02)
    assert (values.lower, values.upper) == pytest.approx(stats.norm(5, 2.5).interval(0.9), abs=0.15)
    counts = predicted("poisson", rng.gamma(3, 2, N))
    law = stats.nbinom(3, 1 / 3)
    found = np.bincount(counts.draws.ravel().astype(int), minlength=60)[:60]
    expected = N * law.pmf(np.arange(60))
    kept = expected > 20
    assert np.sum((found[kept] - expected[kept]) ** 2 / expected[kept]) < stats.chi2.isf(1e-6, kept.sum())


def test_a_prediction_has_the_posteriors_shape_and_repeats():
    draws = np.random.default_rng(2).beta(2, 5, 800)
    one, again = predicted("geometric", draws), predicted("geometric", draws)
    assert one.draws.shape == (4, 200)
    np.testing.assert_array_equal(one.draws, again.draws)


def test_a_tail_beyond_float64_has_quantiles_and_no_moments():
    """pareto with index 0.0005: records of e^2000."""
    found = predicted("pareto", np.full(4000, 5e-4))
    assert found.mean is None
    assert found.sd is None
    assert np.isfinite([found.lower, found.median, found.upper]).all()
    assert np.isfinite(found.draws).all()


def test_a_model_of_two_parameters_is_asked_by_its_own_protocol():
    posterior = asked("m", np.zeros(400)).posterior
    rng = np.random.default_rng(3)
    draws = np.stack([rng.normal(7, 0.1, (4, N // 4)), np.full((4, N // 4), 2.0)], axis=2)
    inference = Inference(engine="e", reason="", draws=draws, error=None)
    (found,) = predict(replace(posterior, observation=joint(), parameters=("mu", "sigma"), inference=inference))
    assert found.column == "x"
    assert stats.kstest(found.draws.ravel(), stats.norm(7, np.hypot(0.1, 2)).cdf).pvalue > 1e-6


def test_each_group_has_a_record_of_its_own():
    case = BY_NAME["exponential"]
    within = observation(case, n=50, epsilon=1.0, neighbours=Neighbours.ADD_REMOVE).statistic
    model = GroupedModel(case.model, ("a", "b"))
    statistic = GroupedSum(within=within, by=CategoryCounts(column="g", categories=("a", "b")))
    like = GroupedObservation(model=model, statistic=statistic, n=None, scale=9.0, y=(1, 2, 3, 4), expected_n=None)
    draws = np.random.default_rng(4).gamma([3, 30], 0.5, (4, N // 4, 2))
    inference = Inference(engine="e", reason="", draws=draws, error=None)
    posterior = replace(asked("m", np.ones(400)).posterior, observation=like, parameters=model.parameters, inference=inference)
    found = predict(replace(posterior, prior=Independent((case.prior, case.prior))))
    assert [one.name for one in found] == ["m.record[a]", "m.record[b]"]
    for one, shape in zip(found, (3, 30), strict=True):
        assert stats.kstest(one.draws.ravel(), stats.lomax(shape, scale=2).cdf).pvalue > 1e-6
    tree = datatree([replace(posterior, prior=Independent((case.prior,) * 2))], {one.name: one.draws for one in found})
    assert tree["posterior_predictive"]["m.record"].sizes == {"chain": 4, "draw": N // 4, "m.record_of": 2}


def test_what_groups_share_is_no_group():
    case = BY_NAME["exponential"]
    within = observation(case, n=50, epsilon=1.0, neighbours=Neighbours.ADD_REMOVE).statistic
    model = GroupedModel(case.model, ("a", "b"), ("log_rate_mean", "log_rate_sd"))
    statistic = GroupedSum(within=within, by=CategoryCounts(column="g", categories=("a", "b")))
    like = GroupedObservation(model=model, statistic=statistic, n=None, scale=9.0, y=(1, 2, 3, 4), expected_n=None)
    draws = np.broadcast_to([-9.0, 1e-9, 0.5, 50.0], (4, N // 4, 4))
    inference = Inference(engine="e", reason="", draws=draws, error=None)
    posterior = replace(asked("m", np.ones(400)).posterior, observation=like, parameters=model.parameters, inference=inference)
    found = predict(posterior)
    assert [one.name for one in found] == ["m.record[a]", "m.record[b]"]
    for one, rate in zip(found, (0.5, 50), strict=True):
        assert stats.kstest(one.draws.ravel(), stats.expon(scale=1 / rate).cdf).pvalue > 1e-6


def test_categories_are_not_predicted():
    counts = CountsObservation(model=None, statistic=None, n=3, scale=1.0, y=(1, 2), expected_n=None)
    assert predict(replace(asked("m", np.ones(400)).posterior, observation=counts)) == []


def test_records_are_a_group_of_their_own_in_the_tree():
    posterior = asked("m", np.random.default_rng(1).beta(2, 5, 400)).posterior
    tree = datatree([posterior], {one.name: one.draws for one in predict(posterior)})
    assert tree["posterior_predictive"]["m.record"].sizes == {"chain": 4, "draw": 100}
    assert "posterior_predictive" not in datatree([posterior])
