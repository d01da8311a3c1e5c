"""The calibration gate: is the posterior of every model right at every n and epsilon, with the engine that ``auto`` takes?

Run ``python benchmarks/calibration.py`` where dp_dask can be imported. Each cell of the table (a model with a vague prior,
clamp or truncate, n public or private, n, epsilon) simulates truths, records and fresh releases and ranks each truth in its
posterior. The ranks are uniform if and only if the posteriors are right, which the exact law of gamma judges (Saeilynoja,
Buerkner & Vehtari 2022), with Holm's correction at 0.01 over all cells and parameters; KS is printed beside it. A second
table judges each model's ranks pooled over n and epsilon, again at 0.01: it sees what is slightly wrong everywhere.

The time limit sets how many replicates a cell gets: ``--replicates`` where they are cheap, fewer where they are not, in
proportion to 1 / sqrt(seconds per replicate). The table tells N; a cell with N < 100 can only show gross faults. Ranks are kept
in a file beside ``--output``: a second run goes on from there, so that N grows, and ``--minutes 0`` prints the table at any
time. A replicate's numbers depend on the seed, its cell's name and its own number, not on time or processes.
The exit status is 1 where a cell of ``auto`` fails or refuses. Other ``--engines`` are listed, and decide nothing.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import math
import multiprocessing
import os
import sys
import time
from collections import Counter, defaultdict
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import special

import dp_dask
from dp_dask.public.uniformity import gamma, gamma_p_value, ks_distance

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # for the processes of the pool, which start anew
ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from calibration_cells import EPSILONS, Cell, every_cell  # noqa: E402

LEVEL = 0.01
PILOT = 5  # replicates that tell what a cell costs
FEW = 100  # replicates: below, only gross faults show
STEPS = sorted(
    round(m * 10**k) for m in (1, 1.25, 1.6, 2, 2.5, 3.2, 4, 5, 6.4, 8) for k in range(1, 6)
)  # of N: few laws of gamma
CHUNK = 10.0  # seconds of work that an interruption may lose
OTHERS = ("edgeworth", "clt_grid", "gibbs", "lattice", "kernel_is")


@dataclass
class Ranks:
    """What is known of one cell."""

    done: set[int] = field(default_factory=set)
    u: list[list[float]] = field(default_factory=list)
    engines: Counter[str] = field(default_factory=Counter)
    refusals: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def price(self) -> float:
        """Seconds of a replicate."""
        return self.seconds / max(len(self.done), 1)

    @property
    def is_served(self) -> bool:
        """Whether the engine took any of the cell's releases."""
        return bool(self.u) or not self.done


class Log:
    """The ranks of all cells, a line a chunk, in a file that is only ever appended to."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path = path
        self.cells: dict[str, Ranks] = defaultdict(Ranks)
        about = {"seed": seed, "sources": _digest()}
        if not path.exists():
            path.write_text(json.dumps(about) + "\n", encoding="utf-8")
        first, *lines = path.read_text(encoding="utf-8").splitlines()
        if json.loads(first) != about:
            raise SystemExit(f"{path} holds ranks of another seed or of other sources of dp_dask: delete it, or change --output")
        for line in lines:
            self._add(json.loads(line))

    def append(self, chunk: dict[str, Any]) -> None:
        """Keep a chunk."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(chunk) + "\n")
        self._add(chunk)

    def _add(self, chunk: dict[str, Any]) -> None:
        known = self.cells[chunk["cell"]]
        known.done |= set(chunk["replicates"])
        known.u += chunk["u"]
        known.engines.update(chunk["engines"])
        known.refusals += chunk["refusals"]
        known.seconds += chunk["seconds"]


def _digest() -> str:
    """Name the sources that ranks depend on."""
    folder = Path(dp_dask.__file__).parent
    paths = [path for part in ("core", "models", "public") for path in (folder / part).rglob("*.py")]
    paths += [
        folder / "families.py",
        folder / "measurement.py",
        ROOT / "tests" / "cases.py",
        ROOT / "tests" / "calibration_cells.py",
    ]
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(paths))).hexdigest()[:16]


# --- Work -------------------------------------------------------------------------------------------------------------


def work(cell: Cell, seed: int, replicates: list[int]) -> dict[str, Any]:
    """Run some replicates of a cell, in a process of its own; a refusal or a crash is a finding."""
    u: list[list[float]] = []
    engines, refusals = Counter[str](), []
    begin = time.perf_counter()
    for replicate in replicates:
        try:
            ranks, engine = cell.rank(seed, replicate)
        except Exception as error:  # noqa: BLE001
            refusals.append(f"replicate {replicate}: {type(error).__name__}: {error}")
            continue
        if not all(0 <= value <= 1 for value in ranks):
            refusals.append(f"replicate {replicate}: {engine} gives ranks {ranks}")
        else:
            u.append([round(float(value), 9) for value in ranks])
            engines[engine] += 1
    seconds = time.perf_counter() - begin
    return {"cell": cell.name, "replicates": replicates, "seconds": seconds, "u": u, "engines": engines, "refusals": refusals}


def run(log: Log, cells: list[Cell], seed: int, most: int, seconds: float, processes: int) -> None:
    """Add replicates until every cell has ``most`` or the time is used up."""
    deadline = time.monotonic() + seconds
    context = multiprocessing.get_context("spawn")  # a fresh process has no threads of the parent's libraries
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        for chunks in (_pilots(log, cells, deadline), _planned(log, cells, most, deadline, processes)):
            pending: set[Future[dict[str, Any]]] = set()
            for cell, replicates in chunks:
                while len(pending) > processes:
                    pending = _collect(log, pending)
                pending.add(pool.submit(work, cell, seed, replicates))
            while pending:
                pending = _collect(log, pending)


def _collect(log: Log, pending: set[Future[dict[str, Any]]]) -> set[Future[dict[str, Any]]]:
    done, rest = wait(pending, return_when=FIRST_COMPLETED)
    for future in done:
        log.append(future.result())
    return rest


def _pilots(log: Log, cells: list[Cell], deadline: float) -> Iterator[tuple[Cell, list[int]]]:
    for i, cell in enumerate(cells):
        missing = sorted(set(range(PILOT)) - log.cells[cell.name].done)
        if missing and time.monotonic() < deadline:
            if i % 50 == 0:
                _say(f"pilots: cell {i + 1} of {len(cells)}")
            yield cell, missing


def _planned(log: Log, cells: list[Cell], most: int, deadline: float, processes: int) -> Iterator[tuple[Cell, list[int]]]:
    """Yield the cells in the order of their prices.

    N is fixed before a cell runs, and all of them are run: to stop at a time would leave out the slow replicates.
    """
    served = [cell for cell in cells if log.cells[cell.name].done and log.cells[cell.name].is_served]
    rest = sorted(served, key=lambda cell: log.cells[cell.name].price)
    while rest:
        n = _affordable([log.cells[cell.name] for cell in rest], most, (deadline - time.monotonic()) * processes)
        cell, *rest = rest
        known = log.cells[cell.name]
        missing = sorted(set(range(n)) - known.done)
        if missing:
            _say(f"{len(rest) + 1} cells left, {deadline - time.monotonic():.0f} s; {cell.name}: N = {n}")
        size = max(1, int(CHUNK / known.price))
        for start in range(0, len(missing), size):
            yield cell, missing[start : start + size]


def _affordable(rest: list[Ranks], most: int, seconds: float) -> int:
    """Return N of the first cell, where N is proportional to 1 / sqrt(price) and all cells take the seconds together."""
    price = np.array([known.price for known in rest])
    done = np.array([len(known.done) for known in rest])

    def total(factor: float) -> float:
        return float(price @ np.clip(factor / np.sqrt(price) - done, 0, np.maximum(most - done, 0)))

    low, high = 0.0, most * math.sqrt(price.max())
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if total(middle) <= max(seconds, 0) else (low, middle)
    wanted = min(most, high / math.sqrt(price[0]) + 1e-6)
    return max((step for step in [*STEPS, most] if step <= wanted), default=0)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# --- Judgement --------------------------------------------------------------------------------------------------------


@dataclass
class Row:
    """One tested set of ranks."""

    name: str
    n: int
    p: float
    ks: float
    bias: float  # of the posteriors' centres: the mean of the truths' normal scores
    spread: float  # their sd: 1.18 where posteriors are 15 % too narrow
    is_found: bool = False


def tested(name: str, u: Iterable[float]) -> Row:
    """Test ranks by the exact law of gamma."""
    values = np.array(list(u))
    z = special.ndtri(np.clip(values, 1e-12, 1 - 1e-12))
    n = len(values)
    return Row(name, n, gamma_p_value(gamma(values), n), ks_distance(values), float(z.mean()), float(z.std()))


def holm(rows: list[Row]) -> None:
    """Mark what fails at ``LEVEL`` for all rows together."""
    for i, row in enumerate(sorted(rows, key=lambda row: row.p)):
        row.is_found = row.p < LEVEL / (len(rows) - i)
        if not row.is_found:
            return


def judge(log: Log, cells: list[Cell]) -> tuple[dict[str, list[Row]], list[Row]]:
    """Return the rows of each cell, one a parameter, and those of each group, pooled over n and epsilon."""
    known = sorted(((cell, log.cells[cell.name]) for cell in cells if log.cells[cell.name].u), key=lambda pair: len(pair[1].u))
    by_cell, pools = {}, defaultdict(list)
    for cell, ranks in known:  # in the order of N, since the law for each N is made once
        columns = list(zip(cell.parameters, zip(*ranks.u, strict=True), strict=True))
        by_cell[cell.name] = [tested(f"{cell.name} {parameter}", u) for parameter, u in columns]
        for parameter, u in columns:
            pools[f"{cell.group} {parameter}"] += u
    pooled = [tested(name, u) for name, u in pools.items()]
    holm([row for rows in by_cell.values() for row in rows])
    holm(pooled)
    return by_cell, pooled


def print_tables(log: Log, cells: list[Cell], by_cell: dict[str, list[Row]], pooled: list[Row]) -> int:
    """Print N, p and KS of each cell's worst parameter, the pooled rows, and what failed; return the number of failures."""
    title = "".join(f"   epsilon {epsilon:<4} N       p    KS" for epsilon in EPSILONS)
    print(f"{'':<48}{'n':>7}{title}")
    groups: dict[tuple[str, int], dict[str, Cell]] = defaultdict(dict)
    for cell in cells:
        groups[cell.group, cell.n][cell.epsilon] = cell
    for (group, n), row in groups.items():
        print(f"{group:<48}{n:>7}" + "".join(_cell_text(log, row.get(epsilon), by_cell) for epsilon in EPSILONS))
    print(f"\npooled over n and epsilon{'':<35}{'N':>8}{'p':>9}{'KS':>8}{'bias':>8}{'spread':>8}")
    for row in pooled:
        print(f"{row.name:<60}{_row_text(row)}{'  FAILS' if row.is_found else ''}")
    lines = [f"{row.name:<80}{_row_text(row)}" for rows in by_cell.values() for row in rows if row.is_found]
    lines += [f"{row.name + ', pooled':<80}{_row_text(row)}" for row in pooled if row.is_found]
    lines += [
        f"{cell.name}: {len(ranks.refusals)} of {len(ranks.done)} refused, such as {ranks.refusals[0]}"
        for cell in cells
        if (ranks := log.cells[cell.name]).refusals
    ]
    n_tests = sum(map(len, by_cell.values()))
    few = sum(len(log.cells[cell.name].u) < FEW for cell in cells)
    replicates = sum(len(log.cells[cell.name].u) for cell in cells)
    print(f"\n{len(cells)} cells, {n_tests} tests of {replicates} replicates; N < {FEW} in {few} cells: gross faults only")
    print("\n".join(["failed:", *lines] if lines else ["no cell fails"]))
    return len(lines)


def _cell_text(log: Log, cell: Cell | None, by_cell: dict[str, list[Row]]) -> str:
    rows = by_cell.get(cell.name) if cell is not None else None
    if cell is None or not rows:
        return f"{'not served' if cell is not None and log.cells[cell.name].done else '-':>34}"
    worst = min(rows, key=lambda row: row.p)
    mark = "!" if worst.is_found or log.cells[cell.name].refusals else " "
    return f"{worst.n:>17}{worst.p:>9.2g}{worst.ks:>7.3f}{mark}"


def _row_text(row: Row) -> str:
    return f"{row.n:>8}{row.p:>9.1g}{row.ks:>8.4f}{row.bias:>8.3f}{row.spread:>8.3f}"


def write_csv(path: Path, log: Log, cells: list[Cell], by_cell: dict[str, list[Row]]) -> None:
    """Write a row for each cell and parameter."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        names = ("model", "outside", "n_is", "n", "epsilon", "engine", "parameter", "N", "p", "KS", "bias", "spread", "holm")
        writer.writerow([*names, "refused", "ms_a_replicate", "engines_taken"])
        for cell in cells:
            ranks = log.cells[cell.name]
            taken = " ".join(f"{engine}:{count}" for engine, count in ranks.engines.most_common())
            for parameter, row in zip(cell.parameters, by_cell.get(cell.name, []), strict=False):
                public = "public" if cell.like.n is not None else "private"
                key = (cell.model, cell.outside or "", public, cell.n, cell.epsilon, cell.engine, parameter, row.n)
                found = (f"{row.p:.4g}", f"{row.ks:.5f}", f"{row.bias:.4f}", f"{row.spread:.4f}", "fails" if row.is_found else "")
                writer.writerow([*key, *found, len(ranks.refusals), f"{1000 * ranks.price:.1f}", taken])


def main() -> None:
    arguments = _parse()
    log = Log(arguments.output.with_suffix(".ranks.jsonl"), arguments.seed)
    failures = 0
    for engine in ("auto", *arguments.engines):
        cells = [cell for cell in every_cell(engine) if _is_wanted(cell, arguments)]
        share = arguments.minutes / (1 + len(arguments.engines))
        try:
            run(log, cells, arguments.seed, arguments.replicates, 60 * share, arguments.processes)
        except KeyboardInterrupt:
            _say("interrupted: the table is of what is there")
        by_cell, pooled = judge(log, cells)
        output = arguments.output if engine == "auto" else arguments.output.with_stem(f"{arguments.output.stem}-{engine}")
        write_csv(output, log, cells, by_cell)
        found = print_tables(log, cells, by_cell, pooled)
        failures += found if engine == "auto" else 0
    sys.exit(1 if failures else 0)


def _is_wanted(cell: Cell, arguments: argparse.Namespace) -> bool:
    words = set(cell.name.split())
    return (not arguments.models or cell.model in arguments.models) and set(arguments.cells) <= words


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("calibration.csv"), help="the table (default: calibration.csv)")
    parser.add_argument("--minutes", type=float, default=30, help="time limit of all engines together (default: 30)")
    parser.add_argument("--replicates", type=int, default=2000, help="the most that a cell gets (default: 2000)")
    parser.add_argument("--models", nargs="+", default=[], help="only these")
    parser.add_argument("--cells", nargs="+", default=[], help="only those with all these words, such as private n=20 epsilon=10")
    parser.add_argument("--engines", nargs="+", default=[], choices=OTHERS, help="engines to judge after auto")
    parser.add_argument("--processes", type=int, default=2, help="processes (default: 2)")
    parser.add_argument("--seed", type=int, default=0, help="of all replicates (default: 0)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
