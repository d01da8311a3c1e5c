"""Failed simulations: counted by every engine, the first with its theta, and a warning where they are many."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from toy import PRIOR, Broken, release

from dp_dask.core.dirichlet import Dirichlet
from dp_dask.errors import InferenceError
from dp_dask.public import simulations
from dp_dask.public.diagnostics import diagnose
from dp_dask.public.engines import bank, synthetic, tempered
from dp_dask.public.failures import Failures
from dp_dask.public.simulated_infer import infer_simulated
from dp_dask.public.simulations import Problem, Simulations
from dp_dask.public.tempering import Effort, first_cloud, temper
from dp_dask.public.unknowns import unknowns

LIKE = replace(release(np.random.default_rng(3), n=200, scale=9.0), simulator=Broken("nan"))
EFFORT = Effort(per_generation=2_000, most=10_000, wanted=1_000, emulating=500.0, bank=4_000)


def made(engine):
    """The posterior by one engine, whatever speaks against it."""
    rng = np.random.default_rng(1)
    if engine == "bank":
        return bank.conclude(rng, bank.make_bank(rng, LIKE, PRIOR, EFFORT.bank), 100)
    cloud = temper(first_cloud(rng, LIKE, PRIOR, EFFORT.per_generation), EFFORT)
    if engine == "tempered":
        return tempered.conclude(rng, cloud, 100)
    return synthetic.conclude(rng, synthetic.refine(rng, cloud, EFFORT, 100), 100)


@pytest.mark.parametrize("engine", ["tempered", "synthetic", "bank"])
def test_every_engine_counts_them_and_they_are_a_warning_where_they_are_many(engine):
    """p[1] > 1/2 has the prior probability 1 / 16: of 4,000 draws of it 250 within 5 standard errors."""
    inference = made(engine)
    found = inference.failures
    if engine == "bank":
        assert found.simulated == 4_000
        assert abs(found.failed - 250) < 5 * np.sqrt(4_000 / 16 * 15 / 16)
    assert found.are_many
    assert len(found.first) == 10
    assert [failure.row for failure in found.first] == sorted({failure.row for failure in found.first})
    assert all(failure.theta[0] > 0.5 and "not a finite number" in failure.reason for failure in found.first)
    at = f"{found.failed} of {found.simulated} simulations failed (the first at p[1] = {found.first[0].theta[0]:.6g}, p[2] = "
    (warning,) = diagnose(np.random.default_rng(1), LIKE, PRIOR, inference).warnings("Broken", PRIOR, LIKE)
    for text in (warning, inference.reason):
        assert at in text
        assert "the posterior is given that they succeed" in text
    assert warning.endswith("; mend the simulator, or keep the prior away from there")


def test_few_are_told_and_are_no_warning():
    like = replace(LIKE, simulator=release(np.random.default_rng(3), n=200, scale=9.0).simulator)
    inference = infer_simulated(np.random.default_rng(1), like, PRIOR, 100, "tempered", effort=EFFORT)
    assert inference.failures == Failures(inference.failures.simulated, 0, ())
    assert inference.reason.endswith(f"; 0 of {inference.failures.simulated} simulations failed")
    assert diagnose(np.random.default_rng(1), like, PRIOR, inference).warnings("uniform", PRIOR, like) == ()
    assert not Failures(1_000, 10, ()).are_many
    assert Failures(1_000, 11, ()).are_many


def test_rows_are_those_of_the_joined_simulations(monkeypatch):
    monkeypatch.setattr(simulations, "BATCH", 7)
    found = Problem.of(np.random.default_rng(1), LIKE, unknowns(LIKE, PRIOR)).generation(0, 500)
    rows = [failure.row for failure in found.first_failures]
    np.testing.assert_array_equal(rows, np.flatnonzero(~found.is_whole)[:10])
    theta = unknowns(LIKE, PRIOR).theta(found.w)
    np.testing.assert_array_equal([failure.theta for failure in found.first_failures], theta[rows])
    assert Simulations.join([found]).first_failures == found.first_failures


def test_where_too_many_fail_the_refusal_names_the_first():
    always = Dirichlet((400.0, 1.0, 1.0, 1.0, 1.0))
    for engine in ("tempered", "bank"):
        with pytest.raises(InferenceError, match=r"only \d+ simulations .*are of use; \d+ of \d+ .* \(the first at p\[1\] = 0.9"):
            infer_simulated(np.random.default_rng(1), LIKE, always, 100, engine, effort=EFFORT)
