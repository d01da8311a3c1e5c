"""The engines under discrete Gaussian noise, against brute force: enumeration of records, of n, of histograms; quadrature."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from cases import BY_NAME, gaussian, gaussian_pmf, observation
from public.test_engines_exact import GRIDS, contribution_law
from scipy import special

from dp_dask.core.bounds import Outside
from dp_dask.core.privacy import Neighbours
from dp_dask.errors import InferenceError
from dp_dask.public.characteristic import frequencies, of_sum
from dp_dask.public.engines import augment, edgeworth, gibbs, guide, lattice
from dp_dask.public.infer import infer
from dp_dask.public.noise_law import Gaussian
from dp_dask.public.private_n import private_counts
from dp_dask.public.trials import Trial
from dp_dask.public.zoom import find_cells

ONE_SUM = [BY_NAME[name] for name in ("bernoulli", "geometric", "exponential", "normal", "pareto")]
every_case = pytest.mark.parametrize("case", ONE_SUM, ids=[case.name for case in ONE_SUM])
every_outside = pytest.mark.parametrize("outside", list(Outside))


def log_brute_force(like, theta, n, y):
    """log p(y | theta, n) by enumerating every vector of n contributions."""
    law = {value: p for value, p in contribution_law(like, theta).items() if p > 0}
    sums = [(sum(v for v, _ in c), sum(math.log(p) for _, p in c)) for c in itertools.product(law.items(), repeat=n)]
    s, log_p = np.array(sums).T
    k = np.arange(-2000, 2001)
    assert like.scale < 200
    return special.logsumexp(log_p - (y - s) ** 2 / (2 * like.scale**2)) - math.log(gaussian_pmf(k, like.scale).sum())


@every_case
@every_outside
@pytest.mark.parametrize("rho", [0.02, 0.5, 12.0])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_lattice_equals_enumeration_of_all_records_however_far_y_lies(case, outside, rho, n):
    theta = np.array(case.theta)
    for y in (-200, -3, 0, 2, 9, 150):
        here = gaussian(observation(case, n=n, epsilon=1, outside=outside, grid=GRIDS[case.name], y=y), rho)
        found = lattice.log_likelihood(here, theta)
        brute = np.array([log_brute_force(here, t, n, y) for t in theta])
        kept = brute > brute.max() - 15
        np.testing.assert_allclose(found[kept], brute[kept], atol=1e-6)  # the constant is that of a probability
        assert (found[~kept] < found.max() - 14).all()


@every_case
@every_outside
def test_inversion_convolution_and_tilting_agree(case, outside):
    """The three routes of the lattice engine, at an n where all are affordable."""
    for n, rho in ((25, 0.5), (60, 0.1), (60, 30.0)):
        like = gaussian(observation(case, n=n, epsilon=1, outside=outside, grid=GRIDS[case.name]), rho)
        theta = np.array([case.theta[0], case.theta[0] * 0.9])
        like = replace(like, y=round(n * like.moments(theta).mean[0]) + 3)
        cells, pmf = like.pmf(theta)
        ranges, period = frequencies(like, cells, pmf)
        inverted = lattice._invert(like, cells, pmf, ranges, period)[0]
        convolved = lattice._convolve(like, cells, pmf)[0]
        tilted = lattice._tilted(like, n, cells, pmf)
        assert inverted[1] / inverted[0] == pytest.approx(convolved[1] / convolved[0], rel=1e-8)
        assert tilted[1] - tilted[0] == pytest.approx(math.log(convolved[1] / convolved[0]), abs=1e-8)


@every_case
@every_outside
@pytest.mark.parametrize("expected_n", [None, 2.0])
@pytest.mark.parametrize(("count", "y"), [(-2, 1), (0, 0), (5, 4), (11, 7)])
def test_lattice_with_private_n_sums_over_every_n(case, outside, expected_n, count, y):
    facts = {"outside": outside, "neighbours": Neighbours.ADD_REMOVE, "grid": GRIDS[case.name]}
    like = observation(case, n=3, epsilon=1, y=y, count=count, expected_n=expected_n, **facts)
    like = gaussian(like, 4.0)
    theta = np.array(case.theta)
    found = np.exp(lattice.log_likelihood(like, theta))
    g = 1.0 if expected_n is None else expected_n / (expected_n + 1)
    brute = np.zeros(len(theta))
    laws = [contribution_law(like, t) for t in theta]
    for i, law in enumerate(laws):
        sums = {0: 1.0}
        for n in range(60):
            p_count = gaussian_pmf(count - like.statistic.count_weight * n, like.scale)
            brute[i] += g**n * p_count * sum(p * gaussian_pmf(y - s, like.scale) for s, p in sums.items())
            after: dict[int, float] = {}
            for (s, p), (value, q) in itertools.product(sums.items(), law.items()):
                after[s + value] = after.get(s + value, 0.0) + p * q
            sums = after
    np.testing.assert_allclose(found / found.sum(), brute / brute.sum(), atol=1e-9)


@pytest.mark.parametrize("expected_n", [None, 0.2, 40.0])
@pytest.mark.parametrize("count", [-90, 3, 4000])
def test_the_polynomial_of_a_private_n_is_its_sum(expected_n, count):
    facts = {"neighbours": Neighbours.ADD_REMOVE, "grid": GRIDS["geometric"]}
    like = gaussian(observation(BY_NAME["geometric"], n=3, epsilon=1, count=count, expected_n=expected_n, **facts), 0.01)
    phi = np.exp(-np.linspace(0, 0.1, 7) + 1j * np.linspace(0, 3, 7)).reshape(1, 7)
    n = np.arange(5000)
    log_g = 0.0 if expected_n is None else math.log(expected_n / (expected_n + 1))
    log_weights = -((count - like.statistic.count_weight * n) ** 2) / (2 * like.scale**2) + n * log_g
    wanted = np.exp(log_weights - log_weights.max()) @ phi[0] ** n[:, None]
    np.testing.assert_allclose(of_sum(like, phi)[0], wanted, atol=1e-12 * abs(wanted[0]))
    assert len(private_counts(like)[1]) < 2 * like.noise.reach / like.statistic.count_weight + 3


@every_case
@pytest.mark.parametrize("is_public", [True, False])
def test_edgeworth_is_close_to_the_exact_posterior_within_its_estimate(case, is_public):
    neighbours = Neighbours.REPLACE if is_public else Neighbours.ADD_REMOVE
    like = gaussian(observation(case, n=400, epsilon=1, neighbours=neighbours, expected_n=400.0), 0.5)
    theta = np.array([case.theta[0]])
    like = replace(like, y=round(400 * like.moments(theta).mean[0] + 0.7 * like.scale))
    cells = find_cells(case.prior, guide(like))
    near, estimate = edgeworth.tabulated(like, case.prior, cells)
    exact = lattice.tabulated(like, case.prior, cells)
    assert near.distance(exact) < max(1.1 * estimate, 2e-3)
    assert near.distance(exact) < 0.01
    wrong = edgeworth.tabulated(replace(like, scale=0.7 * like.scale), case.prior, cells)[0]
    assert wrong.distance(exact) > 5 * near.distance(exact)


def test_auto_serves_it_and_tells_which_engine():
    rng = np.random.default_rng(1)
    few = gaussian(observation(BY_NAME["geometric"], n=10, epsilon=1, y=40), 0.1)
    assert infer(rng, few, BY_NAME["geometric"].prior, 400).engine == "lattice"
    many = gaussian(observation(BY_NAME["exponential"], n=100_000, epsilon=1, y=200_000_000), 0.1)
    many = replace(many, y=round(100_000 * many.moments(np.array([1.5])).mean[0]))
    found = infer(rng, many, BY_NAME["exponential"].prior, 400)
    assert found.engine == "edgeworth"
    assert found.grid.mean == pytest.approx(1.5, rel=0.02)


@pytest.mark.parametrize("engine", ["gibbs", "augment"])
def test_engines_published_for_laplace_noise_refuse(engine):
    like = gaussian(observation(BY_NAME["bernoulli"], n=10, epsilon=1, outside=Outside.TRUNCATE, y=4), 0.1)
    with pytest.raises(InferenceError, match=rf"engine {engine} .*Laplace noise.*Gaussian.*auto"):
        infer(np.random.default_rng(1), like, BY_NAME["bernoulli"].prior, 400, engine)
    module = {"gibbs": gibbs, "augment": augment}[engine]
    extra = {"warmup": 1} if engine == "gibbs" else {}
    with pytest.raises(InferenceError, match="Laplace noise"):
        module.chains(np.random.default_rng(1), like, BY_NAME["bernoulli"].prior, np.array([4]), 1, thin=1, **extra)
    assert like.law is Gaussian


@pytest.mark.parametrize("method", ["augment", "gibbs", "ops"])
def test_baselines_published_for_laplace_noise_refuse(method):
    like = gaussian(observation(BY_NAME["bernoulli"], n=10, epsilon=1, y=4), 0.1)
    with pytest.raises(InferenceError, match=rf"{method} serves Laplace noise, and this release has Gaussian noise"):
        Trial(like, BY_NAME["bernoulli"].prior).draw(method, np.random.default_rng(1), [], 100)
