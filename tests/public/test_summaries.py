"""Summaries: what their tables hold, sensitivities over every pair of records, and simulations summed as records are."""

from __future__ import annotations

import numpy as np
import pytest

from dp_dask.core.bounds import Bounds, Outside
from dp_dask.core.cells import choose_cells
from dp_dask.core.dirichlet import Dirichlet
from dp_dask.core.fourier import lattice_features
from dp_dask.core.partition import edges_of
from dp_dask.core.privacy import Neighbours
from dp_dask.core.simulated import Simulated
from dp_dask.public.simulated_cells import Column, simulate_counts
from dp_dask.public.summaries import bins, components, partition, regression, with_count
from dp_dask.simulators.uniform_mixture import UniformMixture

REPLACE, ADD_REMOVE = Neighbours.REPLACE, Neighbours.ADD_REMOVE


def column(bounds=(0, 5), wanted=128, outside=Outside.CLAMP, **options):
    bounds = Bounds(*bounds)
    cells = choose_cells(bounds, "even", is_integer=options.get("is_integer", False), wanted=wanted)
    return Column(name="x", bounds=bounds, outside=outside, cells=cells)


def simulated(of, size=600, n=400):
    rng = np.random.default_rng(1)
    return simulate_counts(rng, UniformMixture(), Dirichlet((1.0,) * 5).rvs(rng, size), n, of)


def features(of):
    return lattice_features(of.cells.middles(of.bounds), of.bounds.lower, of.bounds.width, 0.6)[1:]


@pytest.fixture(scope="module", params=list(Outside))
def made(request):
    """A column, with a candidate of each kind."""
    of = column(outside=request.param)
    bank = simulated(of)
    by_regression = regression(of, features(of), bank, np.full(5, 0.16), 1e-3)
    return of, [partition(of, [1, 2, 3, 4]), bins(of, 20), by_regression, components(of, features(of), bank, 4)]


def test_sensitivities_are_the_largest_over_all_pairs_of_records(made):
    of, candidates = made
    records = np.append(of.cells.middles(of.bounds), [np.nan, -9, 9])
    for candidate in candidates:
        moves = candidate.contributions(records)
        widest = max(int(np.abs(moves - move).sum(axis=1).max()) for move in moves)
        furthest = max(int(((moves - move) ** 2).sum(axis=1).max()) for move in moves)
        assert (widest, furthest) == (candidate.sensitivity(REPLACE), candidate.squared_sensitivity(REPLACE))
        counted = with_count(candidate, ADD_REMOVE)
        assert counted.sensitivity(ADD_REMOVE) == counted.count_weight + int(np.abs(moves).sum(axis=1).max())
        assert with_count(candidate, REPLACE) == candidate
    for each in candidates[:2]:
        assert (each.sensitivity(REPLACE), each.sensitivity(ADD_REMOVE)) == (2, 1)


def test_simulations_are_summed_as_records_are(made):
    of, candidates = made
    rng = np.random.default_rng(2)
    sizes = np.array([0, 7, 300])
    drawn = Simulated(sizes, {"x": rng.normal(2.5, 3, 307)})
    counts = of.count(drawn)
    for candidate in candidates:
        records = candidate.contributions(drawn.values["x"])
        parts = np.split(records, np.cumsum(sizes)[:-1])
        assert (counts @ candidate.rows.T).tolist() == [part.sum(axis=0).tolist() for part in parts]


@pytest.mark.parametrize(("edges", "is_integer"), [([1, 2, 3, 4], False), ([0.3, 0.31, 4.99], False), ([2.2, 3.9], True)])
def test_a_partition_has_its_edges_to_half_a_cell(edges, is_integer):
    of = column(wanted=1024, is_integer=is_integer)
    candidate = partition(of, edges)
    half = 0.5 if is_integer else 2.0**of.cells.exponent / 2
    assert np.abs(edges_of(candidate) - edges).max() <= half + 1e-12
    assert (candidate.rows.sum(axis=0) == 1).all()


def test_equal_bins_and_whole_numbers():
    whole = column((0, 13), is_integer=True)
    assert bins(whole, 14).rows.tolist() == np.eye(14, dtype=np.int64).tolist()
    rows = bins(column(), 10).rows.sum(axis=1)
    assert rows.max() - rows.min() <= 1 + 1


@pytest.mark.parametrize(
    ("edges", "message"),
    [([], "give at least one"), ([2, 1], "ascending"), ([0, 1], "strictly inside the bounds"), ([1.001, 1.0011], "tell apart")],
)
def test_edges_that_make_no_partition_are_refused(edges, message):
    with pytest.raises(ValueError, match=message):
        partition(column(), edges)


def test_regression_is_that_of_the_textbook_and_components_are_those_of_the_mean_embeddings():
    of = column()
    bank, phi = simulated(of), features(of)
    mean = bank.counts @ phi.T / 400
    centred, theta = mean - mean.mean(axis=0), bank.theta - bank.theta.mean(axis=0)
    penalty = 1e-3 * np.trace(centred.T @ centred) / len(phi)
    slopes = np.linalg.lstsq(
        np.vstack([centred, np.sqrt(penalty) * np.eye(len(phi))]), np.vstack([theta, np.zeros((len(phi), 5))]), rcond=None
    )[0]
    assert_tabulates(regression(of, phi, bank, np.ones(5), 1e-3), slopes.T @ phi)
    found = components(of, phi, bank, 4)
    _, shares, axes = np.linalg.svd(centred, full_matrices=False)
    tabulated = (found.rows + np.array(found.origins)[:, None]) * found.units[0]
    for row, axis in zip(tabulated, axes[:4] @ phi, strict=True):
        assert min(np.abs(row - sign * axis).max() for sign in (1, -1)) <= 1e-3
    assert shares[4] < 0.2 * shares[3]  # four parameters are free


def assert_tabulates(statistic, function):
    rows = (statistic.rows + np.array(statistic.origins)[:, None]) * statistic.units[0]
    assert np.abs(rows - function).max() <= 0.51 * statistic.units[0]


def test_counting_does_not_depend_on_how_many_are_simulated_at_once():
    of = column()
    assert simulated(of, 10).counts.sum(axis=1).tolist() == [400.0] * 10
    bank = simulated(of, 10, 2**17)
    assert (bank.counts.sum(axis=1) == 2**17).all()
    assert np.abs(bank.counts.reshape(10, -1).sum(axis=0).sum() / (10 * 2**17) - 1) < 1e-12
