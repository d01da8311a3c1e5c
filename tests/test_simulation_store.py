"""Stored simulations: a run that was killed goes on where it was, to the same draws, and nothing stale or damaged is read."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow.parquet as pq
import pytest
from cases import BY_NAME, joint_observation
from toy import PRIOR, Broken, release

from dp_dask import simulation_store
from dp_dask.clusters.local import plugin as Local  # noqa: N812
from dp_dask.core.plugins import load
from dp_dask.errors import DpDaskError
from dp_dask.fan_out import FEWEST, over
from dp_dask.public import simulations
from dp_dask.public.engines import kernel_is
from dp_dask.public.infer import infer
from dp_dask.public.isolated import Isolated
from dp_dask.public.simulated_infer import infer_simulated
from dp_dask.public.simulation import simulate
from dp_dask.public.spread import spread, spread_by, watched
from dp_dask.public.tempering import Effort
from dp_dask.public.unknowns import unknowns
from dp_dask.simulation_store import stored

HERE = 2  # calls of the simulator in the driver, to compare a posterior with its release: not kept
EFFORT = Effort(per_generation=2_000, most=20_000, wanted=1_000, adapting=100)

OWN = '''
import hashlib, os, time, uuid
from pathlib import Path

def simulate(theta, n, rng):
    """The second of two kinds with probability p[2]; each call leaves a mark, and takes its time."""
    made = 0.6 + (rng.random((len(theta), n)) < theta[:, 1:])
    time.sleep(0.004)
    (Path(os.environ["MARKS"]) / f"{hashlib.sha256(theta.tobytes()).hexdigest()[:16]}-{uuid.uuid4().hex}").touch()
    return made
simulate.parameters, simulate.columns, simulate.domains = ("p[1]", "p[2]"), ("x",), ("probability",) * 2
'''

DRIVE = """
import os, sys
from contextlib import ExitStack
from pathlib import Path
import numpy as np
from dp_dask.clusters.local import plugin as Local
from dp_dask.core.dirichlet import Dirichlet
from dp_dask.fan_out import over
from dp_dask.public import simulations
from dp_dask.public.simulated import SimulatedObservation
from dp_dask.public.simulated_infer import infer_simulated
from dp_dask.public.spread import spread_by
from dp_dask.public.tempering import Effort
from dp_dask.simulation_store import stored
from dp_dask.user_simulator import load_simulator
from toy import one_hot


if __name__ == "__main__":
    folder, workers = Path(sys.argv[1]), int(sys.argv[2])
    simulations.BATCH = 100
    seen = SimulatedObservation(
        simulator=load_simulator("own:simulate", folder), statistic=one_hot(2), n=100, scale=1.0, y=(38, 61), count=None,
        expected_n=None,
    )
    effort = Effort(per_generation=1_000, most=10_000, wanted=2_000.0)
    with ExitStack() as stack:
        inner = stack.enter_context(over(Local(workers=workers))) if workers else map
        stack.enter_context(spread_by(stored(inner, folder / "store", reuse=True)))
        made = infer_simulated(np.random.default_rng(1), seen, Dirichlet((1.0, 1.0)), 400, "tempered", effort=effort)
    np.save(folder / "part.npy", made.draws)
    os.rename(folder / "part.npy", folder / "draws.npy")
"""


def start(folder: Path, workers: int = 0) -> subprocess.Popen[bytes]:
    """Begin an inference, with its code, its store and the marks of its simulator's calls in the folder."""
    for name, text in {"own.py": OWN, "drive.py": DRIVE}.items():
        if not (folder / name).exists():
            (folder / name).write_text(text)
    (folder / "marks").mkdir(exist_ok=True)
    paths = os.pathsep.join(map(str, (Path(__file__).parent, Path(__file__).parent.parent)))
    environment = {**os.environ, "MARKS": str(folder / "marks"), "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.Popen([sys.executable, folder / "drive.py", folder, str(workers)], env=environment)


def kept(folder: Path) -> int:
    return len(list((folder / "store").glob("*.parquet")))


def calls(folder: Path) -> Counter[str]:
    """How often the simulator was called for each batch."""
    return Counter(path.name.partition("-")[0] for path in (folder / "marks").iterdir())


def finished(folder: Path, workers: int = 0) -> np.ndarray:
    assert start(folder, workers).wait(120) == 0
    return np.load(folder / "draws.npy")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    finished(folder)
    return folder


def test_killed_at_any_moment_and_resumed_it_gives_the_same_draws(undisturbed, tmp_path):
    """What was stored before the kill is not simulated again: only batches that were under way are, one without a cluster."""
    batches = kept(undisturbed)
    assert batches >= 50, batches
    assert set(calls(undisturbed).values()) == {1}
    for moment in (3, 31):
        driver = start(tmp_path)
        while kept(tmp_path) < moment:
            time.sleep(0.01)
        driver.send_signal(signal.SIGKILL)
        assert driver.wait() == -signal.SIGKILL
        assert moment <= kept(tmp_path) < batches
        assert not (tmp_path / "draws.npy").exists()
    np.testing.assert_array_equal(finished(tmp_path), np.load(undisturbed / "draws.npy"))
    assert {path.name for path in (tmp_path / "store").iterdir() if path.suffix == ".parquet"} == {
        path.name for path in (undisturbed / "store").iterdir()
    }
    assert sum(calls(tmp_path).values()) <= batches + 2 + HERE


def test_another_number_of_workers_reads_what_one_process_stored(undisturbed, tmp_path):
    shutil.copytree(undisturbed / "store", tmp_path / "store")
    for path in sorted((tmp_path / "store").iterdir())[::2]:
        path.unlink()
    missing = kept(undisturbed) - kept(tmp_path)
    np.testing.assert_array_equal(finished(tmp_path, workers=2), np.load(undisturbed / "draws.npy"))
    assert sum(calls(tmp_path).values()) == missing + HERE
    assert kept(tmp_path) == kept(undisturbed)


def test_an_edited_simulator_never_meets_old_results(undisturbed, tmp_path):
    shutil.copytree(undisturbed / "store", tmp_path / "store")
    (tmp_path / "own.py").write_text(OWN + "# edited\n")
    (tmp_path / "drive.py").write_text(DRIVE)
    before = kept(tmp_path)
    np.testing.assert_array_equal(finished(tmp_path), np.load(undisturbed / "draws.npy"))
    assert calls(tmp_path) == calls(undisturbed)
    assert kept(tmp_path) == 2 * before


@dataclass
class Counted:
    """A map that counts the batches it simulates, and how often it is called."""

    items: int = 0
    maps: int = 0

    def __call__(self, function, items):
        self.maps += 1
        for item in items:
            self.items += 1
            yield function(item)


@pytest.fixture
def _small_batches(monkeypatch):
    monkeypatch.setattr(simulations, "BATCH", 250)
    monkeypatch.setattr(kernel_is, "BATCH", 400)


LIKE = release(np.random.default_rng(3), n=50, scale=5.0)


def draws(seen=LIKE, engine="tempered", seed=1):
    return infer_simulated(np.random.default_rng(seed), seen, PRIOR, 400, engine, effort=replace(EFFORT, bank=4_000)).draws


@pytest.mark.usefixtures("_small_batches")
@pytest.mark.parametrize("engine", ["tempered", "bank"])
def test_a_second_run_simulates_nothing_and_another_seed_everything(tmp_path, engine):
    here, seen = draws(engine=engine), replace(LIKE)
    for simulated in (True, False):
        counted = Counted()
        with spread_by(stored(counted, tmp_path, reuse=True)):
            np.testing.assert_array_equal(draws(seen, engine), here)
        assert (counted.items > 0) == simulated
    counted = Counted()
    with spread_by(stored(counted, tmp_path, reuse=True)):
        draws(seen, engine, seed=2)
    assert counted.items > 0
    counted = Counted()
    with spread_by(stored(counted, tmp_path, reuse=False)):
        np.testing.assert_array_equal(draws(seen, engine), here)
    assert counted.items > 0


@pytest.mark.usefixtures("_small_batches")
def test_particles_of_kernel_is_are_kept_too(tmp_path):
    case = BY_NAME["normal_mu_sigma"]
    seen = simulate(np.random.default_rng(1), joint_observation(case, n=5, epsilon=1.0), np.array([0.4, 1.2])).observation

    def of_kernel_is():
        return infer(np.random.default_rng(2), seen, case.prior, 200, "kernel_is").draws

    here = of_kernel_is()
    for simulated in (True, False):
        counted = Counted()
        with spread_by(stored(counted, tmp_path, reuse=True)):
            np.testing.assert_array_equal(of_kernel_is(), here)
        assert (counted.items > 0) == simulated
    table = pq.read_table(next(tmp_path.glob("*.parquet")))
    assert table.column_names == ["v_0", "v_1", "log_weight"]
    assert np.isfinite(table["v_1"].to_numpy()).all()


def batches(n, size=300, seen=LIKE):
    """Batches of one generation, made anew: a seed that was used is another one."""
    seeds = np.random.SeedSequence(5).spawn(n)
    return [simulations.Batch(seen, unknowns(seen, PRIOR), None, seed, size) for seed in seeds]


def assert_same(made, expected):
    for one, other in zip(made, expected, strict=True):
        for name in ("w", "sums", "is_whole"):
            a, b = getattr(one, name), getattr(other, name)
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)
        assert one.first_failures == other.first_failures


def test_a_damaged_or_foreign_file_is_simulated_again_and_replaced(tmp_path):
    seen = replace(LIKE, simulator=Broken("raise"))
    expected = [simulations.simulate_batch(item) for item in batches(6, seen=seen)]
    assert any(made.first_failures for made in expected)
    mapper = stored(map, tmp_path, reuse=True)
    assert_same(mapper(simulations.simulate_batch, batches(6, seen=seen)), expected)
    files = sorted(tmp_path.iterdir())
    contents = [path.read_bytes() for path in files]
    files[0].write_bytes(contents[0][:-100])
    files[1].write_bytes(b"")
    files[2].write_bytes(contents[2][:200] + bytes([contents[2][200] ^ 1]) + contents[2][201:])
    files[3].write_bytes(contents[4])
    files[4].rename(tmp_path / files[4].name.replace(files[4].name[:64], files[5].name[:64]))
    (tmp_path / ".half.part").write_bytes(b"PAR1")
    (tmp_path / "notes.txt").write_text("not ours")
    counted = Counted()
    assert_same(stored(counted, tmp_path, reuse=True)(simulations.simulate_batch, batches(6, seen=seen)), expected)
    assert (counted.items, counted.maps) == (5, 1)
    assert [path.read_bytes() for path in files] == contents
    again = Counted()
    assert_same(stored(again, tmp_path, reuse=True)(simulations.simulate_batch, batches(6, seen=seen)), expected)
    assert again.items == 0


def test_any_tool_can_read_a_file_and_it_holds_simulated_values_alone(tmp_path):
    list(stored(map, tmp_path, reuse=True)(simulations.simulate_batch, batches(1)))
    table = pq.read_table(next(tmp_path.glob("*.parquet")))
    assert table.column_names == [*(f"w_{j}" for j in range(4)), *(f"sum_{j}" for j in range(5)), "is_whole"]
    assert (sum(table[f"sum_{j}"].to_numpy() for j in range(5)) == 50).all()
    assert set(table.schema.metadata) == {b"form", b"written_by", b"of", b"first_failures"}


def test_another_version_reads_nothing(tmp_path, monkeypatch):
    list(stored(map, tmp_path, reuse=True)(simulations.simulate_batch, batches(2)))
    code = simulation_store._code()
    assert {f"numpy {np.__version__}", simulation_store.__version__} <= set(code)
    for i in range(len(code)):
        monkeypatch.setattr(simulation_store, "_code", lambda i=i: (*code[:i], "another", *code[i + 1 :]))
        counted = Counted()
        list(stored(counted, tmp_path, reuse=True)(simulations.simulate_batch, batches(2)))
        assert counted.items == 2


def test_how_an_array_lies_in_memory_is_the_same_for_what_was_stored(tmp_path):
    """numpy adds up the same numbers in another order where they lie otherwise, and the last digits differ."""
    made = simulations.simulate_batch(batches(1)[0])
    made = replace(made, w=np.asfortranarray(made.w), sums=np.asfortranarray(made.sums))
    assert not made.w.flags.c_contiguous
    joined = simulations.Simulations.join([made, made])
    assert joined.w.flags.c_contiguous
    assert joined.sums.flags.c_contiguous
    mapper = stored(lambda *_: [made], tmp_path, reuse=True)
    for _ in range(2):
        assert_same(mapper(simulations.simulate_batch, batches(1)), [made])


def test_a_usual_generation_is_enough_batches_for_a_cluster():
    assert Effort().per_generation / simulations.BATCH >= 2 * FEWEST


def test_results_come_in_order_and_no_sooner_than_they_are_asked_for(tmp_path):
    expected = [simulations.simulate_batch(item) for item in batches(8)]
    list(stored(map, tmp_path, reuse=True)(simulations.simulate_batch, batches(8)[1::2]))
    counted = Counted()
    results = iter(stored(counted, tmp_path, reuse=True)(simulations.simulate_batch, batches(8)))
    assert_same([next(results) for _ in range(3)], expected[:3])
    assert counted.items == 2
    assert_same(results, expected[3:])
    assert counted.items == 4


def test_what_cannot_be_kept_passes_through(tmp_path):
    mapper = stored(map, tmp_path, reuse=True)
    assert list(mapper(len, ["a", "bc"])) == [1, 2]
    assert list(mapper(lambda item: 2 * item, [1, 2])) == [2, 4]
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_to_is_told(tmp_path):
    (tmp_path / "store").write_text("a file")
    with pytest.raises(DpDaskError, match=r"store: cannot be written to \(.*mend this and run again"):
        list(stored(map, tmp_path / "store", reuse=True)(simulations.simulate_batch, batches(1)))


def test_a_map_is_closed_with_its_reader(tmp_path):
    """So that no task stays on a cluster when what reads the results fails."""
    closed = []

    def mapper(function, items):
        try:
            yield from map(function, items)
        finally:
            closed.append(True)

    for around in (lambda m: stored(m, tmp_path, reuse=True), lambda m: watched(m, lambda _: None)):
        results = around(mapper)(simulations.simulate_batch, batches(2))
        next(results)
        results.close()
        assert closed.pop()


def test_progress_is_told_in_simulations(tmp_path):
    told = []
    with spread_by(watched(stored(map, tmp_path, reuse=True), told.append)):
        spread(simulations.simulate_batch, batches(3, size=20))
        spread(simulations.simulate_batch, batches(3, size=20))
        spread(len, ["a"])
    assert told == [20, 40, 60, 80, 100, 120, 121]


@dataclass(frozen=True)
class Nasty:
    """The toy, at large in a process of its own: it prints, forks, leaks, exits where p[1] > 0.8, and once kills its worker."""

    folder: str
    parameters: ClassVar = tuple(f"p[{i}]" for i in range(1, 6))
    domains: ClassVar = ("probability",) * 5
    columns: ClassVar = ("x",)
    decides_n: ClassVar = False
    hoard: ClassVar[list[np.ndarray]] = []

    def simulate(self, theta, n, rng):
        mark = Path(self.folder) / "killed"
        if not mark.exists():
            mark.touch()
            os.kill(os.getppid(), signal.SIGKILL)
        print("noise " * 1_000)  # noqa: T201
        self.hoard.append(np.ones(100_000))
        if theta[0, 0] < 0.05 and os.fork() == 0:
            os._exit(0)
        if (theta[:, 0] > 0.8).any():
            sys.exit(3)
        return load("dp_dask.simulators", "uniform_mixture")(5).simulate(theta, n, rng)


@pytest.mark.usefixtures("_small_batches")
def test_a_nasty_simulator_and_the_death_of_a_worker_do_not_end_an_inference(tmp_path, capfd):
    """Over processes, with a store: the same draws as here, with few exits, each of them counted."""
    seen = replace(LIKE, simulator=Nasty(str(tmp_path)), call=Isolated(60))
    effort = replace(EFFORT, most=4_000)

    def made():
        return infer_simulated(np.random.default_rng(1), seen, PRIOR, 400, "tempered", effort=effort)

    with over(Local(processes=True, workers=2)) as mapper, spread_by(stored(mapper, tmp_path / "store", reuse=True)):
        there = made()
    assert (tmp_path / "killed").exists()
    assert capfd.readouterr().out == ""
    counted = Counted()
    with spread_by(stored(counted, tmp_path / "store", reuse=True)):
        again = made()
    assert counted.items == 0
    for other in (again, made()):
        np.testing.assert_array_equal(other.draws, there.draws)
        assert other.reason == there.reason
    assert re.search(r"; [1-9]\d* of 4000 simulations failed", there.reason)
