"""The engines against brute force: full enumeration of records, and of the private number of them."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from cases import BY_NAME, CASES, IDS, laplace_pmf, observation

from dp_dask.core.bounds import Outside
from dp_dask.core.grid import Grid
from dp_dask.core.priors import Beta
from dp_dask.core.privacy import Neighbours
from dp_dask.public.characteristic import frequencies
from dp_dask.public.engines import edgeworth, guide, lattice
from dp_dask.public.infer import infer
from dp_dask.public.zoom import find_cells

every_model = pytest.mark.parametrize("case", CASES, ids=IDS)
every_outside = pytest.mark.parametrize("outside", list(Outside))
GRIDS = {
    "bernoulli": Grid(unit=1.0, lower=0, upper=1, origin=0),
    "exponential": Grid(unit=0.25, lower=0, upper=4, origin=0),
    "gamma": Grid(unit=2.0, lower=0, upper=4, origin=0),
    "geometric": Grid(unit=8.0, lower=0, upper=4, origin=0),
    "half_normal": 7,
    "inverse_gamma": 7,
    "laplace": 7,
    "negative_binomial": Grid(unit=4.0, lower=0, upper=5, origin=0),
    "normal": Grid(unit=2.0, lower=-2, upper=2, origin=0),
    "pareto": 7,
    "poisson": Grid(unit=8.0, lower=0, upper=5, origin=0),
    "rayleigh": 7,
    "weibull": 7,
}


def brute_force(like, theta, n, y):
    """p(y | theta, n) by enumerating every vector of n contributions; their law from 0-1 sums over records' values."""
    law = contribution_law(like, theta)
    assert sum(law.values()) == pytest.approx(1, abs=1e-12)
    total = 0.0
    for combination in itertools.product(law.items(), repeat=n):
        s = sum(value for value, _ in combination)
        p = math.prod(p for _, p in combination)
        total += p * laplace_pmf(np.array(y - s), like.scale)
    return float(total)


def contribution_law(like, theta):
    """P(c(x) = j) from the definition of c: the model's cdf between the points where c changes, found by bisection."""
    model = like.model

    def contribute(x):
        return like.statistic.contributions(x).ravel()

    law: dict[int, float] = {}
    if model.is_integer:
        x = np.arange(0, 20_000.0)
        edges = x
    else:
        low = np.linspace(-60 if model.support[0] < 0 else 0, 60, 24_001)
        x, high = low[:-1], low[1:].copy()
        changes = np.flatnonzero(contribute(low[:-1]) != contribute(high))
        left, right = x[changes].copy(), high[changes].copy()
        for _ in range(80):
            middle = (left + right) / 2
            is_left = contribute(middle) == contribute(x[changes])
            left, right = np.where(is_left, middle, left), np.where(is_left, right, middle)
        x, edges = np.append(x[changes], 60.0), np.append(right, math.inf)
    p = np.diff(np.concatenate([[0.0], model.cdf(edges, np.array(theta))]))
    for value, probability in zip(contribute(x), p, strict=True):
        law[int(value)] = law.get(int(value), 0.0) + float(probability)
    return law


@every_model
@every_outside
@pytest.mark.parametrize("epsilon", [0.3, 5.0])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_lattice_equals_enumeration_of_all_records(case, outside, epsilon, n):
    like = observation(case, n=n, epsilon=epsilon, outside=outside, grid=GRIDS[case.name])
    theta = np.array(case.theta)
    for y in (-3, 0, 2, 9):
        here = observation(case, n=n, epsilon=epsilon, outside=outside, grid=GRIDS[case.name], y=y)
        found = np.exp(lattice.log_likelihood(here, theta))
        brute = np.array([brute_force(like, t, n, y) for t in theta])
        np.testing.assert_allclose(found / found.sum(), brute / brute.sum(), atol=1e-10)


@every_model
@every_outside
def test_fourier_inversion_equals_convolution(case, outside):
    """The two routes of the lattice engine, at an n where both are affordable."""
    for n, epsilon in ((25, 1.0), (60, 0.5), (60, 8.0)):
        like = observation(case, n=n, epsilon=epsilon, outside=outside, grid=GRIDS[case.name])
        theta = np.array([case.theta[0], case.theta[0] * 0.9])
        like = replace(like, y=round(n * like.moments(theta).mean[0]) + 3)
        cells, pmf = like.pmf(theta)
        ranges, period = frequencies(like, cells, pmf)
        inverted = lattice._invert(like, cells, pmf, ranges, period)[0]
        convolved = lattice._convolve(like, cells, pmf)[0]
        np.testing.assert_allclose(inverted / inverted[0], convolved / convolved[0], rtol=1e-8)


@every_model
@every_outside
@pytest.mark.parametrize("expected_n", [None, 2.0])
@pytest.mark.parametrize(("count", "y"), [(-2, 1), (0, 0), (5, 4), (11, 7)])
def test_lattice_with_private_n_sums_over_every_n(case, outside, expected_n, count, y):
    epsilon = 4.0
    like = observation(
        case,
        n=3,
        epsilon=epsilon,
        outside=outside,
        neighbours=Neighbours.ADD_REMOVE,
        grid=GRIDS[case.name],
        y=y,
        count=count,
        expected_n=expected_n,
    )
    theta = np.array(case.theta)
    g = 1.0 if expected_n is None else expected_n / (expected_n + 1)
    brute = np.zeros(len(theta))
    weight = like.statistic.count_weight
    for i, t in enumerate(theta):
        law = contribution_law(like, t)
        sums = {0: 1.0}
        for n in range(400):
            prior = g**n * laplace_pmf(np.array(count - weight * n), like.scale)
            values = np.array(list(sums))
            brute[i] += prior * np.sum(np.array(list(sums.values())) * laplace_pmf(y - values, like.scale))
            if prior < 1e-16 * brute[i] and n > 30:
                break
            longer: dict[int, float] = {}
            for s, p in sums.items():
                for c, q in law.items():
                    if p * q > 1e-20:
                        longer[s + c] = longer.get(s + c, 0.0) + p * q
            sums = longer
    found = np.exp(lattice.log_likelihood(like, theta))
    np.testing.assert_allclose(found / found.sum(), brute / brute.sum(), atol=1e-10)
    cells, pmf = like.pmf(theta)
    inverted = lattice._invert(like, cells, pmf, *frequencies(like, cells, pmf))[0]
    np.testing.assert_allclose(inverted / inverted.sum(), brute / brute.sum(), atol=1e-9)


def test_a_bernoulli_posterior_is_the_closed_mixture_of_betas():
    """w_s ~ C(n, s) B(a + s, b + n - s) a^|z - s|; p ~ sum of w_s Beta(a + s, b + n - s)."""
    from scipy import special, stats

    case, n, epsilon, z = CASES[0], 40, 0.5, 13
    like = observation(case, n=n, epsilon=epsilon, y=z)
    s = np.arange(n + 1)
    log_w = np.log(special.comb(n, s)) + special.betaln(1 + s, 1 + n - s) - np.abs(z - s) / like.scale
    w = np.exp(log_w - special.logsumexp(log_w))
    posterior = infer(np.random.default_rng(1), like, Beta(1, 1), 4000).grid
    for p in (0.1, 0.25, 0.33, 0.5):
        wanted = float(np.sum(w * stats.beta.cdf(p, 1 + s, 1 + n - s)))
        assert posterior.cdf(p) == pytest.approx(wanted, abs=2e-3)
    mean = float(np.sum(w * (1 + s) / (n + 2)))
    second = float(np.sum(w * (1 + s) * (2 + s) / (n + 2) / (n + 3)))
    assert posterior.mean == pytest.approx(mean, abs=2e-4)
    assert posterior.sd == pytest.approx(math.sqrt(second - mean**2), rel=2e-3)


@every_model
@every_outside
@pytest.mark.parametrize("n", [30, 300, 3000])
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_edgeworth_is_as_near_to_lattice_as_it_says(case, outside, n, epsilon):
    """Total variation at most its own estimate, which bounds the plain density's error as well."""
    from dp_dask.public.simulation import simulate

    rng = np.random.default_rng(n)
    like = observation(case, n=n, epsilon=epsilon, outside=outside)
    pseudo = simulate(rng, like, float(case.prior.rvs(rng, 1)[0])).observation
    cells = find_cells(case.prior, guide(pseudo))
    near, error = edgeworth.tabulated(pseudo, case.prior, cells)
    exact = lattice.tabulated(pseudo, case.prior, near.cells)
    quantiles = np.interp([0.05, 0.25, 0.5, 0.75, 0.95], np.cumsum(exact.weights), exact.cells.right)
    theta = case.prior.parameter(quantiles)
    difference = max(abs(near.cdf(t) - exact.cdf(t)) for t in theta)
    assert difference <= max(1.2 * error, 2e-3)


@every_model
@every_outside
def test_a_tilted_law_gives_the_same_likelihood(case, outside):
    """Where both have their digits; and where a plain Fourier sum has none, the tilted one still follows enumeration."""
    for n, epsilon in ((4, 2.0), (60, 1.0)):
        like = observation(case, n=n, epsilon=epsilon, outside=outside, grid=GRIDS[case.name])
        theta = np.array([case.theta[0], case.theta[0] * 0.9])
        like = replace(like, y=round(n * like.moments(theta).mean[0]) + 2)
        cells, pmf = like.pmf(theta)
        tilted = lattice._tilted(like, n, cells, pmf)
        plain = lattice.log_likelihood(like, theta)
        np.testing.assert_allclose(tilted - tilted[0], plain - plain[0], atol=1e-7)


def test_a_release_far_from_the_model_keeps_its_posterior():
    """A truncated exponential whose mean contribution is far above what any rate gives: against exact convolution in logs."""
    from fractions import Fraction

    case, n, epsilon = BY_NAME["exponential"], 12, 40.0
    like = observation(case, n=n, epsilon=epsilon, outside=Outside.TRUNCATE, grid=GRIDS["exponential"])
    like = replace(like, y=n * like.statistic.grid.high - 3)
    theta = np.array([0.5, 1.0, 2.0, 6.0])
    cells, pmf = like.pmf(theta)
    exact = []
    for row in pmf:
        law = {0: Fraction(1)}
        for _ in range(n):
            longer: dict[int, Fraction] = {}
            for s, p in law.items():
                for c, q in zip(cells, row, strict=True):
                    longer[s + int(c)] = longer.get(s + int(c), Fraction(0)) + p * Fraction(float(q))
            law = longer
        exact.append(math.log(sum(float(p) * math.exp(-abs(like.y - s) / like.scale) for s, p in law.items())))
    tilted = lattice._tilted(like, n, cells, pmf)
    np.testing.assert_allclose(tilted - tilted[0], np.array(exact) - exact[0], atol=1e-6)


def test_a_private_n_far_from_its_expected_value_is_still_inferred():
    like = observation(CASES[0], n=20_000, epsilon=1.0, neighbours=Neighbours.ADD_REMOVE, y=6_000, expected_n=10.0)
    flat = replace(like, expected_n=None)
    rng = np.random.default_rng(1)
    one, other = (infer(rng, each, Beta(1, 1), 4000).grid for each in (like, flat))
    assert one.mean == pytest.approx(other.mean, abs=0.01)


def test_a_release_beyond_the_prior_is_refused_and_one_far_out_in_it_is_not():
    from dp_dask.core.priors import Normal
    from dp_dask.errors import InferenceError

    case = BY_NAME["normal"]
    like = observation(case, n=10_000, epsilon=1.0)
    near = replace(like, y=round(10_000 * 3.0 / like.statistic.grid.unit))
    assert infer(np.random.default_rng(1), near, Normal(-7, 1), 400).grid.mean == pytest.approx(3.0, abs=0.1)
    with pytest.raises(InferenceError, match="contradicts the prior"):
        infer(np.random.default_rng(1), near, Normal(-2, 0.1), 400)


def test_a_posterior_without_data_is_the_prior():
    from dp_dask.core.priors import Gamma

    for prior in (Gamma(0.05, 1), Gamma(1, 0.25), Gamma(50, 2)):
        grid = infer(np.random.default_rng(1), observation(BY_NAME["exponential"], n=0, epsilon=1.0), prior, 400).grid
        assert grid.mean == pytest.approx(prior.mean, rel=0.015)
        assert grid.sd == pytest.approx(prior.sd, rel=0.03)
