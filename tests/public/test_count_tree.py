"""Counts given noisy counts and a public n, against enumeration, closed forms and exact dynamic programming.

About forty p-values are asked to exceed 1e-6, at fixed seeds: a right engine fails with probability 4e-5.
"""

from __future__ import annotations

import numpy as np
import pytest
from histograms import chi_square_p, discrete_laplace, marginals, posterior_of_compositions
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from dp_dask.core.dirichlet import dirichlet
from dp_dask.errors import InferenceError
from dp_dask.public import count_law, count_sums
from dp_dask.public.count_tree import draw_counts, expected_counts
from dp_dask.public.uniformity import gamma, gamma_p_value, uniformity

RELEASES = {
    "near": ([2, 1, 1], [1.0, 1.0, 1.0]),
    "uneven prior": ([1, 3, 0], [0.2, 5.0, 1.0]),
    "negative": ([-3, 5, 0], [1.0, 0.5, 2.0]),
    "three times n": ([4, 4, 4], [1.0, 2.0, 0.7]),
    "tiny alpha": ([2, 2, 1], [1e-3, 1e-3, 1e-3]),
}
releases = pytest.mark.parametrize(("y", "alpha"), RELEASES.values(), ids=RELEASES)


def p_of_draws(counts, every, probability):
    n = every.sum(axis=1)[0]
    base = (n + 1) ** np.arange(every.shape[1])
    seen = np.bincount(counts @ base, minlength=int(n * base.max()) + 1)
    assert seen.sum() == seen[every @ base].sum()
    return chi_square_p(seen[every @ base], probability)


@releases
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_draws_follow_the_enumerated_posterior(y, alpha, epsilon):
    y, alpha, scale, n = np.array(y), np.array(alpha), 2 / epsilon, 4
    counts = draw_counts(np.random.default_rng(1), y, alpha, scale, n, 200_000)
    every, probability = posterior_of_compositions(y, alpha, scale, n)
    assert p_of_draws(counts, every, probability) > 1e-6


def test_the_chi_square_sees_a_noise_scale_15_percent_too_small():
    y, alpha = np.array([-3, 5, 0]), np.array([1.0, 0.5, 2.0])
    counts = draw_counts(np.random.default_rng(1), y, alpha, 0.85 * 2, 4, 200_000)
    assert p_of_draws(counts, *posterior_of_compositions(y, alpha, 2.0, 4)) < 1e-6


@releases
def test_rejection_and_blocks_of_rows_draw_from_the_same_law(monkeypatch, y, alpha):
    """The route for wide tables, forced on narrow ones: proposals first, the rest inverted one row at a time."""
    monkeypatch.setattr(count_sums, "PER_PROPOSAL", 0)
    monkeypatch.setattr(count_sums, "CHUNK", 2)
    monkeypatch.setattr(count_sums, "ROUNDS", 2)
    y, alpha = np.array([*y, 2]), np.array([*alpha, 1.0])
    counts = draw_counts(np.random.default_rng(2), y, alpha, 2.0, 4, 100_000)
    assert p_of_draws(counts, *posterior_of_compositions(y, alpha, 2.0, 4)) > 1e-6


def test_two_cells_are_the_closed_mixture_of_betas():
    """w_s ~ C(n, s) B(a + s, b + n - s) times the noise of both cells; p_1 ~ sum of w_s Beta(a + s, b + n - s)."""
    n, y, alpha, scale = 40, np.array([13, 31]), np.array([0.7, 2.0]), 4.0
    s = np.arange(n + 1)
    logs = np.log(special.comb(n, s)) + special.betaln(0.7 + s, 2 + n - s) - (np.abs(13 - s) + np.abs(31 - n + s)) / scale
    w = np.exp(logs - special.logsumexp(logs))
    mean, variance = expected_counts(y, alpha, scale, n)
    np.testing.assert_allclose(mean, [w @ s, n - w @ s], rtol=1e-11)
    np.testing.assert_allclose(variance, w @ (s - w @ s) ** 2, rtol=1e-9)
    rng = np.random.default_rng(3)
    p = dirichlet(rng, alpha + draw_counts(rng, y, alpha, scale, n, 20_000))[:, 0]

    def cdf(x):
        return special.betainc(0.7 + s[:, None], 2 + n - s[:, None], x).T @ w

    assert stats.kstest(p, cdf).pvalue > 1e-6
    narrow = p.mean() + 0.85 * (p - p.mean())
    assert stats.kstest(narrow, cdf).pvalue < 1e-6


FAR = {
    "near": ([22, -3, 9, 14, 1, 19], [1.0] * 6),
    "three times n": ([60, 10, 40, 30, 25, 15], [1.0, 0.3, 2.0, 1.0, 9.0, 0.05]),
    "a third of n": ([3, 5, 9, -4, 0, 7], [1.0, 0.3, 2.0, 1.0, 9.0, 0.05]),
    "above n": ([900, 800, -700, 5, 5, 5], [1.0, 4.0, 2.0, 1.0, 0.5, 1.0]),
    "strong prior": ([10, 10, 10, 10, 10, 10], [1e4, 2e4, 1e4, 1e3, 1e4, 1e4]),
    "sparse prior": ([30, 30, 0, 1, -1, 2], [1e-3] * 6),
}


@pytest.mark.parametrize(("y", "alpha"), FAR.values(), ids=FAR)
@pytest.mark.parametrize("scale", [0.05, 2.0, 200.0])
def test_marginals_of_a_deeper_tree_are_those_of_dynamic_programming(y, alpha, scale):
    y, alpha, n = np.array(y), np.array(alpha), 60
    wanted, s = marginals(y, alpha, scale, n), np.arange(n + 1)
    mean, variance = expected_counts(y, alpha, scale, n)
    np.testing.assert_allclose(mean, wanted @ s, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(variance, wanted @ s**2 - (wanted @ s) ** 2, rtol=1e-7, atol=1e-7)
    counts = draw_counts(np.random.default_rng(4), y, alpha, scale, n, 20_000)
    assert (counts.sum(axis=1) == n).all()
    p = [chi_square_p(np.bincount(counts[:, k], minlength=n + 1), wanted[k]) for k in range(len(y))]
    assert min(p) > 2e-7


def test_many_cells_by_fourier_convolution_and_directly(monkeypatch):
    """500 cells: the exact moments of both routes agree, and 2,000 draws have them (sum of z^2 / K within 6 of its sd of 1)."""
    rng, cells, n = np.random.default_rng(5), 500, 6000
    alpha = rng.choice([0.01, 1.0, 30.0], cells)
    y = rng.multinomial(n, rng.dirichlet(alpha)) + discrete_laplace(rng, 4.0, cells)
    mean, variance = expected_counts(y, alpha, 4.0, n)
    assert mean.sum() == pytest.approx(n, rel=1e-12)
    counts = draw_counts(rng, y, alpha, 4.0, n, 2000)
    clear = variance > 0.05
    z = (counts.mean(axis=0) - mean)[clear] / np.sqrt(variance[clear] / 2000)
    assert np.mean(z**2) == pytest.approx(1, abs=6 * np.sqrt(2 / clear.sum()))
    assert np.median(counts.var(axis=0)[clear] / variance[clear]) == pytest.approx(1, abs=0.03)
    monkeypatch.setattr(count_sums, "DIRECT", 1)
    other_mean, other_variance = expected_counts(y, alpha, 4.0, n)
    np.testing.assert_allclose(other_mean, mean, atol=1e-8)
    np.testing.assert_allclose(other_variance, variance, atol=1e-7)


def test_a_wide_law_is_summed_coarsely_only_to_choose_the_tilt(monkeypatch):
    y, alpha, n = np.array([400, 1200, -90]), np.array([0.4, 3.0, 50.0]), 2000
    exact = expected_counts(y, alpha, 150.0, n)
    monkeypatch.setattr(count_law, "NARROW", 16)
    np.testing.assert_allclose(expected_counts(y, alpha, 150.0, n), exact, rtol=1e-8)
    wanted, s = marginals(y, alpha, 150.0, n), np.arange(n + 1)
    np.testing.assert_allclose(exact[0], wanted @ s, rtol=1e-8)


def test_a_billion_records_are_as_cheap_as_a_thousand():
    rng = np.random.default_rng(6)
    y = np.array([300_000_000, 500_000_001, 199_999_990])
    counts = draw_counts(rng, y, np.ones(3), 2.0, 10**9, 4000)
    assert (counts.sum(axis=1) == 10**9).all()
    assert np.abs(counts - y).max() < 100
    mean, variance = expected_counts(y, np.ones(3), 2.0, 10**9)
    z = (counts.mean(axis=0) - mean) / np.sqrt(variance / 4000)
    assert np.abs(z).max() < 5.5


@settings(max_examples=150, deadline=None, derandomize=True)
@given(data=st.data())
def test_any_release_gives_counts_that_add_up_to_n(data):
    cells = data.draw(st.integers(1, 9))
    n = data.draw(st.one_of(st.integers(0, 50), st.integers(0, 5000)))
    far = data.draw(st.sampled_from([10, 1000, 10**15]))
    y = np.array(data.draw(st.lists(st.integers(-far, far), min_size=cells, max_size=cells)))
    log_alpha = data.draw(st.lists(st.floats(-4, 6), min_size=cells, max_size=cells))
    scale = 10 ** data.draw(st.floats(-4, 4))
    rng = np.random.default_rng(7)
    counts = draw_counts(rng, y, 10 ** np.array(log_alpha), scale, n, 20)
    assert counts.shape == (20, cells)
    assert counts.dtype == np.int64
    assert (counts.sum(axis=1) == n).all()
    assert counts.min() >= 0
    p = dirichlet(rng, 10 ** np.array(log_alpha) + counts)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    mean, variance = expected_counts(y, 10 ** np.array(log_alpha), scale, n)
    assert mean.sum() == pytest.approx(n, rel=1e-7)
    assert (variance >= 0).all()


def test_the_posterior_is_calibrated_and_a_narrower_one_would_fail():
    """p_1 of four cells, 400 truths at each of two sizes and epsilons; gamma's exact p-value."""
    rng, u = np.random.default_rng(8), []
    alpha = np.array([1.0, 0.5, 1.0, 2.0])
    for n, epsilon in ((4, 1.0), (50, 0.3)):
        scale = 2 / epsilon
        for _ in range(400):
            p = rng.dirichlet(alpha)
            y = rng.multinomial(n, p) + discrete_laplace(rng, scale, 4)
            draws = dirichlet(rng, alpha + draw_counts(rng, y, alpha, scale, n, 999))[:, 0]
            u.append((np.sum(draws < p[0]) + rng.random()) / 1000)
    u = np.array(u)
    assert gamma_p_value(gamma(u), len(u)) > 1e-6
    assert not uniformity(special.ndtr(special.ndtri(u) / 0.85)).passes


def test_what_cannot_be_served_is_refused():
    rng, ones = np.random.default_rng(9), np.ones(3)
    y = np.array([1, 2, 3])
    with pytest.raises(InferenceError, match="fit in memory"):
        draw_counts(rng, np.zeros(1000, dtype=np.int64), np.ones(1000), 2.0, 10**9, 10)
    with pytest.raises(InferenceError, match="contradicts the prior"):
        draw_counts(rng, np.array([29, 10, 137, 29]), np.array([1e-69, 1e-66, 1e-51, 1e-25]), 0.0174, 42, 10)
    with pytest.raises(InferenceError, match="number of records"):
        draw_counts(rng, y, ones, 2.0, -1, 10)
    for scale in (0.0, np.inf, np.nan):
        with pytest.raises(InferenceError, match="noise scale"):
            draw_counts(rng, y, ones, scale, 6, 10)
    for alpha in ([1, 0, 1], [1, np.nan, 1], [1, np.inf, 1]):
        with pytest.raises(InferenceError, match="alpha"):
            draw_counts(rng, y, np.array(alpha, dtype=float), 2.0, 6, 10)
    with pytest.raises(InferenceError, match="one alpha"):
        expected_counts(y, np.ones(2), 2.0, 6)
    with pytest.raises(InferenceError, match="signed integer"):
        expected_counts(y.astype(float), ones, 2.0, 6)
