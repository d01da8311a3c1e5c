"""Measure the private scan against DuckDB, Polars and dask.dataframe on the same rows.

Run ``python benchmarks/scan.py`` where dp_dask can be imported, with ``pip install duckdb polars 'dask[dataframe]'``
for the peers; a peer that is missing is skipped and its row says so. The data (0.9 GB for 50 M rows) are made once and
kept in a temporary folder, or in ``--folder``; delete it by hand. A first look: ``--rows 2_000_000 --rounds 2``.

Two kinds of figure. A WHOLE PROCESS is a fresh Python that imports, starts its cluster, scans and ends: what a user
waits for. WARM figures come from one process that runs each scan again and again: what a row costs. All variants run
in turn, round by round, after a round of warm-up, with two threads or two processes each. A printed ratio is the
median of the rounds' own ratios, with [min, max] behind it: on a machine that others use as well, CPU ratios can be
trusted, wall ratios less, and seconds hardly. The page cache holds the files, so that no disk is in the figures.
This is no test: a missed target is only printed, and the exit status is 0.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from distributed import Client

    from dp_dask.core.sensitive import Sensitive
    from dp_dask.core.statistic import BoundedSum, Total
    from dp_dask.private.reduce import Failure
    from dp_dask.private.sources import Batch, Source, Split

LOWER, UPPER = 0.006, 0.9  # of exponentials with mean 1/4: both bounds cut off between 2 and 3 %
EPSILON = 0.5  # only chooses the grid
THREADS = 2  # or processes, for every variant
FILES, GROUP_ROWS = 20, 500_000
SEED, NULL_SHARE, KEYS = 20_260_801, 0.05, 10
RECIPE = "_recipe.json"  # written last: tells that the data are complete
DEADLINE = 1800.0  # seconds for one child process
LARGE = 4  # how often --large repeats the list of files
Answer = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Job:
    """What a child process needs to know."""

    folder: Path
    rows: int
    rounds: int
    times: int = 1

    @property
    def plain(self) -> Path:
        """The folder of the files without nulls."""
        return self.folder / "plain"

    @property
    def nulls(self) -> Path:
        """The folder of the same values, of which some are null."""
        return self.folder / "nulls"


@dataclass(frozen=True, slots=True)
class Figure:
    """What one run used: seconds, and for a whole process MiB and what it answered."""

    cpu: float
    wall: float
    peak: float = 0.0
    answer: Answer = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Results:
    """The figures of each variant in the order of rounds, and why a variant has none."""

    figures: dict[str, list[Figure]] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)

    def ratios(self, over: str, under: str, what: str = "cpu") -> list[float]:
        """Return the ratio of two variants in each round; empty where one of them is missing."""
        pairs = zip(self.figures.get(over, []), self.figures.get(under, []), strict=False)
        return [getattr(a, what) / getattr(b, what) for a, b in pairs]

    def workers(self, name: str) -> list[float]:
        """Return the peak memory of a variant's largest worker in each round."""
        return [max(figure.answer["workers"]) for figure in self.figures.get(name, [])]


# --- The data ---------------------------------------------------------------------------------------------------------


def make(job: Job) -> Answer:
    """Write both copies of the data, one row group in memory at a time."""
    for folder, null_share in ((job.plain, 0.0), (job.nulls, NULL_SHARE)):
        folder.mkdir(parents=True, exist_ok=True)
        for i in range(FILES):
            n_rows = job.rows * (i + 1) // FILES - job.rows * i // FILES
            _write_file(folder / f"{i:02}.parquet", i, n_rows, null_share)
    (job.folder / RECIPE).write_text(_recipe(job), encoding="utf-8")
    return {}


def _write_file(path: Path, index: int, n_rows: int, null_share: float) -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([("x", pa.float64()), ("key", pa.int32())])
    unfinished = path.with_name(f"_{path.name}")
    with pq.ParquetWriter(unfinished, schema, compression="snappy") as writer:
        for start in range(0, n_rows, GROUP_ROWS):
            n = min(GROUP_ROWS, n_rows - start)
            rng = np.random.default_rng([SEED, index, start])
            x = rng.exponential(0.25, n)
            key = rng.integers(0, KEYS, n, dtype=np.int32)
            columns = [pa.array(x, mask=rng.random(n) < null_share), pa.array(key)]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema), row_group_size=GROUP_ROWS)
    unfinished.replace(path)


def _recipe(job: Job) -> str:
    parts = {"rows": job.rows, "files": FILES, "group": GROUP_ROWS, "seed": SEED, "nulls": NULL_SHARE, "keys": KEYS}
    return json.dumps(parts)


def _is_complete(job: Job) -> bool:
    recipe = job.folder / RECIPE
    return recipe.is_file() and recipe.read_text(encoding="utf-8") == _recipe(job)


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("[0-9]*.parquet"))


# --- What is measured: each function imports what it needs, since a child process must pay for nothing else -----------


def decode(folder: Path) -> Answer:
    """Let pyarrow read the column and drop it, with the calls that our source makes: nothing could be faster."""
    with ThreadPoolExecutor(THREADS) as pool:
        return {"rows": sum(pool.map(_decode_file, _files(folder)))}


def _decode_file(path: Path) -> int:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        groups = range(file.num_row_groups)
        return sum(file.read_row_group(i, columns=["x"], use_threads=False).num_rows for i in groups)


def decode_batches(folder: Path) -> Answer:
    """Read the column as the targets were set: batches of a mapped file, dropped."""
    with ThreadPoolExecutor(THREADS) as pool:
        return {"rows": sum(pool.map(_decode_file_in_batches, _files(folder)))}


def _decode_file_in_batches(path: Path) -> int:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path, memory_map=True) as file:
        return sum(batch.num_rows for batch in file.iter_batches(2**17, columns=["x"], use_threads=False))


def direct(folder: Path, rows: int, outside: str) -> Answer:
    """Reduce the splits with two threads and no Dask."""
    from dp_dask.private.reduce import reduce_split
    from dp_dask.private.sources.parquet import Parquet

    source, statistic = Parquet(path=folder), _statistic(rows, outside)

    def task(split: Split) -> Sensitive[Total] | Failure:
        return reduce_split(source, split, [statistic])

    with ThreadPoolExecutor(THREADS) as pool:
        return _opened(list(pool.map(task, source.plan())), statistic)


def on_dask(job: Job, *, processes: bool) -> Answer:
    """Reduce on a local Dask cluster, as a pipeline does."""
    from dp_dask.clusters.local import Local
    from dp_dask.private.reduce import reduce
    from dp_dask.private.sources.parquet import Parquet

    source: Source = Parquet(path=job.plain)
    if job.times > 1:
        source = Repeated(source, job.times)
    statistic = _statistic(job.rows, "clamp")
    with Local(processes=processes, workers=THREADS).client() as client:
        total = reduce(client, source, [statistic], progress=_quiet, stall_timeout=DEADLINE)
        return _opened([total], statistic) | {"workers": _worker_peaks(client)}


def on_dataframe(job: Job, *, processes: bool) -> Answer:
    """Sum with dask.dataframe, without privacy, on the same kind of cluster."""
    import dask.dataframe as dd

    from dp_dask.clusters.local import Local

    with Local(processes=processes, workers=THREADS).client() as client:
        frame = dd.read_parquet([str(path) for path in _files(job.plain)], columns=["x"])
        total = frame["x"].clip(LOWER, UPPER).sum().compute()  # on the client just started
        return {"mean": float(total) / job.rows, "workers": _worker_peaks(client)}


def polars(folder: Path) -> Answer:
    """Sum with Polars, without privacy."""
    import polars as pl

    frame = pl.scan_parquet(_files(folder)).select(pl.col("x").clip(LOWER, UPPER).sum(), pl.len()).collect()
    total, count = frame.row(0)
    return {"mean": total / count}


def duckdb(folder: Path) -> Answer:
    """Sum with DuckDB, without privacy."""
    import duckdb as db

    query = "select sum(least(greatest(x, ?), ?)), count(*) from read_parquet(?)"
    with db.connect(config={"threads": THREADS}) as connection:
        row = connection.execute(query, [LOWER, UPPER, [str(path) for path in _files(folder)]]).fetchone()
    total, count = row or (0.0, 1)
    return {"mean": total / count}


def _statistic(rows: int, outside: str) -> BoundedSum:
    """Return the statistic that a pipeline with public n would use."""
    from dp_dask.core.bounds import Bounds, Outside
    from dp_dask.core.grid import choose_grid
    from dp_dask.core.privacy import Neighbours
    from dp_dask.core.statistic import BoundedSum

    bounds, rule = Bounds(LOWER, UPPER), Outside(outside)
    replaced = Neighbours.REPLACE
    grid = choose_grid(bounds, outside=rule, neighbours=replaced, is_integer=False, epsilon=EPSILON, n=rows)
    return BoundedSum(column="x", bounds=bounds, outside=rule, grid=grid)


def _opened(outcomes: list[Sensitive[Total] | Failure], statistic: BoundedSum) -> Answer:
    """Add the totals up and open the seal: the records are made up, and the variants must agree."""
    from dp_dask.core.sensitive import Sensitive, reveal

    totals = [reveal(outcome) for outcome in outcomes if isinstance(outcome, Sensitive)]
    if len(totals) < len(outcomes):
        raise RuntimeError("a split could not be read")
    total = sum(totals[1:], start=totals[0])
    grid = statistic.grid
    mean = (total.sums[0] / total.n_records + grid.origin) * grid.unit
    return {"sum": total.sums[0], "rows": total.n_records, "mean": mean}


def _worker_peaks(client: Client) -> list[float]:
    return list(client.run(_peak_memory).values())


def _peak_memory() -> float:
    return _mebibytes(resource.getrusage(resource.RUSAGE_SELF))


def _mebibytes(usage: resource.struct_rusage) -> float:
    return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 2**20


def _quiet(_done: int, _splits: int) -> None:
    """Show no progress."""


@dataclass(frozen=True, slots=True)
class Repeated:
    """A source whose list of splits comes several times over: a listing would refuse a file that it meets twice."""

    source: Source
    times: int

    @property
    def root(self) -> Path:
        """The folder that the splits' names are relative to."""
        return self.source.root

    def plan(self) -> list[Split]:
        """List every split as often as asked, under new numbers."""
        return [replace(split, index=i) for i, split in enumerate(self.source.plan() * self.times)]

    def version(self) -> str:
        """Describe the files, which are the same ones."""
        return self.source.version()

    def check(self, columns: list[str]) -> None:
        """Look the columns up in the first file."""
        self.source.check(columns)

    def read(self, split: Split, columns: list[str], texts: frozenset[str]) -> Iterator[Batch]:
        """Stream the records of a split."""
        return self.source.read(split, columns, texts)


def warm(job: Job) -> Answer:
    """Run each scan in this one process, round by round; the first round warms up and is dropped.

    Every other round goes backwards, since a scan finds caches and freed memory as its predecessor left them.
    """
    scans: dict[str, Callable[[], Answer]] = {
        "decode": lambda: decode(job.plain),
        "decode, in batches": lambda: decode_batches(job.plain),
        "clamp": lambda: direct(job.plain, job.rows, "clamp"),
        "truncate": lambda: direct(job.plain, job.rows, "truncate"),
        "decode, nulls": lambda: decode(job.nulls),
        "clamp, nulls": lambda: direct(job.nulls, job.rows, "clamp"),
        "Polars": lambda: polars(job.plain),
        "DuckDB": lambda: duckdb(job.plain),
    }
    problems: dict[str, str] = {}
    used: dict[str, list[tuple[float, float]]] = {name: [] for name in scans}
    for i in range(job.rounds + 1):
        for name in [name for name in list(scans)[:: 1 if i % 2 else -1] if name not in problems]:
            try:
                used[name].append(_timed(scans[name]))
            except ImportError as error:
                problems[name] = f"not installed ({error})"
    return {"used": {name: pairs[1:] for name, pairs in used.items()}, "problems": problems}


def _timed(scan: Callable[[], Answer]) -> tuple[float, float]:
    """Return the CPU seconds of all threads, and the seconds on the clock."""
    wall, cpu = time.perf_counter(), time.process_time()
    scan()
    return time.process_time() - cpu, time.perf_counter() - wall


VARIANTS: dict[str, Callable[[Job], Answer]] = {
    "decode only": lambda job: decode(job.plain),
    "ours direct, clamp": lambda job: direct(job.plain, job.rows, "clamp"),
    "ours direct, truncate": lambda job: direct(job.plain, job.rows, "truncate"),
    "ours Dask threads": lambda job: on_dask(job, processes=False),
    "ours Dask processes": lambda job: on_dask(job, processes=True),
    "Polars": lambda job: polars(job.plain),
    "DuckDB": lambda job: duckdb(job.plain),
    "dask.dataframe threads": lambda job: on_dataframe(job, processes=False),
    "dask.dataframe processes": lambda job: on_dataframe(job, processes=True),
}
CHILDREN = VARIANTS | {"make": make, "warm": warm}


def answer_as_child(name: str, job: Job) -> None:
    """Run one variant and print its answer as the last line of the output."""
    try:
        answer = CHILDREN[name](job)
    except ImportError as error:
        answer = {"problem": f"not installed ({error})"}
    print(json.dumps(answer))


# --- The parent: standard library only, since a child's peak memory begins with that of its parent --------------------


def run_child(name: str, job: Job) -> Figure:
    """Run one variant as a fresh process, and wait for it and for all processes that it waited for."""
    options = {"only": name, "folder": job.folder, "rows": job.rows, "rounds": job.rounds, "times": job.times}
    command = [sys.executable, __file__, *(f"--{option}={value}" for option, value in options.items())]
    environment = os.environ | {"POLARS_MAX_THREADS": str(THREADS)}
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        # A file and not a pipe: a grandchild that lives on would hold a pipe open.
        begin = time.perf_counter()
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
        killer = threading.Timer(DEADLINE, process.kill)
        killer.start()
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begin
        killer.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        lines = output.read().splitlines() or ["no output"]
    return Figure(usage.ru_utime + usage.ru_stime, wall, _mebibytes(usage), _parsed(lines, process.returncode))


def _parsed(lines: list[str], status: int) -> Answer:
    """Read the answer, which may have the noise of a cluster's end around it."""
    if status == 0:
        for line in reversed(lines):
            if line.startswith("{"):
                answer: Answer = json.loads(line)
                return answer
    return {"problem": f"failed ({lines[-1][:160]})"}


def measure_processes(results: Results, variants: dict[str, tuple[str, Job]], rounds: int) -> None:
    """Run the variants (by title: a child's name and its job) in turn; the first round is not counted."""
    for i in range(rounds + 1):
        _say(f"whole processes, round {i} of {rounds}" if i else "whole processes, warm-up")
        for title, (name, job) in variants.items():
            if title in results.problems:
                continue
            figure = run_child(name, job)
            if "problem" in figure.answer:
                results.problems[title] = figure.answer["problem"]
                results.figures.pop(title, None)
            elif i:
                results.figures.setdefault(title, []).append(figure)


def measure_warm(job: Job) -> Results:
    """Run all warm rounds in one child process."""
    _say(f"warm, {job.rounds} rounds")
    answer = run_child("warm", job).answer
    if "problem" in answer:
        return Results(problems={"warm": answer["problem"]})
    figures = {name: [Figure(cpu, wall) for cpu, wall in pairs] for name, pairs in answer["used"].items()}
    return Results({name: runs for name, runs in figures.items() if runs}, answer["problems"])


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# --- The tables -------------------------------------------------------------------------------------------------------


def _spread(values: list[float], digits: int = 2) -> str:
    if not values:
        return "-"
    parts = (f"{value:.{digits}f}" for value in (statistics.median(values), min(values), max(values)))
    return "{} [{}, {}]".format(*parts)


def _median(results: Results, name: str, what: str) -> float:
    return float(statistics.median(getattr(figure, what) for figure in results.figures[name]))


def _line(cells: tuple[str, ...]) -> str:
    widths = (26, 6, 6, 22, 22, 22, 5, 8)
    first, *others = cells
    return f"{first:<{widths[0]}}" + "".join(f" {cell:>{width}}" for cell, width in zip(others, widths[1:], strict=False))


def print_processes(results: Results) -> None:
    """Print what whole processes used."""
    ratios = ("CPU / decode", "wall / decode", "CPU / Polars")
    print(_line(("whole processes", "CPU s", "wall s", *ratios, "MiB", "a worker")))
    for name in [*results.figures, *results.problems]:
        if name in results.problems:
            print(_line((name,)), results.problems[name])
            continue
        runs = results.figures[name]
        workers = f"{max(results.workers(name)):.0f}" if "processes" in name else ""
        cells = (
            f"{_median(results, name, 'cpu'):.2f}",
            f"{_median(results, name, 'wall'):.2f}",
            _spread(results.ratios(name, "decode only")),
            _spread(results.ratios(name, "decode only", "wall")),
            _spread(results.ratios(name, "Polars")),
            f"{max(run.peak for run in runs):.0f}",
        )
        print(_line((name, *cells, workers)))


def print_warm(results: Results, rows: int) -> None:
    """Print what scans in one warm process used."""
    print(_line(("warm, in one process", "ns/row", "wall s", "CPU / decode", "wall / decode", "CPU / Polars")))
    for name in [*results.figures, *results.problems]:
        if name in results.problems:
            print(_line((name,)), results.problems[name])
            continue
        base = "decode, nulls" if "nulls" in name else "decode"
        cells = (
            f"{_median(results, name, 'cpu') / rows * 1e9:.2f}",
            f"{_median(results, name, 'wall'):.2f}",
            _spread(results.ratios(name, base)),
            _spread(results.ratios(name, base, "wall")),
            "" if "nulls" in name else _spread(results.ratios(name, "Polars")),
        )
        print(_line((name, *cells)))


def print_targets(processes: Results, hot: Results) -> None:
    """Print each figure beside its target."""
    dask = processes.ratios("ours Dask processes", "dask.dataframe processes")
    rows = [
        ("warm CPU: clamp / decode", hot.ratios("clamp", "decode"), 1.30),
        ("   the same / decode in batches, the measure of the research", hot.ratios("clamp", "decode, in batches"), 1.30),
        ("warm CPU: truncate / decode", hot.ratios("truncate", "decode"), 1.6),
        ("warm CPU: clamp, 5 % nulls / its decode", hot.ratios("clamp, nulls", "decode, nulls"), 1.5),
        ("warm CPU: clamp / Polars", hot.ratios("clamp", "Polars"), 1.0),
        ("warm CPU: clamp / DuckDB", hot.ratios("clamp", "DuckDB"), 0.5),
        ("whole process CPU: Dask processes / dask.dataframe processes", dask, 0.40),
    ]
    print(f"{'targets':<62} {'at most':>8} {'measured':>20}")
    for title, values, limit in rows:
        _print_target(title, values, limit)
    _print_target("peak MiB of a worker process", processes.workers("ours Dask processes"), 200, is_peak=True)


def _print_target(title: str, values: list[float], limit: float, *, is_peak: bool = False) -> None:
    # A peak must hold in every round; a ratio is judged by its median, like all ratios here.
    figure = (max if is_peak else statistics.median)(values) if values else None
    word = "not measured" if figure is None else "met" if figure <= limit else "missed"
    print(f"{title:<62} {limit:>8.{0 if is_peak else 2}f} {_spread(values, 0 if is_peak else 2):>20}  {word}")


def print_agreement(results: Results) -> None:
    """Say whether all clamped sums are one integer, and how far the peers' means are from ours."""
    runs = [(name, run.answer) for name, figures in results.figures.items() for run in figures if "truncate" not in name]
    ours = {(answer["sum"], answer["rows"]) for _, answer in runs if "sum" in answer}
    means = [answer["mean"] for _, answer in runs if "mean" in answer]
    print(f"our clamped sums are {'one integer' if len(ours) == 1 else f'{len(ours)} DIFFERENT INTEGERS'} in all runs;", end=" ")
    print(f"all means lie within {max(means, default=0) - min(means, default=0):.1e}, bounds {LOWER:g}..{UPPER:g}")


def measure_large(job: Job) -> None:
    """Print a worker's peak memory over the list of files and over its repetition."""
    titles = {times: f"{job.rows * times:,} rows" for times in (1, LARGE)}
    variants = {title: ("ours Dask processes", replace(job, times=times)) for times, title in titles.items()}
    results = Results()
    measure_processes(results, variants, job.rounds)
    print("\npeak memory of a worker")
    for title in titles.values():
        sums = ", ".join(sorted({str(run.answer["sum"]) for run in results.figures.get(title, [])}))
        print(f"{title:<26}", results.problems.get(title) or f"{_spread(results.workers(title), 0)} MiB, sum {sums}")
    pairs = zip(results.workers(titles[LARGE]), results.workers(titles[1]), strict=False)
    _print_target(f"peak at {LARGE} x the rows / at 1 x", [a / b for a, b in pairs], 1.05)


def main() -> None:
    arguments = _parse()
    job = Job(arguments.folder.resolve(), arguments.rows, arguments.rounds, arguments.times)
    if arguments.only:
        answer_as_child(arguments.only, job)
        return
    if not _is_complete(job):
        _say(f"writing {job.rows:,} rows twice to {job.folder}")
        problem = run_child("make", job).answer.get("problem")
        if problem:
            print(f"the data could not be written: {problem}")
            return
    results = Results()
    measure_processes(results, {name: (name, job) for name in VARIANTS}, job.rounds)
    hot = measure_warm(job)
    size = sum(path.stat().st_size for path in _files(job.plain)) / 1e6
    print(f"{job.rows:,} rows, {FILES} files, {size:.0f} MB; {job.rounds} rounds; {THREADS} threads or processes;", end=" ")
    print("median [min, max]; MiB: the largest process")
    print_agreement(results)
    print()
    print_processes(results)
    print()
    print_warm(hot, job.rows)
    print()
    print_targets(results, hot)
    if arguments.large:
        measure_large(job)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=50_000_000, help="rows of the data (default: 50_000_000)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds that are counted (default: 5)")
    parser.add_argument("--folder", type=Path, help="where the data are made, and found the next time")
    parser.add_argument("--large", action="store_true", help=f"show a worker's memory at {LARGE} times the rows as well")
    parser.add_argument("--only", choices=CHILDREN, help=argparse.SUPPRESS)
    parser.add_argument("--times", type=int, default=1, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rows < FILES or arguments.rounds < 1:
        parser.error(f"give at least {FILES} rows and 1 round")
    if arguments.folder is None:
        arguments.folder = Path(tempfile.gettempdir()) / f"dp-dask-scan-{arguments.rows}"
    return arguments


if __name__ == "__main__":
    main()
