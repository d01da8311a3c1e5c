"""Scale: what a scan costs as rows, splits, workers and files grow, and what a split costs the driver and the scheduler.

Run: python benchmarks/scale.py [--rows [N ..]] [--splits ..] [--workers ..] [--joined ..] [--trees ..] [--files ..] [--rounds 3]
A part runs alone where only its option is given, and at the sizes of docs/scale.md where no numbers follow it.

The scheduler runs in a process of its own, as workers do, so that its CPU time is its own. CPU seconds are what to go by, the
least of some rounds; those on the clock are of a machine that others may use too. Rows beyond those on the disk are the same
splits again. The page cache holds the files, so that no disk is in the figures.
"""

from __future__ import annotations

import argparse
import os
import pickle
import platform
import tempfile
import time
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scale_clusters import JOINED, NOTHING, Clusters, Repeated, joined, least, measure, scheduler_of

from dp_dask.clusters.local import plugin as Local  # noqa: N812
from dp_dask.core.bounds import Bounds, Outside
from dp_dask.core.categories import CategoryCounts
from dp_dask.core.cluster_bands import ClusterBands
from dp_dask.core.grid import choose_grid
from dp_dask.core.privacy import Neighbours
from dp_dask.core.statistic import BoundedSum
from dp_dask.core.unit import RECORD, UnitOfProtection
from dp_dask.private import listing
from dp_dask.private.reduce import reduce, reduce_split
from dp_dask.private.sources.parquet import plugin as Parquet  # noqa: N812

SIZES = {
    "rows": [10**6, 10**7, 10**8, 10**9],
    "splits": [10, 100, 1000, 10_000],
    "workers": [1, 2, 4, 8],
    "joined": [1, 10, 100, 300],
    "trees": [16, 64, 256],
    "files": [1000, 10_000, 100_000],
}
FILE_ROWS = 10**6  # one row group
FILES, REGIONS = 10, ("north", "south", "east", "west")
ONE_ROUND = 3 * 10**8  # rows from which on one round is enough
TINY, OF_TREE, OF_WORKERS, PERSONS = 100, 10_000, 2 * 10**7, 50_000  # rows of a tiny file, of a tree's, of the workers' part
OF_CROWD, IDLE = 2000, 10.0  # splits over which, and seconds without any for which many workers are watched


# --- Records ----------------------------------------------------------------------------------------------------------


def write(folder: Path, files: int, rows: int, persons: int) -> Any:
    """Write files of records of persons: who, when, where, a count, and an amount of which 5 % are null."""
    folder.mkdir(parents=True)
    for i in range(files):
        rng = np.random.default_rng([1, i])
        amount = pa.array(np.round(rng.exponential(40, rows), 2), mask=rng.random(rows) < 0.05)
        columns = {
            "person": rng.integers(0, persons, rows),
            "day": pa.array(rng.integers(18_000, 20_000, rows, dtype=np.int32), pa.date32()),
            "region": pa.DictionaryArray.from_arrays(rng.integers(0, len(REGIONS), rows, dtype=np.int32), list(REGIONS)),
            "visits": rng.poisson(3, rows).astype(np.int32),
            "amount": amount,
        }
        pq.write_table(pa.table(columns), folder / f"{i:03}.parquet", row_group_size=min(rows, FILE_ROWS), compression="snappy")
    return Parquet(path=folder)


def repeated(source: Any, n: int, *, alone: bool) -> Repeated:
    """Repeat a source's files until there are n, packed to splits as the product does, or each a split of its own."""
    files = list(islice(cycle(source.files.listed()), n))
    if not alone:
        return Repeated(source, tuple(listing.pack(files, can_cut=True)))
    one = each(source).splits[0]
    return Repeated(source, tuple(replace(one, index=i) for i in range(n)))


def each(source: Any) -> Repeated:
    """Make a split of each file."""
    files = source.files.listed()
    return Repeated(source, tuple(replace(listing.pack([file], can_cut=True)[0], index=i) for i, file in enumerate(files)))


def amounts() -> BoundedSum:
    bounds = Bounds(0, 200)
    grid = choose_grid(bounds, outside=Outside.CLAMP, neighbours=Neighbours.ADD_REMOVE, is_integer=False, epsilon=1.0, n=None)
    return BoundedSum(column="amount", bounds=bounds, outside=Outside.CLAMP, grid=grid, count_weight=1)


def three() -> list[Any]:
    bounds = Bounds(0, 30)
    grid = choose_grid(bounds, outside=Outside.CLAMP, neighbours=Neighbours.ADD_REMOVE, is_integer=True, epsilon=1.0, n=None)
    visits = BoundedSum(column="visits", bounds=bounds, outside=Outside.CLAMP, grid=grid, count_weight=1)
    return [amounts(), visits, CategoryCounts(column="region", categories=REGIONS)]


def line(sizes: Sequence[float], costs: Sequence[float]) -> tuple[float, float, float]:
    """Fit cost = a + b size by least squares of the relative deviations; return a, b and the largest of these."""
    x, y = np.array(sizes, dtype=float), np.array(costs, dtype=float)
    design = np.stack([1 / y, x / y], axis=1)
    a, b = np.linalg.lstsq(design, np.ones(len(y)), rcond=None)[0] if len(y) > 1 else (0.0, y[0] / x[0])
    return float(a), float(b), float(np.abs((a + b * x) / y - 1).max())


def tell_line(what: str, sizes: Sequence[float], costs: Sequence[float], unit: str, scale: float) -> None:
    a, b, worst = line(sizes, costs)
    print(f"{what}: {a:.3g} s + {b * scale:.3g} {unit}; largest deviation of a size: {100 * worst:.0f} %")


# --- Parts ------------------------------------------------------------------------------------------------------------


def _width(source: Any, column: str) -> float:
    """Return the bytes a row of a column in the first file."""
    groups = pq.read_metadata(source.path / source.files.listed()[0].name).row_group(0)
    sizes = {groups.column(i).path_in_schema: groups.column(i).total_compressed_size for i in range(groups.num_columns)}
    return sizes[column] / groups.num_rows


def rows(sizes: Sequence[int], rounds: int, folder: Path, clusters: Clusters) -> None:
    """One sum over more and more rows; then three measurements of three columns."""
    file_rows = min(FILE_ROWS, *sizes)
    source = write(folder, FILES, file_rows, PERSONS)
    width = sum(file.size for file in source.files.listed()) / FILES / file_rows
    print(f"\nrows: {width:.2f} bytes a row in the files, {_width(source, 'amount'):.2f} of them read for one column, ", end="")
    print(f"{FILES} files of {file_rows:,} rows; {JOINED} workers of 1 thread")
    titles = f"{'rows':>14} {'splits':>7} {'columns':>7} {'workers CPU s':>14} {'ns a row':>9}"
    print(f"{titles} {'scheduler':>10} {'driver':>8} {'wall s':>8}")
    client, kept = clusters.client(), []
    measure(client, repeated(source, JOINED, alone=True), three())
    for size, statistics in [*((size, [amounts()]) for size in sizes), (sorted(sizes)[len(sizes) // 2], three())]:
        made = repeated(source, size // file_rows, alone=False)
        used = least(1 if size >= ONE_ROUND else rounds, partial(measure, client, made, statistics))
        print(
            f"{size:>14,} {len(made.splits):>7} {len(statistics):>7} {used.workers:>14.3f} {1e9 * used.workers / size:>9.2f} "
            f"{used.scheduler:>10.3f} {used.driver:>8.3f} {used.wall:>8.2f}",
            flush=True,
        )
        kept.append(used)
    tell_line("workers' CPU, one column", sizes, [used.workers for used in kept[: len(sizes)]], "ns a row", 1e9)


def splits(sizes: Sequence[int], rounds: int, folder: Path, clusters: Clusters) -> None:
    """More and more splits of a tiny file: what each costs the driver and the scheduler."""
    source = write(folder, 1, TINY, TINY)
    one = repeated(source, 1, alone=True).splits[0]
    task, result = len(pickle.dumps((source, one, (amounts(),)))), len(pickle.dumps(reduce_split(source, one, [amounts()])))
    print(f"\nsplits of {TINY} rows, {JOINED} workers of 1 thread; a task alone has {task} bytes, its result {result}")
    print(
        f"{'splits':>8} {'driver CPU ms':>14} {'scheduler':>10} {'workers':>8} {'wall ms':>8} {'driver kB':>10} "
        f"{'scheduler':>10} {'messages':>9} {'bytes sent':>11}   (each a split)"
    )
    client, kept = clusters.client(), []
    measure(client, repeated(source, 10, alone=True), [amounts()])
    for n in sizes:
        used = least(rounds, partial(measure, client, repeated(source, n, alone=True), [amounts()]))
        kept.append(used)
        print(
            f"{n:>8,} {1e3 * used.driver / n:>14.3f} {1e3 * used.scheduler / n:>10.3f} {1e3 * used.workers / n:>8.3f} "
            f"{1e3 * used.wall / n:>8.3f} {used.driver_bytes / 1e3 / n:>10.2f} {used.scheduler_bytes / 1e3 / n:>10.2f} "
            f"{used.messages / n:>9.3f} {used.sent / n:>11.0f}",
            flush=True,
        )
    for what in ("driver", "scheduler"):
        tell_line(f"{what}'s CPU", sizes, [getattr(used, what) for used in kept], "ms a split", 1e3)


def trees(sizes: Sequence[int], rounds: int, folder: Path, clusters: Clusters) -> None:
    """Tables that are merged two by two on the workers: those of persons and of clusters, beside a plain sum."""
    of_tree = OF_TREE if max(sizes) >= 16 else TINY
    source = write(folder, max(sizes), of_tree, PERSONS)
    made = each(source)
    person = UnitOfProtection(kind="person", column="person", type="number", max_records=3)
    kinds = {
        "sum": ([amounts()], RECORD),
        "persons": ([amounts()], person),
        "clusters": ([ClusterBands(cluster="person", sizes=(1, 2, 4))], RECORD),
    }
    print(f"\ntrees: splits of {of_tree:,} rows of {PERSONS:,} persons, {JOINED} workers of 1 thread; each a split")
    print(f"{'splits':>8} {'':>9} {'driver CPU ms':>14} {'scheduler':>10} {'workers':>9} {'wall ms':>9} {'bytes sent':>11}")
    for n in sizes:
        few = replace(made, splits=made.splits[:n])
        for kind, (statistics, unit) in kinds.items():
            used = least(rounds, partial(measure, clusters.client(), few, statistics, unit=unit, dataset="scale"))
            print(
                f"{n:>8,} {kind:>9} {1e3 * used.driver / n:>14.3f} {1e3 * used.scheduler / n:>10.3f} "
                f"{1e3 * used.workers / n:>9.3f} {1e3 * used.wall / n:>9.3f} {used.sent / n:>11.0f}",
                flush=True,
            )


def workers(sizes: Sequence[int], rounds: int, folder: Path, clusters: Clusters) -> None:  # noqa: ARG001
    """The same rows on more and more workers than cores."""
    total = OF_WORKERS if max(sizes) > 1 else FILES * TINY
    made = each(write(folder / "rows", 2 * FILES, total // FILES // 2, PERSONS))
    print(f"\nworkers: {total:,} rows in {len(made.splits)} splits; a local cluster has its scheduler in the driver")
    print(f"{'workers':>8} {'':>10} {'CPU s':>8} {'ns a row':>9} {'wall s':>8} {'start s':>8}")
    for is_process, n in [(kind, n) for kind in (False, True) for n in sizes]:
        began = time.perf_counter()
        with Local(workers=n, processes=is_process).client() as client:
            start = time.perf_counter() - began
            cpu, wall = zip(*(_together(client, made, is_process=is_process) for _ in range(rounds + 1)), strict=True)
        kind = "processes" if is_process else "threads"
        best = min(cpu[1:])
        print(f"{n:>8} {kind:>10} {best:>8.3f} {1e9 * best / total:>9.2f} {min(wall[1:]):>8.3f} {start:>8.2f}", flush=True)


def crowd(sizes: Sequence[int], rounds: int, folder: Path, clusters: Clusters) -> None:  # noqa: ARG001
    """What many workers cost a scheduler, idle and over splits of a tiny file; they share one process, which is not measured."""
    source = write(folder / "rows", 1, TINY, TINY)
    made = repeated(source, OF_CROWD, alone=True)
    print(f"\njoined: the scheduler's own figures, over {OF_CROWD:,} splits and over {IDLE:g} s without any")
    print(f"{'workers':>8} {'handles':>8} {'MB':>7} {'idle CPU ms a s':>16} {'CPU ms a split':>15}")
    for n in sizes:
        with joined(folder / str(n), n, together=True) as client:
            scheduler = scheduler_of(client)
            least(1, partial(measure, client, made, [amounts()]))
            used = least(rounds, partial(measure, client, made, [amounts()])).scheduler
            handles, size = scheduler.num_fds(), scheduler.memory_info().rss / 1e6
            cpu = client.run_on_scheduler(time.process_time)
            time.sleep(IDLE)
            cpu = client.run_on_scheduler(time.process_time) - cpu
            print(f"{n:>8} {handles:>8} {size:>7.1f} {1e3 * cpu / IDLE:>16.2f} {1e3 * used / OF_CROWD:>15.3f}", flush=True)


def _together(client: Any, source: Any, *, is_process: bool) -> tuple[float, float]:
    """Return the CPU seconds of the driver and its workers together, and those on the clock."""

    def cpu() -> float:
        return time.process_time() + (sum(client.run(time.process_time).values()) if is_process else 0.0)

    began, wall = cpu(), time.perf_counter()
    reduce(client, source, [amounts()], **NOTHING)
    wall = time.perf_counter() - wall
    return cpu() - began, wall


def files(sizes: Sequence[int], rounds: int, folder: Path, clusters: Clusters) -> None:  # noqa: ARG001
    """What it takes the driver to plan, over empty files that claim to be as large as a split."""
    print("\nfiles: a split each")
    print(f"{'files':>8} {'plan: CPU s':>12} {'us a file':>10} {'bytes a split':>14} {'version: us a file':>19}")
    for n in sizes:
        below = folder / str(n)
        below.mkdir(parents=True)
        for i in range(n):
            with (below / f"part-{i:06}.parquet").open("wb") as file:
                file.truncate(listing.SPLIT_BYTES)
        source, planning, telling = Parquet(path=below), [], []
        for _ in range(rounds):
            began = time.process_time()
            planned = source.plan()
            planning.append(time.process_time() - began)
            began = time.process_time()
            source.version()
            telling.append(time.process_time() - began)
        tracemalloc.start()
        planned = source.plan()
        size = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        best = min(planning)
        print(f"{n:>8,} {best:>12.3f} {1e6 * best / n:>10.2f} {size / n:>14.0f} {1e6 * min(telling) / n:>19.2f}", flush=True)
        del planned


PARTS = {"rows": rows, "splits": splits, "workers": workers, "joined": crowd, "trees": trees, "files": files}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for name in PARTS:
        parser.add_argument(f"--{name}", type=lambda text: int(float(text)), nargs="*", metavar="N")
    parser.add_argument("--rounds", type=int, default=3, help="rounds, of which the least figures count (default: 3)")
    given = vars(parser.parse_args())
    asked = {name: given[name] for name in PARTS if given[name] is not None} or {name: [] for name in PARTS}
    versions = ", ".join(f"{module.__name__} {module.__version__}" for module in (distributed, pa, np))
    print(
        f"{os.cpu_count()} cores, Python {platform.python_version()}, {versions}, {time.strftime('%Y-%m-%d', time.gmtime())}",
        end="",
    )
    print(f"; the least of {given['rounds']} rounds")
    with tempfile.TemporaryDirectory() as name:
        clusters = Clusters(Path(name))
        with clusters.stack:
            for part, sizes in asked.items():
                PARTS[part](sizes or SIZES[part], given["rounds"], Path(name) / part, clusters)


if __name__ == "__main__":
    main()
