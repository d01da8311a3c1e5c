"""A driver that has no way to the records: workers list the files, look columns up and tell whether anything changed."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import slow_runs
from dask_processes import running
from elsewhere_source import Elsewhere
from slow_runs import granted, spent

from dp_dask.check import check
from dp_dask.clusters.scheduler_file import plugin as SchedulerFile  # noqa: N812
from dp_dask.errors import BudgetError, SourceError
from dp_dask.pipeline import run
from dp_dask.private.looking import from_worker
from dp_dask.private.sources.delta import plugin as Delta  # noqa: N812

TESTS = Path(__file__).parent
FILE = slow_runs.FILE.replace("neighbours: add_remove, expected_records: 2400", "neighbours: replace, n: 600")


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dask")
    with running(folder, PYTHONPATH=f"{TESTS.parent}:{TESTS}") as file:
        yield file


def write(folder, ones):
    (folder / "data").mkdir(exist_ok=True)
    pq.write_table(pa.table({"x": np.repeat([1, 0], [ones, 600 - ones])}), folder / "data" / "a.parquet")


def away(folder, scheduler, **options):
    """The pipeline of a driver that sees no records, on a cluster that it joins."""
    write(folder, 200)
    (folder / "p.yaml").write_text(FILE)
    pipeline = granted(folder / "p.yaml", 2500)
    cluster = SchedulerFile(path=scheduler, driver_sees_records=False, **options)
    return replace(pipeline, source=Elsewhere(pipeline.source, os.getpid()), cluster=cluster)


def sums(made):
    return made.publication.measurements["m"].release.noisy_sums


def test_it_releases_checks_finds_what_was_released_and_sees_that_data_changed(tmp_path, scheduler):
    pipeline = away(tmp_path, scheduler)
    seen = check(pipeline)
    assert seen.source.columns == {"x": "int64"}
    assert seen.source.first == ("a.parquet",)
    assert seen.refusal is None
    first = run(pipeline)
    assert sums(first) == (400, 200)  # at epsilon 1000 there is no noise but once in 1e400
    assert run(pipeline).charged == ()
    write(tmp_path, 300)
    again = run(pipeline)
    assert again.charged == ("m",)
    assert sums(again) == (300, 300)
    write(tmp_path, 301)
    with pytest.raises(BudgetError):
        run(pipeline)


def test_where_the_driver_is_to_look_it_says_what_it_does_not_see(tmp_path, scheduler):
    pipeline = away(tmp_path, scheduler)
    with pytest.raises(SourceError, match="the driver sees no records"):
        run(replace(pipeline, cluster=replace(pipeline.cluster, driver_sees_records=True)))


def test_a_column_that_is_not_there_is_told_and_nothing_is_charged(tmp_path, scheduler):
    pipeline = away(tmp_path, scheduler)
    pq.write_table(pa.table({"y": [1]}), tmp_path / "data" / "a.parquet")
    with pytest.raises(SourceError, match=r"a\.parquet: no column 'x'"):
        run(pipeline)
    (tmp_path / "data" / "a.parquet").unlink()
    with pytest.raises(SourceError, match="the folder holds no data files"):
        check(pipeline)
    assert spent(pipeline) == 0


def test_a_table_is_pinned_by_a_worker(tmp_path, scheduler):
    deltalake = pytest.importorskip("deltalake")
    pipeline = away(tmp_path, scheduler)
    deltalake.write_deltalake(tmp_path / "table", pa.table({"x": np.repeat([1, 0], [250, 350])}))
    made = run(replace(pipeline, source=Elsewhere(Delta(path=tmp_path / "table"), os.getpid())))
    assert sums(made) == (350, 250)
    assert made.publication.measurements["m"].release.snapshot == "delta version 0"


def canary():
    raise ValueError("7.7314")


def test_what_goes_wrong_there_is_told_without_what_it_says(scheduler):
    with (
        SchedulerFile(path=scheduler).client() as client,
        pytest.raises(SourceError, match=r"the source, seen from a worker: reading failed with ValueError$") as caught,
    ):
        from_worker(client, 30.0)(canary)
    assert caught.value.__context__ is None
    assert "7.7314" not in str(caught.value)
