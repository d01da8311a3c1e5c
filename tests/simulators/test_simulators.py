"""Simulators against closed forms and exact laws; fixed seeds, each statistical test's false-alarm rate below 1e-5."""

from __future__ import annotations

import dataclasses
import pickle
from collections import Counter
from itertools import product

import numpy as np
import pytest
from scipy import stats

from dp_dask.core import plugins
from dp_dask.core.simulated import Simulated

SIMULATORS = "dp_dask.simulators"
FALSE_ALARM = 1e-5
TB = np.array([192, 5.88, 6.74, 0.09])
CASES = {  # simulator, its options, two thetas, n
    "uniform_mixture": ({"components": 3}, [[0.2, 0.5, 0.3], [1, 0, 0]], 40),
    "cubic_trend": ({}, [[1, 2, 3, 4], [0, -1, 0.5, 0.1]], 18),
    "g_and_k": ({}, [[3, 1, 2, 0.5], [0, 2, -1, 0.1]], 40),
    "sir": ({"population": 200, "infected": 3, "weeks": 6, "reported": 0.5}, [[2, 5], [0.5, 3]], None),
    "tuberculosis": ({}, [TB, [200, 3, 2, 0.3]], None),
}


def made(name):
    if name == "tuberculosis":
        pytest.importorskip("numba")
    options, theta, n = CASES[name]
    return plugins.load(SIMULATORS, name)(**options), np.array(theta, dtype=float), n


def test_every_simulator_has_a_case():
    assert plugins.names(SIMULATORS) == sorted(CASES)


@pytest.mark.parametrize("name", CASES)
def test_a_batch_has_the_declared_form_and_depends_on_the_seed_alone(name):
    simulator, theta, n = made(name)
    simulator = pickle.loads(pickle.dumps(simulator))  # noqa: S301
    batch = theta[[0, 1, 0]]
    first = simulator.simulate(batch, n, np.random.default_rng(7))
    again = simulator.simulate(batch, n, np.random.default_rng(7))
    assert dataclasses.is_dataclass(simulator)
    assert len(simulator.domains) == len(simulator.parameters) == theta.shape[1]
    assert isinstance(first, Simulated)
    assert first.size == 3
    assert tuple(first.values) == simulator.columns
    assert np.all(np.diff(first.dataset) >= 0)
    np.testing.assert_array_equal(first.dataset, again.dataset)
    for column in simulator.columns:
        assert first.values[column].dtype == np.float64
        assert first.values[column].shape == first.dataset.shape
        np.testing.assert_array_equal(first.values[column], again.values[column])
    assert simulator.decides_n == (n is None)
    if n is not None:
        assert first.counts.tolist() == [n] * 3
    if name != "cubic_trend":
        other = simulator.simulate(batch, n, np.random.default_rng(8))
        assert not np.array_equal(first.values[simulator.columns[0]], other.values[simulator.columns[0]])
    empty = simulator.simulate(theta[:0], n, np.random.default_rng(1))
    assert (empty.size, len(empty.dataset)) == (0, 0)


def moments_of_sets(simulated):
    """For each data set its number of records and the mean and sd of each column."""
    rows = []
    for i in range(simulated.size):
        columns = [each[simulated.dataset == i] for each in simulated.values.values()]
        rows.append([len(columns[0]), *(f(each) if len(each) else 0.0 for each in columns for f in (np.mean, np.std))])
    return np.array(rows)


@pytest.mark.parametrize("name", ["uniform_mixture", "g_and_k", "sir", "tuberculosis"])
def test_many_at_once_have_the_law_of_one_at_a_time(name):
    simulator, theta, n = made(name)
    rng = np.random.default_rng(11)
    times = 250
    together = moments_of_sets(simulator.simulate(np.tile(theta, (times, 1)), n, rng))
    for i in (0, 1):
        alone = np.concatenate([moments_of_sets(simulator.simulate(theta[i : i + 1], n, rng)) for _ in range(times)])
        for a, b in zip(together[i::2].T, alone.T, strict=True):
            assert stats.ks_2samp(a, b).pvalue > FALSE_ALARM
    assert any(stats.ks_2samp(a, b).pvalue < FALSE_ALARM for a, b in zip(together[::2].T, together[1::2].T, strict=True)), (
        "blind to theta"
    )


@pytest.mark.parametrize("name", CASES)
def test_a_theta_outside_the_domains_and_a_wrong_n_are_refused(name):
    simulator, theta, n = made(name)
    rng = np.random.default_rng(1)
    bad = theta.copy()
    bad[1, 0] = np.nan
    with pytest.raises(ValueError, match=r"is nan; it must be a \w+ number"):
        simulator.simulate(bad, n, rng)
    with pytest.raises(ValueError, match="theta has shape"):
        simulator.simulate(theta[:, 1:], n, rng)
    if n is None:
        with pytest.raises(ValueError, match="leave n out"):
            simulator.simulate(theta, 10, rng)
    else:
        with pytest.raises(ValueError, match="needs n"):
            simulator.simulate(theta, None, rng)
        with pytest.raises(ValueError, match="n is -1"):
            simulator.simulate(theta, -1, rng)
        assert simulator.simulate(theta, np.array([3, 0]), rng).counts.tolist() == [3, 0]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("uniform_mixture", {"components": 1}, "components is 1"),
        ("g_and_k", {"c": 0.9}, "c is 0.9"),
        ("sir", {"population": 10, "infected": 11, "weeks": 1}, "infected is 11"),
        ("sir", {"population": 10, "infected": 1, "weeks": 0}, "weeks is 0"),
        ("sir", {"population": 10, "infected": 1, "weeks": 1, "reported": 0}, "reported is 0"),
        ("tuberculosis", {"record": "cluster"}, "record is 'cluster'"),
    ],
)
def test_impossible_options_are_refused(name, options, message):
    with pytest.raises(ValueError, match=message):
        plugins.load(SIMULATORS, name)(**options)


def test_a_mixture_has_multinomial_counts_and_uniform_places():
    simulator = plugins.load(SIMULATORS, "uniform_mixture")()
    p = np.array([0.25, 0.04, 0.33, 0.04, 0.34])
    n, times = 500, 2_000
    x = simulator.simulate(np.tile(p, (times, 1)), n, np.random.default_rng(3)).dense("x")
    of_component = np.stack([np.sum((x >= i) & (x < i + 1), axis=1) for i in range(5)], axis=1)
    assert np.all(of_component.sum(axis=1) == n)
    z = (of_component.mean(axis=0) - n * p) / np.sqrt(n * p * (1 - p) / times)
    assert np.all(np.abs(z) < 5)
    ratio = of_component.var(axis=0) / (n * p * (1 - p))  # sd of a variance's ratio is sqrt(2 / times) = 3 %
    assert np.all(np.abs(ratio - 1) < 0.16)
    assert stats.kstest((x % 1).reshape(-1)[::10], "uniform").pvalue > FALSE_ALARM


def test_probabilities_must_add_up_to_one():
    simulator = plugins.load(SIMULATORS, "uniform_mixture")(components=2)
    with pytest.raises(ValueError, match=r"add up to 1\.1"):
        simulator.simulate(np.array([[0.5, 0.5], [0.5, 0.6]]), 3, np.random.default_rng(0))


def test_a_cubic_trend_is_its_polynomial_of_the_day():
    theta = np.array([[1.0, 2, 3, 4], [-1, 0.5, 0, -2]])
    found = plugins.load(SIMULATORS, "cubic_trend")().simulate(theta, 20, np.random.default_rng(0))
    np.testing.assert_array_equal(found.dense("day"), np.tile(np.arange(20.0), (2, 1)))
    for row, a in zip(found.dense("y"), theta, strict=True):
        np.testing.assert_allclose(row, np.polynomial.polynomial.polyval(np.arange(20), a), rtol=1e-13)


@pytest.mark.parametrize("theta", [(3, 1, 2, 0.5), (0, 2, -1, 0.1), (1, 1, 0, 1e-12)])
def test_g_and_k_has_the_quantiles_of_its_definition(theta):
    a, b, g, k = theta
    level = np.array([0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99])
    z = stats.norm.ppf(level)
    quantile = a + b * (1 + 0.8 * (1 - np.exp(-g * z)) / (1 + np.exp(-g * z))) * (1 + z**2) ** k * z
    n = 200_000
    simulator = plugins.load(SIMULATORS, "g_and_k")()
    x = simulator.simulate(np.array([theta], dtype=float), n, np.random.default_rng(5)).values["x"]
    share = np.mean(x[:, None] < quantile, axis=0)
    assert np.all(np.abs(share - level) < 5 * np.sqrt(level * (1 - level) / n))


def sir_law(population, infected, weeks, reported, r0, days):
    """The exact law of the weekly reported counts, by the chain's own transition probabilities."""
    state = {(population - infected, infected, (0,) * weeks): 1.0}
    for day in range(7 * weeks):
        new_state = Counter()
        for (s, i, counts), mass in state.items():
            new_law = stats.binom(s, 1 - np.exp(-r0 * i / (days * population))).pmf(np.arange(s + 1))
            gone_law = stats.binom(i, 1 - np.exp(-1 / days)).pmf(np.arange(i + 1))
            for new, gone in product(range(s + 1), range(i + 1)):
                week = day // 7
                after = (*counts[:week], counts[week] + new, *counts[week + 1 :])
                new_state[s - new, i + new - gone, after] += mass * new_law[new] * gone_law[gone]
        state = new_state
    law = Counter()
    for (_, _, counts), mass in state.items():
        for seen in product(*(range(c + 1) for c in counts)):
            law[seen] += mass * np.prod([stats.binom.pmf(k, c, reported) for k, c in zip(seen, counts, strict=True)])
    return law


def test_an_epidemic_has_the_exact_law_of_the_chain_binomial():
    options = {"population": 4, "infected": 1, "weeks": 2, "reported": 0.7}
    law = sir_law(**options, r0=2.5, days=4.0)
    assert sum(law.values()) == pytest.approx(1)
    times = 20_000
    simulator = plugins.load(SIMULATORS, "sir")(**options)

    def p_value(r0):
        found = simulator.simulate(np.tile([r0, 4.0], (times, 1)), None, np.random.default_rng(2))
        seen = np.zeros((times, 2), dtype=int)
        np.add.at(seen, (found.dataset, found.values["week"].astype(int)), 1)
        tally = Counter(map(tuple, seen.tolist()))
        observed = np.array([tally[key] for key in law])
        expected = np.array([times * mass for mass in law.values()])
        rare = expected < 5
        if rare.any():
            observed = np.append(observed[~rare], observed[rare].sum())
            expected = np.append(expected[~rare], expected[rare].sum())
        return stats.chisquare(observed, expected).pvalue

    assert p_value(2.5) > FALSE_ALARM
    assert p_value(2.2) < FALSE_ALARM, "blind to R0"


def test_simulated_data_sets_of_unequal_size_are_not_dense():
    ragged = Simulated(np.array([2, 0, 1]), {"x": np.array([1.0, 2.0, 3.0])})
    assert ragged.dataset.tolist() == [0, 0, 2]
    assert ragged.counts.tolist() == [2, 0, 1]
    with pytest.raises(ValueError, match="between 0 and 2 records"):
        ragged.dense("x")
    assert ragged.where(np.array([False, True, True])).values["x"].tolist() == [3.0]
    other = Simulated.of_dense({"x": np.array([[7.0]])})
    joined = Simulated.assemble(4, ("x",), [(np.array([0, 1, 3]), ragged), (np.array([2]), other)])
    assert joined.dataset.tolist() == [0, 0, 2, 3]
    assert joined.values["x"].tolist() == [1, 2, 7, 3]
