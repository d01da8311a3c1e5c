"""Discrete Gaussian noise: its scale by OpenDP's own map, its law by tests that see a scale 30 % off, what a rho means.

The noise has no seed. Four chi-square tests at 1e-7 each, times 3 because the chi-square law is approximate that far out, and
four variances beyond 6 standard errors, 2e-9 each by the normal law, times 2 for the skewness of squares: below 2e-6 a run.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import opendp.prelude as dp
import pytest
from gate.gate_examples import make_release, make_request, make_rho_request, make_statistic
from scipy import optimize, special, stats

from dp_dask.core.privacy import Loss, Neighbours, Spent, Unit
from dp_dask.core.sensitive import Sensitive
from dp_dask.core.statistic import Total
from dp_dask.errors import ConfigError
from dp_dask.gate.additive import release
from dp_dask.gate.noise import OpenDPNoise, gaussian_scale, meaning

SCALES = [0.4, 1.0, 37.5, 2.0**20]
N_DRAWS = 60_000
ALPHA, SIGMAS, MIN_EXPECTED = 1e-7, 6.0, 100
SQUARES = [1, 2, 3, 5, 30**2, 30**2 + 15**2, 12345678901, 2**62 + 1, 2**90 + 7]
RHOS = ["0.000001", "0.005", "0.1", "0.333333333333", "0.5", "1", "3.7", "999999.999999999999"]


def mechanism(scale):
    dp.enable_features("contrib")
    return dp.m.make_gaussian(dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64"), scale=scale)


@pytest.mark.parametrize("rho", [Decimal(text) for text in RHOS], ids=str)
def test_the_map_at_the_scale_is_at_most_rho_and_the_scale_is_the_least(rho):
    for square in SQUARES:
        distance = math.sqrt(square)
        distance = distance if Fraction(distance) ** 2 >= square else math.nextafter(distance, math.inf)
        if distance / math.sqrt(2 * float(rho)) >= 2.0**57:
            continue
        found = gaussian_scale(square, rho)
        assert Decimal(mechanism(found.scale).map(distance)) == Decimal(found.privacy_loss) <= rho
        assert Decimal(mechanism(math.nextafter(found.scale, 0)).map(distance)) > rho
        # By exact arithmetic as well, whatever a map says: D2 / (2 scale^2).
        assert Fraction(square) / (2 * Fraction(found.scale) ** 2) <= Fraction(rho)
        assert found.scale <= distance / math.sqrt(2 * float(rho)) * (1 + 2**-48)


def test_the_map_is_the_largest_renyi_divergence_of_two_shifted_laws():
    """By summation: the divergence of order a between the law and its shift by v is at most a v^2 / (2 scale^2), for any v."""
    k = np.arange(-400, 401)
    for scale in (0.6, 1.0, 5.0):
        for v, order in ((1, 1.01), (1, 2.0), (2, 1.5), (3, 8.0), (7, 3.0)):
            log_p = -(k**2) / (2 * scale**2) - special.logsumexp(-(k**2) / (2 * scale**2))
            log_q = -((k - v) ** 2) / (2 * scale**2) - special.logsumexp(-((k - v) ** 2) / (2 * scale**2))
            divergence = special.logsumexp(order * log_p + (1 - order) * log_q) / (order - 1)
            assert divergence <= order * mechanism(scale).map(float(v)) * (1 + 1e-9)


@pytest.mark.parametrize(("square", "rho"), [(2**114, "0.5"), (2**90, "1e-12"), (0, "1"), (-3, "1")])
def test_a_scale_outside_the_proven_range_is_refused_by_name(square, rho):
    with pytest.raises(ConfigError) as caught:
        gaussian_scale(square, Decimal(rho))
    [problem] = caught.value.problems
    assert problem.path == "rho"
    assert problem.message.endswith("needs a scale outside (0, 2^57) grid units; raise rho")


def law(scale):
    """Whole numbers and their probabilities, or bins of them where the scale is large, summed exactly."""
    reach = math.ceil(10 * scale) + 1
    k = np.arange(-reach, reach + 1)
    p = np.exp(-((k / scale) ** 2) / 2)
    return k, p / p.sum()


def faults(draws, scale):
    """Name the tests by which the draws are not from the discrete Gaussian law of this scale."""
    k, p = law(scale)
    wanted = np.searchsorted(np.cumsum(p), np.linspace(0, 1, 41)[1:-1])
    ends = np.unique(k[wanted])
    cells = np.add.reduceat(p, np.concatenate([[0], np.searchsorted(k, ends)]))
    kept = [0]
    total = 0.0
    for i, cell in enumerate(cells[:-1]):
        total += cell
        if len(draws) * total >= MIN_EXPECTED and len(draws) * (1 - cells[: i + 1].sum()) >= MIN_EXPECTED:
            kept.append(i + 1)
            total = 0.0
    expected = np.add.reduceat(cells, kept)
    observed = np.bincount(np.searchsorted(ends[np.array(kept[1:]) - 1], draws, side="right"), minlength=len(kept))
    found = ["cells"] if stats.chisquare(observed, len(draws) * expected).pvalue < ALPHA else []
    variance, fourth = float(k**2 @ p), float(k.astype(float) ** 4 @ p)
    square = np.mean(draws.astype(float) ** 2)
    if abs(square - variance) > SIGMAS * math.sqrt((fourth - variance**2) / len(draws)):
        found.append("variance")
    return found


def draw(scale, n=N_DRAWS):
    return np.array(OpenDPNoise().add_discrete_gaussian([0] * n, scale))


@pytest.mark.parametrize("scale", SCALES)
def test_noise_has_the_discrete_gaussian_law_of_its_scale(scale):
    assert faults(draw(scale), scale) == []


@pytest.mark.parametrize("factor", [0.7, 1.3])
@pytest.mark.parametrize("scale", SCALES)
def test_noise_of_another_scale_fails_these_tests(scale, factor):
    assert faults(draw(scale * factor, N_DRAWS // 3), scale) == ["cells", "variance"]


def test_laplace_noise_of_the_same_spread_fails():
    laplace = np.array(OpenDPNoise().add_discrete_laplace([0] * N_DRAWS, 37.5 / math.sqrt(2)))
    assert "cells" in faults(laplace, 37.5)


def test_noise_is_added_to_the_value_itself_and_every_coordinate_has_its_own():
    noise = OpenDPNoise()
    assert noise.add_discrete_gaussian([5, -(2**61), 2**61], 0.02) == [5, -(2**61), 2**61]  # P(any noise) < e^-1000
    assert all(type(value) is int for value in noise.add_discrete_gaussian([1, 2], 60.0))
    assert len(set(noise.add_discrete_gaussian([0] * 1000, 2.0**50))) == 1000


# What is released.


class KnownNoise:
    """Adds 1, 2, 3, .. and refuses Laplace noise."""

    sampler = "insecure"

    def add_discrete_gaussian(self, values, scale):
        self.call = list(values), scale
        return [value + i for i, value in enumerate(values, start=1)]


def test_a_request_of_rho_is_released_with_gaussian_noise_of_its_l2_sensitivity():
    statistic = make_statistic(count_weight=15)
    request = make_rho_request("0.3", statistic=statistic, neighbours=Neighbours.ADD_REMOVE, n=None)
    noise = KnownNoise()
    [made] = release(Sensitive(Total((1000,), 50)), [request], noise)
    expected = gaussian_scale(30**2 + 15**2, Decimal("0.3"))
    assert noise.call == ([1000, 15 * 50], expected.scale)
    assert (made.mechanism, made.sensitivity, made.scale) == ("discrete_gaussian", 1125, expected.scale)
    assert made.privacy_loss == expected.privacy_loss <= Decimal("0.3")
    assert (made.noisy_sums, made.noisy_count) == ((1001,), 752)


def test_a_release_whose_noise_is_not_what_its_request_pays_for_cannot_be_made():
    made = make_release(make_rho_request("0.1"))
    facts = {name: getattr(made, name) for name in made.__dataclass_fields__}
    with pytest.raises(ValueError, match="a request of rho is released by discrete_gaussian"):
        type(made)(**facts | {"mechanism": "discrete_laplace"})
    with pytest.raises(ValueError, match="less than the request's rho needs"):
        type(made)(**facts | {"scale": 0.99 * made.scale / 1.5})
    with pytest.raises(ValueError, match="less than the request's rho needs"):
        type(made)(**facts | {"sensitivity": 30})
    with pytest.raises(ValueError, match="either an epsilon or a rho"):
        make_request("0.1").__class__(dataset="d", statistic=make_statistic(), neighbours=Neighbours.REPLACE, n=1)


# What a rho means.


def test_laplace_noise_is_priced_in_rho_exactly():
    assert Loss(Unit.EPSILON, Decimal("0.333333333333")).priced(Unit.RHO) == Decimal("0.0555555555554444444444445")
    assert Loss(Unit.RHO, Decimal("0.10")).priced(Unit.RHO) == Decimal("0.1")
    with pytest.raises(ValueError, match="no finite epsilon"):
        Loss(Unit.RHO, Decimal(1)).priced(Unit.EPSILON)


@pytest.mark.parametrize("unit", list(Unit))
@pytest.mark.parametrize("amount", ["0", "-1", "NaN", "Infinity", "1e-13", "1000000.1"])
def test_a_loss_is_a_positive_exact_decimal(unit, amount):
    with pytest.raises(ValueError, match=f"{unit} is"):
        Loss(unit, Decimal(amount))


def delta_of_gaussian(epsilon, rho):
    """The exact delta of a Gaussian mechanism (Balle & Wang 2018): no conversion of its rho can promise a smaller one."""
    mu = math.sqrt(2 * rho)
    return stats.norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu)


@pytest.mark.parametrize("rho", ["0.000001", "0.01", "0.1", "0.5", "3"])
@pytest.mark.parametrize("delta", ["1e-9", "1e-6", "0.001"])
def test_the_meaning_of_a_rho_is_no_less_than_the_truth_and_no_more_than_the_textbook(rho, delta):
    found = meaning(Unit.RHO, Decimal(rho), Decimal(delta))
    assert delta_of_gaussian(found.epsilon, float(rho)) <= float(delta)
    textbook = float(rho) + 2 * math.sqrt(float(rho) * math.log(1 / float(delta)))  # Bun & Steinke 2016, proposition 1.3
    assert 0 <= found.epsilon <= textbook
    # Canonne, Kamath & Steinke 2020, proposition 7: delta = min over a of exp((a - 1)(a rho - epsilon)) (1 - 1 / a)^a / (a - 1).
    wanted = optimize.minimize_scalar(
        lambda t: proposition_7(1 + math.exp(t), float(rho), float(delta)), bounds=(-20, 25), method="bounded"
    ).fun
    assert found.epsilon == pytest.approx(max(wanted, 0), rel=1e-4, abs=1e-9)


@pytest.mark.parametrize(
    ("rho", "delta"), [("100000", "1e-6"), ("1000000", "0.5"), ("5000000.5", "1e-320"), ("0.1", "1e-400"), ("5e-25", "1e-400")]
)
def test_where_opendp_has_no_finite_answer_a_rho_means_the_textbook_epsilon_rounded_up(rho, delta):
    """The meaning is told after a release was paid for: it must not fail there."""
    found = meaning(Unit.RHO, Decimal(rho), Decimal(delta))
    with localcontext() as context:
        context.prec = 60
        textbook = Decimal(rho) + 2 * (Decimal(rho) * -Decimal(delta).ln()).sqrt()
    assert textbook <= Decimal(found.epsilon) <= textbook * Decimal("1.000000000000001")


@pytest.mark.parametrize("delta", ["0", "1", "2", "-0.1", "NaN"])
def test_what_is_no_delta_has_no_meaning(delta):
    with pytest.raises(ValueError, match="delta is"):
        meaning(Unit.RHO, Decimal("0.1"), Decimal(delta))


def proposition_7(a, rho, delta):
    return a * rho + (math.log(1 / delta) + a * math.log1p(-1 / a) - math.log(a - 1)) / (a - 1)


def test_without_a_delta_or_in_epsilon_an_amount_means_itself():
    assert meaning(Unit.RHO, Decimal("0.1"), None) == Spent(unit=Unit.RHO, amount=Decimal("0.1"))
    assert meaning(Unit.EPSILON, Decimal("0.1"), Decimal("1e-6")) == Spent(unit=Unit.EPSILON, amount=Decimal("0.1"))
    assert meaning(Unit.RHO, Decimal(0), Decimal("1e-6")).epsilon == 0
    assert str(meaning(Unit.RHO, Decimal("0.1"), Decimal("1e-6"))).startswith("rho 0.1, that is epsilon 2.")
