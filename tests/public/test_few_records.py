"""Few of n independent records simulated: moments, posteriors against exact ones, calibration, and what refuses; fixed seeds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from toy import PRIOR, TRUTH, exact, release

from dp_dask.errors import InferenceError
from dp_dask.public.engines import synthetic
from dp_dask.public.self_check import check_ranks
from dp_dask.public.simulated_infer import infer_simulated
from dp_dask.public.synthetic_likelihood import sample
from dp_dask.public.tempering import Effort, first_cloud, temper
from dp_dask.public.uniformity import uniformity

EFFORT = Effort(per_generation=3_000, most=15_000, wanted=500, emulating=5_000)


def fitted(each, seed=2, n=600, scale=8.0):
    like = replace(release(np.random.default_rng(seed), n=n, scale=scale), each=each)
    rng = np.random.default_rng(1)
    return synthetic.refine(rng, temper(first_cloud(rng, like, PRIOR, EFFORT.per_generation), EFFORT), EFFORT, 1_000)


def test_sums_of_few_records_have_the_mean_of_all_and_a_covariance_the_factor_times_as_large():
    """20,000 sums: a mean is within 6 standard errors, a variance within 6 of 1 %."""
    like = replace(release(np.random.default_rng(1), n=60, scale=2.0), each=6)
    sums = like.sums(np.random.default_rng(2), np.repeat(TRUTH[None], 20_000, axis=0)).values
    variance = 60 * TRUTH * (1 - TRUTH)
    assert like.factor == 10
    assert np.all(sums % 10 == 0)
    assert np.abs((sums.mean(axis=0) - 60 * TRUTH) / np.sqrt(10 * variance / 20_000)).max() < 6
    assert np.abs(sums.var(axis=0) / (10 * variance) - 1).max() < 0.06


def test_a_pseudo_release_is_of_all_records():
    """Else it would be a multiple of the factor plus noise; here its variance is that of 60 records, to 6 standard errors."""
    like = replace(release(np.random.default_rng(1), n=60, scale=0.05), each=6)
    rng = np.random.default_rng(3)
    y = np.array([like.pseudo(rng, TRUTH).y for _ in range(2_000)])
    assert np.abs(y.var(axis=0) / (60 * TRUTH * (1 - TRUTH)) - 1).max() < 6 * np.sqrt(2 / 2_000) + 0.05


def test_the_posterior_is_the_exact_one_or_a_little_wider():
    """A tenth of the records: means of 1,000 effective draws, of an emulator of 5,000 simulations, are off by some 0.05 sd."""
    like = release(np.random.default_rng(2), n=600, scale=8.0)
    reference = exact(like)
    draws = infer_simulated(np.random.default_rng(1), replace(like, each=60), PRIOR, 2_000, effort=EFFORT).draws.reshape(-1, 5)
    assert np.abs((draws.mean(axis=0) - reference.mean(axis=0)) / reference.std(axis=0)).max() < 0.35
    assert np.abs(np.log(draws.std(axis=0) / reference.std(axis=0))).max() < 0.15
    made = fitted(60)
    as_it_came = replace(made.emulator, factor=1.0)  # the covariance of the simulated sums
    rng, like = np.random.default_rng(1), made.cloud.problem.observation
    w = sample(rng, as_it_came, like.released, like.noise, made.cloud.problem.unknowns, 500).draw(rng, 2_000)
    assert np.all(made.cloud.problem.unknowns.theta(w).std(axis=0) > 1.4 * reference.std(axis=0))


def test_the_error_of_the_emulated_mean_is_a_part_of_the_width():
    """With 4 of 600 records it is no longer small: the posterior is wider, and without the leverage too narrow."""
    made = fitted(4)
    emulator = made.emulator
    centre = emulator.around.centre[None]
    assert 150 * emulator.leverage(centre)[0] > 0.05
    ratio = np.diag(emulator.covariance(centre)[0]) / emulator.variance
    assert np.allclose(ratio, 1 + 150 * emulator.leverage(centre)[0])


@pytest.mark.parametrize("each", [60, 6])
def test_it_is_calibrated_on_releases_of_all_records(each):
    """120 simulated releases of all 600 records: four coordinates at 1e-5, so that a calibrated one fails 4e-5 of the time.

    Truths are from a law as wide as the posterior, so that one too wide can be so by 1.4 at most: that is for the exact posterior
    above to see. A covariance far too small fails.
    """
    made = fitted(each, scale=2.0)
    u = check_ranks(np.random.default_rng(4), made, 120)
    assert min(uniformity(column).p_value for column in u.T) > 1e-5
    narrow = replace(made, emulator=replace(made.emulator, core=0.4 * made.emulator.core))
    assert min(uniformity(column).p_value for column in check_ranks(np.random.default_rng(4), narrow, 120).T) < 1e-5


def test_only_a_normal_law_of_independent_records_can_do_with_few():
    like = replace(release(np.random.default_rng(2), n=600, scale=8.0), each=60)
    for engine in ("tempered", "bank"):
        with pytest.raises(InferenceError, match=f"engine {engine} needs all 600 records simulated, not 60 of them"):
            infer_simulated(np.random.default_rng(1), like, PRIOR, 40, engine, effort=EFFORT)
    for each in (0, 7, 601):
        with pytest.raises(InferenceError, match=rf"each is {each} of n = 600 records; it must divide a public n"):
            replace(like, each=each)
    with pytest.raises(InferenceError, match="it must divide a public n"):
        replace(like, n=None, expected_n=600.0)
