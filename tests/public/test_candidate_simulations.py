"""Candidates: numbered by a public seed, the same wherever their batches run, and reduced as records are."""

from __future__ import annotations

import pickle
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
from gate.selected_examples import COMPONENTS, DISTANCE, PRIOR, N, make_candidates, make_request, sparse

from dp_dask.core.plugins import load
from dp_dask.core.recordwise import Recordwise
from dp_dask.core.simulated import Simulated
from dp_dask.distances.mmd import mmd
from dp_dask.errors import InferenceError
from dp_dask.public.candidate_simulations import batch_size_of
from dp_dask.public.spread import spread_by, stream

TOY = load("dp_dask.simulators", "uniform_mixture")(COMPONENTS)
RECORDWISE = Recordwise(columns=("x",), weights=(1.0,), clip=2.0, n=N)


@dataclass(frozen=True)
class Fails:
    """The toy, failing where p[1] is above ``above``."""

    above: float = 0.5
    parameters: ClassVar = TOY.parameters
    domains: ClassVar = TOY.domains
    columns: ClassVar = ("x",)
    decides_n: ClassVar = False

    def simulate(self, theta, n, rng):
        if np.any(theta[:, 0] > self.above):
            msg = "no such process"
            raise ArithmeticError(msg)
        return TOY.simulate(theta, n, rng)


@dataclass(frozen=True)
class Visits:
    """A Poisson number of records."""

    parameters: ClassVar = ("rate",)
    domains: ClassVar = ("positive",)
    columns: ClassVar = ("x",)
    decides_n: ClassVar = True

    def simulate(self, theta, n, rng):
        assert n is None
        counts = rng.poisson(theta[:, 0])
        return Simulated(counts, {"x": rng.random(counts.sum())})


def test_a_batch_is_a_function_of_the_seed_and_its_number():
    candidates = make_candidates(make_request(size=95))
    batch = candidates.batch(3)
    again = pickle.loads(pickle.dumps(candidates))  # noqa: S301
    assert np.array_equal(again.batch(3).data, batch.data)
    assert np.array_equal(replace(candidates, n_simulations=1000).batch(3).data, batch.data)
    assert not np.array_equal(replace(candidates, seed=8).batch(3).data, batch.data)
    assert not np.array_equal(candidates.batch(4).data, batch.data)
    assert [len(each.data) for each in candidates.batches()] == [10] * 9 + [5]
    assert [each.first for each in candidates.batches()] == list(range(0, 95, 10))


def test_sums_are_those_of_the_records_that_theta_and_the_second_stream_make():
    """The oracle draws with the generators that the seed's documentation names, and sums record by record."""
    candidates = make_candidates(make_request())
    first, second = np.random.SeedSequence(7, spawn_key=(2,)).spawn(2)
    theta = PRIOR.rvs(np.random.default_rng(first), 10)
    assert np.array_equal(candidates.thetas(range(20, 30)), theta)
    stream_of_call = np.random.default_rng(second).spawn(1)[0].spawn(3)[0]
    made = TOY.simulate(theta, N, stream_of_call)
    expected = [DISTANCE.statistic.contributions(row).sum(axis=0) for row in made.dense("x")]
    assert np.array_equal(candidates.batch(2).data, expected)


def test_thetas_are_drawn_again_in_any_order_without_simulating():
    candidates = make_candidates(make_request(), Fails(above=-1))
    found = candidates.thetas([73, 0, 9, 73])
    assert np.array_equal(found[0], found[3])
    assert np.array_equal(found[1:3], candidates.thetas([0, 9]))
    assert candidates.thetas([]).shape == (0, COMPONENTS)
    for index in (-1, 100):
        with pytest.raises(ValueError, match="an index is outside"):
            candidates.thetas([index])


@pytest.mark.parametrize("distance", [DISTANCE, RECORDWISE])
def test_failures_tell_their_row_their_theta_and_why(distance):
    candidates = make_candidates(make_request(sparse(distance=distance), distance=distance), Fails())
    for batch in candidates.batches():
        theta = candidates.thetas(range(batch.first, batch.first + 10))
        assert np.array_equal(batch.is_whole, theta[:, 0] <= 0.5)
        for failure in batch.failures:
            assert failure.theta == tuple(theta[failure.row])
            assert "ArithmeticError: no such process" in failure.reason
            assert not batch.data[failure.row].any()
        assert all(batch.data[i].any() for i in np.flatnonzero(batch.is_whole))


def test_a_distance_of_records_is_sent_the_records():
    request = make_request(sparse(distance=RECORDWISE), distance=RECORDWISE)
    made = make_candidates(request).batch(1)
    assert made.data.shape == (10, N, 1)
    sums = make_candidates(make_request()).batch(1).data
    assert np.array_equal([DISTANCE.statistic.contributions(row).sum(axis=0) for row in made.data[..., 0]], sums)


def test_processes_simulate_the_same_and_a_task_is_small():
    candidates = make_candidates(make_request(size=40))
    here = [each.data for each in candidates.batches()]
    with ProcessPoolExecutor(1) as pool, spread_by(pool.map):
        assert np.array_equal([each.data for each in candidates.batches()], here)
    assert len(pickle.dumps(candidates.batch)) < 10 * DISTANCE.statistic.cells.count + 5_000


def test_a_stream_that_is_closed_closes_the_map_behind_it():
    ended = []

    def mapper(function, items):
        try:
            for item in items:
                yield function(item)
        finally:
            ended.append(True)

    with spread_by(mapper):
        results = stream(abs, [-1, -2, -3])
        assert next(results) == 1
        assert not ended
        results.close()
    assert ended == [True]


def test_the_simulator_decides_n_where_it_is_private_and_only_there():
    candidates = make_candidates(make_request())
    with pytest.raises(InferenceError, match="use neighbours: add_remove"):
        replace(candidates, simulator=Visits())
    with pytest.raises(InferenceError, match="n is private and the simulator needs it; use neighbours: replace"):
        replace(candidates, n=None)
    with pytest.raises(InferenceError, match="column 'y'; the simulator makes x"):
        replace(candidates, distance=Recordwise(columns=("y",), weights=(1.0,), clip=2.0, n=N))


def test_batches_hold_a_bounded_number_of_records_and_of_numbers():
    assert batch_size_of(DISTANCE) == 1000
    assert batch_size_of(replace(DISTANCE, n=2**12)) == 512
    assert batch_size_of(replace(DISTANCE, n=2**30)) == 1
    assert batch_size_of(replace(RECORDWISE, n=2**15)) == 32
    assert batch_size_of(mmd("x", DISTANCE.statistic.bounds, 0.5, N)) == 1000
