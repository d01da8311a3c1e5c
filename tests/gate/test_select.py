"""Select: brute force over noise that is known, the exponential mechanism's odds for Gumbel noise, refusals by name."""

from __future__ import annotations

import logging
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from gate.gate_examples import everything_said
from scipy import stats

from dp_dask.core.distances import FAILED, FARTHEST
from dp_dask.core.privacy import Loss, Unit
from dp_dask.core.selection import TopC, selection_refusal
from dp_dask.core.sensitive import Sensitive
from dp_dask.errors import ConfigError
from dp_dask.gate.noise import OpenDPNoise, gumbel_scale
from dp_dask.gate.select import select, selection_scale, smallest


def make_spec(amount="1", *, c=2, sensitivity=4, unit=Unit.EPSILON):
    return TopC(c=c, sensitivity=sensitivity, loss=Loss(unit, Decimal(amount)))


class Known:
    """Noise that is read off a list; what is negative is what geometric noise does not take."""

    sampler = "insecure"

    def __init__(self, draws):
        self.draws = draws

    def add_discrete_laplace(self, values, scale):
        self.scale = scale
        assert not any(values)
        return (self.draws + [0] * len(values))[: len(values)]


def choose(spec, distances, noise):
    return select(spec, Sensitive(np.array(distances, dtype=np.int64)), noise)


def test_the_smallest_less_noise_are_chosen_and_told_by_index():
    noise = Known([0, 3, -9, 0, 25, 0])  # of geometric noise: 0, 3, 0, 25, 0
    assert choose(make_spec(), [10, 12, 9, 30, 40], noise) == (1, 3)  # 10, 9, 9, 5, 40: the lower index of equal ones
    assert noise.scale == selection_scale(make_spec()).scale == 16


def test_failed_simulations_are_never_chosen_and_shift_no_index():
    assert choose(make_spec(), [FAILED, 7, FAILED, 5, 6, 2**62], Known([])) == (3, 4)
    assert choose(make_spec(), [FAILED, 7, FAILED, 2**62], Known([])) == (1, 3)
    assert choose(make_spec(), [FAILED, 7], Known([])) == (1,)
    assert choose(make_spec(), [], Known([])) == ()
    assert choose(make_spec("1", unit=Unit.RHO), [FAILED, 7, FARTHEST, FAILED, 5], OpenDPNoise()) == (1, 4)


def test_many_selections_at_once_are_each_by_itself():
    noisy = np.random.default_rng(3).integers(0, 6, (100, 8))
    for row, found in zip(noisy, smallest(noisy, 3), strict=True):
        assert found.tolist() == [t for _, t in sorted((int(value), t) for t, value in enumerate(row))][:3]


@pytest.mark.parametrize("epsilon", ["0.001", "0.3", "1", "17"])
@pytest.mark.parametrize("c", [1, 3, 100])
def test_the_loss_of_the_scale_is_epsilon_at_most(epsilon, c):
    spec = make_spec(epsilon, c=c, sensitivity=7)
    found = selection_scale(spec)
    assert Fraction(14 * c) / Fraction(found.scale) <= Decimal(found.privacy_loss) <= Decimal(epsilon)
    assert found.scale == pytest.approx(14 * c / float(epsilon)) == spec.nominal_scale


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


def test_a_choice_that_noise_would_drown_is_refused_with_what_to_do():
    simulated = [40.0 + i for i in range(100)] + [math.inf, math.nan]
    assert selection_refusal(make_spec("1", c=1, sensitivity=6), simulated) == ""  # scale 12, the nearest 40
    said = selection_refusal(make_spec("1", c=10, sensitivity=6), simulated)
    assert "choosing 10 at epsilon 1 has scale 120 grid units" in said
    assert "c-th smallest simulated distance, 49: beyond" in said
    assert "raise rho" in selection_refusal(make_spec("0.0001", c=10, unit=Unit.RHO), simulated)
    assert selection_refusal(make_spec(c=101), simulated).startswith("c is 101, and 100 simulations have a distance")


def test_what_cannot_be_is_refused_by_name():
    with pytest.raises(ValueError, match="c is 0; it must be at least 1"):
        make_spec(c=0)
    with pytest.raises(ValueError, match="sensitivity is 0 grid units"):
        make_spec(sensitivity=0)
    for unit in Unit:
        with pytest.raises(ConfigError, match=f"raise {unit} or lower c"):
            selection_scale(make_spec(sensitivity=2**52, unit=unit))


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
