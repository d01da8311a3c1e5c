"""Command lines in processes of their own, forked from one that has done the imports, which take longer than most commands."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    [
        "dp_dask.show",
        "dp_dask.experiment",
        "dp_dask.output",
        "dp_dask.schema",
        "dp_dask.public.comparison",
        "arviz_stats.base",
        "distributed",
        "matplotlib.backends.backend_svg",
        "opendp.prelude",
        "psycopg",
        "scipy.signal",
        "scipy.stats",
        "sqlalchemy.dialects.sqlite",
        "xarray",
    ]
)


def dp_dask(folder: Path, *words: str | Path, paths: tuple[Path, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run ``python -m dp_dask`` with these words in a folder, with more paths to import from, and return what it said.

    A process of its own but for the imports: it has its own memory, folder, streams and exit code.
    """
    with begun(folder, *words, paths=paths) as (process, files):
        process.join()
        told = [file.read_text(encoding="utf-8") if file.exists() else "" for file in files]
    return subprocess.CompletedProcess(["dp_dask", *map(str, words)], process.exitcode, *told)


@contextmanager
def begun(folder: Path, *words: str | Path, paths: tuple[Path, ...] = ()) -> Iterator[tuple[Any, list[Path]]]:
    """Begin the same, and kill it at the end of the block; give the process and the files of what it says."""
    with tempfile.TemporaryDirectory() as kept:
        files = [Path(kept) / name for name in ("out", "err")]
        process = PROCESSES.Process(target=_run, args=(folder, tuple(map(str, words)), paths, files, dict(os.environ)))
        process.start()
        try:
            yield process, files
        finally:
            process.kill()
            process.join()


def _run(folder: Path, words: tuple[str, ...], paths: tuple[Path, ...], files: list[Path], environment: dict[str, str]) -> None:
    for stream, file in enumerate(files, start=1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT), stream)
    os.chdir(folder)
    os.environ.update(environment)  # of now, not of when the server began
    sys.path[:0] = [str(folder), *map(str, paths)]  # where -m and PYTHONPATH would put them
    os.environ["PYTHONPATH"] = os.pathsep.join([*map(str, paths), os.environ.get("PYTHONPATH", "")])
    sys.argv = ["dp_dask", *words]
    runpy.run_module("dp_dask", run_name="__main__", alter_sys=True)
