"""The birth-death model: exact expectations by its generating function, published reference values, and its own plain Python.

Statistical tests have fixed seeds and false-alarm rates below 1e-5 (5 standard errors, or 4.5 where two are compared).
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import solve_ivp

pytest.importorskip("numba")

from dp_dask.outbreaks import birth_death
from dp_dask.outbreaks.prior import OutbreakPrior
from dp_dask.outbreaks.summaries import SAN_FRANCISCO, distance, summarise
from dp_dask.simulators.tuberculosis import plugin

REFERENCE = np.array([192, 5.88, 6.74, 0.09])
# Means and standard errors of 40 runs of the authors' code, and of 400 of another implementation, at the reference point.
AUTHORS = {0: (490, 8), 1: (326.6, 2.6), 2: (26.8, 1.6)}
OTHER = {0: (493, 2.5), 1: (324.1, 0.9), 2: (26.8, 0.5), 6: (20.3, 0.2), 7: (14.5, 0.2)}
RUNS = 3_000


@pytest.fixture(scope="module")
def watched():
    return birth_death.watch(np.tile(REFERENCE, (RUNS, 1)), np.random.default_rng(20))


@pytest.fixture(scope="module")
def summaries(watched):
    return summarise(watched.counts, watched.cluster, watched.month)


def exact_clusters(theta, sizes=4, burn_in=15.0):
    """Expected numbers of observed cases, and of clusters with 1, 2, .. of them: independent Poisson numbers.

    Clusters are founded at rate beta and never meet, so each is a two-type branching process. G_k(s), the generating function of
    the observed cases that one host of kind k has caused, itself included, s before the end, solves the backward equation
    G_k' = a_k (G_k F - G_k) + d_k (r - G_k) with F = 0.95 G_c + 0.05 G_n and r = 0.2 + 0.8 z in the watch, 1 before it.
    """
    beta, r1, t1, r2 = theta
    d = np.array([5.95, t1 / (r1 - 1)])
    a = np.array([5.95 * r2, t1 + d[1]])
    mix = np.array([0.95, 0.05])
    series = sizes + 1  # powers of z; then the two means; then the integrals of F and of its mean

    def slope(s, y):
        g, mean = y[: 2 * series].reshape(2, series), y[2 * series : 2 * series + 2]
        f = mix @ g
        both = np.array([np.convolve(row, f)[:series] for row in g])
        r = np.zeros(series)
        r[:2] = (0.2, 0.8) if s < 2 else (1, 0)
        seen = 0.8 if s < 2 else 0.0
        change = a[:, None] * (both - g) + d[:, None] * (r - g)
        of_mean = a * (mix @ mean) + d * (seen - mean)
        return np.concatenate([change.reshape(-1), of_mean, [1 - f[0]], f[1:], [mix @ mean]])

    y = np.zeros(2 * series + 2 + series + 1)
    y[0] = y[series] = 1
    for span in ((0, 2), (2, 2 + burn_in)):
        y = solve_ivp(lambda s, y, low=span[0]: slope(max(s, low), y), span, y, rtol=1e-9, atol=1e-11).y[:, -1]
    total = beta * y[2 * series + 2 :]
    return {"clusters": total[0], "of_size": total[1:-1], "cases": total[-1]}


def test_cases_and_cluster_sizes_have_their_exact_expectations(watched, summaries):
    exact = exact_clusters(REFERENCE)
    assert exact["cases"] == pytest.approx(1.6 * 192 / (1 - 0.95 * 0.09 - 0.05 * 5.88), rel=1e-3)
    owner = np.repeat(np.arange(RUNS), watched.counts)
    keys, members = np.unique(owner * 100_000 + watched.cluster, return_counts=True)
    of_size = [np.bincount(keys[members == k] // 100_000, minlength=RUNS) for k in (1, 2, 3, 4)]
    for found, mean in [(summaries[:, 1], exact["clusters"]), *zip(of_size, exact["of_size"], strict=True)]:
        assert abs(found.mean() - mean) < 5 * np.sqrt(mean / RUNS)
        assert abs(found.var() / mean - 1) < 5 * np.sqrt(2 / RUNS) + 1 / (mean * np.sqrt(RUNS)), "not Poisson"
    cases = summaries[:, 0]
    assert abs(cases.mean() - exact["cases"]) < 5 * cases.std() / np.sqrt(RUNS)


def test_the_exact_expectations_would_show_a_wrong_rate(summaries):
    """5 % more of beta or of R1 - 1, 10 % more of R2, or less than half of t1, is further off than five errors."""
    found = [summaries[:, 0], summaries[:, 1], summaries[:, 4] * summaries[:, 0], summaries[:, 5] * summaries[:, 0]]
    for i, changed in enumerate([192 * 1.05, 1 + 4.88 * 1.05, 6.74 * 0.3, 0.09 * 1.1]):
        theta = REFERENCE.copy()
        theta[i] = changed
        exact = exact_clusters(theta)
        means = [exact["cases"], exact["clusters"], *exact["of_size"][:2]]
        assert any(abs(x.mean() - m) > 5 * x.std() / np.sqrt(RUNS) for x, m in zip(found, means, strict=True)), i


@pytest.mark.parametrize("table", [AUTHORS, OTHER])
def test_summaries_agree_with_the_reference_values(summaries, table):
    for k, (mean, error) in table.items():
        mine = summaries[:, k]
        assert abs(mine.mean() - mean) < 4.5 * np.hypot(error, mine.std() / np.sqrt(RUNS)), k


def test_the_watch_begins_when_the_burn_in_is_over(watched):
    assert watched.start.min() == 15
    assert abs(watched.start.mean() - 15.8) < 0.3
    assert set(watched.start[watched.start > 15].tolist()) <= set(range(16, 302, 2))
    assert (watched.month.min(), watched.month.max()) == (0, 23)


def test_distances_of_the_prior_from_san_francisco_are_those_published():
    """Levels of 300,000 draws of another implementation with beta_sd 30; mine have binomial errors."""
    rng = np.random.default_rng(4)
    runs = 4_000
    watched = birth_death.watch(OutbreakPrior(30).rvs(rng, runs), rng)
    found = distance(summarise(watched.counts, watched.cluster, watched.month), SAN_FRANCISCO)
    for at, level in ((101, 0.05), (121, 0.1), (150, 0.207), (205, 0.5), (297, 0.9)):
        assert abs(np.mean(found < at) - level) < 4.5 * np.sqrt(level * (1 - level) / runs) + 0.005, at


def test_compiled_and_plain_python_give_the_same_outbreaks():
    rates = birth_death.rates(np.array([[20, 3, 2, 0.3], [5, 2, 1, 0.0]]))
    plain = birth_death.run(rates, np.random.default_rng(9))
    compiled = birth_death.compiled()(rates, np.random.default_rng(9))
    for a, b in zip(plain, compiled, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("change", [(0, 0.0), (1, 1.0), (1, 20.5), (2, 0.0), (3, 0.9)])
def test_a_theta_without_balance_is_refused(change):
    theta = np.tile(REFERENCE, (2, 1))
    theta[1, change[0]] = change[1]
    with pytest.raises(ValueError, match="never settles"):
        birth_death.watch(theta, np.random.default_rng(0))


def test_an_outbreak_as_a_record_is_its_summaries():
    of_patients, of_outbreaks = plugin(), plugin(record="outbreak")
    theta = np.tile([40, 3, 2, 0.3], (3, 1))
    by_outbreak = of_outbreaks.simulate(theta, 1, np.random.default_rng(6))
    by_patient = of_patients.simulate(theta, None, np.random.default_rng(6))
    assert by_outbreak.counts.tolist() == [1, 1, 1]
    cluster, month = (by_patient.values[name].astype(np.int32) for name in ("cluster", "month"))
    expected = summarise(by_patient.counts, cluster, month)
    np.testing.assert_array_equal(np.stack([by_outbreak.values[name] for name in of_outbreaks.columns], axis=1), expected)
    ragged = of_outbreaks.simulate(theta, np.array([2, 0, 1_500]), np.random.default_rng(6))
    assert ragged.counts.tolist() == [2, 0, 1_500]


def test_where_numba_is_missing_the_simulator_says_what_to_install(monkeypatch):
    monkeypatch.setattr(birth_death, "find_spec", lambda name: None)  # noqa: ARG005
    with pytest.raises(ValueError, match=r"pip install 'dp-dask\[numba\]'"):
        plugin()
