"""Guarded simulation: every way for a simulator to fail is a rejection with its theta, here and in a process of its own."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from dp_dask.core.simulated import Simulated
from dp_dask.errors import InferenceError
from dp_dask.public import isolated
from dp_dask.public.guarded import call_here, guarded
from dp_dask.public.isolated import Isolated
from dp_dask.user_simulator import load_simulator

FAULTS = '''
import os, sys, time
import numpy as np
from dp_dask.core.simulated import Simulated

def good(theta, n, rng):
    return theta[:, :1] + rng.standard_normal((len(theta), n))

def at(fault):
    """A simulator that goes wrong where theta is above 10."""
    def simulate(theta, n, rng):
        x = good(theta, n, rng)
        is_bad = theta[:, 0] > 10
        return fault(x, is_bad, theta, rng) if is_bad.any() else x
    simulate.parameters, simulate.columns = ("mu",), ("x",)
    return simulate

def raise_(error):
    raise error

def nan(x, is_bad, theta, rng):
    x[is_bad, 2] = np.nan
    return x

def infinite(x, is_bad, theta, rng):
    x[is_bad, 0] = -np.inf
    return x

def one_short(x, is_bad, theta, rng):
    keep = np.ones(x.shape, dtype=bool)
    keep[is_bad, -1] = False
    return Simulated(keep.sum(axis=1), {"x": x[keep]})

def fork_and_return(x, is_bad, theta, rng):
    os.fork()
    return x

def by_chance(x, is_bad, theta, rng):
    if rng.random() < 0.5:
        raise RuntimeError("a bad day")
    return x

def spoil_theta(x, is_bad, theta, rng):
    theta[:] = 0
    raise ValueError("spoilt")

def hang(x, is_bad, theta, rng):
    os.system("sleep 61.375 &")
    time.sleep(60)

raises = at(lambda x, b, t, r: raise_(ValueError(f"no law at {t[b][0, 0]}")))
exits = at(lambda x, b, t, r: sys.exit(3))
divides = at(lambda x, b, t, r: 1 // 0)
recursive = at(lambda x, b, t, r: (f := lambda: f())())
nothing = at(lambda x, b, t, r: None)
texts = at(lambda x, b, t, r: x.astype(str))
objects = at(lambda x, b, t, r: np.array([[object()] * x.shape[1]] * len(x)))
flat = at(lambda x, b, t, r: x[:, 0])
fewer = at(lambda x, b, t, r: x[1:])
columns = at(lambda x, b, t, r: {"y": x})
ragged = at(lambda x, b, t, r: {"x": x, "y": x[:, 1:]})
unsorted = at(lambda x, b, t, r: Simulated.of_records(len(x), np.repeat(np.arange(len(x))[::-1], x.shape[1]), {"x": x.ravel()}))
beyond = at(lambda x, b, t, r: Simulated.of_records(len(x), np.repeat(np.arange(len(x)) + 1, x.shape[1]), {"x": x.ravel()}))
hollow = at(lambda x, b, t, r: Simulated(np.full(len(x), 5), None))
short_column = at(lambda x, b, t, r: Simulated(np.full(len(x), 5), {"x": x.ravel()[1:]}))
negative = at(lambda x, b, t, r: Simulated(np.full(len(x), -5), {"x": x.ravel()}))
fractional = at(lambda x, b, t, r: Simulated(np.full(len(x), 5.0), {"x": x.ravel()}))
unsendable = at(lambda x, b, t, r: Simulated(lambda: 0, {}))
nans, infinites, shorts, spoils = at(nan), at(infinite), at(one_short), at(spoil_theta)
forks, chances, hangs = at(fork_and_return), at(by_chance), at(hang)
hard_exits = at(lambda x, b, t, r: os._exit(7))
crashes = at(lambda x, b, t, r: os.kill(os.getpid(), 11))
prints = at(lambda x, b, t, r: (print("noise " * 10000), sys.stdout.flush(), x)[2])

def pids(theta, n, rng):
    return np.full((len(theta), n), float(os.getpid()))
pids.parameters, pids.columns = ("mu",), ("x",)

hoard = []
def leaks(theta, n, rng):
    hoard.append(np.ones(3_000_000))
    return pids(theta, n, rng)
leaks.parameters, leaks.columns = ("mu",), ("x",)
'''
THETA = np.array([0.0, 1, 2, 11, 4, 5, 12, 7])[:, None]
BAD = [3, 6]
N = 5


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("simulators")
    (folder / "faults.py").write_text(FAULTS)
    return folder


@pytest.fixture(scope="module")
def load(folder):
    return lambda name: load_simulator(f"faults:{name}", folder, ("mu",), ("x",))


@pytest.fixture(scope="module", autouse=True)
def _no_child_stays():
    yield
    isolated._kept.__dict__.clear()
    gc.collect()


SIMULATOR_FAULTS = {
    "raises": "ValueError: no law at 1[12].0 .faults.py, line ",
    "exits": "SystemExit: 3",
    "divides": "ZeroDivisionError",
    "recursive": "RecursionError",
    "nothing": "TypeError: returned NoneType; it must be",
    "texts": "TypeError: x is of type <U32; it must hold numbers",
    "objects": "TypeError: x is of type object",
    "flat": "TypeError: returned|ValueError: returned shapes x .1,.; each column must be .1, n., one row a data set",
    "fewer": "ValueError: returned shapes x .0, 5.; each column",
    "columns": "returned the columns y; declared are x",
    "ragged": "ValueError: returned shapes x .1, 5., y .1, 4.",
    "beyond": "ValueError: the data sets of the records must ascend, from 0 or later to 0 or before",
    "short_column": r"returned x of type float64 and shape .4,.; it must be numbers of shape .5,.",
    "negative": "returned counts of type int64",
    "fractional": "returned counts of type float64",
    "hollow": "returned",
    "unsendable": "returned",
    "nans": "returned a x that is not a finite number",
    "infinites": "returned a x that is not a finite number",
    "shorts": "returned 4 records; n is 5",
    "spoils": "ValueError: spoilt",
}


def check_only_the_bad_are_rejected(found, message):
    assert [failure.row for failure in found.failures] == BAD
    assert [failure.theta for failure in found.failures] == [(11.0,), (12.0,)]
    for failure in found.failures:
        assert re.match(message, failure.reason), failure.reason
    assert found.simulated.counts.tolist() == [0 if i in BAD else N for i in range(len(THETA))]
    assert np.flatnonzero(~found.is_whole).tolist() == BAD
    good = found.simulated.values["x"].reshape(-1, N).mean(axis=1)
    assert np.all(np.abs(good - np.delete(THETA[:, 0], BAD)) < 5 / np.sqrt(N))


@pytest.mark.parametrize(("name", "message"), SIMULATOR_FAULTS.items())
def test_what_goes_wrong_at_a_theta_is_rejected_with_it(load, name, message):
    found = guarded(load(name), THETA, N, np.random.default_rng(1), policy="reject")
    check_only_the_bad_are_rejected(found, message)
    assert found.unblamed == 0
    again = guarded(load(name), THETA, N, np.random.default_rng(1), policy="reject")
    np.testing.assert_array_equal(found.simulated.values["x"], again.simulated.values["x"])
    assert found.failures == again.failures


def test_data_sets_out_of_order_are_rejected_down_to_those_that_are_in_order(load):
    found = guarded(load("unsorted"), THETA, N, np.random.default_rng(1), policy="reject")
    assert not found.failures  # one data set by itself cannot be out of order
    assert found.unblamed > 0


@pytest.mark.parametrize("name", ["raises", "nans", "nothing"])
def test_the_policy_raise_names_the_theta_and_what_to_do(load, name):
    with pytest.raises(InferenceError, match=r"failed at mu = 11.0: .*; mend it, keep the prior away"):
        guarded(load(name), THETA, N, np.random.default_rng(1), policy="raise")
    whole = guarded(load(name), THETA[:3], N, np.random.default_rng(1), policy="raise")
    assert whole.simulated.counts.tolist() == [N] * 3


def test_retry_draws_the_failed_again_and_rejects_what_always_fails(load):
    check_only_the_bad_are_rejected(guarded(load("raises"), THETA, N, np.random.default_rng(1), policy="retry"), "ValueError")
    theta = np.full((400, 1), 11.0)

    def failures(policy):
        return [
            len(guarded(load("chances"), theta[i : i + 1], N, np.random.default_rng(i), policy=policy).failures)
            for i in range(400)
        ]

    rejected, retried = sum(failures("reject")), sum(failures("retry"))
    assert stats.binomtest(rejected, 400, 0.5).pvalue > 1e-5
    assert stats.binomtest(retried, 400, 0.5**4).pvalue > 1e-5


def test_failures_of_chance_that_no_theta_is_to_blame_for_are_counted(load):
    theta = np.full((2, 1), 11.0)
    found = [guarded(load("chances"), theta, N, np.random.default_rng(seed), policy="reject") for seed in range(200)]
    assert stats.binomtest(sum(each.unblamed for each in found), 200, 0.5**3).pvalue > 1e-5  # it fails, then both halves pass
    assert all(not each.failures for each in found if each.unblamed)


def test_the_result_does_not_depend_on_what_fails_elsewhere_in_the_batch(load):
    """A half's stream is decided by its place: failing in the other half changes nothing here."""
    one, two = THETA.copy(), THETA.copy()
    two[5] = 13
    a, b = (guarded(load("raises"), each, N, np.random.default_rng(5), policy="reject").simulated for each in (one, two))
    np.testing.assert_array_equal(a.values["x"][a.dataset < 4], b.values["x"][b.dataset < 4])


def test_every_kind_of_n_reaches_the_right_rows():
    n = np.arange(1, 9)

    class Ragged:
        parameters, columns, domains, decides_n = ("mu",), ("x",), ("real",), False

        def simulate(self, theta, n, rng):  # noqa: ARG002
            if np.any(theta > 10):
                raise ValueError
            return Simulated(n, {"x": np.repeat(theta[:, 0], n)})

    found = guarded(Ragged(), THETA, n, np.random.default_rng(1), policy="reject")
    assert found.simulated.counts.tolist() == [0 if i in BAD else i + 1 for i in range(8)]
    decided = guarded(Ragged(), THETA[:3], np.array([0, 0, 2]), np.random.default_rng(1), policy="reject")
    assert decided.simulated.counts.tolist() == [0, 0, 2]


def test_a_simulator_that_cannot_be_made_ready_ends_the_run_whatever_the_policy(tmp_path):
    (tmp_path / "gone.py").write_text("def f(theta, n, rng): return theta\n")
    simulator = load_simulator("gone:f", tmp_path, ("mu",), ("x",))
    elsewhere = type(simulator)("gone_away:f", tmp_path, ("mu",), ("x",), ("real",))
    for call in (call_here, Isolated(5)):
        with pytest.raises(InferenceError, match=r"cannot be made ready .*'gone_away:f' cannot be imported"):
            guarded(elsewhere, THETA, N, np.random.default_rng(1), policy="reject", call=call)


def test_a_fork_that_comes_back_answers_once_in_a_process_of_its_own(load):
    for seed in range(3):
        found = guarded(load("forks"), THETA, N, np.random.default_rng(seed), policy="raise", call=Isolated(20))
        expected = THETA + np.random.default_rng(seed).spawn(1)[0].spawn(3)[0].standard_normal((8, N))
        np.testing.assert_array_equal(found.simulated.dense("x"), expected)


def test_a_fork_that_comes_back_is_not_a_second_worker(folder):
    """The forked copy ends inside the call; were it to return, the line below would be printed twice."""
    code = (
        "import numpy as np; from pathlib import Path; from dp_dask.user_simulator import load_simulator;"
        "from dp_dask.public.guarded import guarded;"
        f"s = load_simulator('faults:forks', Path({str(folder)!r}));"
        f"g = guarded(s, np.array([[11.0]]), 5, np.random.default_rng(1), policy='reject'); print('done', len(g.failures))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout == "done 0\n"


@pytest.mark.parametrize(
    ("name", "message"),
    [("hard_exits", "ended its process .exit code 7."), ("crashes", "was ended by SIGSEGV"), ("exits", "SystemExit: 3")],
)
def test_a_hard_exit_and_a_crash_are_rejections_in_a_process_of_its_own(load, name, message):
    theta = THETA[[0, 3]]
    found = guarded(load(name), theta, N, np.random.default_rng(1), policy="reject", call=Isolated(20))
    assert [(f.row, f.theta) for f in found.failures] == [(1, (11.0,))]
    assert re.match(message, found.failures[0].reason)
    assert found.simulated.counts.tolist() == [N, 0]


@pytest.mark.parametrize("name", ["raises", "nans", "unsendable", "hollow", "prints"])
def test_a_process_of_its_own_gives_the_same_as_this_one(load, name, capfd):
    here, there = (
        guarded(load(name), THETA, N, np.random.default_rng(1), policy="reject", call=call) for call in (call_here, Isolated(20))
    )
    np.testing.assert_array_equal(here.simulated.values["x"], there.simulated.values["x"])
    np.testing.assert_array_equal(here.simulated.dataset, there.simulated.dataset)
    assert [f.row for f in here.failures] == [f.row for f in there.failures]
    capfd.readouterr()
    guarded(load(name), THETA, N, np.random.default_rng(1), policy="reject", call=Isolated(20))
    assert capfd.readouterr().out == ""


def alive(text):
    return [p for p in Path("/proc").glob("[0-9]*/cmdline") if text in _read(p)]


def _read(path):
    try:
        return path.read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def test_what_hangs_is_ended_with_all_that_it_started(load):
    started = time.monotonic()
    found = guarded(load("hangs"), THETA[[0, 3]], N, np.random.default_rng(1), policy="reject", call=Isolated(0.5))
    assert time.monotonic() - started < 30
    assert [(f.row, f.reason) for f in found.failures] == [(1, "timed out after 0.5 s")]
    assert found.simulated.counts.tolist() == [N, 0]
    while alive("sleep 61.375"):
        assert time.monotonic() - started < 30
        time.sleep(0.05)


def test_a_process_is_kept_for_the_next_call_and_replaced_when_it_leaks(load):
    own = Isolated(20, leak=50_000_000)

    def of(name):
        found = guarded(load(name), THETA[:1], 1, np.random.default_rng(1), policy="raise", call=own)
        return found.simulated.values["x"][0]

    first, second = of("pids"), of("pids")
    assert first == second != os.getpid()
    leaking = [of("leaks") for _ in range(8)]  # 24 MB a call
    assert leaking[0] == leaking[1]
    assert leaking[-1] != leaking[0]


@pytest.mark.parametrize("time_out", [0, -1, np.nan, np.inf])
def test_an_impossible_time_out_is_refused(time_out):
    with pytest.raises(ValueError, match="the time-out is"):
        Isolated(time_out)
