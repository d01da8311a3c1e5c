"""The exact audit: output probabilities by summation give no more than epsilon for our scales, and more for every known fault.

No sampling: the supremum of the log-ratio over neighbours and answers is approached in families of extreme cases. The search
over them comes within 1e-3 of epsilon, so that a scale that is a percent too small would show.
"""

from __future__ import annotations

import itertools
import math
from decimal import Decimal

import numpy as np
import pytest
from gate.selection_laws import Above, Below, Nothing, TwoSided, log_probability
from scipy import special

from dp_dask.core.privacy import Loss, Unit
from dp_dask.core.selection import SparseVector, TopC, Variant
from dp_dask.gate.select import selection_scale, set_of
from dp_dask.gate.sparse_vector import answer, scales

D = 3
CS = [1, 3, 10]
REJECTIONS = (1, 20, 1000)


def make_spec(variant, c, epsilon="1"):
    return SparseVector(variant=variant, c=c, sensitivity=D, threshold=0, epsilon=Decimal(epsilon), n_queries=10**6)


def laws(spec, factor=1.0):
    law = Below if spec.is_one_sided else TwoSided
    threshold, query = scales(spec)
    return law(factor * threshold.scale), law(factor * query.scale)


def largest_ratio(threshold, query, c, stretches=1):
    """The largest log-ratio between neighbours of: many rejections then c acceptances, ``stretches`` times over."""
    unit = getattr(query, "scale", threshold.scale)
    found = -math.inf
    for times, r, a, move in itertools.product(REJECTIONS, (-5, -2, 0, 2), (-3, 0, 3), (D, -D)):
        rejected, accepted = round(r * unit), round(a * unit)
        p = log_probability(threshold, query, [rejected], [accepted] * c, times)
        q = log_probability(threshold, query, [rejected - move], [accepted + move] * c, times)
        if p > -600:  # what is rarer could not be told from a sum's rounding
            found = max(found, stretches * (p - q))
    return found


def ratio_of(spec, threshold, query):
    is_resampled = spec.variant is Variant.RESAMPLED
    return largest_ratio(threshold, query, 1 if is_resampled else spec.c, spec.c if is_resampled else 1)


@pytest.mark.parametrize("c", CS)
@pytest.mark.parametrize("variant", list(Variant))
def test_the_largest_ratio_is_epsilon_and_never_above(variant, c):
    spec = make_spec(variant, c)
    assert 0.999 < ratio_of(spec, *laws(spec)) < 1 + 1e-9


@pytest.mark.parametrize("variant", list(Variant))
def test_no_pair_of_neighbours_and_no_pattern_has_a_ratio_above_epsilon(variant):
    rng = np.random.default_rng(11)
    largest = 0.0
    for _ in range(400):
        c = int(rng.integers(1, 4))
        spec = make_spec(variant, c, "2")
        threshold, query = laws(spec)
        ratio = 0.0
        for _ in range(c if variant is Variant.RESAMPLED else 1):
            spread = query.scale * rng.choice([0.3, 2, 6])
            rejected = np.rint(rng.normal(0, spread, int(rng.integers(0, 6))))
            accepted = np.rint(rng.normal(0, spread, 1 if variant is Variant.RESAMPLED else c))
            other = [distances + rng.integers(-D, D + 1, len(distances)) for distances in (rejected, accepted)]
            p = log_probability(threshold, query, rejected, accepted, reach=600)
            ratio += p - log_probability(threshold, query, *other, reach=600)
        largest = max(largest, ratio)
    assert 0.5 < largest <= 2 + 1e-9


@pytest.mark.parametrize("variant", list(Variant))
@pytest.mark.parametrize("c", CS)
def test_noise_30_percent_too_small_is_caught(variant, c):
    spec = make_spec(variant, c)
    assert ratio_of(spec, *laws(spec, 0.7)) > 1.4


# The faults, as Lyu, Su & Li (2017) number them, and others, at epsilon 1.


@pytest.mark.parametrize("c", CS)
def test_svt3_which_tells_the_compared_value_is_caught(c):
    """The noisy distance v is told with the acceptance, so that threshold + M >= v is known too."""
    threshold, query = TwoSided(2.0 * D), TwoSided(2.0 * c * D)
    m = np.arange(-3000, 3001)

    def log_p(rejected, accepted, v=0):
        terms = threshold.log_pmf(m) + 100 * query.log_sf(m - rejected) + np.where(m >= v, 0, -np.inf)
        return special.logsumexp(terms) + query.log_pmf(v - accepted)

    assert log_p(0, 0) - log_p(-D, D) > 3


@pytest.mark.parametrize("c", CS)
def test_svt4_whose_query_noise_does_not_grow_with_c_is_caught(c):
    ratio = largest_ratio(TwoSided(4.0 * D), TwoSided(4.0 * D / 3), c)
    assert ratio == pytest.approx((1 + 6 * c) / 4, rel=1e-3)


@pytest.mark.parametrize("c", CS)
def test_svt5_without_query_noise_is_caught(c):
    assert largest_ratio(TwoSided(2.0 * D), Nothing(), c) == math.inf


@pytest.mark.parametrize("c", CS)
def test_svt6_which_has_no_end_is_caught(c):
    """Whatever the noise, c acceptances may come."""
    assert largest_ratio(TwoSided(2.0 * D), TwoSided(2.0 * D), c) == pytest.approx(0.5 + c, rel=1e-3)


@pytest.mark.parametrize("c", CS[1:])
def test_resampling_with_the_scale_of_one_threshold_is_caught(c):
    threshold, query = laws(make_spec(Variant.PUBLISHED, c))
    assert largest_ratio(threshold, query, 1, c) == pytest.approx(2 * c / (c + 1), rel=1e-3)


@pytest.mark.parametrize("c", CS)
@pytest.mark.parametrize("variant", list(Variant))
def test_a_forgotten_factor_2_is_caught(variant, c):
    spec = make_spec(variant, c)
    threshold, query = laws(spec)
    e2 = float(spec.shares[1])
    assert ratio_of(spec, threshold, type(query)(query.scale / 2)) == pytest.approx(1 + e2, rel=1e-3)


@pytest.mark.parametrize("c", CS)
def test_a_sensitivity_without_the_grids_own_step_is_caught(c):
    for variant in Variant:
        spec = make_spec(variant, c)
        assert ratio_of(spec, *laws(spec, (D - 1) / D)) > 1.4


@pytest.mark.parametrize("variant", list(Variant))
def test_noise_one_percent_too_small_is_caught(variant):
    spec = make_spec(variant, 3)
    assert ratio_of(spec, *laws(spec, 0.99)) > 1.005


@pytest.mark.parametrize("c", CS)
def test_one_sided_noise_of_the_wrong_sign_is_caught(c):
    spec = make_spec(Variant.ONE_SIDED, c)
    threshold, query = (law.scale for law in laws(spec))
    assert ratio_of(spec, Above(threshold), Above(query)) > 2
    assert ratio_of(spec, Above(threshold), Below(query)) > 2
    assert ratio_of(spec, Below(threshold), Above(query)) > 2


# The formulas above are those of the code: every outcome of it, weighed by the noise that leads to it.


def pmf(law, reach):
    k = np.arange(-reach, reach + 1)
    return k, np.exp(law.log_pmf(k))


def outcomes(spec, distances, reach):
    """The probability of each outcome of ``answer`` (the accepted indices), over all noise within reach."""
    threshold, query = laws(spec)
    axes = [pmf(threshold, reach)] * spec.n_thresholds + [pmf(query, reach)] * len(distances)
    drawn = np.stack(np.meshgrid(*(k for k, _ in axes), indexing="ij"), axis=-1).reshape(-1, len(axes))
    weights = np.ones(1)
    for _, p in axes:
        weights = np.multiply.outer(weights, p).ravel()
    drawn, weights = drawn[weights > 1e-14], weights[weights > 1e-14]
    levels = np.broadcast_to(drawn[:, : spec.n_thresholds], (len(drawn), spec.c))
    accepted = answer(distances + drawn[:, spec.n_thresholds :], levels, np.zeros(len(drawn), dtype=np.int64))
    codes = accepted @ (1 << np.arange(len(distances)))
    return np.bincount(codes, weights, minlength=1 << len(distances))


@pytest.mark.parametrize("variant", list(Variant))
@pytest.mark.parametrize("c", [1, 2])
def test_the_code_answers_with_these_probabilities(variant, c):
    epsilon = 6 * D * c
    spec = make_spec(variant, c, str(epsilon))
    threshold, query = laws(spec)
    distances = np.array([1, 0])
    found = outcomes(spec, distances, 13)
    assert found.sum() == pytest.approx(1, abs=1e-6)
    if c == 1 or variant is not Variant.RESAMPLED:
        expected = [
            log_probability(threshold, query, [1, 0], [], reach=60),
            log_probability(threshold, query, [] if c == 1 else [0], [1], reach=60),
            log_probability(threshold, query, [1], [0], reach=60),
            log_probability(threshold, query, [], [1, 0], reach=60) if c == 2 else -math.inf,
        ]
    else:  # two thresholds: the second serves what comes after an acceptance
        first = log_probability(threshold, query, [], [1], reach=60)
        expected = [
            log_probability(threshold, query, [1, 0], [], reach=60),
            first + log_probability(threshold, query, [0], [], reach=60),
            log_probability(threshold, query, [1], [0], reach=60),
            first + log_probability(threshold, query, [], [0], reach=60),
        ]
    assert found == pytest.approx(np.exp(expected), abs=1e-6)


# Selection.


class Recorded:
    """Noise that notes what is to be drawn: the scores of the places, and their scale."""

    sampler = "insecure"

    def lowest_with_gumbel(self, values, c, scale):
        self.calls = [*getattr(self, "calls", []), (values, c, scale)]
        return list(range(c))


def log_probabilities(distances, c, scale):
    """The log-probability of every set of c by what the code asks of its noise: a place by its score, the others alike."""
    noise = Recorded()
    set_of(np.array(distances), c, scale, noise)
    scores, n_places, s = noise.calls[0]
    assert n_places == 1
    assert [call[0] for call in noise.calls[1:]] == ([[0] * (c - 1)] if c > 1 else [])  # alike, whatever the distances
    log_p = -np.array(scores) / s
    log_p -= special.logsumexp(log_p)
    places = np.argsort(np.argsort(distances, kind="stable"))
    largest = [max(places[list(each)]) for each in itertools.combinations(range(len(distances)), c)]
    return np.array([log_p[j - c + 1] - math.log(math.comb(j, c - 1)) for j in largest])


def scale_of(c, sensitivity, epsilon="1"):
    return selection_scale(TopC(c=c, sensitivity=sensitivity, loss=Loss(Unit.EPSILON, Decimal(epsilon)))).scale


@pytest.mark.parametrize("c", CS)
def test_the_largest_ratio_of_a_choice_is_epsilon(c):
    """The set that is chosen goes up while all others go down; a sensitivity of 1,000 leaves rounding 0.1 % of epsilon."""
    scale = scale_of(c, 1_000)

    def largest(factor):
        ratios = []
        for lead in (0, 3_000, 20_000):  # far ahead: the set is likely, and stays so
            here = [-lead] * c + [0] * 8
            there = [1_000 - lead] * c + [-1_000] * 8
            ratios += (log_probabilities(here, c, factor * scale) - log_probabilities(there, c, factor * scale)).tolist()
        return max(ratios)

    assert 0.9 < largest(1.0) < 1 + 1e-9
    assert largest(0.7) > 1.25
    assert largest(0.5) > 1.8


@pytest.mark.parametrize("c", [1, 2, 3])
def test_no_neighbours_have_a_ratio_of_a_choice_above_epsilon(c):
    """Every neighbour of 81 lists of four distances, ties and rounding included, at a noise that rounding is large for."""
    scale, largest = scale_of(c, 1, "1"), 0.0
    lists = np.array(list(itertools.product(range(-1, 5), repeat=4)))
    law = {tuple(each): log_probabilities(each, c, scale) for each in lists.tolist()}
    moves = list(itertools.product((-1, 0, 1), repeat=4))
    for distances in itertools.product(range(3), repeat=4):
        for move in moves:
            there = tuple(a + b for a, b in zip(distances, move, strict=True))
            largest = max(largest, float(np.abs(law[distances] - law[there]).max()))
    assert 0.4 < largest < 1 + 1e-9
