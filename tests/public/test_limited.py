"""Limits of simulations: tempered ends with what it has and says so, the others refuse, and nothing differs in silence."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import numpy as np
import pytest
from cases import BY_NAME, joint_observation
from toy import PRIOR, release

from dp_dask.errors import LimitError
from dp_dask.public import joint_auto, simulated_infer
from dp_dask.public.infer import infer
from dp_dask.public.limited import limited
from dp_dask.public.simulated_infer import infer_simulated
from dp_dask.public.simulation import simulate
from dp_dask.public.spread import spread, spread_by
from dp_dask.public.tempering import Effort
from dp_dask.simulation_store import stored

EFFORT = Effort(per_generation=2_000, most=40_000, wanted=3_000, bank=30_000)
NARROW = release(np.random.default_rng(4), n=500, scale=1.0)  # lambda stays above 2


def posterior(like=NARROW, engine="tempered", effort=EFFORT, **limits):
    with spread_by(limited(limits.pop("inner", map), **limits)):
        return infer_simulated(np.random.default_rng(1), like, PRIOR, 400, engine, effort=effort)


def test_tempered_ends_with_the_generations_that_the_number_allows():
    """They are those of a smaller effort, and the reason tells the difference."""
    ended = posterior(most_simulations=7_999)
    smaller = posterior(effort=replace(EFFORT, most=7_999))
    np.testing.assert_array_equal(ended.draws, smaller.draws)
    told = "; stopped early: 2000 more simulations would make 8000, and the limit is 7999: raise it for more; 0 of 6000 sim"
    assert told in ended.reason
    assert "stopped" not in smaller.reason
    assert ended.reason.startswith("conservative: ")
    assert not np.array_equal(ended.draws, posterior(most_simulations=8_000).draws)


def test_a_limit_that_is_not_met_changes_nothing():
    like = release(np.random.default_rng(3), n=500, scale=9.0)
    free = infer_simulated(np.random.default_rng(1), like, PRIOR, 400, "tempered", effort=EFFORT)
    within = posterior(like, most_simulations=40_000, deadline=1e300)
    np.testing.assert_array_equal(within.draws, free.draws)
    assert within.reason == free.reason


def test_a_run_made_again_ends_where_the_first_did(tmp_path):
    """Stored batches count: 6,000 of them are no licence for 6,000 more."""
    limits = {"most_simulations": 7_000, "inner": stored(map, tmp_path, reuse=True)}
    first, again = posterior(**limits), posterior(**limits)
    np.testing.assert_array_equal(first.draws, again.draws)
    assert first.reason == again.reason
    assert len(list(tmp_path.iterdir())) == 24


def test_the_clock_ends_it_in_mid_generation_and_the_reason_says_that_it_did():
    """The clock ticks once a batch, of which a generation has eight: at the twentieth the third generation is in the middle."""
    closed = []

    def inner(function, items):
        try:
            yield from map(function, items)
        finally:
            closed.append(len(items))

    ended = posterior(deadline=20, clock=count().__next__, inner=inner)
    np.testing.assert_array_equal(ended.draws, posterior(effort=replace(EFFORT, most=4_000)).draws)
    assert "stopped early: the time for simulations was over after 5000 of them" in ended.reason
    assert "how many that are, and so the result, depends on the machine" in ended.reason
    assert "0 of 4000 simulations failed" in ended.reason
    assert closed == [8, 8, 8]


@pytest.mark.parametrize("engine", ["tempered", "synthetic", "bank", "auto"])
def test_without_a_first_generation_there_is_no_posterior(engine):
    with pytest.raises(LimitError, match=rf"engine {engine} did not come to an end: \d+ more simulations would make"):
        posterior(engine=engine, most_simulations=1_999)
    with pytest.raises(LimitError, match="the time for simulations was over after 0 of them"):
        posterior(engine=engine, deadline=0, clock=lambda: 1.0)


@pytest.mark.parametrize("engine", ["synthetic", "bank"])
def test_the_others_refuse(engine):
    with pytest.raises(LimitError, match=f"engine {engine} did not come to an end: .* the limit is 10000: raise it for more"):
        posterior(engine=engine, most_simulations=10_000)


def test_auto_says_what_it_could_not_try(monkeypatch):
    """tempered alone is left, and is taken where it passes its own check."""
    made = posterior(engine="auto", most_simulations=10_000)
    assert made.engine == "tempered"
    for text in ("stopped early: 2000 more", "not synthetic: 2000 more", "not bank: 30000 more"):
        assert text in made.reason
    assert "taken before bank, by width and a check on 100 simulated releases" in made.reason
    monkeypatch.setattr(simulated_infer, "is_too_narrow", lambda _: True)
    with pytest.raises(simulated_infer.InferenceError, match="neither tempered nor bank passes its self-check"):
        posterior(engine="auto", most_simulations=10_000)


def test_no_other_engine_is_taken_silently_for_one_that_was_ended(monkeypatch):
    """auto takes clt_grid where kernel_is cannot serve, and says why; a limit that is met is no such reason."""
    monkeypatch.setattr(joint_auto, "SMALL_WHERE_FEW", -1.0)
    case = BY_NAME["normal_mu_sigma"]
    seen = simulate(np.random.default_rng(1), joint_observation(case, n=5, epsilon=1.0), np.array([0.4, 1.2])).observation
    assert infer(np.random.default_rng(2), seen, case.prior, 200).engine == "kernel_is"
    with pytest.raises(LimitError, match="more simulations would make"), spread_by(limited(map, most_simulations=5_000)):
        infer(np.random.default_rng(2), seen, case.prior, 200)


def test_items_without_a_size_count_for_one():
    with spread_by(limited(map, most_simulations=3)):
        assert spread(len, ["a", "bc"]) == [1, 2]
        with pytest.raises(LimitError, match="2 more simulations would make 4, and the limit is 3"):
            spread(len, ["a", "bc"])
        assert spread(len, ["abc"]) == [3]
