"""Sparse vector: Algorithm 1 step by step is the oracle; scales by exact fractions; nothing shows before the outcome."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from gate.gate_examples import everything_said
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_dask.core.distances import FAILED, FARTHEST, grid_sensitivity, on_grid
from dp_dask.core.selection import Accepted, SparseVector, Variant
from dp_dask.core.sensitive import Sensitive
from dp_dask.errors import ConfigError
from dp_dask.gate.noise import OpenDPNoise, draw_geometric
from dp_dask.gate.sparse_vector import answer, begin, feed, outcome, scales

LAPLACE = [Variant.PUBLISHED, Variant.RESAMPLED, Variant.SPLIT]


def make_spec(variant=Variant.PUBLISHED, *, c=3, sensitivity=4, threshold=20, epsilon="1", n_queries=50):
    return SparseVector(
        variant=variant, c=c, sensitivity=sensitivity, threshold=threshold, epsilon=Decimal(epsilon), n_queries=n_queries
    )


class Stream:
    """Noise whose k-th draw is the same however the calls are cut."""

    sampler = "insecure"

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def add_discrete_laplace(self, values, scale):
        return [int(value + np.rint(self.rng.laplace(0, scale))) for value in values]


class Constant:
    """The same noise for every draw of one scale."""

    sampler = "insecure"

    def __init__(self, by_scale):
        self.by_scale = by_scale

    def add_discrete_laplace(self, values, scale):
        return [value + self.by_scale[scale] for value in values]


def algorithm_1(spec, distances, noise):
    """Park, Vinaroz & Jitkrittum (2021), Algorithm 1, in its own words; all thresholds are drawn first."""
    threshold_scale, query_scale = (found.scale for found in scales(spec))
    drawn = noise.add_discrete_laplace([0] * spec.n_thresholds, threshold_scale)
    accepted = []
    for t, distance in enumerate(distances[: spec.n_queries]):
        [nu] = noise.add_discrete_laplace([0], query_scale)
        m = drawn[len(accepted) if spec.variant is Variant.RESAMPLED else 0]
        if distance != FAILED and distance + nu <= spec.threshold + m:
            accepted.append(t)
        if len(accepted) == spec.c:
            return Accepted(tuple(accepted), t + 1)
    return Accepted(tuple(accepted), min(len(distances), spec.n_queries))


def run(spec, blocks, noise):
    state = begin(spec, noise)
    for block in blocks:
        state = feed(state, Sensitive(np.asarray(block, dtype=np.int64)), noise)
    return state


@pytest.mark.parametrize("variant", LAPLACE)
def test_the_answers_are_those_of_algorithm_1_however_the_blocks_are_cut(variant):
    rng = np.random.default_rng(5)
    ends = set()
    for seed in range(150):
        spec = make_spec(variant, c=int(rng.integers(1, 6)), epsilon="2", n_queries=int(rng.integers(6, 40)))
        distances = rng.integers(0, 120, int(rng.integers(1, 50)))
        distances[rng.random(len(distances)) < 0.1] = FAILED
        cuts = np.sort(rng.integers(0, len(distances) + 1, int(rng.integers(0, 5))))
        state = run(spec, np.split(distances, cuts), Stream(seed))
        expected = algorithm_1(spec, distances, Stream(seed))
        assert outcome(state) == expected
        is_full = len(expected.indices) == spec.c
        assert state.is_over == (is_full or len(distances) >= spec.n_queries)
        ends.add((is_full, expected.n_answered == spec.n_queries))
    assert len(ends) >= 3


def test_one_sided_noise_lowers_the_threshold_and_the_distances():
    spec = make_spec(Variant.ONE_SIDED, threshold=20)
    threshold_scale, query_scale = (found.scale for found in scales(spec))
    noise = Constant({threshold_scale: 7, query_scale: 5})  # accepted iff q - 5 <= 20 - 7
    assert outcome(run(spec, [[19, 18, 17, 30, 18, 18]], noise)).indices == (1, 2, 4)


def test_resampling_draws_a_threshold_for_each_acceptance_and_the_others_one_for_all():
    draws = {}
    for variant in Variant:
        spec = make_spec(variant, c=5)
        draws[variant] = len(set(begin(spec, OpenDPNoise()).levels._value.tolist()))
    assert [draws[variant] for variant in (Variant.PUBLISHED, Variant.SPLIT, Variant.ONE_SIDED)] == [1, 1, 1]
    assert draws[Variant.RESAMPLED] > 1  # all 5 equal: P < 1e-6 at this scale of 40


def test_many_runs_at_once_are_each_run_by_itself():
    rng = np.random.default_rng(7)
    noisy, levels = rng.integers(-50, 50, (200, 30)), rng.integers(-60, 20, (200, 4))
    before = rng.integers(0, 5, 200)
    together = answer(noisy, levels, before)
    for i in range(200):
        used, expected = before[i], []
        for value in noisy[i]:
            is_accepted = used < 4 and value <= levels[i, used]
            used += is_accepted
            expected.append(is_accepted)
        assert together[i].tolist() == expected
        assert answer(noisy[i], levels[i], before[i]).tolist() == expected
    assert 0 < together.sum() < together.size / 2


# It stops hard.


def test_nothing_is_answered_after_the_c_th_acceptance_or_the_last_query():
    still = Constant({found.scale: 0 for found in scales(make_spec())})
    state = run(make_spec(), [[0, 99, 0, 0, 0], [0] * 10], still)
    assert outcome(state) == Accepted((0, 2, 3), 4)
    assert state.is_over
    assert feed(state, Sensitive(np.zeros(5, dtype=np.int64)), still) is state
    state = run(make_spec(n_queries=4), [[99, 99], [99, 0, 0, 0, 0]], still)
    assert outcome(state) == Accepted((3,), 4)
    assert state.is_over
    state = run(make_spec(), [[99, 0], []], still)
    assert outcome(state) == Accepted((1,), 2)
    assert not state.is_over
    assert outcome(begin(make_spec(), still)) == Accepted((), 0)


def test_a_failed_simulation_is_a_query_that_no_noise_brings_near():
    certain = Constant({found.scale: -(2**61) for found in scales(make_spec())} | {scales(make_spec())[0].scale: 2**60})
    state = run(make_spec(), [[FAILED, FARTHEST, FAILED, 2**62]], certain)
    assert outcome(state) == Accepted((1, 3), 4)


# The scales.


@pytest.mark.parametrize("variant", list(Variant))
@pytest.mark.parametrize("c", [1, 3, 10, 1000])
@pytest.mark.parametrize("epsilon", ["0.000001", "0.1", "0.3", "1", "7.123456789012", "1000"])
def test_the_loss_of_the_scales_is_epsilon_at_most_and_no_less_than_it_can_be(variant, c, epsilon):
    for d in (1, 7, 12345):
        spec = make_spec(variant, c=c, sensitivity=d, epsilon=epsilon, n_queries=10**6)
        first, second = scales(spec)
        s, r = Fraction(first.scale), Fraction(second.scale)
        n = c if variant is Variant.RESAMPLED else 1
        loss = n * d / s + 2 * c * d / r
        assert loss <= Decimal(first.privacy_loss) + Decimal(second.privacy_loss) <= Decimal(epsilon)
        assert loss >= Fraction(epsilon) * (1 - Fraction(1, 2**49))
        e = float(epsilon)
        expected = {
            Variant.PUBLISHED: ((c + 1) * d / e, 2 * (c + 1) * d / e),
            Variant.RESAMPLED: (2 * c * d / e, 4 * c * d / e),
        }.get(variant, (d * (1 + (2 * c) ** (2 / 3)) / e, 2 * c * d * (1 + (2 * c) ** (-2 / 3)) / e))
        assert (float(s), float(r)) == pytest.approx(expected, rel=1e-12)
        assert spec.nominal_scales == pytest.approx(expected, rel=1e-12)


def test_the_split_has_the_least_variance():
    spec = make_spec(Variant.SPLIT, c=5)
    least = sum(scale**2 for scale in spec.nominal_scales)
    first, second = map(float, spec.shares)
    for move in (-0.01, 0.01):
        other = (spec.sensitivity / (first + move)) ** 2 + (10 * spec.sensitivity / (second - move)) ** 2
        assert other > least


def test_the_lowered_threshold_is_ln_2_noise_scales_lower():
    spec = make_spec(Variant.ONE_SIDED, threshold=1000)
    assert spec.lowered() == replace(spec, threshold=1000 - math.floor(math.log(2) * scales(spec)[1].scale))


def test_geometric_draws_have_the_geometric_law():
    """OpenDP's own noise: a chi-square test on 11 cells that errs once in 1e7, and fails at 0.7 and 1.3 of the scale."""
    from scipy import stats

    def p_value(scale):
        draws = draw_geometric(OpenDPNoise(), 10_000, scale)
        a = math.exp(-1 / 3.0)
        expected = np.append((1 - a) * a ** np.arange(10), a**10)
        observed = np.bincount(np.minimum(draws, 10), minlength=11)
        assert draws.min() >= 0
        assert len(draws) == 10_000
        return stats.chisquare(observed, 10_000 * expected).pvalue

    assert p_value(3.0) > 1e-7
    assert p_value(0.7 * 3) < 1e-7
    assert p_value(1.3 * 3) < 1e-7


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"c": 0}, "c is 0 of 50 queries"),
        ({"c": 51}, "c is 51 of 50 queries"),
        ({"c": 1, "n_queries": 0}, "c is 1 of 0 queries"),
        ({"sensitivity": 0}, "sensitivity is 0 grid units"),
        ({"threshold": 2**61}, "use a coarser grid"),
        ({"epsilon": "0"}, "epsilon is 0"),
        ({"epsilon": "NaN"}, "epsilon is NaN"),
    ],
)
def test_what_cannot_be_is_refused_by_name(change, text):
    with pytest.raises(ValueError, match=text):
        make_spec(**change)


def test_a_scale_beyond_the_proven_range_is_refused_by_name():
    with pytest.raises(ConfigError, match="c 3, sensitivity 1125899906842624 and epsilon 1 need noise beyond"):
        scales(make_spec(sensitivity=2**50))


# The grid.


@given(
    a=st.floats(0, 1e6),
    apart=st.floats(0, 1),
    sensitivity=st.floats(1e-6, 50),
    error=st.floats(0, 0.5),
    exponent=st.integers(-20, 5),
)
@settings(max_examples=300)
def test_rounded_distances_of_neighbours_are_no_farther_apart_than_the_grids_sensitivity(a, apart, sensitivity, error, exponent):
    unit = 2.0**exponent
    b = a + apart * (sensitivity + 2 * error)
    if Fraction(b) - Fraction(a) > Fraction(sensitivity) + 2 * Fraction(error):
        b = math.nextafter(b, 0)
    first, second = on_grid(np.array([a, b]), unit)
    assert abs(int(second) - int(first)) <= grid_sensitivity(sensitivity, unit, error=error)


def test_the_grids_own_step_is_needed():
    first, second = on_grid(np.array([0.5, 1.5]), 1.0)
    assert second - first == 2 == grid_sensitivity(1.0, 1.0)
    assert grid_sensitivity(0.3, 0.125) == 3


def test_a_distance_that_is_not_a_number_is_a_failure_and_a_far_one_is_only_far():
    found = on_grid(np.array([math.nan, math.inf, 1e300, 3.2]), 2.0**-3)
    assert found.tolist() == [FAILED, FAILED, FARTHEST, 26]
    with pytest.raises(ValueError, match="power of two"):
        on_grid(np.array([1.0]), 0.3)
    for wrong in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="must be finite, the first above 0"):
            grid_sensitivity(wrong, 1.0)


# Nothing shows before the commit.

CANARY = 773140625  # a distance, to look for in texts that should not hold it


def test_no_distance_noise_or_answer_is_printed_logged_or_raised(caplog, capfd):
    caplog.set_level(logging.DEBUG)
    spec = make_spec(c=2, threshold=2 * CANARY, n_queries=987_654)
    noise = OpenDPNoise()
    state = begin(spec, noise)
    states = [state]
    shown = []
    for block in ([CANARY] * 3 + [FAILED], [CANARY, 0]):
        state = feed(state, Sensitive(np.array(block)), noise)
        states.append(state)
    assert outcome(state).indices == (0, 1)
    for wrong in (np.array([float(CANARY)]), np.array([[CANARY]]), [CANARY], np.array([CANARY], dtype=np.int32), CANARY):
        with pytest.raises(TypeError) as caught:
            feed(states[1], Sensitive(wrong), noise)
        shown.append(everything_said(caught.value))
    levels = str(states[0].levels._value[0])
    printed = capfd.readouterr()
    text = "\n".join([*map(repr, states), *map(str, states), *shown, caplog.text, printed.out, printed.err])
    text = text.replace(f"threshold={2 * CANARY}", "")
    for secret in (str(CANARY), levels, "(0, 1)", "is_over", "n_answered"):
        assert secret not in text
    assert "accepted=Sensitive(***)" in text


def test_the_outcome_holds_indices_and_a_number_of_queries_alone():
    assert set(Accepted.__dataclass_fields__) == {"indices", "n_answered"}
