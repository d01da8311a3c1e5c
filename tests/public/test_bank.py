"""The bank against exact posteriors and by calibration, and the self-checks of all engines for simulators; fixed seeds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import special
from toy import PRIOR, Broken, exact, release

from dp_dask.core.bounds import Bounds, Outside
from dp_dask.core.cells import Cells
from dp_dask.core.dirichlet import Dirichlet
from dp_dask.core.joint_priors import Independent
from dp_dask.core.plugins import load
from dp_dask.core.priors import Gamma
from dp_dask.core.table_sum import TableSum
from dp_dask.errors import InferenceError
from dp_dask.public.engines import bank, synthetic
from dp_dask.public.noise_law import Gaussian
from dp_dask.public.self_check import check_ranks, told_check
from dp_dask.public.simulated import SimulatedObservation
from dp_dask.public.simulated_calibration import pseudo_release, simulated_rank
from dp_dask.public.simulated_infer import infer_simulated
from dp_dask.public.tempering import Effort, first_cloud, temper
from dp_dask.public.uniformity import gamma, gamma_p_value, uniformity

EFFORT = Effort(per_generation=2_000, most=20_000, wanted=1_000, emulating=3_000, bank=20_000)
SIR_PRIOR = Independent((Gamma(8.0, 4.0), Gamma(8.0, 1.6)))


def smallest(u):
    """The smallest p-value of a coordinate's ranks; below 1e-5 by chance less than once in 1e4."""
    return min(gamma_p_value(gamma(column), len(column)) for column in u.T)


def epidemic(scale, y=(5, 9, 16, 22, 20, 12)):
    """Weekly reported cases of a small epidemic: one history for each theta."""
    cells = Cells(spacing="even", exponent=0, first=0, count=6)
    table = tuple(" ".join(str(int(j == k)) for k in range(6)) for j in range(6))
    statistic = TableSum(
        column="week",
        bounds=Bounds(0.0, 5.0),
        outside=Outside.CLAMP,
        cells=cells,
        table=table,
        units=(1.0,) * 6,
        origins=(0,) * 6,
    )
    simulator = load("dp_dask.simulators", "sir")(400, 4, 6, 0.5)
    return SimulatedObservation(simulator=simulator, statistic=statistic, n=None, scale=scale, y=y, count=None, expected_n=None)


def test_the_bank_comes_near_the_exact_posterior():
    like = release(np.random.default_rng(3), n=200, scale=10.0)
    draws = infer_simulated(np.random.default_rng(1), like, PRIOR, 4_000, "bank", effort=EFFORT).draws.reshape(-1, 5)
    reference = exact(like)
    assert np.abs((draws.mean(axis=0) - reference.mean(axis=0)) / reference.std(axis=0)).max() < 0.4
    assert np.all(np.abs(np.log(draws.std(axis=0) / reference.std(axis=0))) < 0.3)


@pytest.mark.parametrize("law", [Gaussian, None], ids=["gaussian", "laplace"])
def test_the_bank_is_calibrated_on_an_epidemic(law):
    like = epidemic(4.0) if law is None else replace(epidemic(4.0), law=law)
    made = bank.make_bank(np.random.default_rng(2), like, SIR_PRIOR, 20_000)
    assert smallest(check_ranks(np.random.default_rng(3), made, 300)) > 1e-5
    noisier = replace(made, problem=replace(made.problem, observation=replace(like, scale=16.0)))
    assert smallest(check_ranks(np.random.default_rng(3), noisier, 300)) < 1e-5


def test_auto_takes_no_normal_law_for_one_history():
    made = infer_simulated(np.random.default_rng(1), epidemic(0.2), SIR_PRIOR, 400, effort=EFFORT, checks=100)
    assert made.engine in {"bank", "tempered"}
    assert "not synthetic: one history makes all records" in made.reason
    assert "self-check on 100 simulated releases passed" in made.reason
    assert np.isfinite(made.draws).all()


def test_auto_takes_the_exact_particles_where_it_can():
    made = infer_simulated(np.random.default_rng(1), epidemic(20.0), SIR_PRIOR, 400, effort=EFFORT, checks=200)
    assert made.engine == "tempered"
    assert made.error == 0.0
    assert made.reason.startswith("exact; lambda = 1, ")
    assert "self-check on 200 simulated releases passed" in made.reason


def test_a_release_far_from_all_simulations_is_refused():
    with pytest.raises(InferenceError, match="more than 3 sd from every simulation of the prior"):
        infer_simulated(np.random.default_rng(1), epidemic(0.2, (0, 100, 0, 100, 0, 100)), SIR_PRIOR, 40, "bank", effort=EFFORT)
    with pytest.raises(InferenceError, match="engine 'lattice' serves no simulator; known: auto, tempered, synthetic, bank"):
        infer_simulated(np.random.default_rng(1), epidemic(0.2), SIR_PRIOR, 40, "lattice")
    with pytest.raises(InferenceError, match="noise does not do that"):
        infer_simulated(
            np.random.default_rng(1), replace(release(np.random.default_rng(1), n=5, scale=0.1), y=(900,) * 5), PRIOR, 40
        )


def test_the_self_check_of_a_synthetic_likelihood_sees_a_covariance_too_small():
    like = release(np.random.default_rng(6), n=600, scale=1.0)
    rng = np.random.default_rng(1)
    cloud = temper(first_cloud(rng, like, PRIOR, EFFORT.per_generation), EFFORT)
    fitted = synthetic.refine(rng, cloud, EFFORT, 1_000)
    assert "passed" in told_check(check_ranks(np.random.default_rng(2), fitted, 80))
    narrow = replace(fitted, emulator=replace(fitted.emulator, core=0.25 * fitted.emulator.core))
    assert "FAILED" in told_check(check_ranks(np.random.default_rng(2), narrow, 80))


def test_a_whole_inference_is_calibrated():
    """Four of five probabilities, 150 truths; a calibrated engine fails with probability 4e-5."""
    like = release(np.random.default_rng(1), n=40, scale=4.0)
    effort = Effort(per_generation=1_000, most=8_000, wanted=400)
    made = [simulated_rank(np.random.default_rng([1, i]), like, PRIOR, effort=effort) for i in range(150)]
    u = np.array([rank for rank, _ in made])[:, :4]
    assert {engine for _, engine in made} == {"tempered"}
    assert smallest(u) > 1e-5
    narrow = special.ndtr(special.ndtri(np.clip(u, 1e-9, 1 - 1e-9)) / 0.7)
    assert not all(uniformity(column).passes for column in narrow.T)


def test_a_truth_at_which_the_simulator_fails_is_drawn_again():
    like = replace(release(np.random.default_rng(3), n=20, scale=9.0), simulator=Broken("raise"))
    truths = [pseudo_release(np.random.default_rng(i), like, PRIOR)[0] for i in range(60)]
    assert max(truth[0] for truth in truths) <= 0.5
    with pytest.raises(InferenceError, match="failed at 100 parameters of the prior"):
        pseudo_release(np.random.default_rng(1), like, Dirichlet((400.0, 1.0, 1.0, 1.0, 1.0)))
