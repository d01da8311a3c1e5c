"""The sampling audit: the code itself, 200,000 runs on each of two neighbours, on noise that is seeded for this test only.

An event's two counts bound epsilon from below (Clopper & Pearson, 99.9 %). The events were chosen beforehand, by the exact
audit's sums; every seed is fixed, so that nothing here fails by chance. Right variants never exceed what they claim; 30 % too
little noise and the known faults do. (Resampling with the scale of one threshold is beyond sampling: the exact audit has it.)
"""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import pytest
from gate.selection_laws import bound

from dp_dask.core.privacy import Loss, Unit
from dp_dask.core.selection import SparseVector, TopC, Variant
from dp_dask.core.sensitive import Sensitive
from dp_dask.gate.select import selection_scale, set_of
from dp_dask.gate.sparse_vector import answer, begin, draw, feed, outcome, scales

RUNS, D, EPSILON = 200_000, 2, 3.0
UNLIMITED = 8  # acceptances, where a fault knows no end


class Seeded:
    """Noise of the same interface from a seed: the difference of two geometric variables is discrete Laplace."""

    sampler = "insecure"

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def add_discrete_laplace(self, values, scale):
        p = -np.expm1(-1 / scale)
        return np.asarray(values) + self.rng.geometric(p, len(values)) - self.rng.geometric(p, len(values))

    def lowest_with_gumbel(self, values, c, scale):
        return np.argsort(np.array(values) - self.rng.gumbel(0, scale, len(values)))[:c].tolist()


def make_spec(variant, c, epsilon=EPSILON):
    return SparseVector(variant=variant, c=c, sensitivity=D, threshold=0, epsilon=Decimal(epsilon), n_queries=100)


def event(rejected, accepted, times, c, stretches=1):
    """Two lists of distances, D apart, and answers: ``rejected`` ``times`` over, then ``accepted`` c times, again and again."""
    here = [rejected + D] * times + [accepted] * c
    there = [rejected] * times + [accepted + D] * c
    return stretches * here, stretches * there, np.array(stretches * ([False] * times + [True] * c))


def drawn_runs(spec, distances, seed, factors=(1.0, 1.0), sign=1):
    """The noisy distances, the noisy thresholds and the answers of many runs of the code, at ``factors`` of its scales."""
    noise, (first, second) = Seeded(seed), scales(spec)
    levels = np.zeros((RUNS, spec.n_thresholds), dtype=np.int64)
    noisy = np.tile(np.array(distances, dtype=np.int64), (RUNS, 1))
    if factors[0]:
        levels += sign * draw(spec, noise, levels.size, factors[0] * first.scale).reshape(levels.shape)
    if factors[1]:
        noisy += sign * draw(spec, noise, noisy.size, factors[1] * second.scale).reshape(noisy.shape)
    return noisy, levels, answer(noisy, np.broadcast_to(levels, (RUNS, spec.c)), np.zeros(RUNS, dtype=np.int64))


def hits(spec, distances, pattern, seed, **how):
    return int((drawn_runs(spec, distances, seed, **how)[2] == pattern).all(axis=1).sum())


def lower_bound(spec, event, **how):
    here, there, pattern = event
    return bound(hits(spec, here, pattern, 1, **how), hits(spec, there, pattern, 2, **how), RUNS)


EVENTS = {
    (Variant.PUBLISHED, 1): event(0, 0, 10, 1),
    (Variant.RESAMPLED, 1): event(0, 0, 10, 1),
    (Variant.SPLIT, 1): event(0, 0, 10, 1),
    (Variant.ONE_SIDED, 1): event(-2, 0, 1, 1),
    (Variant.PUBLISHED, 3): event(2, 0, 10, 3),
    (Variant.RESAMPLED, 3): event(0, -4, 3, 1, stretches=3),
    (Variant.SPLIT, 3): event(2, 0, 10, 3),
    (Variant.ONE_SIDED, 3): event(-2, 0, 1, 3),
}


@pytest.mark.parametrize(("variant", "c"), EVENTS, ids=str)
def test_no_bound_is_above_epsilon(variant, c):
    least = {1: 2.3, 3: 1.9}[c] if variant is not Variant.RESAMPLED or c == 1 else 1.2
    assert least < lower_bound(make_spec(variant, c), EVENTS[variant, c]) < EPSILON


@pytest.mark.parametrize(("variant", "c"), [key for key in EVENTS if key[1] == 1] + [(Variant.ONE_SIDED, 3)], ids=str)
def test_noise_30_percent_too_small_is_caught(variant, c):
    assert lower_bound(make_spec(variant, c), EVENTS[variant, c], factors=(0.7, 0.7)) > EPSILON


# The faults, at epsilon 1.


def test_svt3_which_tells_the_compared_value_is_caught():
    """Scales 2 D / epsilon and 2 c D / epsilon, with c = 1."""
    spec = make_spec(Variant.PUBLISHED, 1, epsilon=1.0)  # scales 2 D and 4 D
    counts = []
    for seed, distances in enumerate(event(0, 0, 10, 1)[:2], start=1):
        noisy, _, accepted = drawn_runs(spec, distances, seed, factors=(1.0, 0.5))
        counts.append(int((accepted[:, -1] & (noisy[:, -1] >= -2)).sum()))
    assert bound(*counts, RUNS) > 1


def test_svt4_whose_query_noise_does_not_grow_with_c_is_caught():
    """Scales 4 D / epsilon and 4 D / (3 epsilon)."""
    spec = make_spec(Variant.PUBLISHED, 3, epsilon=1.0)  # scales 4 D and 8 D
    assert lower_bound(spec, event(2, 0, 10, 3), factors=(1.0, 1 / 6)) > 3


def test_svt5_without_query_noise_is_caught():
    spec = make_spec(Variant.PUBLISHED, UNLIMITED, epsilon=1.0)  # scale 9 D
    assert lower_bound(spec, event(2, 0, 10, 1), factors=(2 / 9, 0.0)) > 8


def test_svt6_which_has_no_end_is_caught():
    """Scales 2 D / epsilon twice."""
    spec = make_spec(Variant.PUBLISHED, UNLIMITED, epsilon=1.0)  # scales 9 D and 18 D
    assert lower_bound(spec, event(2, 0, 10, 3), factors=(2 / 9, 1 / 9)) > 2


def test_one_sided_noise_of_the_wrong_sign_is_caught():
    assert lower_bound(make_spec(Variant.ONE_SIDED, 1, epsilon=1.0), event(0, 0, 10, 1), sign=-1) > 4


# Selection: one set of c is chosen, whose largest distance goes up while all others go down.

WIDE, CHOICES = 50, 20_000  # a sensitivity that leaves little of epsilon to rounding; runs on each side


def choice_bound(c, factor=1.0):
    scale = selection_scale(TopC(c=c, sensitivity=WIDE, loss=Loss(Unit.EPSILON, Decimal(EPSILON)))).scale
    # Before the move the set has odds of one to ten against all others together, and stays the nearest after it where c > 1.
    n = c + 10
    lead = 0 if c == 1 else int(scale * np.log(math.comb(n, c) / 10))
    noise, counts = Seeded(c), []
    for winner, loser in ((-lead, 0), (WIDE - lead, -WIDE)):
        distances = np.array([winner] * c + [loser] * 10)
        chosen = (set_of(distances, c, factor * scale, noise) for _ in range(CHOICES))
        counts.append(sum(bool((each < c).all()) for each in chosen))
    return bound(*counts, CHOICES)


@pytest.mark.parametrize("c", [1, 3])
def test_no_bound_of_a_choice_is_above_epsilon_and_30_percent_too_little_noise_is_caught(c):
    assert 2.3 < choice_bound(c) < EPSILON
    assert choice_bound(c, 0.7) > EPSILON


# The same through the door that a pipeline takes, one run after the other.


def test_runs_one_after_the_other_have_the_same_probabilities():
    """1,000 runs each; a difference beyond 5 standard errors would show another law than the audited one."""
    spec, (distances, _, pattern) = make_spec(Variant.ONE_SIDED, 1), EVENTS[Variant.ONE_SIDED, 1]
    noise, n, count = Seeded(5), 1_000, 0
    for _ in range(n):
        state = feed(begin(spec, noise), Sensitive(np.array(distances)), noise)
        count += outcome(state).indices == (len(distances) - 1,)
    p = hits(spec, distances, pattern, 1) / RUNS
    assert abs(count / n - p) < 5 * np.sqrt(p * (1 - p) / n)
