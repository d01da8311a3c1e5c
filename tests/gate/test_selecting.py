"""Selecting: what comes out of a run is what the mechanism alone says, in the order of indices, and nothing else ever shows."""

from __future__ import annotations

import logging
import math
import pickle
import traceback
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
from gate.gate_examples import everything_said
from gate.selected_examples import DISTANCE, RECORDS, Frozen, N, make_candidates, make_request, sealed, sparse, top
from hypothesis import given, settings
from hypothesis import strategies as st
from public.test_candidate_simulations import Fails

from dp_dask.clusters.local import plugin as Local  # noqa: N812
from dp_dask.core.candidates import CandidateBatch
from dp_dask.core.distances import FAILED
from dp_dask.core.privacy import Neighbours, Unit
from dp_dask.core.selection import Variant
from dp_dask.core.sensitive import Sensitive
from dp_dask.core.simulated import Failure
from dp_dask.core.statistic import Total
from dp_dask.distances.means import means
from dp_dask.errors import ClusterError, ConfigError, DpDaskError, SourceError
from dp_dask.fan_out import on_client
from dp_dask.gate.noise import OpenDPNoise
from dp_dask.gate.select import select, selection_scale
from dp_dask.gate.selecting import compare_sums, noise_of, run
from dp_dask.gate.sparse_vector import begin, feed, outcome, scales
from dp_dask.public.spread import spread_by

CANARY = 7_731_402_113


def distances(request, candidates, records=RECORDS):
    """Of all candidates, by the definition: the absolute differences of counts added up, and FAILED where there are none."""
    observed = DISTANCE.statistic.contributions(records).sum(axis=0)
    found = []
    for batch in candidates.batches():
        each = np.abs(batch.data - observed).sum(axis=1)
        found.append(np.where(batch.is_whole, each, FAILED))
    assert len(np.concatenate(found)) == request.n_simulations
    return np.concatenate(found)


def answer(request, noise, *, candidates=None, records=RECORDS, **options):
    candidates = candidates or make_candidates(request)
    return run(request, candidates.batches(), compare_sums(request, sealed(records)), noise, **options)


@pytest.mark.parametrize("variant", list(Variant))
@pytest.mark.parametrize("simulator", [None, Fails(0.6)])
def test_a_sparse_vector_is_the_mechanism_on_the_distances_by_definition(variant, simulator):
    request = make_request(sparse(variant=variant, c=3))
    candidates = make_candidates(request, simulator)
    for seed in range(10):
        made = answer(request, Frozen(seed), candidates=candidates)
        noise = Frozen(seed)
        q = distances(request, candidates)
        expected = outcome(feed(begin(request.question, noise), Sensitive(q), noise))
        assert (made.accepted, made.n_answered) == (expected.indices, expected.n_answered)
        assert made.n_failed == np.sum(q[: made.n_answered] == FAILED)
        assert not np.any(q[list(made.accepted)] == FAILED)
        assert made.scales == tuple(found.scale for found in scales(request.question))
        assert made.request is request


@pytest.mark.parametrize(("unit", "mechanism"), [(Unit.EPSILON, "top_c_joint"), (Unit.RHO, "top_c_gumbel")])
@pytest.mark.parametrize("simulator", [None, Fails(0.6)])
def test_a_choice_is_the_mechanism_on_the_distances_by_definition(unit, mechanism, simulator):
    request = make_request(top(unit=unit))
    candidates = make_candidates(request, simulator)
    for seed in range(10):
        made = answer(request, Frozen(seed), candidates=candidates)
        q = distances(request, candidates)
        assert made.accepted == select(request.question, Sensitive(q), Frozen(seed))
        assert (made.n_answered, made.n_failed, made.mechanism) == (100, np.sum(q == FAILED), mechanism)
        assert made.scales == (selection_scale(request.question).scale,)


@pytest.mark.parametrize("question", [sparse(epsilon="100000"), top(amount="100000"), top(amount="100000", unit=Unit.RHO)])
def test_with_next_to_no_noise_the_nearest_are_found(question):
    request = make_request(question)
    made = answer(request, OpenDPNoise())
    q = distances(request, make_candidates(request))
    within = np.flatnonzero(q <= question.threshold) if hasattr(question, "threshold") else np.argsort(q, kind="stable")
    cutoff = np.sort(q)[3]
    if hasattr(question, "threshold"):
        assert made.accepted == tuple(within[:4])
        assert made.n_answered == made.accepted[-1] + 1
    else:
        assert max(q[list(made.accepted)]) <= cutoff + 1


def cut_anew(candidates, sizes):
    """The same candidates in batches of other sizes."""
    batches = list(candidates.batches())
    data = np.concatenate([batch.data for batch in batches])
    whole = np.concatenate([batch.is_whole for batch in batches])
    start = 0
    for size in sizes:
        rows = np.flatnonzero(~whole[start : start + size])
        yield CandidateBatch(start, data[start : start + size], tuple(Failure(int(row), (), "") for row in rows))
        start += size


@pytest.mark.parametrize("question", [sparse(), sparse(variant=Variant.RESAMPLED), top(), top(unit=Unit.RHO)])
def test_how_batches_are_cut_changes_nothing(question):
    request = make_request(question)
    candidates = make_candidates(request, Fails(0.7))
    for seed in range(5):
        expected = answer(request, Frozen(seed), candidates=candidates)
        for sizes in ([100], [1] * 100, [37, 0, 3, 60]):
            made = run(request, cut_anew(candidates, sizes), compare_sums(request, sealed()), Frozen(seed))
            assert replace(made, id=expected.id, created=expected.created) == expected


@pytest.mark.parametrize("question", [sparse(), top()])
def test_the_order_in_which_batches_finish_changes_nothing(question):
    request = make_request(question)
    expected = answer(request, Frozen(1))

    def backwards(function, items):
        done = {item: function(item) for item in reversed(items)}
        return (done[item] for item in items)

    for mapper in (backwards, None):
        with ProcessPoolExecutor(1) as pool, ThreadPoolExecutor(4), spread_by(mapper or pool.map):
            made = answer(request, Frozen(1))
        assert (made.accepted, made.n_answered) == (expected.accepted, expected.n_answered)


def test_batches_out_of_order_are_refused():
    request = make_request()
    batches = list(make_candidates(request).batches())
    for wrong in ([batches[1]], [batches[0], batches[2]], [*batches, batches[0]]):
        with pytest.raises(ValueError, match="is next; 10 came from"):
            run(request, iter(wrong), compare_sums(request, sealed()), Frozen(factor=0.0), progress=lambda _: None)
        request = make_request(top())


@dataclass
class Ahead:
    """A map that keeps two results ahead, and notes what was started and whether it was closed."""

    started: int = 0
    is_closed: bool = False

    def __call__(self, function, items):
        held = []
        try:
            for item in items:
                held.append(function(item))
                self.started += 1
                if len(held) > 2:
                    yield held.pop(0)
            yield from held
        finally:
            self.is_closed = True


@pytest.mark.parametrize("tolerance", [2.0, 0.0])
def test_what_is_simulated_and_told_depends_on_no_answer(tolerance):
    """The first candidate is near enough for a tolerance of 2 and ends the answers, and with 0 none is."""
    request = make_request(sparse(c=1, tolerance=tolerance))
    ahead, seen = Ahead(), []
    with spread_by(ahead):
        made = answer(request, Frozen(factor=0.0), progress=seen.append)
    assert (made.accepted, made.n_answered) == (((0,), 1) if tolerance else ((), request.n_simulations))
    assert (ahead.started, ahead.is_closed, seen[-1]) == (10, True, request.n_simulations)


CALLS: list[int] = []  # sizes of the batches that workers in threads simulated


@dataclass(frozen=True)
class Counting(Fails):
    """The toy, noting its calls."""

    above: float = 1.0

    def simulate(self, theta, n, rng):
        CALLS.append(len(theta))
        return super().simulate(theta, n, rng)


def test_on_a_cluster_a_run_that_is_over_leaves_no_task():
    request = make_request(sparse(c=1, tolerance=2.0, size=400), size=400)
    CALLS.clear()
    with Local(workers=2).client() as client, spread_by(partial(on_client, client, stall_timeout=30)):
        made = answer(request, Frozen(factor=0.0), candidates=make_candidates(request, Counting()))
        assert not client.futures
    assert made.accepted == (0,)
    assert len(CALLS) == 40


@pytest.mark.parametrize("question", [sparse(tolerance=0.0, c=2), top(c=2, amount="10000")])
def test_a_deadline_ends_a_run_after_the_batch_that_it_fell_in(question):
    request = make_request(question)
    ahead, seen = Ahead(), []
    ticks = iter(range(100))
    with spread_by(ahead):
        made = answer(request, Frozen(factor=0.0), deadline=2.0, clock=lambda: next(ticks), progress=seen.append)
    assert seen == [10, 20, 30]
    assert (ahead.started, ahead.is_closed) == (5, True)
    q = distances(request, make_candidates(request))[:30]
    if hasattr(question, "threshold"):
        assert made.accepted == tuple(np.flatnonzero(q == 0)[:2])
    else:
        assert made.accepted == tuple(np.sort(np.argsort(q, kind="stable")[:2]))
    assert made.n_answered <= 30


@pytest.mark.parametrize("variant", list(Variant))
def test_as_much_noise_is_drawn_whatever_the_answers(variant):
    class Counting(Frozen):
        drawn = 0

        def add_discrete_laplace(self, values, scale):
            self.drawn += len(values)
            return super().add_discrete_laplace(values, scale)

    drawn, answered = set(), set()
    for tolerance in (2.0, 0.0):
        request, noise = make_request(sparse(variant=variant, c=1, tolerance=tolerance)), Counting(factor=0.0)
        made = run(request, make_candidates(request).batches(), compare_sums(request, sealed()), noise)
        drawn.add(noise.drawn)
        answered.add(made.n_answered)
    assert len(drawn) == 1
    assert len(answered) == 2


@pytest.mark.parametrize("question", [sparse(tolerance=0.0, c=2), top(c=2)])
def test_what_comes_in_time_does_not_depend_on_how_long_the_records_take_to_compare(question):
    """Simulating takes a second a batch; comparing none, or on other records a hundred."""
    request = make_request(question)

    def answered(seconds):
        now, compare = [0.0], compare_sums(request, sealed())

        def batches():
            for batch in make_candidates(request).batches():
                now[0] += 1
                yield batch

        def slowly(batch):
            now[0] += seconds
            return compare(batch)

        seen = []
        made = run(request, batches(), slowly, Frozen(factor=0.0), deadline=4.0, clock=lambda: now[0], progress=seen.append)
        return made.accepted, made.n_answered, seen

    quick = answered(0.0)
    assert quick[2] == [10, 20, 30, 40]
    assert answered(100.0) == quick


@pytest.mark.parametrize("question", [sparse(), top(), top(unit=Unit.RHO)])
def test_where_all_fail_nothing_is_accepted_and_all_is_answered(question):
    request = make_request(question)
    made = answer(request, OpenDPNoise(), candidates=make_candidates(request, Fails(-1)))
    assert (made.accepted, made.n_answered, made.n_failed) == ((), 100, 100)


def test_a_failed_candidate_is_rejected_whatever_the_comparison_says():
    request = make_request(sparse(tolerance=2.0))
    batch = CandidateBatch(0, np.zeros((100, 3), dtype=np.int64), (Failure(0, (), ""), Failure(2, (), "")))
    made = run(request, [batch], lambda _: Sensitive(np.zeros(100, dtype=np.int64)), Frozen(factor=0.0))
    assert made.accepted == (1, 3, 4, 5)
    others = Sensitive(np.full(100, FAILED))  # and one that did not fail is no failure because of the records
    assert run(request, [batch], lambda _: others, Frozen(factor=0.0)).n_failed == 2


def test_without_a_candidate_nothing_is_released():
    with pytest.raises(DpDaskError, match="no candidate was simulated; nothing was released or charged"):
        run(make_request(), iter([]), compare_sums(make_request(), sealed()), Frozen())


# What an error holds.


def assert_no_canary(error):
    assert str(CANARY) not in everything_said(error)
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    ours = [frame.f_locals for frame in frames if frame.f_globals["__name__"].startswith("dp_dask.")]
    assert str(CANARY) not in repr(ours)


def secret(n=N):
    return Sensitive(Total((CANARY, 20, 10), n))


@pytest.mark.parametrize("n", [0, N - 1, N + 1, 987_654_321])
def test_a_wrong_public_n_is_refused_without_telling_the_right_one(n):
    with pytest.raises(SourceError, match=f"privacy.n is {N}, but the data have another number of records") as caught:
        compare_sums(make_request(), secret(n))
    assert_no_canary(caught.value)
    assert n == 0 or str(n) not in everything_said(caught.value)


def test_sums_of_another_distance_are_refused():
    with pytest.raises(ValueError, match="not those of the requested distance"):
        compare_sums(make_request(), Sensitive(Total((1, 2), N)))


class Quoting(Frozen):
    """Works a while, then quotes what it was given."""

    calls = 0

    def add_discrete_laplace(self, values, scale):
        self.calls += 1
        if self.calls > 1:
            msg = f"no entropy for {CANARY} {values}"
            raise RuntimeError(msg)
        return super().add_discrete_laplace(values, scale)

    def lowest_with_gumbel(self, values, c, scale):
        msg = f"no entropy for {CANARY}, {values}, {c}, {scale}"
        raise RuntimeError(msg)


@pytest.mark.parametrize("question", [sparse(tolerance=0.0), sparse(variant=Variant.ONE_SIDED), top(unit=Unit.RHO)])
def test_noise_that_fails_carries_nothing(question):
    request = make_request(question)
    with pytest.raises(DpDaskError, match=r"\(RuntimeError\); nothing was released or charged") as caught:
        run(request, make_candidates(request).batches(), compare_sums(request, secret()), Quoting())
    assert_no_canary(caught.value)
    assert caught.value.__context__ is None


@pytest.mark.parametrize("question", [sparse(), top()])
@pytest.mark.parametrize("error", [ValueError, SourceError, ClusterError, MemoryError])
def test_a_comparison_that_fails_carries_nothing_but_our_own_words(question, error):
    def compare(_):
        held = np.full(3, CANARY)
        try:
            _ = {}[CANARY]  # the context of what follows
        except KeyError:
            raise error("file x: unreadable" if issubclass(error, DpDaskError) else f"{held}")  # noqa: B904

    request = make_request(question)
    is_ours = issubclass(error, DpDaskError)
    with pytest.raises(error if is_ours else DpDaskError, match="file x" if is_ours else error.__name__) as caught:
        run(request, make_candidates(request).batches(), compare, Frozen())
    assert_no_canary(caught.value)


@pytest.mark.parametrize(
    "found", [np.zeros(10), np.zeros((10, 1), dtype=np.int64), np.zeros(1, dtype=np.int64), np.zeros(11, dtype=np.int64)]
)
def test_what_is_no_distance_for_each_candidate_is_refused(found):
    request = make_request()
    with pytest.raises(DpDaskError, match=r"could not be compared with the records \((TypeError|ValueError)\)"):
        run(request, make_candidates(request).batches(), lambda _: Sensitive(found), Frozen())


@pytest.mark.parametrize("question", [sparse(tolerance=0.0), top()])
def test_a_simulation_that_is_lost_on_the_way_is_told_and_carries_nothing(question):
    request = make_request(question)

    def lost(function, items):
        yield function(items[0])
        msg = "the cluster lost simulations"
        raise ClusterError(msg)

    with spread_by(lost), pytest.raises(ClusterError, match="lost simulations") as caught:
        answer(request, Frozen(), records=RECORDS)
    frames = [frame.f_locals for frame, _ in traceback.walk_tb(caught.value.__traceback__)]
    assert any("blocks" in each or "state" in each for each in frames)
    run_frames = [each for each in frames if "blocks" in each or "state" in each]
    assert all("Sensitive(***)" in repr(each) for each in run_frames)


def test_nothing_shows_in_logs_or_in_what_is_sent_to_simulate(caplog, capfd):
    request = make_request()
    sent = []

    def mapper(function, items):
        for item in items:
            sent.append(pickle.dumps((function, item)))
            yield function(item)

    marked = Sensitive(Total((CANARY, 20, 10), N))
    with caplog.at_level(logging.DEBUG), spread_by(mapper):
        made = run(request, make_candidates(request).batches(), compare_sums(request, marked), OpenDPNoise())
    shown = caplog.text + "".join(capfd.readouterr()) + repr(made)
    assert str(CANARY) not in shown
    needle = CANARY.to_bytes(5, "little")
    assert sent
    assert not any(needle in each or str(CANARY).encode() in each for each in sent)


def test_a_noise_scale_that_is_refused_is_refused_before_anything_is_simulated():
    request = make_request(sparse(epsilon="0.000000000001", c=200, size=200), size=200)
    with pytest.raises(ConfigError, match=r"beyond 2\^49 grid units"):
        noise_of(request)
    with pytest.raises(ConfigError, match=r"beyond 2\^49 grid units"):
        run(request, (1 / 0 for _ in [0]), compare_sums(request, sealed()), Frozen())


# One record changed.

MEANS = means({"x": DISTANCE.statistic.bounds}, {"x": 1.0}, N)


@pytest.mark.parametrize("distance", [DISTANCE, MEANS], ids=["l1", "l2"])
@settings(max_examples=60, deadline=None)
@given(place=st.integers(0, N - 1), value=st.one_of(st.floats(), st.sampled_from([0.0, 3.0, math.nan, 1e300])))
def test_one_record_moves_every_distance_by_the_sensitivity_at_most(distance, place, value):
    request = make_request(sparse(distance=distance, size=30), distance=distance, size=30)
    moved = RECORDS.copy()
    moved[place] = value
    statistic = getattr(distance.statistic, "parts", [distance.statistic])[0]
    totals = [Sensitive(Total(tuple(statistic.contributions(each).sum(axis=0).tolist()), N)) for each in (RECORDS, moved)]
    first, second = (compare_sums(request, total) for total in totals)
    for batch in BATCHES[distance.norm]:
        assert np.abs(first(batch)._value - second(batch)._value).max() <= request.question.sensitivity


BATCHES = {
    distance.norm: list(make_candidates(make_request(sparse(distance=distance, size=30), distance=distance, size=30)).batches())
    for distance in (DISTANCE, MEANS)
}


@settings(max_examples=200, deadline=None)
@given(start=st.lists(st.integers(-(2**70), 2**70), min_size=3, max_size=3), move=st.integers(-1, 1), at=st.integers(0, 2))
def test_sums_beyond_all_bounds_still_move_a_distance_by_no_more(start, move, at):
    """Under add_remove the number of records is private, and no sum of theirs may overflow."""
    request = make_request(
        replace(sparse(), sensitivity=DISTANCE.sensitivity(Neighbours.ADD_REMOVE)), neighbours=Neighbours.ADD_REMOVE, n=None
    )
    other = [value + move * (i == at) for i, value in enumerate(start)]
    batch = CandidateBatch(0, np.array([[0, 0, 0], [2**62, -(2**62), 5], [1, 2, 3]]), ())
    first, second = (compare_sums(request, Sensitive(Total(tuple(sums), 10)))(batch)._value for sums in (start, other))
    assert (first >= 0).all()
    assert (second >= 0).all()
    assert np.abs(first - second).max() <= 1
