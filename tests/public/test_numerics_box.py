"""Odd numerics, engine by engine, through ``infer``: a right posterior or a refusal in words, and nothing else.

Deterministic (derandomized); pytest turns every warning into an error, so that an overflow that escapes fails here too.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np
import pytest
from cases import BY_NAME, CASES, JOINT_CASES, joint_observation, observation
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from dp_dask.core.bounds import Bounds, Outside
from dp_dask.core.categories import CategoryCounts
from dp_dask.core.dirichlet import Dirichlet
from dp_dask.core.gram import gram_sum
from dp_dask.core.grid import Grid
from dp_dask.core.joint_priors import Independent
from dp_dask.core.prior_kinds import make
from dp_dask.core.priors import Beta, Gamma, Normal
from dp_dask.core.privacy import Neighbours
from dp_dask.core.wishart import NormalInverseWishart
from dp_dask.errors import ConfigError, InferenceError
from dp_dask.models.multivariate_normal import MultivariateNormal
from dp_dask.public.characteristic import turned
from dp_dask.public.counts import CountsObservation
from dp_dask.public.engines import edgeworth
from dp_dask.public.gram_likelihood import GramObservation
from dp_dask.public.gram_report import GramPrior
from dp_dask.public.infer import infer

SECONDS = 20.0  # of one processor, that one posterior may take
PRIORS = {
    "positive": (
        Gamma(1, 1), Gamma(0.05, 1), Gamma(1e6, 1), Gamma(1e6, 1e6), Gamma(2, 1e-6), make("half_cauchy", beta=1.0),
        make("half_cauchy", beta=1e4), make("inverse_gamma", alpha=0.5, beta=1.0), make("lognormal", mu=0, sigma=20),
        make("scipy", name="invgauss", mu=0.5), make("uniform", lower=0.5, upper=2.0), make("weibull", alpha=0.3, beta=1.0),
    ),
    "probability": (
        Beta(1, 1), Beta(0.05, 0.05), Beta(1e6, 1e6), Beta(1e6, 1), Beta(1, 1e9), make("uniform", lower=0.1, upper=0.3),
    ),
    "real": (
        Normal(0, 2), Normal(0, 1e9), Normal(1e6, 1e-3), Normal(0, 1e-9), make("cauchy", alpha=0, beta=1e6),
        make("student_t", nu=1.5, mu=0, sigma=2.0), make("uniform", lower=-5, upper=100),
    ),
}  # fmt: skip
ROOMS = {Beta: (0.0, 1.0), Gamma: (0.0, math.inf), Normal: (-math.inf, math.inf)}
PLACES = ("typical", "lowest", "highest", "below", "above", "end")
COUNTS = ("right", "zero", "negative", "far", "end")


def box(examples):
    return settings(max_examples=examples, derandomize=True, deadline=None, database=None)


def posterior(like, prior, engine, n_draws=400):
    """The inference, or None where it is refused in words."""
    began = time.process_time()
    try:
        found = infer(np.random.default_rng(1), like, prior, n_draws, engine)
    except (InferenceError, ConfigError):
        found = None
    assert time.process_time() - began < SECONDS
    if found is not None:
        assert np.isfinite(found.draws).all()
        assert found.error is None or 0 <= found.error <= 1 + 1e-9
    return found


def placed(place, n, low, high, mean, scale):
    y = {
        "typical": n * mean, "lowest": n * low, "highest": n * high,
        "below": n * low - 50 * scale, "above": n * high + 50 * scale, "end": 2.0**62,
    }[place]  # fmt: skip
    return int(np.clip(round(y), -(2**62), 2**62))


def counted(how, weight, n, scale):
    counts = {"right": weight * n, "zero": 0, "negative": -3 * scale, "far": weight * n + 300 * scale, "end": 2.0**62}
    return int(min(round(counts[how]), 2**62))


@st.composite
def releases(draw):
    """A release of one sum, a prior, and an engine that may be asked of it."""
    case = draw(st.sampled_from(CASES))
    prior = draw(st.sampled_from([case.prior, *PRIORS[case.model.domains[0]]]))
    outside = Outside.CLAMP if case.model.natural_bounds is not None else draw(st.sampled_from(list(Outside)))
    neighbours = draw(st.sampled_from(list(Neighbours)))
    n = draw(st.sampled_from([0, 1, 2, 20, 1000, 10**5, 10**8, 10**12]))
    like = observation(case, n=max(n, 1), epsilon=1.0, outside=outside, neighbours=neighbours)
    sd = max(like.high - like.low, 1) / 4
    like = replace(like, scale=sd * 10.0 ** draw(st.integers(-9, 12)))
    with np.errstate(all="ignore"):
        theta = float(prior.rvs(np.random.default_rng(draw(st.integers(0, 99))), 1)[0])
        mean = float(np.nan_to_num(like.moments(np.array([theta])).mean[0]))
    y = placed(draw(st.sampled_from(PLACES)), n, like.low, like.high, mean, like.scale)
    if like.n is not None:
        return replace(like, n=n, y=y), prior, draw(st.sampled_from(["auto", "auto", "lattice", "edgeworth"]))
    count = counted(draw(st.sampled_from(COUNTS)), like.statistic.count_weight, n, like.scale)
    expected = draw(st.sampled_from([None, 1e-3, 1.0, 1e6]))
    engine = draw(st.sampled_from(["auto", "auto", "lattice", "edgeworth"]))
    return replace(like, y=y, count=count, expected_n=expected), prior, engine


@given(releases())
@box(60)
def test_one_sum_has_a_posterior_under_its_prior_or_a_refusal(release):
    like, prior, engine = release
    found = posterior(like, prior, engine)
    if found is None:
        return
    low, high = ROOMS.get(type(prior)) or prior.support
    assert low <= found.draws.min()
    assert found.draws.max() <= high
    start, end = prior.coordinate_range()
    slack = 1e-9 * (end - start)
    assert found.grid.cells.left[0] >= start - slack
    assert found.grid.cells.right[-1] <= end + slack
    assert (found.grid.weights >= 0).all()
    assert found.grid.weights.sum() == pytest.approx(1)


@st.composite
def small(draw):
    """A release of a few records on a coarse grid, whose likelihood can be added up record by record, anywhere in the box."""
    case = draw(st.sampled_from([case for case in CASES if case.model.spacing is None]))
    outside = Outside.CLAMP if case.model.natural_bounds is not None else draw(st.sampled_from(list(Outside)))
    unit = 2.0 ** math.ceil(math.log2(case.bounds.width / 8))
    unit = max(unit, 1.0) if case.model.is_integer else unit
    lower, upper = round(case.bounds.lower / unit), round(case.bounds.upper / unit)
    grid = Grid(unit=unit, lower=lower, upper=upper, origin=min(max(0, lower), upper))
    n = draw(st.integers(0, 6))
    like = observation(case, n=n, epsilon=1.0, outside=outside, grid=grid)
    like = replace(like, scale=10.0 ** draw(st.integers(-2, 6)))
    y = draw(st.integers(n * like.low, n * like.high)) if like.scale < 0.1 else draw(
        st.integers(round(n * like.low - 2 * like.scale), round(n * like.high + 2 * like.scale))
    )  # fmt: skip
    return replace(like, y=y), draw(st.sampled_from([case.prior, *PRIORS[case.model.domains[0]]]))


def added_up(like, theta):
    """log p(y | theta) by adding one record after another; nothing of the engines is used."""
    cells, pmf = like.pmf(theta)
    law = np.ones((len(theta), 1))
    for _ in range(like.n):
        longer = np.zeros((len(theta), law.shape[1] + len(cells) - 1))
        for j in range(len(cells)):
            longer[:, j : j + law.shape[1]] += pmf[:, j : j + 1] * law
        law = longer
    sums = like.n * int(cells[0]) + np.arange(law.shape[1])
    with np.errstate(divide="ignore"):
        return special.logsumexp(np.log(law) - np.abs(like.y - sums) / like.scale, axis=1)


def dense(like, prior, at):
    """Mean and sd of the coordinate by the trapezoidal rule over the prior's whole range, dense around the model's own scale."""
    start, end = prior.coordinate_range()
    near = at + np.linspace(-10, 10, 4001)
    v = np.unique(np.concatenate([np.linspace(start, end, 4001), near[(near > start) & (near < end)]]))
    density = added_up(like, prior.parameter(v)) + prior.log_density(v)
    width = (np.diff(v, prepend=v[0]) + np.diff(v, append=v[-1])) / 2
    weights = np.exp(density - density.max()) * width
    weights /= weights.sum()
    mean = weights @ v
    return mean, math.sqrt(weights @ (v - mean) ** 2)


@given(small())
@box(60)
def test_few_records_have_the_posterior_of_a_dense_quadrature(release):
    """Mean and sd of the coordinate within 2 % of the sd; what is 15 % too narrow fails by far."""
    like, prior = release
    found = posterior(like, prior, "auto")
    if found is None:
        return
    case = next(case for case in CASES if isinstance(like.model, type(case.model)))
    at = float(prior.coordinate(np.array([case.theta[0]]))[0]) if not isinstance(prior, Normal) else 0.0
    mean, sd = dense(like, prior, at if math.isfinite(at) else 0.0)
    cells, weights = found.grid.cells, found.grid.weights
    centre = weights @ cells.middle
    spread = math.sqrt(weights @ ((cells.middle - centre) ** 2 + (cells.right - cells.left) ** 2 / 12))
    assert abs(centre - mean) < 0.02 * sd
    assert spread == pytest.approx(sd, rel=0.02)


@given(st.data())
@box(25)
def test_categories_have_a_posterior_on_the_simplex_or_a_refusal(data):
    k = data.draw(st.sampled_from([2, 3, 10, 1000, 10_000]))
    n = data.draw(st.sampled_from([0, 1, 1000, 10**6, 10**12] if k < 100 else [0, 1, 1000]))
    scale = 10.0 ** data.draw(st.integers(-9, 5 if k < 100 else 2))
    alpha = data.draw(st.sampled_from([1e-3, 0.5, 1.0, 1e3]))
    kind = data.draw(st.sampled_from(["one holds all", "even", "all hold all", "negative", "end"]))
    y = np.zeros(k, dtype=np.int64)
    if kind == "one holds all":
        y[0] = n
    elif kind == "even":
        y[:] = n // k
    elif kind == "all hold all":
        y[:] = n
    elif kind == "negative":
        y[:] = -math.ceil(3 * scale)
    else:
        y[0], y[1] = 2**62, -(2**62)
    is_public = data.draw(st.booleans())
    like = CountsObservation(
        model=None,
        statistic=CategoryCounts(column="x", categories=tuple(range(k))),
        n=n if is_public else None,
        scale=scale,
        y=tuple(y.tolist()),
        expected_n=None if is_public else data.draw(st.sampled_from([None, 1e-3, 1e6])),
    )
    engine = data.draw(st.sampled_from(["auto", "tree", "factorised"]))
    found = posterior(like, Dirichlet((alpha,) * k), engine, 40)
    if found is not None:
        assert (found.draws >= 0).all()
        np.testing.assert_allclose(found.draws.sum(axis=-1), 1, atol=1e-9)


@given(st.data())
@box(12)
def test_two_parameters_have_a_posterior_or_a_refusal(data):
    case = data.draw(st.sampled_from(JOINT_CASES))
    n = data.draw(st.sampled_from([0, 1, 50, 10**5, 10**12]))
    epsilon = data.draw(st.sampled_from([1e-6, 0.01, 1.0, 1000.0]))
    outside, neighbours = data.draw(st.sampled_from(list(Outside))), data.draw(st.sampled_from(list(Neighbours)))
    like = joint_observation(case, n=max(n, 1), epsilon=epsilon, outside=outside, neighbours=neighbours)
    vague = {"real": (Normal(0, 1), Normal(0, 1e9)), "positive": (Gamma(2, 1), Gamma(1e6, 1e6), make("half_cauchy", beta=1.0))}
    own = Independent(tuple(data.draw(st.sampled_from(vague[domain])) for domain in case.model.domains))
    prior = data.draw(st.sampled_from([case.prior, own]))
    theta = prior.rvs(np.random.default_rng(data.draw(st.integers(0, 99))), 1)
    with np.errstate(all="ignore"):
        mean = np.nan_to_num(like.moments(theta).mean[0])
    place = data.draw(st.sampled_from(PLACES))
    ranges = zip(like.statistic.rows, mean, strict=True)
    y = tuple(placed(place, n, min(row.min(), 0), max(row.max(), 0), float(m), like.scale) for row, m in ranges)
    like = replace(like, y=y)
    if like.n is None:
        how = data.draw(st.sampled_from(COUNTS))
        like = replace(like, count=counted(how, like.statistic.count_weight, n, like.scale))
    else:
        like = replace(like, n=n)
    posterior(like, prior, data.draw(st.sampled_from(["auto", "clt_grid"])))


@pytest.mark.parametrize(
    ("n", "scales", "share"),
    [(10**12, 1e-3, (0.1, 0.0, 0.2, 0.05, 0.2)), (20, 1.0, (2.0**40,) * 5)],
)
def test_several_columns_have_a_posterior_or_a_refusal(n, scales, share):
    statistic = gram_sum("xy", [Bounds(-1, 1)] * 2, Neighbours.REPLACE, n)
    like = GramObservation(
        statistic=statistic,
        n=n,
        scale=statistic.sensitivity(Neighbours.REPLACE) * scales,
        y=tuple(int(min(n * each * statistic.unit, 2**62)) for each in share),
        model=MultivariateNormal(columns={"x": (-1, 1), "y": (-1, 1)}),
    )
    wishart = NormalInverseWishart.scaled(2, mean_scale=0.4, sd_scale=0.5, nu0=6)
    found = posterior(like, GramPrior(wishart, like.model, statistic), "auto", 40)
    assert (found is None) is (share[0] > 1)


@pytest.mark.parametrize("prior", [Normal(0, 300), Normal(0, 1e4), Normal(0, 1e9), make("cauchy", alpha=0, beta=1e6)])
def test_a_wide_prior_hides_no_posterior_of_truncated_records(prior):
    """Only locations about the bounds give a sum at all: a place a billionth as wide as the prior; a zoom once gave the prior."""
    case = BY_NAME["normal"]
    like = observation(case, n=1000, epsilon=1.0, outside=Outside.TRUNCATE)
    like = replace(like, y=round(1000 * float(like.moments(np.array([0.4])).mean[0])))
    found = infer(np.random.default_rng(1), like, prior, 400).grid
    theta = np.linspace(-40, 40, 8001)
    v = prior.coordinate(theta)
    density = edgeworth._log_likelihood(like, theta)[1] + prior.log_density(v)
    weights = np.exp(density - density.max()) * np.gradient(v)
    weights /= weights.sum()
    mean = weights @ theta
    assert found.mean == pytest.approx(mean, abs=0.01)
    assert found.sd == pytest.approx(math.sqrt(weights @ (theta - mean) ** 2), rel=0.01)


@pytest.mark.parametrize("outside", list(Outside))
def test_a_wide_prior_of_two_parameters_hides_no_posterior(outside):
    case = BY_NAME["normal_mu_sigma"]
    like = joint_observation(case, n=3000, epsilon=1.0, outside=outside)
    y = tuple(int(value) for value in 3000 * like.moments(np.array([[0.4, 1.2]])).mean[0])
    seen = replace(like, y=y)
    narrow, wide = (
        infer(np.random.default_rng(1), seen, Independent((Normal(0, sd), Gamma(2, 1))), 4000).draws.reshape(-1, 2)
        for sd in (10, 1e6)
    )
    assert wide[:, 0].mean() == pytest.approx(narrow[:, 0].mean(), abs=0.005)  # 5 standard errors and more
    assert wide[:, 0].std() == pytest.approx(narrow[:, 0].std(), rel=0.1)
    with pytest.raises(InferenceError, match="times as wide as the bounds"):
        infer(np.random.default_rng(1), seen, Independent((Normal(0, 1e9), Gamma(2, 1))), 400)


@pytest.mark.parametrize(
    ("name", "prior"), [("rayleigh", make("half_cauchy", beta=1e4)), ("pareto", make("lognormal", mu=0, sigma=20))]
)
def test_a_sum_beyond_the_largest_has_its_closed_likelihood(name, prior):
    """y above n times the largest contribution: p(y | theta) is E[exp(c / scale)]^n, and no normal law is used."""
    like = observation(BY_NAME[name], n=10**6, epsilon=1e-3, outside=Outside.TRUNCATE)
    like = replace(like, y=round(10**6 * like.high + 20 * like.scale))
    found = infer(np.random.default_rng(1), like, prior, 400)
    assert found.engine == "lattice"
    cells, weights = found.grid.cells, found.grid.weights
    c, pmf = like.pmf(found.grid.theta)
    density = like.n * np.log1p(pmf @ np.expm1((c - like.high) / like.scale)) + prior.log_density(cells.middle)
    wanted = np.exp(density - density.max()) * (cells.right - cells.left)
    assert 0.5 * np.abs(wanted / wanted.sum() - weights).sum() < 1e-3


def test_the_posterior_of_a_trillion_records_is_the_normal_one():
    """S is normal there to 1e-5; lattice, asked for, rounds an sd by a third of a per cent, which auto does not."""
    case, n = BY_NAME["normal"], 10**12
    like = observation(case, n=n, epsilon=10.0)
    mean, variance = (float(values[0]) for values in like.moments(np.array([0.4]))[:2])
    low, high = like.moments(np.array([0.399, 0.401])).mean
    sd = math.sqrt(n * variance + 2 * like.scale**2) / (n * (high - low) / 0.002)
    like = replace(like, y=round(n * mean))
    found = infer(np.random.default_rng(1), like, case.prior, 400)
    assert found.engine == "edgeworth"
    assert found.grid.mean == pytest.approx(0.4, abs=0.01 * sd)
    assert found.grid.sd == pytest.approx(sd, rel=2e-3)


def test_a_phase_is_exact_where_its_product_is_beyond_64_bits():
    m, y, period = np.array([3, 10**9 + 7, 4 * 10**9]), 10**15 + 123, 2 * 10**15 + 7
    turns = np.array([int(each) * y % period for each in m]) / period
    np.testing.assert_allclose(turned(m, y, period), np.exp(-2j * np.pi * turns), atol=1e-12)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": 2**62}, "noise scales, all told, beyond what n = 20 records"),
        ({"y": -(2**62)}, "noise scales, all told, beyond what n = 20 records"),
        ({"scale": 1e17}, "does not fit in 64 bits"),
        ({"n": None, "count": -(10**9)}, "beyond what any number of records"),
        ({"n": None, "count": 2**62, "y": 2**61}, "more than .* records"),
    ],
)
def test_what_no_release_can_be_is_refused_in_words(changes, message):
    neighbours = Neighbours.ADD_REMOVE if "count" in changes else Neighbours.REPLACE
    like = replace(observation(BY_NAME["poisson"], n=20, epsilon=1.0, neighbours=neighbours), **changes)
    for engine in ("auto", "lattice", "edgeworth"):
        with pytest.raises(InferenceError, match=message):
            infer(np.random.default_rng(1), like, Gamma(1, 1), 400, engine)


def test_a_release_that_noise_can_make_is_never_called_impossible():
    """700 noise scales from the nearest sum are allowed, and so is one contradicted by the prior of n alone."""
    like = observation(BY_NAME["poisson"], n=20, epsilon=1.0)
    assert posterior(replace(like, y=round(20 * like.high + 600 * like.scale)), Gamma(1, 0.1), "auto") is not None
    private = observation(BY_NAME["poisson"], n=20_000, epsilon=1.0, neighbours=Neighbours.ADD_REMOVE, expected_n=0.01)
    assert posterior(replace(private, y=-60_000), Gamma(1, 0.1), "auto") is not None
