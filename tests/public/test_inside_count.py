"""The count of records inside the bounds: its sensitivity, its sums, its engines against enumeration, and what it cures."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from decimal import Decimal
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from cases import BY_NAME, CASES, joint_observation
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from dp_dask.core.bounds import Bounds, Outside
from dp_dask.core.cells import choose_cells
from dp_dask.core.priors import Gamma, Normal
from dp_dask.core.privacy import Neighbours
from dp_dask.core.release import Request
from dp_dask.core.table_sum import TableSum, make_table, with_inside_count
from dp_dask.entries.measurement import Privacy, make_statistic
from dp_dask.errors import InferenceError
from dp_dask.private.kernels import new_scratch
from dp_dask.private.sums import sum_batch
from dp_dask.public.calibration import ranks
from dp_dask.public.engines import lattice_inside
from dp_dask.public.infer import infer
from dp_dask.public.joint import JointObservation
from dp_dask.public.noise_law import Gaussian, Laplace
from dp_dask.public.observe import planned
from dp_dask.public.private_n import private_counts
from dp_dask.public.simulation import expected_widths, simulate
from dp_dask.public.uniformity import gamma, gamma_p_value, uniformity

REPLACE, ADD_REMOVE = Neighbours.REPLACE, Neighbours.ADD_REMOVE
UNBOUNDED = [case for case in CASES if case.model.natural_bounds is None]
every_model = pytest.mark.parametrize("case", UNBOUNDED, ids=[case.name for case in UNBOUNDED])


def counted(case, share=0.5, *, n=50, neighbours=REPLACE, epsilon=1.0, bounds=None):
    """The statistic that a pipeline file would get; ``share`` None is truncation alone."""
    privacy = Privacy(neighbours, n) if neighbours is REPLACE else Privacy(neighbours, None, float(n))
    return make_statistic(case.model, "x", bounds or case.bounds, Outside.TRUNCATE, privacy, epsilon, share)


def plan(case, share=0.5, *, n, epsilon, neighbours=REPLACE, made=None, bounds=None):
    made = made or counted(case, share, n=n, neighbours=neighbours, epsilon=epsilon, bounds=bounds)
    public = n if neighbours is REPLACE else None
    request = Request(dataset="d", statistic=made, neighbours=neighbours, n=public, epsilon=Decimal(str(epsilon)))
    return planned(request, case.model, None if neighbours is REPLACE else float(n))


def coarse(case, share=0.5, n_cells=5, weight=0):
    """A statistic of so few cells that all sets of records can be listed."""
    cells = choose_cells(case.bounds, case.model.spacing or "even", is_integer=False, wanted=n_cells)
    t = case.model.statistic(cells.middles(case.bounds))[None]
    table, units, origins = make_table(t, n_units=8, is_centred=True)
    made = TableSum(
        column="x", bounds=case.bounds, outside=Outside.TRUNCATE, cells=cells, table=table, units=units, origins=origins,
        count_weight=weight,
    )  # fmt: skip
    return with_inside_count(made, share)


# Sensitivity


@every_model
@given(share=st.floats(1e-3, 0.999), records=st.tuples(*[st.floats(allow_nan=True, allow_infinity=True)] * 2))
def test_no_neighbour_moves_the_vector_by_more_than_its_sensitivity(case, share, records):
    one, other = counted(case, share).contributions(np.array(records))
    assert int(np.abs(one - other).sum()) <= counted(case, share).sensitivity(REPLACE)
    private = counted(case, share, neighbours=ADD_REMOVE)
    moves = np.abs(private.contributions(np.array(records))).sum(axis=1) + private.count_weight
    assert int(moves.max()) <= private.sensitivity(ADD_REMOVE)


@every_model
@pytest.mark.parametrize("share", [0.05, 0.5, 0.8])
def test_the_sensitivity_is_attained_and_is_what_the_docstring_says(case, share):
    """Over all pairs of cells and the zero of a record outside."""
    for neighbours in Neighbours:
        made = counted(case, share, neighbours=neighbours)
        rows, weight = made.rows, made.inside_weight
        largest, width = int(np.abs(rows[0]).max()), int(np.ptp(rows[0]))
        added = made.count_weight + largest + weight
        assert made.sensitivity(ADD_REMOVE) == added
        assert made.sensitivity(REPLACE) == max(width, largest + weight)
        assert weight == max(1, round(largest * share / (1 - share)))
        ends = made.cells.middles(made.bounds)[[int(rows[0].argmin()), int(rows[0].argmax())]]
        inside = made.contributions(np.array([*ends, made.bounds.upper + 1, math.nan]))
        assert (inside[2:] == 0).all()
        pairs = [int(np.abs(a - b).sum()) for a, b in itertools.combinations(inside, 2)]
        assert max(pairs) == made.sensitivity(REPLACE)
        assert int(np.abs(inside).sum(axis=1).max()) + made.count_weight == added


def test_half_of_epsilon_costs_nothing_where_n_is_public():
    made = counted(BY_NAME["normal"])
    alone = replace(made, table=made.table[:1], units=made.units[:1], origins=made.origins[:1])
    assert made.sensitivity(REPLACE) <= alone.sensitivity(REPLACE) + 1


def test_a_table_of_functions_has_no_inside_count_and_one_that_clamps_can_have_none():
    made = counted(BY_NAME["gamma"])
    assert replace(made, outside=Outside.CLAMP).inside_weight == 0
    assert replace(made, table=made.table[::-1]).inside_weight == 0
    with pytest.raises(ValueError, match="inside_count is for outside: truncate"):
        with_inside_count(replace(made, outside=Outside.CLAMP), 0.5)
    for share in (0.0, 1.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="above 0 and below 1"):
            with_inside_count(made, share)


def test_bounds_that_nothing_lies_outside_are_refused():
    for name, bounds in (("bernoulli", Bounds(0, 1)), ("beta", Bounds(0, 1))):
        with pytest.raises(ValueError, match="no record of this model lies outside these bounds"):
            counted(BY_NAME[name], bounds=bounds)


# Sums


@every_model
def test_the_sums_add_up_over_partitions_and_equal_their_definition(case):
    rng = np.random.default_rng(3)
    values = case.model.simulate(float(case.theta[0]), 3000, rng)
    values[::50] = math.nan
    made = counted(case)
    parts = [sum_batch(made, {"x": pa.array(part)}, new_scratch()) for part in np.array_split(values, 7)]
    assert tuple(map(sum, zip(*parts, strict=True))) == tuple(made.contributions(values).sum(axis=0))
    is_inside = (values >= case.bounds.lower) & (values <= case.bounds.upper)
    assert sum(part[1] for part in parts) == made.inside_weight * int(is_inside.sum())


# Engines against all sets of records


def enumerate_posterior(like, law, scale):
    """Weights of 2,000 parameters of equal prior mass, by every possible set of cells that n records can be in, n up to 4."""
    theta = law.ppf((np.arange(2000) + 0.5) / 2000)
    inside, outside = like.probabilities(theta[:, None])
    p = np.hstack([inside, outside[:, None]])
    values = np.hstack([like.statistic.rows, np.zeros((2, 1), dtype=np.int64)])
    weight = np.zeros(len(theta))
    numbers = [like.n] if like.n is not None else range(5)
    for n in numbers:
        of_n = np.zeros(len(theta))
        for chosen in itertools.combinations_with_replacement(range(p.shape[1]), n):
            _, repeats = np.unique(chosen, return_counts=True)
            ways = math.factorial(n) / math.prod(map(math.factorial, repeats.tolist()))
            s = values[:, list(chosen)].sum(axis=1)
            noise = math.exp(-float(np.abs(np.array(like.y) - s).sum()) / scale)
            of_n += ways * noise * p[:, list(chosen)].prod(axis=1)
        if like.n is None:
            g = like.expected_n / (like.expected_n + 1)
            of_n *= g**n * math.exp(-abs(like.count - like.statistic.count_weight * n) / scale)
        weight += of_n
    return theta, weight / weight.sum()


def cdf_distance(table, theta, weight):
    """The same for a tabulated posterior, at the middle of every fortieth weight."""
    middle = np.cumsum(weight) - weight / 2
    return max(abs(table.cdf(float(theta[i])) - middle[i]) for i in range(0, len(theta), 40))


def distance(draws, theta, weight):
    """The largest distance of the draws' distribution function from the weights', at the weights' parameters."""
    found = np.searchsorted(np.sort(draws), theta, side="right") / len(draws)
    return float(np.abs(found - np.cumsum(weight)).max())


@pytest.mark.parametrize("n", [1, 2, 4])
@pytest.mark.parametrize(
    ("name", "prior", "law"), [("exponential", Gamma(2, 1), stats.gamma(2)), ("normal", Normal(0, 4), stats.norm(0, 4))]
)
def test_the_engines_equal_the_enumeration_of_all_records(n, name, prior, law):
    """lattice_inside to 0.001; kernel_is by 8,000 draws, KS p above 1e-5 (2.5 / sqrt(8000); the weights are known to 0.005).

    Noise of 0.7 and 1.3 times the scale is seen at n = 1; clt_grid, no engine for so few records, has its estimate of error more.
    """
    case = BY_NAME[name]
    rng = np.random.default_rng(n)
    like = plan(case, n=n, epsilon=6.0, made=coarse(case))
    seen = replace(like, y=(-int(like.statistic.rows[0].max()) * n // 2, like.statistic.inside_weight * n))
    theta, weight = enumerate_posterior(seen, law, seen.scale)
    limit = 2.5 / math.sqrt(8000) + 0.005
    table = infer(rng, seen, prior, 4, "lattice_inside").grid
    assert cdf_distance(table, theta, weight) < 1e-3
    exact = infer(rng, seen, prior, 8000, "kernel_is").draws.ravel()
    assert distance(exact, theta, weight) < limit
    if (name, n) == ("normal", 1):
        for factor in (0.7, 1.3):
            wrong = enumerate_posterior(seen, law, factor * seen.scale)[1]
            assert distance(exact, theta, wrong) > limit
            assert cdf_distance(table, theta, wrong) > 0.03
    if n == 4:
        near = infer(rng, seen, prior, 8000, "clt_grid")
        assert distance(near.draws.ravel(), theta, weight) < limit + near.error


def test_a_private_n_is_enumerated_too():
    """A noisy count that leaves n up to 4: epsilon 12 makes more than four records improbable (below 1e-4)."""
    case, prior, law = BY_NAME["normal"], Normal(0, 4), stats.norm(0, 4)
    made = coarse(case, weight=8)
    like = replace(plan(case, n=2, epsilon=12.0, neighbours=ADD_REMOVE, made=made), y=(6, made.inside_weight * 2), count=8 * 2)
    theta, weight = enumerate_posterior(like, law, like.scale)
    rng = np.random.default_rng(1)
    draws = infer(rng, like, prior, 4000, "kernel_is").draws.ravel()
    assert distance(draws, theta, weight) < 2.5 / math.sqrt(4000) + 0.005
    assert cdf_distance(infer(rng, like, prior, 4, "lattice_inside").grid, theta, weight) < 1e-3


# The exact engine


@every_model
@pytest.mark.parametrize(("n", "epsilon", "neighbours"), [(40, 8.0, REPLACE), (40, 8.0, ADD_REMOVE), (20_000, 1.0, REPLACE)])
def test_the_exact_engine_agrees_with_the_normal_approximation_as_far_as_that_goes(case, n, epsilon, neighbours, monkeypatch):
    """By sd and by cdf: a tenth of a sd and 0.05 of probability at n = 40, where the sums are not normal; 0.02 at n = 20,000."""
    monkeypatch.setattr(lattice_inside, "AFFORDABLE", 1e10)
    like = plan(case, n=n, epsilon=epsilon, neighbours=neighbours)
    seen = simulate(np.random.default_rng(21), like, np.array([case.theta[0]])).observation
    rng = np.random.default_rng(22)
    exact, near = (infer(rng, seen, case.prior, 4, engine).grid for engine in ("lattice_inside", "clt_grid"))
    limit = 0.02 if n > 1000 else 0.12
    v = case.prior.parameter(exact.cells.middle[::16])
    assert max(abs(exact.cdf(float(x)) - near.cdf(float(x))) for x in v) < limit
    assert exact.sd == pytest.approx(near.sd, rel=0.03 if n > 1000 else 0.15)


def test_its_two_ways_to_the_characteristic_function_are_one(monkeypatch):
    """By one FFT, which few records take, and by products over runs of frequencies."""
    case = BY_NAME["gamma"]
    seen = simulate(np.random.default_rng(3), plan(case, n=8, epsilon=8.0), np.array([1.0])).observation
    theta = np.linspace(0.4, 2.5, 12)
    monkeypatch.setattr(lattice_inside, "AFFORDABLE", 1e12)
    by_fft = lattice_inside.log_likelihood(seen, theta)
    monkeypatch.setattr(lattice_inside.math, "log2", lambda _: 1e9)
    by_runs = lattice_inside.log_likelihood(seen, theta)
    np.testing.assert_allclose(by_runs, by_fft, atol=1e-9)
    assert np.ptp(by_fft) > 1


def test_what_it_cannot_do_it_says():
    case = BY_NAME["exponential"]
    rng = np.random.default_rng(0)
    with pytest.raises(InferenceError, match="operations for this release; use clt_grid, or auto"):
        infer(rng, plan(case, n=100, epsilon=0.05), case.prior, 100, "lattice_inside")
    two = joint_observation(BY_NAME["normal_mu_sigma"], n=10, epsilon=1.0, outside=Outside.TRUNCATE)
    with pytest.raises(InferenceError, match="released with inside_count"):
        infer(rng, two, BY_NAME["normal_mu_sigma"].prior, 100, "lattice_inside")
    seen = replace(plan(case, n=50, epsilon=8.0), y=(10**9, 25 * 900))
    with pytest.raises(InferenceError, match="beyond what n = 50 records"):
        infer(rng, seen, case.prior, 100, "lattice_inside")


@pytest.mark.parametrize("y", [(10**7, -(10**7)), (-(10**7), 10**7), (0, 10**7), (0, -(10**7))])
def test_a_release_that_contradicts_everything_gives_a_posterior_or_a_refusal_and_never_a_nan(y):
    case = BY_NAME["normal"]
    for n, epsilon in ((5, 8.0), (300, 1.0)):
        seen = replace(plan(case, n=n, epsilon=epsilon), y=y)
        try:
            draws = infer(np.random.default_rng(1), seen, case.prior, 100).draws
        except InferenceError:
            continue
        assert np.isfinite(draws).all()


@pytest.mark.parametrize(
    ("n", "epsilon", "engine"), [(4, 0.5, "clt_grid"), (20, 8.0, "lattice_inside"), (50_000, 1.0, "clt_grid")]
)
def test_auto_takes_an_exact_engine_where_the_normal_approximation_is_not_good_enough(n, epsilon, engine):
    case = BY_NAME["normal"]
    seen = simulate(np.random.default_rng(2), plan(case, n=n, epsilon=epsilon), np.array([1.0])).observation
    assert infer(np.random.default_rng(3), seen, case.prior, 100).engine == engine


# Calibration


def narrowed(u, factor):
    """The same ranks, had the posteriors' sd been so many times the right one."""
    return special.ndtr(special.ndtri(np.clip(u, 1e-9, 1 - 1e-9)) / factor)


@pytest.mark.parametrize(
    ("neighbours", "cells"), [(REPLACE, [(6, 6.0, 200), (1000, 1.0, 400)]), (ADD_REMOVE, [(30, 8.0, 30), (3000, 1.0, 40)])]
)
def test_auto_is_calibrated(neighbours, cells):
    """Ranks pooled over a small n, where an exact engine is taken, and a large one; if calibrated it fails with probability 1e-5.

    600 of them do not pass an sd 15 % too small, nor 30 % off either way.
    """
    case = BY_NAME["poisson"]
    pooled = []
    for n, epsilon, replicates in cells:
        like = plan(case, n=n, epsilon=epsilon, neighbours=neighbours)
        pooled.append(ranks(np.random.SeedSequence(n), like, case.prior, replicates, "auto")[:, 0])
    u = np.concatenate(pooled)
    assert gamma_p_value(gamma(u), len(u)) > 1e-5
    if neighbours is REPLACE:
        for factor in (0.7, 0.85, 1.3):
            assert not uniformity(narrowed(u, factor)).passes


# What it is for


@pytest.mark.parametrize(("name", "prior", "bounds"), [
    ("exponential", Gamma(1, 0.25), Bounds(0.0063, 0.9222)),
    ("normal", Normal(0, 2), Bounds(-4, 4)),
])  # fmt: skip
def test_the_count_makes_the_posterior_of_a_truncated_sum_narrower(name, prior, bounds):
    """n = 1,000, epsilon 1, wide priors, 30 releases of each: the second mode is gone."""
    case = replace(BY_NAME[name], bounds=bounds)
    widths = [
        expected_widths(np.random.default_rng(4), like, prior, 30)[0].private
        for like in (plan(case, None, n=1000, epsilon=1.0), plan(case, n=1000, epsilon=1.0))
    ]
    assert widths[1] < 0.85 * widths[0]


def test_it_is_a_release_of_two_sums_of_which_the_family_knows_the_width_without_privacy():
    case = BY_NAME["exponential"]
    like = plan(case, n=200, epsilon=1.0)
    assert isinstance(like, JointObservation)
    width = expected_widths(np.random.default_rng(5), like, case.prior, 4)[0]
    assert 0 < width.non_private < width.private < case.prior.sd


def test_no_records_give_the_prior_back():
    case = BY_NAME["exponential"]
    draws = infer(np.random.default_rng(6), plan(case, n=0, epsilon=1.0), Gamma(4, 2), 8000).draws
    assert draws.mean() == pytest.approx(2, abs=0.06)
    assert draws.std() == pytest.approx(1, rel=0.05)


def test_engines_of_one_sum_say_what_they_serve():
    like = plan(BY_NAME["exponential"], n=50, epsilon=1.0)
    with pytest.raises(InferenceError, match="lattice serves releases of one sum"):
        infer(np.random.default_rng(0), like, Gamma(1, 1), 100, "lattice")


def test_a_release_beyond_a_million_records_is_simulated_by_its_cells():
    case = BY_NAME["normal"]
    like = plan(case, n=3_000_000, epsilon=1.0)
    seen = simulate(np.random.default_rng(7), like, np.array([1.0])).observation
    draws = infer(np.random.default_rng(8), seen, case.prior, 400).draws
    assert abs(draws.mean() - 1.0) < 6 * draws.std()


@pytest.mark.parametrize("law", [Laplace, Gaussian])
@pytest.mark.parametrize(
    ("expected_n", "scale", "count"), [(1000, 1e4, 95_000), (1, 1000, 20_000), (1000, 300, 1200), (0.01, 50, 400)]
)
def test_a_private_n_lies_where_prior_and_noisy_count_put_it(law, expected_n, scale, count):
    """However they contradict each other: against all whole numbers up to 200,000."""
    like = SimpleNamespace(statistic=SimpleNamespace(count_weight=1), count=count, noise=law(scale), expected_n=expected_n)
    n, logs = private_counts(like)
    whole = np.arange(200_000.0)
    wanted = law(scale).decay(count - whole) - whole * np.log1p(1 / expected_n)
    weights, exact = np.exp(logs - logs.max()), np.exp(wanted - wanted.max())
    assert weights @ n / weights.sum() == pytest.approx(exact @ whole / exact.sum(), rel=1e-9)
