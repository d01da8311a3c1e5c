"""The law of one count: its window, table and moments against the whole law, written out."""

from __future__ import annotations

import numpy as np
import pytest
from histograms import log_weight
from scipy import special

from dp_dask.public import count_law
from dp_dask.public.count_law import CountLaw, moments, tables

CUT = 40.0


def cases(seed, size, largest, smallest_scale):
    """(law of one cell, all counts, their log weights), flat pieces and log-convex laws of two or three modes among them."""
    rng = np.random.default_rng(seed)
    for _ in range(size):
        n = int(10 ** rng.uniform(0, np.log10(largest)))
        y = int(np.clip(rng.integers(-n // 4, 2 * n + 2), 0, n))
        alpha, scale = 10 ** rng.choice([rng.uniform(-2, 4), rng.uniform(-40, 0)]), 10 ** rng.uniform(smallest_scale, 2.5)
        tilt = rng.choice([rng.uniform(-3, 3), -1, 1]) / scale
        s = np.arange(n + 1)
        law = CountLaw(np.array([y]), np.array([n]), np.array([alpha]), scale, tilt)
        yield law, s, log_weight(y, alpha, scale, s) - tilt * s


def test_a_window_holds_every_count_that_reaches_the_cut_and_starts_and_ends_on_one():
    two_modes = 0
    for law, s, logs in cases(1, 1500, 400, -1.5):
        floor = logs.max() - CUT
        (low,), (high,) = law.windows(CUT)
        assert (logs[:low] < floor + 1e-7).all()
        assert (logs[high + 1 :] < floor + 1e-7).all()
        assert min(logs[low], logs[high]) > floor - 1e-7
        two_modes += (logs[low : high + 1] < floor).any()
        weights = np.exp(logs - special.logsumexp(logs))
        ((_, table),) = tables(law, np.array([low]), np.array([high]))
        np.testing.assert_allclose(table, weights[low : high + 1], atol=1e-11)
        (mean,), (variance,) = moments(law, np.array([low]), np.array([high]))
        assert mean + law.centre[0] == pytest.approx(weights @ s, abs=1e-9 * len(s))
        assert variance == pytest.approx(weights @ (s - weights @ s) ** 2, rel=1e-7, abs=1e-9)
    assert two_modes > 20


def test_the_mean_of_a_wide_law_is_within_a_tenth_of_its_standard_deviation(monkeypatch):
    """So that the tilt of a tree is right enough; the law's table itself is never thinned out."""
    monkeypatch.setattr(count_law, "NARROW", 64)
    for law, s, logs in cases(2, 300, 50_000, 1):
        weights = np.exp(logs - special.logsumexp(logs))
        (mean,), _ = moments(law, *law.windows(CUT))
        sd = np.sqrt(weights @ (s - weights @ s) ** 2)
        assert mean + law.centre[0] == pytest.approx(weights @ s, abs=0.1 * sd + 0.01)


@pytest.mark.parametrize("alpha", [1e-200, 1e-3, 0.5, 1.0, 1.5, 30.0, 1e4])
def test_the_prior_part_equals_a_difference_of_log_gammas(alpha):
    s = np.array([0, 1, 2, 5, 9, 10, 30, 1000, 10**6])
    law = CountLaw(np.array([0]), np.array([10**7]), np.array([alpha]), 1e300, 0.0)
    found, wanted = law.log_weight(np.zeros(len(s), dtype=int), s), log_weight(0, alpha, 1e300, s)
    np.testing.assert_allclose(found - found[0], wanted - wanted[0], rtol=1e-12, atol=1e-8)
