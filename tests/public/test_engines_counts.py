"""Categories: the engines as a pipeline uses them; the laws behind them are held to brute force beside their own files."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest
from cases import BY_NAME, observation
from scipy import special

from dp_dask.core.categories import CategoryCounts
from dp_dask.core.dirichlet import Dirichlet
from dp_dask.core.plugins import load
from dp_dask.core.privacy import Neighbours
from dp_dask.core.release import Request
from dp_dask.errors import InferenceError
from dp_dask.public.calibration import ranks
from dp_dask.public.infer import infer
from dp_dask.public.observe import planned
from dp_dask.public.simulation import expected_widths, simulate
from dp_dask.public.uniformity import gamma, gamma_p_value, uniformity

COLOURS = ("blue", "green", "red")


def colours(n=None, epsilon="1", expected_n=None, categories=COLOURS):
    statistic = CategoryCounts(column="x", categories=categories)
    neighbours = Neighbours.ADD_REMOVE if n is None else Neighbours.REPLACE
    request = Request(dataset="d", statistic=statistic, neighbours=neighbours, n=n, epsilon=Decimal(epsilon))
    return planned(request, load("dp_dask.models", "categorical")(categories), expected_n)


def test_without_noise_the_posterior_is_the_conjugate_one():
    for like in (colours(60, "100"), colours(None, "100")):
        seen = replace(like, y=(10, 20, 30))
        draws = infer(np.random.default_rng(1), seen, Dirichlet((1.0, 2.0, 3.0)), 40_000).draws.reshape(-1, 3)
        exact = Dirichlet((11.0, 22.0, 33.0))
        np.testing.assert_allclose(draws.mean(axis=0), exact.mean, atol=5 * exact.sd.max() / 200)
        np.testing.assert_allclose(draws.std(axis=0), exact.sd, rtol=0.03)


@pytest.mark.parametrize("like", [colours(20), colours(None, expected_n=20.0)], ids=["public n", "private n"])
def test_auto_is_calibrated(like):
    """Two of three probabilities, 600 ranks each; a calibrated engine fails with probability 1e-6 each."""
    u = ranks(np.random.SeedSequence(5), like, Dirichlet((1.0, 1.0, 1.0)), 600, "auto")
    for j in range(2):
        assert gamma_p_value(gamma(u[:, j]), 600) > 1e-6
    narrow = special.ndtr(special.ndtri(np.clip(u[:, :2], 1e-9, 1 - 1e-9)) / 0.85)
    assert not all(uniformity(narrow[:, j]).passes for j in range(2))


def test_ten_thousand_categories_are_inferred():
    like = colours(100_000, categories=tuple(range(10_000)))
    pseudo = simulate(np.random.default_rng(2), like, np.full(10_000, 1e-4))
    made = infer(np.random.default_rng(3), pseudo.observation, Dirichlet((1.0,) * 10_000), 100)
    assert made.draws.shape == (4, 25, 10_000)
    np.testing.assert_allclose(made.draws.sum(axis=2), 1)


def test_expected_widths_know_what_privacy_costs():
    widths = expected_widths(np.random.default_rng(4), colours(50), Dirichlet((1.0, 1.0, 1.0)), 30)
    assert len(widths) == 3
    assert all(1 < width.ratio < 2 for width in widths)


def test_an_engine_that_cannot_serve_the_release_says_so():
    rng, prior = np.random.default_rng(1), Dirichlet((1.0, 1.0, 1.0))
    for engine, like, message in (
        ("tree", colours(None), "engine tree serves a public n only"),
        ("factorised", colours(5), "engine factorised serves a private n only"),
        ("lattice", colours(5), "engine lattice serves releases of one sum, and this is one of counts of categories"),
    ):
        with pytest.raises(InferenceError, match=message):
            infer(rng, like, prior, 100, engine)
    case = BY_NAME["poisson"]
    with pytest.raises(InferenceError, match="engine tree serves releases of counts of categories, and this is one of one sum"):
        infer(rng, observation(case, n=5, epsilon=1), case.prior, 100, "tree")


def test_a_release_of_counts_is_seen_through_its_own_categories_only():
    statistic = CategoryCounts(column="x", categories=COLOURS)
    request = Request(dataset="d", statistic=statistic, neighbours=Neighbours.REPLACE, n=5, epsilon=Decimal(1))
    with pytest.raises(InferenceError, match="the release holds counts of categories; infer with the model that it was made for"):
        planned(request, BY_NAME["poisson"].model)
