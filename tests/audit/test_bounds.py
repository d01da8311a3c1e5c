"""Bounds and exact sums of the audit, beside quadrature, binomial probabilities and sums that share no code with them."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from gate.selection_laws import Below, TwoSided, log_probability
from scipy import stats

from dp_dask.audit.attack import Attack, Pair, claim_of, lower_bound
from dp_dask.audit.bounds import epsilon_bound, interval, rho_bound
from dp_dask.audit.exact import Law, largest_ratio


@pytest.mark.parametrize(("p", "q"), [(0.5, 0.1), (0.02, 0.01), (0.9, 0.05)])
@pytest.mark.parametrize("alpha", [0.2, 0.01])
def test_an_interval_is_wrong_no_more_often_than_it_says(p, q, alpha):
    """Summed over every pair of counts, nothing sampled."""
    n = 400
    low, high = (np.array([interval(k, k, n, alpha)[side] for k in range(n + 1)]) for side in (0, 1))
    k = np.arange(n + 1)
    wrong = stats.binom.pmf(k, n, p)[low > p].sum() + stats.binom.pmf(k, n, q)[high < q].sum()
    assert wrong <= alpha
    assert wrong > alpha / 100  # and is no idle promise


def test_a_bound_of_epsilon_is_the_log_ratio_of_the_interval_less_delta():
    low, high = interval(700, 100, 1000, 1e-3)
    assert epsilon_bound()(700, 100, 1000, 1e-3) == math.log(low / high)
    assert epsilon_bound(0.1)(700, 100, 1000, 1e-3) == math.log((low - 0.1) / high)
    assert epsilon_bound(0.7)(700, 100, 1000, 1e-3) == -math.inf
    assert epsilon_bound()(0, 5, 1000, 1e-3) == -math.inf
    assert epsilon_bound()(1000, 0, 1000, 1e-3) < math.log(1000)


@pytest.mark.parametrize("mu", [0.3, 1.0, 2.0])
def test_a_bound_of_rho_never_exceeds_that_of_a_gaussian_and_comes_near(mu):
    """Exact counts of half-lines between N(0, 1) and N(mu, 1), of rho = mu^2 / 2: a bound of the law's own probabilities."""
    n = 10**9
    found = [rho_bound(round(n * stats.norm.sf(t - mu)), round(n * stats.norm.sf(t)), n, 1e-4) for t in np.linspace(-4, 6, 81)]
    assert 0.6 < max(found) / (mu**2 / 2) < 1
    assert max(found) / (0.7 * mu**2 / 2) > 0.9
    assert rho_bound(10, 10, 1000, 1e-4) == 0


def test_a_bound_of_rho_is_the_largest_divergence_over_its_order():
    p, q = interval(700, 100, 1000, 1e-3)
    orders = np.linspace(1.0001, 100, 200_000)
    divergences = np.log(p**orders * q ** (1 - orders) + (1 - p) ** orders * (1 - q) ** (1 - orders)) / (orders - 1)
    assert rho_bound(700, 100, 1000, 1e-3) == pytest.approx((divergences / orders).max(), rel=1e-3)


@pytest.mark.parametrize("is_one_sided", [False, True])
@pytest.mark.parametrize("c", [1, 3])
def test_exact_ratios_are_those_of_other_sums(c, is_one_sided):
    law, scale, query_scale, d = (Below if is_one_sided else TwoSided), 7.0, 11.0, 3
    threshold, query = law(scale), law(query_scale)
    largest = -math.inf
    for times, r, a, move in itertools.product((1, 20, 1000), (-5, -2, 0, 2), (-3, 0, 3), (d, -d)):
        rejected, accepted = round(r * query_scale), round(a * query_scale)
        p = log_probability(threshold, query, [rejected], [accepted] * c, times)
        q = log_probability(threshold, query, [rejected - move], [accepted + move] * c, times)
        if p > -600:
            largest = max(largest, p - q)
    ours = [Law(each, is_one_sided) for each in (scale, query_scale)]
    assert largest_ratio(*ours, d, c, 2) == pytest.approx(2 * largest, rel=1e-9)
    assert largest == pytest.approx(d / scale + 2 * c * d / query_scale, rel=1e-2)


def attack(p, q, claimed):
    """Of an event that happens with probability p on the one side and q on the other."""
    rng = np.random.default_rng(1)
    pair = Pair(lambda is_second, n: rng.random(n) < (q if is_second else p), {"it": lambda x: x, "not": np.logical_not})
    return Attack("an event", claimed, "epsilon", epsilon_bound(), (pair,))


def test_an_attack_finds_the_better_event_and_its_direction():
    found, told = lower_bound(attack(0.1, 0.4, 1.0), 100_000, 1e-6)
    assert told.startswith("it: ")
    assert math.log(4) - 0.1 < found < math.log(4)
    assert lower_bound(attack(0.9, 0.6, 1.0), 100_000, 1e-6)[1].startswith("not: ")
    assert claim_of(attack(0.1, 0.4, 1.39), 100_000, 1e-6).held
    assert not claim_of(attack(0.1, 0.4, 1.2), 100_000, 1e-6).held


def test_a_mechanism_that_fails_holds_no_claim():
    def fail(_is_second, _n):
        msg = "broken"
        raise ValueError(msg)

    pair = Pair(fail, {"it": lambda x: x})
    claim = claim_of(Attack("a failure", 1.0, "epsilon", epsilon_bound(), (pair,)), 1000, 1e-6)
    assert (claim.held, claim.found, claim.told) == (False, None, "failed with ValueError: broken")
