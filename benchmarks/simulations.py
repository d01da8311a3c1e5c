"""Measure simulations a second beside pyABC and ELFI, on the same simulator and the same distances, and Dask's overhead.

Run ``python benchmarks/simulations.py --pyabc-python PATH --elfi-python PATH`` where dp_dask can be imported; each PATH is the
Python of a virtual environment with that package (they need nothing of dp_dask's but NumPy and SciPy). The toy is that of Park,
Vinaroz & Jitkrittum (2021): five uniforms, 5,000 records a data set, a Dirichlet(1) prior; each simulation draws theta, makes the
records, adds them up and finds the distance to one data set. All rows take turns, round by round; a ratio is the median of the
rounds' own ratios by the wall clock, [min, max] behind it. Absolute goals are judged per CPU second, of a process and all its
children: on a machine that others use as well a wall clock tells of them too. This is no test: the exit status is 0.

The peers get the same simulator and distance without our guard, under conditions that favour them: one generation of rejection
at a threshold that 5 % pass, so that next to nothing is stored, and every simulation that was started counts.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

from dp_dask.clusters.local import Local
from dp_dask.fan_out import on_client
from dp_dask.public.simulated import SimulatedObservation
from dp_dask.public.simulations import Batch, Problem, simulate_batch
from dp_dask.public.spread import spread_by
from dp_dask.public.unknowns import unknowns

if TYPE_CHECKING:
    from collections.abc import Callable

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "peers"))

from toy import ANSWER, DISTANCES, PRIOR, RECORDS, SIMULATOR, Toy  # noqa: E402  (of the folder just named)

PASS = 0.05  # of the simulations
SIZE = 10_000  # simulations of ours a round
PEERS = {
    "pyABC": ("pyabc_peer.py", "pip install pyabc"),
    "ELFI": ("elfi_peer.py", "pip install elfi"),
}
ASKED = {  # batch and accepted simulations, so that each takes a second or two
    "pyABC": {"Dask, batch 1": (1, 2), "Dask, batch 100": (100, 30), "Dask, batch 500": (500, 80), "single core": (None, 40)},
    "ELFI": {"single core, batch 100": (100, 400), "single core, batch 1000": (1000, 300)},
}
GOALS = {"lattice MMD": 2500, "bins": 10_000}  # simulations a second and core
GOAL_PYABC, GOAL_ELFI, GOAL_OVERHEAD = 5, 1, 0.1
PER_WORKER = 2  # batches, for the overhead


@dataclass
class Row:
    """One contender: how to run it, on how many cores, and simulations a second of each round, by two clocks."""

    name: str
    cores: int
    run: Callable[[], int]
    used: Callable[[], float]  # CPU seconds so far
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def measure(self, *, keep: bool) -> None:
        """Run it once."""
        begin, used = time.perf_counter(), self.used()
        simulations = self.run()
        seconds, used = time.perf_counter() - begin, self.used() - used
        if keep:
            self.wall.append(simulations / seconds / self.cores)
            self.cpu.append(simulations / max(used, 1e-9))


@dataclass
class Peer:
    """A package in an interpreter of its own, which answers one question after the other."""

    process: subprocess.Popen[str]
    version: str = ""

    def ask(self, question: dict[str, Any] | None = None) -> dict[str, Any]:
        """Wait for an answer; raises RuntimeError where there is none or the peer failed."""
        if question is not None:
            self.process.stdin.write(json.dumps(question) + "\n")
            self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith(ANSWER):
                found = json.loads(line.removeprefix(ANSWER))
                if "error" in found:
                    raise RuntimeError(found["error"])
                return found
        raise RuntimeError(f"{Path(self.process.args[1]).name} ended with exit status {self.process.wait()}")


def _cpu(process: psutil.Process) -> float:
    """Return the CPU seconds that a process and its living children have used."""
    return sum(each.cpu_times().user + each.cpu_times().system for each in (process, *process.children(recursive=True)))


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.3g} [{min(values):.3g}, {max(values):.3g}]"


def _problem(name: str) -> Problem:
    statistic = DISTANCES[name].statistic
    y = tuple(int(value) for value in Toy(name).observed())
    like = SimulatedObservation(simulator=SIMULATOR, statistic=statistic, n=RECORDS, scale=1.0, y=y, count=None, expected_n=None)
    return Problem.of(np.random.default_rng(1), like, unknowns(like, PRIOR))


def _ours(name: str, mapper: Callable[..., Any]) -> int:
    """Simulate a generation as every engine for simulators does, and find the distances."""
    problem = _problem(name)
    with spread_by(mapper):
        made = problem.generation(0, SIZE)
    Toy(name).distance(made.sums, np.array(problem.observation.y))
    return len(made.sums)


def _threshold(name: str) -> float:
    toy = Toy(name)
    sums = toy.sums(PRIOR.rvs(np.random.default_rng(2), 2000), np.random.default_rng(3))
    return float(np.quantile(toy.distance(sums, toy.observed()), PASS))


def _start(peer: str, python: str | None, workers: int, stack: ExitStack) -> Peer | None:
    """Start a peer and say which version was found, or how to get it."""
    script, install = PEERS[peer]
    flag = f"--{peer.lower()}-python"
    if python is None:
        print(f"{peer}: not installed (in a virtual environment of its own: {install}; then {flag} ITS/bin/python)")
        return None
    if not os.access(python, os.X_OK):
        print(f"{peer}: there is no {python} to run; {install}, then {flag} ITS/bin/python")
        return None
    process = subprocess.Popen(
        [python, str(HERE / "peers" / script), str(workers)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    stack.callback(process.wait)
    stack.callback(process.stdin.close)
    found = Peer(process)
    try:
        found.version = found.ask()["version"]
    except RuntimeError as error:
        print(f"{peer}: not usable with {python} ({error}); {install}")
        return None
    print(f"{peer}: {found.version}")
    return found


def _of_peer(peer: Peer, question: dict[str, Any]) -> int:
    return peer.ask(question)["simulations"]


def compare(name: str, rounds: int, workers: int, mappers: dict[str, Any], peers: dict[str, Peer]) -> None:
    """Print all rates in one distance, and whether the goals are met."""
    here, threshold = partial(_cpu, psutil.Process()), _threshold(name)
    rows = [Row("dp_dask, without Dask", 1, partial(_ours, name, map), time.thread_time)]  # beside the idle clusters' threads
    rows += [Row(f"dp_dask, Dask, {how}", workers, partial(_ours, name, mapper), here) for how, mapper in mappers.items()]
    for peer, found in peers.items():
        used = partial(_cpu, psutil.Process(found.process.pid))
        for how, (batch, accepted) in ASKED[peer].items():
            cores = workers if how.startswith("Dask") else 1
            question = {"name": name, "batch": batch, "accepted": accepted, "threshold": threshold}
            rows.append(Row(f"{peer}, {how}", cores, partial(_of_peer, found, question), used))
    for i in range(rounds + 1):  # the first warms up
        for row in rows:
            row.measure(keep=i > 0)
    print(f"\n{name}, {len(DISTANCES[name].statistic.units)} sums of {RECORDS} records: simulations a second and core")
    print(f"{'':<32}{'by the wall clock':>32}{'per CPU second':>32}")
    for row in rows:
        print(f"{row.name:<32}{_spread(row.wall):>32}{_spread(row.cpu):>32}")
    _judge(name, rows)


def _judge(name: str, rows: list[Row]) -> None:
    alone, *with_dask = [row for row in rows if row.name.startswith("dp_dask")]
    for row in (alone, *with_dask):
        _tell(f"{row.name}, per CPU second", [statistics.median(row.cpu)], GOALS[name], "at least")
    ours = max(with_dask, key=lambda row: statistics.median(row.wall))
    theirs = [row for row in rows if row.name.startswith("pyABC, Dask")]
    if theirs:
        best = max(theirs, key=lambda row: statistics.median(row.wall))
        ratios = [a / b for a, b in zip(ours.wall, best.wall, strict=True)]
        _tell(f"times pyABC's best on Dask ({best.name.rpartition(', ')[2]})", ratios, GOAL_PYABC, "at least")
    theirs = [row for row in rows if row.name.startswith("ELFI")]
    if theirs:
        best = max(theirs, key=lambda row: statistics.median(row.wall))
        ratios = [a / b for a, b in zip(alone.wall, best.wall, strict=True)]
        what = f"times ELFI's best, both without Dask ({best.name.rpartition(', ')[2]})"
        _tell(f"{what}, by the wall clock", ratios, GOAL_ELFI, "at least")
        _tell(f"{what}, per CPU second", [a / b for a, b in zip(alone.cpu, best.cpu, strict=True)], GOAL_ELFI, "at least")


def _tell(what: str, values: list[float], goal: float, how: str) -> None:
    middle = statistics.median(values)
    met = middle >= goal if how == "at least" else middle <= goal
    shown = _spread(values) if len(values) > 1 else f"{middle:.3g}"
    print(f"  {what}: {shown}; goal {how} {goal:g}: {'met' if met else 'MISSED'}")


def timed(batch: Batch) -> float:
    """Simulate one batch and return the seconds that it took where it ran."""
    begin = time.perf_counter()
    simulate_batch(batch)
    return time.perf_counter() - begin


def overhead(rounds: int, workers: int, mappers: dict[str, Any]) -> None:
    """Print what a cluster takes beside its tasks: workers times the wall clock, over the sum of the tasks' own seconds, less 1.

    Both grow where others use the machine, so that their ratio does not.
    """
    problem = _problem("lattice MMD")
    rate = 1000 / timed(Batch(problem.observation, problem.unknowns, None, np.random.SeedSequence(1), 1000))
    size = max(round(rate), 1)
    print(f"\nDask overhead at batches of {size} simulations with lattice MMD, about a second each")
    seeds = np.random.SeedSequence(2).spawn(PER_WORKER * workers)
    batches = [Batch(problem.observation, problem.unknowns, None, seed, size) for seed in seeds]
    found: dict[str, list[float]] = {how: [] for how in mappers}
    for _ in range(rounds):
        for how, mapper in mappers.items():
            begin = time.perf_counter()
            taken = list(mapper(timed, batches))
            found[how].append(workers * (time.perf_counter() - begin) / sum(taken) - 1)
    for how, values in found.items():
        _tell(f"dp_dask, Dask, {how}", values, GOAL_OVERHEAD, "at most")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each comparison (default: 3)")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), help="of Dask (default: one a core)")
    for peer in PEERS:
        parser.add_argument(f"--{peer.lower()}-python", metavar="PATH", help=f"a Python that has {peer}")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        given = {peer: getattr(arguments, f"{peer.lower()}_python") for peer in PEERS}
        started = {peer: _start(peer, python, arguments.workers, stack) for peer, python in given.items()}
        mappers = {}
        for how in ("threads", "processes"):
            client = stack.enter_context(Local(processes=how == "processes", workers=arguments.workers).client())
            mappers[how] = partial(on_client, client, stall_timeout=600.0)
        print(f"load {os.getloadavg()[0]:.1f} on {len(os.sched_getaffinity(0))} cores; Dask with {arguments.workers} workers")
        for name in DISTANCES:
            compare(name, arguments.rounds, arguments.workers, mappers, {k: v for k, v in started.items() if v is not None})
        overhead(arguments.rounds, arguments.workers, mappers)


if __name__ == "__main__":
    main()
