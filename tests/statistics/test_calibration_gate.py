"""The calibration gate: vague priors, fresh releases, ranks tested by the exact law of gamma.

The quick set runs 4 to 36 replicates in each cell of n and epsilon, with n public and private, and tests each model's 960
pooled ranks, which are uniform if and only if every cell's are. Some forty tests at p < 1e-6 and fixed seeds: calibrated engines
fail with probability 4e-5. The slow set (``-m slow``) judges every cell by itself, N = 2,000, Holm at 0.01, and prints the table.
"""

from __future__ import annotations

import numpy as np
import pytest
from cases import CASES, IDS, Case, observation
from scipy import special

from dp_dask.core.bounds import Bounds, Outside
from dp_dask.core.priors import Gamma, Normal
from dp_dask.core.privacy import Neighbours
from dp_dask.public.calibration import ranks
from dp_dask.public.engines import gibbs
from dp_dask.public.simulation import simulate
from dp_dask.public.uniformity import gamma, gamma_p_value, pass_mark, uniformity

SIZES, EPSILONS = (1, 5, 20, 100, 1000), (0.1, 1.0)
every_model = pytest.mark.parametrize("case", CASES, ids=IDS)
every_outside = pytest.mark.parametrize("outside", list(Outside))


def cell_ranks(case, outside, n, epsilon, replicates, engine="auto", key=0, neighbours=Neighbours.REPLACE):
    like = observation(case, n=n, epsilon=epsilon, outside=outside, neighbours=neighbours, expected_n=float(n))
    seed = np.random.SeedSequence([n, round(10 * epsilon), IDS.index(case.name), list(Outside).index(outside), key])
    return ranks(seed, like, case.prior, replicates, engine)[:, 0]


def narrowed(u, factor=0.85):
    """Return the ranks in posteriors whose sd is ``factor`` of what it should be."""
    return special.ndtr(special.ndtri(np.clip(u, 1e-12, 1 - 1e-12)) / factor)


@every_model
def test_auto_is_calibrated_in_the_quick_set(case):
    """Public n, private n, and epsilon 10, where the noise is narrow; by themselves, and together for the power."""
    cells = [(outside, n, epsilon) for outside in Outside for n in SIZES for epsilon in (*EPSILONS, 10.0)]
    of_public = [cell_ranks(case, *cell, 4 if cell[2] > 1 else 36) for cell in cells]
    of_private = [cell_ranks(case, *cell, 4 if cell[2] > 1 else 8, key=2, neighbours=Neighbours.ADD_REMOVE) for cell in cells]
    for u in (np.concatenate(of_public), np.concatenate(of_private)):
        assert gamma_p_value(gamma(u), len(u)) > 1e-6
    u = np.concatenate([*of_public, *of_private])
    assert not uniformity(narrowed(u)).passes  # the same ranks, had the posteriors been 15 % too narrow


@every_model
def test_lattice_is_calibrated_at_the_ends_of_the_range(case):
    u = np.concatenate([cell_ranks(case, Outside.CLAMP, n, 1.0, size, "lattice", key=1) for n, size in ((1, 200), (1000, 25))])
    assert gamma_p_value(gamma(u), len(u)) > 1e-6


def test_the_published_gibbs_fails_on_the_truncated_exponential():
    """n = 1,000, epsilon 1, bounds that keep the middle 95 % at the prior mean; KS about 0.1 was measured."""
    mean_rate = 4.0
    bounds = Bounds(-np.log(0.975) / mean_rate, -np.log(0.025) / mean_rate)
    case = Case("exponential", {}, Gamma(8, 2), bounds, ())
    like = observation(case, n=1000, epsilon=1.0, outside=Outside.TRUNCATE)
    rng = np.random.default_rng(2018)
    truths = case.prior.rvs(rng, 500)
    y = np.array([simulate(rng, like, float(theta)).observation.y for theta in truths], dtype=float)
    draws = gibbs.chains(rng, like, case.prior, y, 63, thin=60, warmup=500)
    u = (np.sum(draws < truths[:, None], axis=1) + rng.random(500)) / 64
    verdict = uniformity(u)
    assert not verdict.passes
    assert verdict.p_value < 1e-6
    assert verdict.ks > 0.05


def test_gibbs_agrees_with_lattice_where_the_normal_approximation_holds():
    case = Case("normal", {"sigma": 1.0}, Normal(0, 2), Bounds(-30, 30), ())
    like = observation(case, n=2000, epsilon=1.0, outside=Outside.TRUNCATE)
    rng = np.random.default_rng(4)
    pseudo = simulate(rng, like, 0.7).observation
    from dp_dask.public.infer import infer

    chain = infer(rng, pseudo, case.prior, 8000, "gibbs")
    exact = infer(rng, pseudo, case.prior, 8000, "lattice")
    assert chain.draws.mean() == pytest.approx(exact.grid.mean, abs=0.1 * exact.grid.sd)
    assert chain.draws.std() == pytest.approx(exact.grid.sd, rel=0.08)


@pytest.mark.parametrize("n", [100, 500])
def test_the_p_value_of_gamma_is_that_of_simulated_uniform_ranks(n):
    """4,000 null runs: the share below the 5 % point is within 5 standard errors of 5 %."""
    rng = np.random.default_rng(n)
    mark = pass_mark(n, 0.05)
    share = np.mean([gamma(rng.random(n)) < mark for _ in range(4000)])
    assert abs(share - 0.05) < 5 * np.sqrt(0.05 * 0.95 / 4000)


@pytest.mark.parametrize("factor", [0.85, 1.15])
def test_the_gate_has_power_where_ks_has_little(factor):
    u = narrowed(np.random.default_rng(6).random(2000), factor)
    assert not uniformity(u).passes


def test_the_gate_finds_a_biased_posterior():
    rng = np.random.default_rng(7)
    assert not uniformity(special.ndtr(rng.normal(0.2, 1, 1000))).passes


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["auto", "lattice"])
@every_model
@every_outside
def test_every_cell_is_calibrated_at_2000_replicates(case, outside, engine):
    cells = [(n, epsilon) for n in SIZES for epsilon in EPSILONS]
    found = {cell: uniformity(cell_ranks(case, outside, *cell, 2000, engine, key=3)) for cell in cells}
    p = sorted(verdict.p_value for verdict in found.values())
    for (n, epsilon), verdict in found.items():
        print(f"{case.name} {outside} {engine} n={n} epsilon={epsilon} gamma p={verdict.p_value:.3f} KS={verdict.ks:.4f}")  # noqa: T201
    assert all(value > 0.01 / (200 - i) for i, value in enumerate(p))
