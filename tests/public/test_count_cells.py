"""Counts given noisy counts and a private n, against the brute joint over n and all compositions.

About a dozen p-values are asked to exceed 1e-6, at fixed seeds: a right engine fails with probability 2e-5.
"""

from __future__ import annotations

import numpy as np
import pytest
from histograms import chi_square_p, discrete_laplace, log_weight
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from dp_dask.core.dirichlet import dirichlet
from dp_dask.errors import InferenceError
from dp_dask.public.count_cells import draw_counts_private
from dp_dask.public.uniformity import gamma, gamma_p_value, uniformity


def brute_joint(y, alpha, scale, rate, most):
    """P(s_1, s_2 | y) = sum over n of the prior of n, the Dirichlet-multinomial given n, and the noise; by enumeration."""
    joint = np.zeros((most + 1, most + 1))
    noise = np.exp(-np.abs(np.subtract.outer(y, np.arange(most + 1))) / scale)
    total = sum(alpha)
    for n in range(most + 1):
        if rate > 0:
            prior = stats.nbinom.pmf(n, total, rate / (1 + rate))
        else:
            prior = np.exp(special.gammaln(total + n) - special.gammaln(total) - special.gammaln(n + 1))
        s = np.arange(n + 1)
        given_n = stats.betabinom.pmf(s, n, *alpha)
        joint[s, n - s] += prior * given_n * noise[0, s] * noise[1, n - s]
    return joint / joint.sum()


@pytest.mark.parametrize("rate", [0.0, 0.3, 4.0])
@pytest.mark.parametrize(("y", "alpha"), [([3, 1], [1.0, 0.4]), ([-4, 6], [0.05, 3.0]), ([-1, -2], [1.0, 1.0])])
def test_draws_follow_the_brute_joint(y, alpha, rate):
    scale, most = 1.5, 90
    joint = brute_joint(y, alpha, scale, rate, most)
    counts = draw_counts_private(np.random.default_rng(1), np.array(y), np.array(alpha), scale, rate, 200_000)
    seen = np.zeros_like(joint)
    np.add.at(seen, tuple(counts[counts.max(axis=1) <= most].T), 1)
    assert seen.sum() == len(counts)
    assert chi_square_p(seen.ravel(), joint.ravel()) > 1e-6
    wrong = draw_counts_private(np.random.default_rng(1), np.array(y), np.array(alpha), 0.85 * scale, rate, 200_000)
    seen = np.zeros_like(joint)
    np.add.at(seen, tuple(wrong.T), 1)
    if rate < 1 or max(y) > 0:
        assert chi_square_p(seen.ravel(), joint.ravel()) < 1e-6


@pytest.mark.parametrize(
    ("y", "alpha", "scale", "rate"),
    [
        (1000, 1e-3, 60.0, 0.01),
        (700, 1e-6, 40.0, 0.0),
        (5, 5000.0, 30.0, 0.5),
        (-300, 2.0, 100.0, 0.0),
        (10, 0.5, 0.01, 0.0),
        (1000, 1e-40, 10.0, 0.0),
    ],
)
def test_a_law_far_from_its_noisy_count(y, alpha, scale, rate):
    """Modes at 0 and at y, a prior far above y, a flat prior below 0, noise that is hardly there."""
    s = np.arange(40_000)
    logs = log_weight(y, alpha, scale, s) - s * np.log1p(rate)
    law = np.exp(logs - special.logsumexp(logs))
    counts = draw_counts_private(np.random.default_rng(2), np.array([y]), np.array([alpha]), scale, rate, 100_000)[:, 0]
    assert chi_square_p(np.bincount(counts, minlength=len(s)), law) > 1e-6


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    y=st.one_of(st.integers(-(10**15), 10**6), st.integers(-100, 100)),
    log_alpha=st.floats(-6, 5),
    log_scale=st.floats(-4, 2.5),
    rate=st.one_of(st.just(0.0), st.floats(1e-9, 1e9)),
)
def test_any_release_gives_counts(y, log_alpha, log_scale, rate):
    counts = draw_counts_private(np.random.default_rng(3), np.array([y, 3]), np.full(2, 10**log_alpha), 10**log_scale, rate, 20)
    assert counts.shape == (20, 2)
    assert counts.dtype == np.int64
    assert counts.min() >= 0


def test_the_posterior_is_calibrated_and_a_narrower_one_would_fail():
    """p_1 and n of three cells, 800 truths; the prior of n is the negative binomial that the cells imply."""
    rng, ranks_p, ranks_n = np.random.default_rng(4), [], []
    alpha, rate, scale = np.array([1.0, 0.5, 2.0]), 0.2, 1 / 0.5
    for _ in range(800):
        intensity = rng.standard_gamma(alpha) / rate
        s = rng.poisson(intensity)
        y = s + discrete_laplace(rng, scale, 3)
        counts = draw_counts_private(rng, y, alpha, scale, rate, 999)
        p, n = dirichlet(rng, alpha + counts)[:, 0], counts.sum(axis=1)
        ranks_p.append((np.sum(p < intensity[0] / intensity.sum()) + rng.random()) / 1000)
        ranks_n.append((np.sum(n < s.sum()) + rng.random() * (1 + np.sum(n == s.sum()))) / 1000)
    for u in map(np.array, (ranks_p, ranks_n)):
        assert gamma_p_value(gamma(u), len(u)) > 1e-6
        assert not uniformity(special.ndtr(special.ndtri(u) / 0.85)).passes


def test_what_cannot_be_served_is_refused():
    rng, y = np.random.default_rng(5), np.array([1, 2])
    for rate in (-0.1, np.nan, np.inf):
        with pytest.raises(InferenceError, match="rate"):
            draw_counts_private(rng, y, np.ones(2), 1.0, rate, 10)
    with pytest.raises(InferenceError, match="told apart"):
        draw_counts_private(rng, np.array([2**60, 1]), np.ones(2), 1.0, 0.0, 10)
    with pytest.raises(InferenceError, match="fit in memory"):
        draw_counts_private(rng, y, np.ones(2), 1e8, 0.0, 10)
    with pytest.raises(InferenceError, match="noise scale"):
        draw_counts_private(rng, y, np.ones(2), -1.0, 0.0, 10)
