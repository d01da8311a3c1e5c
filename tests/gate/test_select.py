"""Select: by hand with noise that is known, the exponential mechanism's odds of sets and of Gumbel noise, refusals by name."""

from __future__ import annotations

import itertools
import logging
import math
from collections import Counter
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from gate.gate_examples import everything_said
from scipy import stats

from dp_dask.core.distances import FAILED, FARTHEST
from dp_dask.core.privacy import Loss, Unit
from dp_dask.core.selection import TopC, log_sets
from dp_dask.core.sensitive import Sensitive
from dp_dask.errors import ConfigError
from dp_dask.gate.noise import OpenDPNoise, gumbel_scale
from dp_dask.gate.select import select, selection_scale, set_of


def make_spec(amount="1", *, c=2, sensitivity=4, unit=Unit.EPSILON):
    return TopC(c=c, sensitivity=sensitivity, loss=Loss(unit, Decimal(amount)))


class Known:
    """Gumbel noise that is read off lists, one a call; zeros where there are no more."""

    sampler = "insecure"

    def __init__(self, *draws):
        self.draws, self.scales = list(draws), []

    def lowest_with_gumbel(self, values, c, scale):
        self.scales.append(scale)
        given = self.draws.pop(0) if self.draws else []
        noisy = np.array(values) - (given + [0] * len(values))[: len(values)]
        return np.argsort(noisy, kind="stable")[:c].tolist()


def choose(spec, distances, noise):
    return select(spec, Sensitive(np.array(distances, dtype=np.int64)), noise)


def test_the_largest_is_drawn_by_its_place_and_the_others_from_those_before_it():
    """Scale (2 * 4 + 2) / 1 = 10: of pairs 1, 2, 3, 4 end at places 2 to 5, so the offsets are 0, 7, 11 and 14."""
    distances = [10, 31, 9, 12, 40]  # in order 9, 10, 12, 31, 40: indices 2, 0, 3, 1, 4
    noise = Known([0, 0, 17, 0], [0, 0, 1])
    # 10, 12 - 7, 31 - 11 - 17, 40 - 14: the third, which is index 1; of the three before it the last, index 3.
    assert choose(make_spec(), distances, noise) == (1, 3)
    assert noise.scales == [selection_scale(make_spec()).scale, 1] == [10, 1]
    assert choose(make_spec(), distances, Known([0, 0, 14, 0])) == (2, 3)  # 10, 5, 6, 26: the second, and the nearest
    assert choose(make_spec(c=1), [7, 5, 5], Known([0, 0, 2])) == (1,)  # 5, 5, 7 - 2: of equal ones the lower place


def test_failed_simulations_are_never_chosen_and_shift_no_index():
    assert choose(make_spec(), [FAILED, 7, FAILED, 5, 6, 2**62], Known([9])) == (3, 4)
    assert choose(make_spec(), [FAILED, 7, FAILED, 2**62], Known()) == (1, 3)
    assert choose(make_spec(), [FAILED, 7], Known()) == (1,)
    assert choose(make_spec(), [], Known()) == ()
    assert choose(make_spec("1", unit=Unit.RHO), [FAILED, 7, FARTHEST, FAILED, 5], OpenDPNoise()) == (1, 4)


@pytest.mark.parametrize(("c", "n"), [(1, 5), (2, 2), (3, 40), (10, 300), (200, 400)])
def test_sets_are_counted_exactly(c, n):
    exact = [math.log(math.comb(j - 1, c - 1)) for j in range(c, n + 1)]
    assert log_sets(c, n) == pytest.approx(exact, rel=2**-50)


def test_a_set_has_the_odds_of_its_largest_distance():
    """All 20 sets of three of six distances, 4,000 draws; a chi-square test that errs once in 1e7 and sees 0.7 and 1.3 of it."""
    distances, scale, n = np.array([60, 0, 21, 60, 35, 90]), 20.0, 4_000
    sets = list(itertools.combinations(range(6), 3))
    weights = np.exp([-max(distances[list(each)]) / scale for each in sets])

    def p_value(scale):
        counts = Counter(tuple(sorted(set_of(distances, 3, scale, OpenDPNoise()).tolist())) for _ in range(n))
        return stats.chisquare([counts[each] for each in sets], n * weights / weights.sum()).pvalue

    assert p_value(scale) > 1e-7
    assert p_value(0.7 * scale) < 1e-7
    assert p_value(1.3 * scale) < 1e-7


@pytest.mark.parametrize("epsilon", ["0.001", "0.3", "1", "17"])
@pytest.mark.parametrize("c", [1, 3, 100])
def test_the_loss_of_the_scale_is_epsilon_at_most(epsilon, c):
    spec = make_spec(epsilon, c=c, sensitivity=7)
    found = selection_scale(spec)
    assert Fraction(16) / Fraction(found.scale) <= Decimal(found.privacy_loss) <= Decimal(epsilon)
    assert found.scale == pytest.approx(16 / float(epsilon)) == spec.nominal_scale


@pytest.mark.parametrize("rho", ["0.001", "0.3", "2"])
@pytest.mark.parametrize("c", [1, 3, 100])
def test_the_loss_of_gumbel_noise_is_rho_at_most(rho, c):
    spec = make_spec(rho, c=c, sensitivity=7, unit=Unit.RHO)
    found = selection_scale(spec)
    assert found == gumbel_scale(7, c, Decimal(rho))
    assert c * Fraction(49) / (2 * Fraction(found.scale) ** 2) <= Decimal(found.privacy_loss) <= Decimal(rho)
    assert found.scale == pytest.approx(7 * math.sqrt(c / (2 * float(rho)))) == spec.nominal_scale


def test_gumbel_noise_chooses_by_the_exponential_mechanism_in_turn():
    """All 12 ordered pairs of four distances, 2,000 draws; a chi-square test that errs once in 1e7 and sees 0.7 and 1.3 of it."""
    distances, scale, n = [3, 0, 7, 5], 3.0, 2_000
    weights = np.exp(-np.array(distances) / scale)
    pairs = [(i, j) for i in range(4) for j in range(4) if i != j]
    expected = [weights[i] / weights.sum() * weights[j] / (weights.sum() - weights[i]) for i, j in pairs]

    def p_value(scale):
        noise, counts = OpenDPNoise(), dict.fromkeys(pairs, 0)
        for _ in range(n):
            counts[tuple(noise.lowest_with_gumbel(distances, 2, scale))] += 1
        return stats.chisquare([counts[pair] for pair in pairs], n * np.array(expected)).pvalue

    assert p_value(scale) > 1e-7
    assert p_value(0.7 * scale) < 1e-7
    assert p_value(1.3 * scale) < 1e-7


def test_what_cannot_be_is_refused_by_name():
    with pytest.raises(ValueError, match="c is 0; it must be at least 1"):
        make_spec(c=0)
    with pytest.raises(ValueError, match="sensitivity is 0 grid units"):
        make_spec(sensitivity=0)
    for unit in Unit:
        with pytest.raises(ConfigError, match=f"raise {unit} or lower c"):
            selection_scale(make_spec(sensitivity=2**52, unit=unit))
    with pytest.raises(
        ConfigError, match=r"c 20 of 100 simulations at a noise scale of 8\.8e\+12 grid units are too many sets; lower c"
    ):
        choose(make_spec(c=20, sensitivity=2**42), list(range(100)), Known())


def test_no_distance_is_printed_logged_or_raised(caplog, capfd):
    caplog.set_level(logging.DEBUG)
    canary, shown = 773140625, []
    choose(make_spec(), [canary, canary + 1, canary + 2], OpenDPNoise())
    for wrong in (np.array([float(canary)]), np.array([[canary]]), [canary], canary):
        with pytest.raises(TypeError) as caught:
            select(make_spec(), Sensitive(wrong), OpenDPNoise())
        shown.append(everything_said(caught.value))
    printed = capfd.readouterr()
    assert str(canary) not in "\n".join([*shown, caplog.text, printed.out, printed.err])
