"""Categories under discrete Gaussian noise: draws against enumerated histograms, windows against full tables, calibration."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import pytest
from histograms import chi_square_p, compositions
from scipy import special

from dp_dask.core.categories import CategoryCounts
from dp_dask.core.dirichlet import Dirichlet
from dp_dask.core.plugins import load
from dp_dask.core.privacy import Neighbours
from dp_dask.core.release import Request
from dp_dask.public.calibration import ranks
from dp_dask.public.count_cells import draw_counts_private
from dp_dask.public.count_law import moments, tables
from dp_dask.public.count_law_gaussian import make_law
from dp_dask.public.count_tree import draw_counts, expected_counts
from dp_dask.public.infer import infer
from dp_dask.public.noise_law import Gaussian
from dp_dask.public.observe import planned
from dp_dask.public.simulation import simulate
from dp_dask.public.uniformity import gamma, gamma_p_value, uniformity

CUT = 46.0
ALPHA = 1e-6  # of each chi-square test, 16 in all


def log_weight(y, alpha, scale, counts, tilt=0.0):
    s = np.asarray(counts, dtype=float)
    rising = special.gammaln(alpha + s) - special.gammaln(alpha) - special.gammaln(s + 1)
    return rising - ((y - s) / scale) ** 2 / 2 - tilt * s


@pytest.mark.parametrize("alpha", [1e-3, 0.3, 0.97, 1.0, 1.01, 4.0, 900.0])
@pytest.mark.parametrize("y", [-500, -3, 0, 7, 2500, 9000])
@pytest.mark.parametrize("scale", [0.4, 3.0, 200.0])
@pytest.mark.parametrize("tilt", [-0.3, 0.0, 0.02, 4.0])
def test_a_window_holds_all_of_a_law_and_no_more(alpha, y, scale, tilt):
    highest = 3000
    law = make_law(np.array([y]), np.array([highest]), np.array([alpha]), scale, tilt, Gaussian)
    (low,), (high,) = law.windows(CUT)
    logs = log_weight(y, alpha, scale, np.arange(highest + 1), tilt)
    held = np.flatnonzero(logs >= logs.max() - CUT + 1e-6)
    assert low <= held[0]
    assert held[-1] <= high
    assert logs[low] >= logs.max() - CUT - 1e-5
    assert logs[high] >= logs.max() - CUT - 1e-5
    [(_, weights)] = tables(law, np.array([low]), np.array([high]))
    wanted = np.exp(logs[low : high + 1] - special.logsumexp(logs))
    np.testing.assert_allclose(weights, wanted, rtol=1e-8, atol=1e-13)
    (mean,), (variance,) = moments(law, np.array([low]), np.array([high]))
    s = np.arange(low, high + 1)
    exact = wanted @ s
    assert mean + law.centre[0] == pytest.approx(exact, abs=0.02 * math.sqrt(wanted @ (s - exact) ** 2) + 0.01)
    assert variance == pytest.approx(wanted @ (s - exact) ** 2, rel=0.05, abs=1e-9)


SETTINGS = [
    ([3, 1, 2], [1.0, 1.0, 1.0], 2.0, 6),
    ([-2, 9, 4], [0.2, 1.0, 5.0], 0.8, 6),
    ([40, 0, -10, 3], [0.5, 0.5, 2.0, 1.0], 6.0, 5),  # far from adding up to n
]


@pytest.mark.parametrize(("y", "alpha", "scale", "n"), SETTINGS)
def test_tree_draws_histograms_by_their_exact_probabilities(y, alpha, scale, n):
    every = compositions(len(y), n)
    logs = sum(log_weight(y[k], alpha[k], scale, every[:, k]) for k in range(len(y)))
    exact = np.exp(logs - special.logsumexp(logs))
    rng = np.random.default_rng(1)
    facts = np.array(y), np.array(alpha)

    def p_value(scale):
        draws = draw_counts(rng, *facts, scale, n, 40_000, Gaussian)
        place = {tuple(row): i for i, row in enumerate(every)}
        return chi_square_p(np.bincount([place[tuple(row)] for row in draws], minlength=len(every)), exact)

    assert p_value(scale) > ALPHA
    assert p_value(0.7 * scale) < ALPHA
    assert p_value(1.3 * scale) < ALPHA
    mean, variance = expected_counts(*facts, scale, n, Gaussian)
    np.testing.assert_allclose(mean, exact @ every, atol=1e-9)
    np.testing.assert_allclose(variance, exact @ every**2 - (exact @ every) ** 2, atol=1e-8)


@pytest.mark.parametrize("rate", [0.0, 0.2])
def test_factorised_draws_each_count_by_its_exact_probabilities(rate):
    y, alpha, scale = np.array([-4, 0, 3, 15]), np.array([0.3, 1.0, 2.0, 7.0]), 2.5
    rng = np.random.default_rng(2)
    s = np.arange(200)
    for k in range(4):
        logs = log_weight(y[k], alpha[k], scale, s, math.log1p(rate))
        exact = np.exp(logs - special.logsumexp(logs))
        for factor, is_right in ((1.0, True), (0.7, False), (1.3, False)):
            draws = draw_counts_private(rng, y, alpha, factor * scale, rate, 40_000, Gaussian)[:, k]
            assert (chi_square_p(np.bincount(draws, minlength=200), exact) > ALPHA) is is_right


def colours(n, rho, expected_n=None, categories=("blue", "green", "red")):
    statistic = CategoryCounts(column="x", categories=categories)
    neighbours = Neighbours.ADD_REMOVE if n is None else Neighbours.REPLACE
    request = Request(dataset="d", statistic=statistic, neighbours=neighbours, n=n, rho=Decimal(rho))
    return planned(request, load("dp_dask.models", "categorical")(categories), expected_n)


@pytest.mark.parametrize("like", [colours(20, "0.2"), colours(None, "0.2", 20.0)], ids=["public n", "private n"])
def test_auto_is_calibrated(like):
    """Two of three probabilities, 600 ranks each; a calibrated engine fails with probability 1e-6 each."""
    assert like.law is Gaussian
    u = ranks(np.random.SeedSequence(5), like, Dirichlet((1.0, 1.0, 1.0)), 600, "auto")
    for j in range(2):
        assert gamma_p_value(gamma(u[:, j]), 600) > 1e-6
    narrow = special.ndtr(special.ndtri(np.clip(u[:, :2], 1e-9, 1 - 1e-9)) / 0.85)
    assert not all(uniformity(narrow[:, j]).passes for j in range(2))


def test_ten_thousand_categories_are_inferred():
    like = colours(100_000, "0.1", categories=tuple(range(10_000)))
    pseudo = simulate(np.random.default_rng(2), like, np.full(10_000, 1e-4))
    made = infer(np.random.default_rng(3), pseudo.observation, Dirichlet((1.0,) * 10_000), 100)
    assert made.engine == "tree"
    np.testing.assert_allclose(made.draws.sum(axis=2), 1)


def test_wide_laws_are_tilted_to_a_public_n():
    """Counts of a million records under noise of a thousand, some cells contradicting the total."""
    rng = np.random.default_rng(4)
    y = np.array([400_000, 250_000, 300_000, -3_000, 60_000])
    draws = draw_counts(rng, y, np.ones(5), 1000.0, 1_000_000, 2000, Gaussian)
    assert (draws.sum(axis=1) == 1_000_000).all()
    # A normal law given its total: each cell moves by its share of what is missing, and none below 0.
    free = [0, 1, 2, 4]
    shift = (1_000_000 - y[free].sum()) / 4
    np.testing.assert_allclose(
        draws[:, free].mean(axis=0), y[free] + shift - draws[:, 3].mean() / 4, atol=6 * 1000 / math.sqrt(2000)
    )
    assert draws[:, 3].mean() < 1500
