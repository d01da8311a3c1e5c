"""Pooled groups: against quadrature, in the limits of complete and of no pooling, calibrated, and refused where it must be."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest
from cases import BY_NAME, statistic
from scipy import integrate, stats

from dp_dask.core.categories import CategoryCounts
from dp_dask.core.grouped import GroupedSum
from dp_dask.core.pooled import Pooled
from dp_dask.core.prior_kinds import make
from dp_dask.core.priors import Normal
from dp_dask.core.privacy import Neighbours
from dp_dask.core.release import Request
from dp_dask.entries.measurement import for_report
from dp_dask.errors import InferenceError
from dp_dask.public.calibration import rank
from dp_dask.public.diagnostics import diagnose
from dp_dask.public.engines import guide, lattice
from dp_dask.public.grid import Cells, GridPosterior, tabulate
from dp_dask.public.groups import infer_pooled
from dp_dask.public.infer import infer
from dp_dask.public.observe import planned
from dp_dask.public.pooled_cells import Known, blocks, integrals
from dp_dask.public.pooling import _draw_block, pool
from dp_dask.public.simulation import expected_widths, simulate
from dp_dask.public.uniformity import gamma, gamma_p_value
from dp_dask.public.zoom import find_cells

DRAWS = 20_000
FURTHEST = 2.7  # sqrt(draws) times the KS distance: a right sampler is further off with probability 1e-6
PRIORS = {
    "bernoulli": Pooled("probability", make("normal", mu=-1, sigma=1), make("half_normal", sigma=1)),
    "poisson": Pooled("positive", make("normal", mu=1, sigma=0.7), make("half_normal", sigma=0.45)),
    "normal": Pooled("real", make("student_t", nu=4, mu=0, sigma=1), make("half_cauchy", beta=0.5)),
}
TRUTHS = {"bernoulli": (0.1, 0.35, 0.2), "poisson": (2.0, 4.5, 3.0), "normal": (-1.0, 1.5, 0.0)}


def planned_groups(name, pooled, n_groups=3, per_group=100, epsilon=2):
    case = BY_NAME[name]
    within = statistic(case, neighbours=Neighbours.ADD_REMOVE, epsilon=float(epsilon), n=per_group)
    made = GroupedSum(within=within, by=CategoryCounts(column="g", categories=tuple(f"g{i}" for i in range(n_groups))))
    request = Request(dataset="d", statistic=made, neighbours=Neighbours.ADD_REMOVE, n=None, epsilon=Decimal(epsilon))
    model, prior = for_report(case.model, pooled, made)
    return planned(request, model, float(per_group * n_groups)), prior


def released(name, seed, **given):
    """Three groups' release, the third one empty, and its prior."""
    like, prior = planned_groups(name, PRIORS[name], **given)
    made = simulate(np.random.default_rng(seed), like, np.array([0.0, 0.0, *TRUTHS[name]])).observation
    return replace(made, y=(*made.y[:4], 3, -2)), prior


def piecewise(like, theta):
    """The exact likelihood, in pieces that lattice does not find too long; each of them reaches the peak, as its digits need."""
    values = np.empty(len(theta))
    for i in range(16):
        values[i::16] = lattice.log_likelihood(like, theta[i::16])
    return values


def ks(draws, points, cdf):
    """sqrt(draws) times the largest distance between draws and a distribution function given at points."""
    n = len(draws)
    return math.sqrt(n) * np.abs((np.arange(n) + 0.5) / n - np.interp(np.sort(draws), points, cdf)).max()


def narrowed(draws):
    """Draws of a posterior whose sd is 15 % too small."""
    return np.median(draws) + 0.85 * (draws - np.median(draws))


def assert_is_drawn_from(draws, posterior):
    """Hold draws to a tabulated posterior, and see that narrower ones would not do."""
    points, cdf = posterior.prior.parameter(posterior.cells.right), np.cumsum(posterior.weights)
    assert ks(draws, points, cdf) < FURTHEST
    assert ks(narrowed(draws), points, cdf) > FURTHEST


def quadrature(seen, pooled):
    """The marginal distribution functions of mu, tau and each group's v by sums over a mesh, from the exact likelihoods."""
    low, high = pooled.mean_prior.mean - 6 * 1.4 * pooled.mean_prior.sd, pooled.mean_prior.mean + 6 * 1.4 * pooled.mean_prior.sd
    mu, tau = np.linspace(low, high, 121), np.exp(np.linspace(-5, 4, 91))
    v = np.linspace(low - 4, high + 4, 801)
    theta = pooled.scale.parameter(v)
    logs = np.stack([piecewise(each, theta) for each in seen.of_groups])
    likelihood = np.exp(logs - logs.max(axis=1, keepdims=True))
    log_prior = pooled.mean_prior.log_density(pooled.mean_prior.coordinate(mu)) - slope(pooled.mean_prior, mu)
    of_pair = np.empty((len(tau), len(mu)))
    of_group = np.zeros((len(likelihood), len(v)))
    parts = []
    for i, one in enumerate(tau):
        # A kernel narrower than the mesh is a point: tau below half of it weighs next to nothing here.
        kernel = np.exp(-0.5 * ((v[:, None] - mu) / max(one, v[1] - v[0])) ** 2)
        kernel /= kernel.sum(axis=0)
        evidence = likelihood @ kernel
        density = pooled.sd_prior.log_density(pooled.sd_prior.coordinate(one)) - slope(pooled.sd_prior, one) + math.log(one)
        of_pair[i] = np.exp(log_prior + density + np.log(evidence).sum(axis=0))
        parts.append(of_pair[i] / evidence)
        of_group += likelihood * (parts[-1] @ kernel.T)
    cdfs = [np.cumsum(of_pair.sum(axis=0)), np.cumsum(of_pair.sum(axis=1)), *np.cumsum(of_group, axis=1)]
    points = [mu + (mu[1] - mu[0]) / 2, tau * math.exp(0.05), *[v + (v[1] - v[0]) / 2] * len(likelihood)]
    return [(x, cdf / cdf[-1]) for x, cdf in zip(points, cdfs, strict=True)]


def slope(prior, theta):
    """Log of d theta / d coordinate, by a difference."""
    v = prior.coordinate(np.asarray(theta))
    return np.log((prior.parameter(v + 1e-5) - prior.parameter(v - 1e-5)) / 2e-5)


@pytest.mark.parametrize("name", PRIORS)
def test_the_posterior_is_that_of_quadrature(name):
    seen, prior = released(name, 1)
    made = infer(np.random.default_rng(2), seen, prior, DRAWS, "lattice")
    assert made.draws.shape == (4, DRAWS // 4, 5)
    draws = made.draws.reshape(-1, 5).copy()
    draws[:, 2:] = prior.pooled.scale.coordinate(draws[:, 2:])
    for j, (points, cdf) in enumerate(quadrature(seen, prior.pooled)):
        assert ks(draws[:, j], points, cdf) < FURTHEST, seen.model.parameters[j]
        assert ks(narrowed(draws[:, j]), points, cdf) > FURTHEST, seen.model.parameters[j]


@pytest.mark.parametrize("tiny", [1e-7, 1e-3])
def test_without_spread_all_groups_have_the_posterior_of_one_common_parameter(tiny):
    pooled = Pooled("positive", Normal(1, 0.7), make("uniform", lower=tiny, upper=2 * tiny))
    like, prior = planned_groups("poisson", pooled, epsilon=10)
    seen = simulate(np.random.default_rng(3), like, np.array([0, 0, 3.0, 3.0, 3.0])).observation
    draws = infer(np.random.default_rng(4), seen, prior, DRAWS, "lattice").draws.reshape(-1, 5)
    assert np.abs(np.log(draws[:, 2:]) - draws[:, :1]).max() < 12 * tiny

    def of_all(theta):
        return np.sum([piecewise(each, theta) for each in seen.of_groups], axis=0)

    alone = make("lognormal", mu=1, sigma=0.7)
    common = tabulate(alone, of_all, find_cells(alone, guide(seen.of_groups[0])))
    assert_is_drawn_from(draws[:, 3], common)
    assert common.sd < min(infer(np.random.default_rng(0), each, alone, 4).grid.sd for each in seen.of_groups)


def test_with_known_mean_and_sd_groups_are_independent():
    pooled = Pooled("positive", Normal(1, 1e-7), make("uniform", lower=1.4999999, upper=1.5000001))
    like, prior = planned_groups("poisson", pooled)
    seen = simulate(np.random.default_rng(5), like, np.array([0, 0, 0.3, 3.0, 12.0])).observation
    seen = replace(seen, y=(*seen.y[:4], 0, 0))
    draws = infer(np.random.default_rng(6), seen, prior, DRAWS, "lattice").draws.reshape(-1, 5)
    alone = make("lognormal", mu=1, sigma=1.5)
    for j, each in enumerate(seen.of_groups):
        one = infer(np.random.default_rng(0), each, alone, 4, "lattice").grid
        assert_is_drawn_from(draws[:, 2 + j], one)
    correlation = np.corrcoef(draws[:, 2:].T)
    assert np.abs(correlation[np.triu_indices(3, 1)]).max() < 5 / math.sqrt(DRAWS)


def test_many_normal_groups_meet_the_closed_form():
    """L_g = Normal(m_g; v, s_g^2), 300 groups: mu and tau given the m_g alone, and the shrunken means."""
    rng = np.random.default_rng(7)
    pooled = Pooled("real", Normal(0, 5), make("half_normal", sigma=2))
    s = np.exp(rng.uniform(-3, 0.5, 300))
    v = 1.5 + 0.4 * rng.standard_normal(300)
    m = v + s * rng.standard_normal(300)
    grids = [normal_likelihood(pooled, a, b) for a, b in zip(m, s, strict=True)]
    draws, error = pool(rng, grids, pooled, [str(i) for i in range(300)], 4000)
    assert error < 0.02
    mu, tau = np.linspace(1, 2, 201), np.linspace(0.2, 0.7, 301)
    spread = s**2 + tau[:, None, None] ** 2
    log = -0.5 * (np.log(spread) + (m - mu[:, None]) ** 2 / spread).sum(axis=2) - 0.5 * (mu / 5) ** 2 - 0.125 * tau[:, None] ** 2
    weights = np.exp(log - log.max())
    weights /= weights.sum()
    assert ks(draws[:, 0], mu + 0.0025, np.cumsum(weights.sum(axis=0))) < FURTHEST
    assert ks(draws[:, 1], tau + 0.5 / 600, np.cumsum(weights.sum(axis=1))) < FURTHEST
    for i in (int(s.argmin()), int(s.argmax())):
        share = s[i] ** 2 / (s[i] ** 2 + draws[:, 1] ** 2)
        z = (draws[:, 2 + i] - m[i] - share * (draws[:, 0] - m[i])) / (draws[:, 1] * np.sqrt(share))
        assert math.sqrt(len(z)) * stats.kstest(z, "norm").statistic < FURTHEST


def normal_likelihood(pooled, mean, sd):
    edges = pooled.coordinate(np.linspace(mean - 7 * sd, mean + 7 * sd, 301))
    cells = Cells(edges[:-1], edges[1:])
    log = pooled.log_density(cells.middle) - 0.5 * ((pooled.parameter(cells.middle) - mean) / sd) ** 2
    weights = np.exp(log - log.max()) * np.diff(edges)
    return GridPosterior(pooled, cells, weights / weights.sum())


@pytest.mark.parametrize("tau", [1e-200, 1e-6, 0.3, 40.0, 1e5])
def test_hats_are_integrated_whatever_the_width(tau):
    nodes = np.array([-1.0, -0.5, 0.25, 2.0])
    for mu in (-0.6, 0.0, 3.0):
        falling, rising, below, above = integrals(nodes, np.array([mu]), np.array([tau]))
        assert falling.sum() + rising.sum() + below[0] + above[0] == pytest.approx(1, abs=1e-12)
        points = np.clip([mu - 8 * tau, mu, mu + 8 * tau], -1, 2)
        for i in range(3):
            h = nodes[i + 1] - nodes[i]

            def hat(v, i=i, h=h, mu=mu):
                return (v - nodes[i]) / h * stats.norm.pdf(v, mu, tau)

            if tau < 1e-100:  # a point
                wanted = (mu - nodes[i]) / h if nodes[i] < mu < nodes[i + 1] else 0.0
            else:
                wanted = integrate.quad(hat, nodes[i], nodes[i + 1], points=np.clip(points, nodes[i], nodes[i + 1]))[0]
            assert rising[0, i] == pytest.approx(wanted, rel=1e-6, abs=1e-9)


def test_pooled_groups_are_calibrated():
    """200 replicates, the ranks of mu, tau and three groups: 1,000. A calibrated engine fails with probability 1e-5."""
    like, prior = planned_groups("bernoulli", PRIORS["bernoulli"], per_group=150)
    rng = np.random.default_rng(8)
    u = np.concatenate([rank(rng, like, prior, "auto")[0] for _ in range(200)])
    assert gamma_p_value(gamma(u), len(u)) > 1e-5
    # A posterior whose sd is 15 % too small, seen through its normal scores.
    narrow = stats.norm.cdf(stats.norm.ppf(u) / 0.85)
    assert gamma_p_value(gamma(narrow), len(narrow)) < 1e-3


def test_one_groups_prior_is_that_of_the_hierarchy():
    """20,000 draws; a right distribution function fails with probability 1e-6."""
    for pooled in PRIORS.values():
        theta = pooled.rvs(np.random.default_rng(9), DRAWS)
        u = np.linspace(*pooled.coordinate_range(), 20_001)
        cdf = np.cumsum(np.exp(pooled.log_density(u))) * (u[1] - u[0])
        assert cdf[-1] == pytest.approx(1, abs=1e-4)
        assert ks(pooled.coordinate(theta), u, cdf) < FURTHEST


@pytest.mark.parametrize(("sigma", "has_mean", "has_sd"), [(0.4, True, True), (0.8, True, False), (1.2, False, False)])
def test_moments_of_a_positive_parameter_are_those_in_closed_form(sigma, has_mean, has_sd):
    """E exp(tau^2 / 2) of a half-normal tau is (1 - sigma^2)^(-1/2), E exp(2 tau^2) is (1 - 4 sigma^2)^(-1/2)."""
    pooled = Pooled("positive", Normal(0.5, 0.6), make("half_normal", sigma=sigma))
    mean = math.exp(0.5 + 0.18) / math.sqrt(1 - sigma**2) if has_mean else math.inf
    assert pooled.mean == pytest.approx(mean, rel=1e-4)
    square = math.exp(1 + 0.72) / math.sqrt(1 - 4 * sigma**2) if has_sd else math.inf
    assert pooled.sd == pytest.approx(math.sqrt(square - mean**2) if has_sd else math.inf, rel=1e-3)


def test_forecast_and_diagnostics_know_what_groups_share():
    seen, prior = released("bernoulli", 10)
    runs = [expected_widths(np.random.default_rng(seed), seen, prior, 4) for seed in range(4)]
    widths = [width for run in runs for width in run[2:]]
    assert len(runs[0]) == len(seen.model.parameters) == len(prior.mean) == len(prior.sd) == 5
    assert seen.model.parameters[:3] == ("logit_p_mean", "logit_p_sd", "p[g0]")
    assert all(each.non_private > 0 for each in widths)
    assert sum(each.non_private for each in widths) < sum(each.private for each in widths)
    found = diagnose(np.random.default_rng(12), seen, prior, infer(np.random.default_rng(13), seen, prior, 400))
    assert len(found.noise_ratio) == 3
    assert found.noise_share == ()
    assert found.prior_p > 1e-4


def test_a_group_that_others_contradict_is_named():
    pooled = Pooled("positive", Normal(1, 0.7), make("uniform", lower=1e-5, upper=2e-5))
    like, prior = planned_groups("poisson", pooled, n_groups=8, per_group=1000)
    seen = simulate(np.random.default_rng(14), like, np.array([0, 0, *[2.0] * 7, 8.0])).observation
    with pytest.raises(InferenceError, match="contradicts the pooled prior: group g"):
        infer(np.random.default_rng(15), seen, prior, 400)


@pytest.mark.parametrize(("n_far", "is_refused"), [(0, False), (1, False), (40, True)])
def test_one_draw_far_in_the_tail_contradicts_nothing_and_one_in_a_hundred_does(n_far, is_refused):
    """Two groups ten sds apart: where tau is far below their distance the second is drawn to the first."""
    groups = []
    for mean, sd in ((0.0, 0.01), (0.2, 0.02)):
        edges = mean + sd * np.linspace(-6, 6, 121)
        middle = (edges[1:] + edges[:-1]) / 2
        groups.append(Known(edges[:-1], edges[1:], middle, -0.5 * ((middle - mean) / sd) ** 2, mean, sd))
    [block] = blocks(groups)
    mu, tau = np.zeros(4000), np.full(4000, 0.3)
    tau[:n_far] = 0.002
    with pytest.raises(InferenceError, match="group second is drawn") if is_refused else nullcontext():
        _draw_block(np.random.default_rng(20), block, groups, mu, tau, ("first", "second"))


def test_an_engine_without_a_likelihood_is_refused():
    seen, prior = released("bernoulli", 16)

    def without(each, of_group):
        return replace(infer(np.random.default_rng(18), each, of_group, 4), grid=None)

    with pytest.raises(InferenceError, match="use auto, lattice or edgeworth"):
        infer_pooled(np.random.default_rng(17), without, seen, prior, 400)


def test_tails_that_float64_cannot_hold_are_refused():
    with pytest.raises(ValueError, match="give mean and sd priors with lighter tails"):
        Pooled("positive", Normal(0, 1), make("half_cauchy", beta=1))
