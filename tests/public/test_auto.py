"""``auto``: which engine it takes, and that its posterior is lattice's whichever that is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cases import CASES, IDS, observation

from dp_dask.core.bounds import Outside
from dp_dask.core.grid import Grid
from dp_dask.public.characteristic import of_record
from dp_dask.public.engines import edgeworth, lattice
from dp_dask.public.infer import infer
from dp_dask.public.simulation import simulate

every_model = pytest.mark.parametrize("case", CASES, ids=IDS)
SUMMED = [case for case in CASES if case.model.spacing is None]  # a table's lattice takes seconds a release
every_outside = pytest.mark.parametrize("outside", list(Outside))


def exact_weights(like, case, posterior):
    cells = posterior.cells
    density = case.prior.log_density(cells.middle) + np.log(cells.right - cells.left)
    density = density + lattice.log_likelihood(like, posterior.theta)
    weights = np.exp(density - density.max())
    return weights / weights.sum()


@pytest.mark.parametrize("case", SUMMED, ids=[case.name for case in SUMMED])
@every_outside
@pytest.mark.parametrize(("n", "epsilon"), [(5, 1.0), (100, 1.0), (300, 0.5), (1000, 1.0), (1000, 10.0)])
def test_the_posterior_of_auto_is_the_exact_one(case, outside, n, epsilon):
    """Total variation at most 0.003 from lattice computed in every cell, three releases each; 0.0024 was met in 1,700."""
    rng = np.random.default_rng([n, round(10 * epsilon)])
    like = observation(case, n=n, epsilon=epsilon, outside=outside)
    for _ in range(3):
        here = simulate(rng, like, float(case.prior.rvs(rng, 1)[0])).observation
        found = infer(rng, here, case.prior, 4)
        if found.engine == "edgeworth":
            assert found.error <= 0.02
        cells = found.grid
        assert 0.5 * np.abs(exact_weights(here, case, cells) - cells.weights).sum() <= 3e-3


def test_auto_takes_the_correction_only_where_the_noise_is_wide_and_n_large():
    case = CASES[IDS.index("normal")]
    wanted = {(1000, 1.0): "edgeworth", (1000, 10.0): "lattice", (20, 0.5): "lattice"}
    for (n, epsilon), engine in wanted.items():
        like = observation(case, n=n, epsilon=epsilon)
        assert infer(np.random.default_rng(1), replace(like, y=7), case.prior, 4).engine == engine


def test_lumps_that_the_error_estimate_does_not_see_are_left_to_lattice():
    """Counts far above the bounds, truncated: few contribute, each about 35, and noise of 3.7 shows every one of them."""
    case = CASES[IDS.index("poisson")]
    rng = np.random.default_rng(2)
    like = observation(case, n=1000, epsilon=10.0, outside=Outside.TRUNCATE)
    unseen = []
    for theta in (55.0, 58.0, 61.0, 64.0):
        here = simulate(rng, like, theta).observation
        found = infer(rng, here, case.prior, 4)
        assert found.engine == "lattice"
        wrong, error = edgeworth.tabulated(here, case.prior, found.grid.cells)
        unseen.append(0.5 * np.abs(exact_weights(here, case, wrong) - wrong.weights).sum() / error)
    assert max(unseen) > 2  # why the estimate alone must not decide


def test_moments_on_a_coarse_grid_are_summed_over_the_cells():
    """Whole numbers on a unit of 8: no closed form holds, and the correction must notice."""
    case = CASES[IDS.index("poisson")]
    like = observation(case, n=1000, epsilon=0.5, grid=Grid(unit=8.0, lower=0, upper=5, origin=0))
    theta = np.linspace(2, 6, 40)
    for found, exact in zip(edgeworth._moments(like, theta), like.moments(theta), strict=True):
        np.testing.assert_array_equal(found, exact)


@every_model
@every_outside
def test_the_span_of_a_sum_holds_all_of_it(case, outside):
    """Against the law of S on a circle as long as its support; the span is shorter than that for many records."""
    n = 400
    like = observation(case, n=n, epsilon=0.05, outside=outside)
    theta = np.array([case.theta[0], case.theta[0] * 0.98])
    cells, pmf = like.pmf(theta)
    least, largest = lattice._span(like, cells, pmf)
    length = n * (like.high - like.low) + 1
    around = np.zeros((2, length))
    around[:, cells.astype(np.int64) % length] = pmf
    law = np.fft.irfft(np.fft.rfft(around) ** n, length)
    s = n * like.low + (np.arange(length) - n * like.low) % length
    outside_span = (s < least) | (s > largest)
    assert np.abs(law[:, outside_span]).sum() < 1e-9
    like = replace(like, y=round(n * float(pmf[0] @ cells)))
    spanned = lattice._convolve(like, cells, pmf)[0]
    whole = np.maximum(law, 0) @ np.exp(-np.abs(like.y - s) / like.scale)
    np.testing.assert_allclose(spanned / spanned[0], whole / whole[0], rtol=1e-8)


def test_a_run_of_frequencies_equals_frequencies_one_by_one():
    cells = np.arange(-300.0, 4000.0)
    pmf = np.random.default_rng(1).dirichlet(np.ones(len(cells)), 3)
    m, period = np.arange(17, 117), 100_003
    exact = pmf @ np.exp(2j * np.pi * ((cells[:, None].astype(np.int64) * m) % period) / period)
    np.testing.assert_allclose(of_record(cells, pmf, m, period), exact, atol=1e-14)
    scattered = m[[0, 3, 50, 99]]
    np.testing.assert_allclose(of_record(cells, pmf, scattered, period), exact[:, scattered - 17], atol=1e-14)
