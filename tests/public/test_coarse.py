"""Coarse nodes against every cell of the grid: moments, growth, and the likelihood itself."""

from __future__ import annotations

import numpy as np
import pytest
from calibration_cells import Cell
from cases import CASES, IDS

from dp_dask.core.bounds import Outside
from dp_dask.core.privacy import Neighbours
from dp_dask.public.coarse import coarsened
from dp_dask.public.coarse_likelihood import coarse_log_likelihood
from dp_dask.public.engines import guide, lattice
from dp_dask.public.simulation import simulate
from dp_dask.public.zoom import find_cells

every_model = pytest.mark.parametrize("case", CASES, ids=IDS)
every_outside = pytest.mark.parametrize("outside", list(Outside))
every_relation = pytest.mark.parametrize("neighbours", list(Neighbours))


def released(case, n, epsilon, outside, neighbours, seed=0):
    rng = np.random.default_rng(seed)
    like = Cell(case.name, outside, neighbours, n, f"{epsilon:g}").like
    made = simulate(rng, like, case.prior.rvs(rng, 1)[0], case.prior).observation
    return made, case.prior.parameter(find_cells(case.prior, guide(made)).middle[:40])


@every_model
@every_outside
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
def test_the_first_three_moments_are_those_of_the_cells(case, outside, epsilon):
    made, theta = released(case, 100, epsilon, outside, Neighbours.REPLACE)
    law = coarsened(made, theta)
    if law is None:
        assert is_coarse_already(made)
        return
    places = law.nodes * law.step
    cells, exact = made.pmf(theta)
    for one in (law, law.unmerged or law):
        pmf = one.pmf(theta)
        np.testing.assert_allclose(pmf.sum(axis=1), 1, atol=1e-12)
        largest = max(made.high, -made.low)
        slack = 1e-11 if one.unmerged is None else 1e-4
        for k in (1, 2, 3):
            np.testing.assert_allclose(pmf @ (places / largest) ** k, exact @ (cells / largest) ** k, atol=slack)


@every_model
@every_outside
def test_no_power_of_the_split_law_grows(case, outside):
    made, theta = released(case, 20, 1.0, outside, Neighbours.REPLACE)
    law = coarsened(made, theta)
    if law is None:
        assert is_coarse_already(made)
        return
    law = law.unmerged or law
    w = np.linspace(0, np.pi, 200)
    assert np.abs(law.pmf(theta) @ np.exp(1j * law.nodes[:, None] * w)).max() < 1 + 1e-9


@every_model
@every_outside
@every_relation
@pytest.mark.parametrize(("n", "epsilon"), [(1, 1.0), (5, 10.0), (20, 1.0), (100, 0.1)])
def test_the_likelihood_is_that_of_the_cells(case, outside, neighbours, n, epsilon):
    """Total variation below 0.001 on a flat prior over the cells of the posterior; steps three times as wide show."""
    made, theta = released(case, n, epsilon, outside, neighbours, seed=n)
    law = coarsened(made, theta)
    if law is None:
        assert is_coarse_already(made)
        return
    coarse, exact = coarse_log_likelihood(law, theta), lattice.log_likelihood(made, theta)
    assert coarse is not None
    assert distance(coarse, exact) < 1e-3
    np.testing.assert_allclose(coarse.max(), exact.max(), atol=0.01)  # their constants are the same


def test_nodes_as_far_apart_as_the_noise_scale_would_show(monkeypatch):
    made, theta = released(CASES[1], 5, 1.0, Outside.CLAMP, Neighbours.REPLACE, seed=5)
    for name, value in (("PER_SCALE", 1.0), ("PER_RANGE", 0.5)):
        monkeypatch.setattr(f"dp_dask.public.coarse.{name}", value)
    coarse = coarse_log_likelihood(coarsened(made, theta), theta)
    assert distance(coarse, lattice.log_likelihood(made, theta)) > 1e-3


def is_coarse_already(made):
    """Nodes three grid units apart would be more than a sixteenth of the noise scale, or of a contribution's range, apart."""
    return made.scale < 3 * 16 or (made.high - made.low) < 3 * 16


def distance(one, other):
    p, q = (np.exp(values - values.max()) for values in (one, other))
    return 0.5 * np.abs(p / p.sum() - q / q.sum()).sum()
