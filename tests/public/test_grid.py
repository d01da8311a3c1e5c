"""Grid posteriors: their cells against a grid eight times as fine, their interpolation against every cell, their draws."""

from __future__ import annotations

import math

import numpy as np
import pytest
from cases import CASES, IDS, observation
from scipy import special, stats

from dp_dask.core.bounds import Outside
from dp_dask.core.priors import Gamma, Normal
from dp_dask.public.engines import edgeworth, guide, lattice
from dp_dask.public.grid import Cells, GridPosterior, tabulate
from dp_dask.public.simulation import simulate
from dp_dask.public.zoom import find_cells

every_model = pytest.mark.parametrize("case", CASES, ids=IDS)
every_outside = pytest.mark.parametrize("outside", list(Outside))
SETTINGS = [(1, 0.1), (2, 10.0), (20, 1.0), (100, 0.1), (1000, 1.0), (10**5, 1.0)]


def normalised(log_weights):
    weights = np.exp(log_weights - log_weights.max())
    return weights / weights.sum()


def release(case, outside, n, epsilon):
    rng = np.random.default_rng([n, round(10 * epsilon)])
    return simulate(rng, observation(case, n=n, epsilon=epsilon, outside=outside), float(case.prior.rvs(rng, 1)[0])).observation


def log_likelihood(like):
    if like.n <= 20:
        return lambda theta: lattice.log_likelihood(like, theta)
    return lambda theta: edgeworth._log_likelihood(like, theta)[1]


@every_model
@every_outside
@pytest.mark.parametrize(("n", "epsilon"), SETTINGS)
def test_a_posterior_is_that_of_a_grid_eight_times_as_fine(case, outside, n, epsilon):
    """Total variation between the cells' probabilities, with the likelihood computed in every small cell."""
    like = release(case, outside, n, epsilon)
    likelihood = log_likelihood(like)
    posterior = tabulate(case.prior, likelihood, find_cells(case.prior, guide(like)))
    fine = posterior.cells.split(8)
    theta = case.prior.parameter(fine.middle)
    exact = normalised(case.prior.log_density(fine.middle) + np.log(fine.right - fine.left) + likelihood(theta))
    assert 0.5 * np.abs(exact.reshape(-1, 8).sum(axis=1) - posterior.weights).sum() < 2e-3
    spread = math.sqrt(np.sum(exact * theta**2) - np.sum(exact * theta) ** 2)
    assert posterior.mean == pytest.approx(np.sum(exact * theta), abs=3e-3 * spread)
    assert posterior.sd == pytest.approx(spread, rel=1e-2)


def test_a_likelihood_with_a_kink_is_computed_in_every_cell():
    """A step that cubics cannot follow is noticed, however it lies between the computed cells."""
    prior = Normal(0, 1)
    cells = Cells(np.array([-6.0]), np.array([6.0])).split(256)
    for place in np.linspace(0, 0.2, 9):
        asked = []

        def likelihood(theta, place=place, asked=asked):
            asked.append(len(theta))
            return np.where(theta > place, 2.0, 0.0)

        posterior = tabulate(prior, likelihood, cells)
        assert sum(asked) > len(cells)  # each of them, and no point twice
        above = special.ndtr(-place) * math.exp(2)
        wanted = above / (above + special.ndtr(place))
        assert 1 - posterior.cdf(place) == pytest.approx(wanted, abs=0.02)  # a cell of 0.047 holds the step


def test_a_smooth_likelihood_is_computed_in_less_than_half_of_the_cells():
    asked = []

    def likelihood(theta):
        asked.append(len(theta))
        return -0.5 * (theta - 0.3) ** 2 / 0.01

    posterior = tabulate(Normal(0, 1), likelihood, Cells(np.array([-0.4]), np.array([1.0])).split(256))
    assert sum(asked) < 128
    assert posterior.mean == pytest.approx(0.3 / 1.01, abs=1e-4)
    assert posterior.sd == pytest.approx(math.sqrt(0.01 / 1.01), rel=1e-3)


def test_draws_follow_the_cells_and_are_uniform_inside():
    """Two modes with a gap: the ranks of 20,000 draws are uniform (KS at 1e-6) and none lies in the gap or is repeated."""
    prior = Gamma(2, 1)
    left = np.array([-1.0, -0.5, 1.0, 1.25])
    posterior = GridPosterior(prior, Cells(left, left + np.array([0.5, 0.25, 0.25, 0.5])), np.array([0.1, 0.4, 0.0, 0.5]))
    draws = posterior.draw(np.random.default_rng(3), 20_000)
    ranks = np.array([posterior.cdf(theta) for theta in draws])
    assert stats.kstest(ranks, "uniform").pvalue > 1e-6
    v = np.log(draws)
    assert not ((v > -0.25) & (v < 1.25)).any()
    assert len(np.unique(draws)) == len(draws)
    assert abs(np.corrcoef(ranks[1:], ranks[:-1])[0, 1]) < 5 / math.sqrt(len(draws))  # independent; 6e-7
