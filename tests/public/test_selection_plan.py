"""Plans: held against runs of the mechanisms themselves, against closed forms, and against the published figures' formula."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import pytest

from dp_dask.core.privacy import Loss, Unit
from dp_dask.core.selection import SparseVector, TopC, Variant
from dp_dask.gate.sparse_vector import answer
from dp_dask.public.noise_law import Laplace
from dp_dask.public.selection_plan import flip_probability, plan_sparse_vector, plan_top_c

SIMULATED = np.random.default_rng(2).gamma(6, 60, (2, 3000))  # distances about 360, few below 150


def make_spec(variant=Variant.PUBLISHED, *, c=4, threshold=150, epsilon="1", n_queries=60, sensitivity=5):
    return SparseVector(
        variant=variant, c=c, sensitivity=sensitivity, threshold=threshold, epsilon=Decimal(epsilon), n_queries=n_queries
    )


def simulate_runs(spec, row, runs, rng):
    """Run the sparse vector on independent draws of the distances; return what a plan expects of it."""
    first, second = spec.nominal_scales

    def draw(scale, shape):
        if spec.is_one_sided:
            return 1 - rng.geometric(-math.expm1(-1 / scale), shape)
        return Laplace(scale).draw(rng, shape)

    distances = np.rint(rng.choice(row, (runs, spec.n_queries))).astype(np.int64)
    levels = np.broadcast_to(spec.threshold + draw(first, (runs, spec.n_thresholds)), (runs, spec.c))
    accepted = answer(distances + draw(second, distances.shape), levels, np.zeros(runs, dtype=np.int64))
    is_full = accepted.sum(axis=1) == spec.c
    last = spec.n_queries - np.argmax(accepted[:, ::-1], axis=1)
    answered = np.where(is_full, last, spec.n_queries)
    is_answered = np.arange(spec.n_queries) < answered[:, None]
    is_near = distances <= spec.threshold
    counts = accepted, is_answered, accepted & ~is_near, is_answered & ~accepted & is_near
    return np.array([np.mean(count.sum(axis=1)) for count in counts]), np.array(
        [np.std(count.sum(axis=1)) / math.sqrt(runs) for count in counts]
    )


@pytest.mark.parametrize("variant", list(Variant))
@pytest.mark.parametrize(("c", "n_queries"), [(4, 60), (1, 500), (60, 60)])
def test_a_plan_is_what_runs_do_on_average(variant, c, n_queries):
    """5 standard errors, and 2 % for the finite set of thresholds: with these seeds, no alarm; 10 % off would be one."""
    spec = make_spec(variant, c=c, n_queries=n_queries)
    plan = plan_sparse_vector(spec, SIMULATED[0])
    found, errors = simulate_runs(spec, SIMULATED[0], 8_000, np.random.default_rng(4))
    expected = np.array([plan.accepted, plan.answered, plan.false_accepts, plan.false_rejects])
    assert (np.abs(found - expected) < 5 * errors + 0.02 * expected).all(), (found, expected)
    assert not (np.abs(found - 1.25 * expected) < 5 * errors + 0.02 * expected).all()


def test_flips_and_rates_are_those_of_single_comparisons():
    rng = np.random.default_rng(9)
    for variant in Variant:
        spec = make_spec(variant, c=1, n_queries=1)
        plan = plan_sparse_vector(spec, SIMULATED[1])
        (accepted, _, false_accepts, false_rejects), _ = simulate_runs(spec, SIMULATED[1], 100_000, rng)
        assert plan.rate == pytest.approx(accepted, abs=0.005)
        assert plan.flip == pytest.approx(false_accepts + false_rejects, abs=0.005)
        assert plan.plain_rate == np.mean(np.rint(SIMULATED[1]) <= 150)


@pytest.mark.parametrize("variant", [Variant.PUBLISHED, Variant.RESAMPLED])
def test_the_bound_is_theorem_4_3_and_markovs_form_is_no_looser_than_the_published_one(variant):
    spec = make_spec(variant, c=3, sensitivity=40, threshold=200, epsilon="2")
    b, _ = spec.nominal_scales
    row = np.rint(SIMULATED[0])
    plan = plan_sparse_vector(spec, row)
    n_near = np.sum(row <= 200)
    # The published noise is real, ours whole: half a grid unit is moved at the border.
    assert plan.bound == pytest.approx(2 / n_near * flip_probability(np.abs(row - 200.5), b).sum(), rel=0.02)
    published = 4 / (3 * 8.0 * n_near) * np.exp(-np.abs(row - 200) / (2 * b)).sum()
    assert plan.chance_of_error(8.0) <= min(published, 1)
    assert plan.chance_of_error(1e-9) == 1


def test_the_flip_probability_is_that_of_two_laplace_draws():
    rng = np.random.default_rng(1)
    for a in (0.0, 1.0, 4.0):
        flips = np.mean(rng.laplace(0, 2 * 1.5, 400_000) - rng.laplace(0, 1.5, 400_000) > a)
        assert flip_probability(a, 1.5) == pytest.approx(flips, abs=0.004)
    assert flip_probability(0.0, 1.0) == 0.5


def test_more_epsilon_brings_the_plan_to_plain_abc():
    plan = plan_sparse_vector(make_spec(epsilon="100000"), SIMULATED)
    assert plan.flip < 1e-3
    assert plan.rate == pytest.approx(plan.plain_rate, rel=1e-2)
    assert plan.false_accepts < 0.02
    assert plan.needed == pytest.approx(4 / plan.plain_rate, rel=1e-2)
    flips = [plan_sparse_vector(make_spec(epsilon=epsilon), SIMULATED).flip for epsilon in ("0.1", "1", "10", "100")]
    assert flips == sorted(flips, reverse=True)


def test_a_tolerance_that_accepts_nothing_or_everything_is_no_error():
    none = plan_sparse_vector(make_spec(threshold=0, epsilon="100000"), SIMULATED)
    assert (none.plain_rate, none.accepted, none.bound, none.needed) == (0, 0, math.inf, math.inf)
    assert none.answered == 60
    everything = plan_sparse_vector(make_spec(threshold=10**6), SIMULATED)
    assert (everything.accepted, everything.answered) == pytest.approx((4, 4))
    failed = plan_sparse_vector(make_spec(Variant.RESAMPLED), np.full((1, 50), math.nan))
    assert (failed.accepted, failed.answered) == pytest.approx((0, 60), abs=1e-4)
    half = np.where(np.arange(3000) % 2, math.inf, SIMULATED[0])
    assert plan_sparse_vector(make_spec(), half).rate == pytest.approx(
        plan_sparse_vector(make_spec(), SIMULATED[0]).rate / 2, rel=0.1
    )
    with pytest.raises(ValueError, match="no simulated distance"):
        plan_sparse_vector(make_spec(), np.empty((0, 0)))


# Top c.


def test_a_choice_without_noise_finds_the_nearest_and_a_drowned_one_is_chance():
    rng = np.random.default_rng(3)
    for unit in Unit:
        certain = plan_top_c(TopC(c=10, sensitivity=1, loss=Loss(unit, Decimal(10**6))), SIMULATED, rng)
        assert certain.hits == 10
        assert certain.mean_chosen == pytest.approx(certain.mean_nearest)
        assert certain.refusal == ""
        drowned = plan_top_c(TopC(c=10, sensitivity=10**5, loss=Loss(unit, Decimal("0.5"))), SIMULATED, rng)
        assert drowned.hits < 1
        assert drowned.mean_chosen == pytest.approx(SIMULATED.mean(), rel=0.1)
        assert drowned.mean_of_all == pytest.approx(SIMULATED.mean())
        assert f"choosing 10 at {unit} 0.5 is too large: on average the nearest of the simulated distances are" in drowned.refusal
        assert f"Lower c, raise {unit}, or release a summary" in drowned.refusal


def test_a_choice_of_one_of_two_has_its_closed_form():
    """P(the farther of two, 8 apart) = 1 / (1 + exp(8 / s)): the exponential mechanism, and Gumbel noise."""
    rng, s = np.random.default_rng(8), 10.0
    p = 1 / (1 + math.exp(8 / s))
    for loss in (Loss(Unit.EPSILON, Decimal("0.4")), Loss(Unit.RHO, Decimal("0.005"))):
        plan = plan_top_c(TopC(c=1, sensitivity=1, loss=loss), np.array([[3.0, 11.0]]), rng, repeats=20_000)
        assert plan.spec.nominal_scale == pytest.approx(s)
        assert plan.hits == pytest.approx(1 - p, abs=0.02)


def test_a_plan_of_too_few_is_refused():
    with pytest.raises(ValueError, match="c is 3, and a stand-in has fewer distances"):
        plan_top_c(
            TopC(c=3, sensitivity=1, loss=Loss(Unit.EPSILON, Decimal(1))),
            np.array([[1.0, 2.0, math.nan]]),
            np.random.default_rng(0),
        )
