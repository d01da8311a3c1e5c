"""Persons on a cluster: the same totals on any number of workers, and nothing of a person in keys, messages, logs or files."""

from __future__ import annotations

import logging
import pickle
import re
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from distributed import Client
from private.people import DATASET, KINDS, SUM_X, Held, at_most, count_slowly, held, joined, total_of
from private.tables import CANARY, CANARY_TEXT, Csv, Parquet, says_nothing, write

from dp_dask.clusters.local import plugin as Local  # noqa: N812
from dp_dask.core.sensitive import Sensitive, reveal
from dp_dask.core.statistic import Total
from dp_dask.core.where import Between, Known, OneOf, Where
from dp_dask.errors import SourceError
from dp_dask.private import persons
from dp_dask.private.filtered import Filtered
from dp_dask.private.reduce import collect_split, columns_of, merge_persons, persons_of, reduce

ALL = tuple(KINDS.values())
THREE = at_most(3)
RNG = np.random.default_rng(8)
RECORDS = [
    (int(person), float(x), float(y), "abz"[y])
    for person, x, y in zip(RNG.geometric(0.01, 2000), RNG.normal(4, 6, 2000).round(1), RNG.integers(0, 3, 2000), strict=True)
]


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with Local(workers=2).client() as client:
        yield client


def run(client, source, statistics=(SUM_X,), unit=THREE, *, passes=1, progress=lambda _done, _of: None) -> Sensitive[Total]:
    return reduce(client, source, statistics, progress=progress, stall_timeout=30, unit=unit, dataset=DATASET, passes=passes)


@pytest.mark.parametrize(("n_files", "workers", "passes"), [(1, 1, 1), (3, 3, 2), (13, 2, 5)])
def test_the_totals_are_the_same_in_any_files_on_any_number_of_workers_in_any_passes(tmp_path: Path, n_files, workers, passes):
    order = np.random.default_rng(n_files).permutation(len(RECORDS))
    for i, part in enumerate(np.array_split(order, n_files)):
        columns = {name: [RECORDS[j][k] for j in part] for k, name in enumerate(("id", "x", "y", "g"))}
        write(tmp_path, f"{i}.parquet", columns, row_group_size=70 + i)
    with Local(workers=workers).client() as client:
        found = reveal(run(client, Parquet(path=tmp_path), ALL, passes=passes))
    assert found == total_of(ALL, count_slowly(ALL, at_most(3), RECORDS))


def test_worker_processes_find_the_same():
    with Local(workers=2, processes=True).client() as client:
        found = reveal(run(client, held(RECORDS, 4, 300), ALL))
    assert found == total_of(ALL, count_slowly(ALL, at_most(3), RECORDS))


def test_conditions_are_met_by_records_before_persons_are_made(tmp_path: Path, client: Client):
    columns = {name: [record[k] for record in RECORDS] for k, name in enumerate(("id", "x", "y", "g"))}
    write(tmp_path, "a.parquet", columns, row_group_size=300)
    where = Where((Between("x", 0.0, None), OneOf("g", ("a", "z")), Known("id")))
    met = [record for record in RECORDS if record[1] >= 0 and record[3] in "az"]
    found = reveal(run(client, Filtered(Parquet(path=tmp_path), where), ALL))
    assert found == total_of(ALL, count_slowly(ALL, at_most(3), met))


def test_columns_are_read_as_the_unit_has_them(tmp_path: Path, client: Client):
    (tmp_path / "a.csv").write_text("id,x\np1,3\np1 ,3\np1,\n,3\np2,oops\n")
    unit = at_most(1, "text")
    assert columns_of((SUM_X,), unit) == (["id", "x"], frozenset({"id"}))
    assert columns_of((SUM_X,), at_most(1)) == (["id", "x"], frozenset())
    source = Csv(path=tmp_path / "a.csv", columns={"id": "text", "x": "number"})
    source.check(*columns_of((SUM_X,), unit))
    assert reveal(run(client, source, unit=unit)).n_records == 3
    with pytest.raises(SourceError, match=r"column 'id' is declared text"):
        source.check(*columns_of((SUM_X,), at_most(1)))


# Failures, and what is told


def everything_said(error, capfd, caplog):
    return "".join([*traceback.format_exception(error), *capfd.readouterr(), caplog.text])


def test_a_column_of_another_type_is_refused_by_its_type(tmp_path: Path, client: Client, capfd, caplog):
    caplog.set_level(logging.DEBUG)
    write(tmp_path, "a.parquet", {"id": [CANARY_TEXT], "x": [CANARY]})
    with pytest.raises(SourceError, match=r"^a.parquet: column 'id' is of type string") as caught:
        run(client, Parquet(path=tmp_path))
    assert says_nothing(everything_said(caught.value, capfd, caplog))


@pytest.mark.parametrize("kind", [ValueError, MemoryError, pa.ArrowInvalid])
@pytest.mark.parametrize("where", ["table", "gathered", "merged", "total"])
def test_work_that_fails_is_told_by_its_type_alone(client: Client, monkeypatch, capfd, caplog, kind, where):
    def fail(*_):
        raise kind(CANARY_TEXT, CANARY)

    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(persons.Persons, where, fail)
    with pytest.raises(SourceError, match=rf"failed with {kind.__name__}") as caught:
        run(client, held(RECORDS[:50], 4))
    assert caught.value.__context__ is None
    assert says_nothing(everything_said(caught.value, capfd, caplog))


def test_a_file_that_fails_is_named_and_nothing_else(client: Client, capfd, caplog):
    caplog.set_level(logging.DEBUG)
    with pytest.raises(SourceError, match=r"^file1: reading failed with ValueError$") as caught:
        run(client, Held(held(RECORDS[:50], 5).batches, failing=(1, 3)))
    assert says_nothing(everything_said(caught.value, capfd, caplog))


def test_too_many_persons_are_refused_in_words_without_a_person(client: Client, monkeypatch, capfd, caplog):
    monkeypatch.setattr(persons, "MOST_ROWS", 2)
    source = held([(987654321, CANARY, 0.0, CANARY_TEXT), (987654322, 1.0, 0.0, "a"), (3, 1.0, 0.0, "a")], 2)
    with pytest.raises(SourceError, match="more than 2 different records of persons") as caught:
        run(client, source, ALL)
    assert says_nothing(everything_said(caught.value, capfd, caplog))


@pytest.mark.parametrize("unit", [at_most(2, "text"), joined("sum", "text")])
def test_what_the_workers_hold_is_sealed_and_never_fetched(client: Client, monkeypatch, capfd, caplog, unit):
    caplog.set_level(logging.DEBUG)
    source = held([(CANARY_TEXT, CANARY, 0.0, "a"), (f"{CANARY_TEXT}2", CANARY, 0.0, "a")] * 9, 5, id=pa.string())
    fetched: list[str] = []
    gather = client.gather
    monkeypatch.setattr(client, "gather", lambda futures: fetched.extend(f.key for f in futures) or gather(futures))
    seen: set[str] = set()
    sealed = run(client, source, unit=unit, passes=2, progress=lambda _done, _of: seen.update(map(str, client.futures)))
    assert repr(sealed) == "Sensitive(***)"
    assert len(fetched) == 2  # one sum a pass
    assert all(re.fullmatch(r"dp-reduce-[0-9a-f]{32}-sums", key) for key in fetched)
    assert all(re.fullmatch(r"dp-reduce-[0-9a-f]{32}-(\d|merge-\d|sums)", key) for key in seen)
    own = persons_of((SUM_X,), unit, DATASET, 1)
    outcome = collect_split(source, source.plan()[0], own)
    assert repr(outcome) == repr(merge_persons(own, outcome, outcome)) == "Sensitive(***)"
    assert says_nothing("".join([*capfd.readouterr(), caplog.text, repr(own)]))


def test_progress_is_told_over_all_passes_and_nothing_stays(client: Client):
    told = []
    run(client, held(RECORDS, 6, 500), passes=3, progress=lambda done, of: told.append((done, of)))
    assert told == sorted(told)
    assert told[-1] == (18, 18)
    deadline = time.monotonic() + 5
    while (left := [key for key in map(str, client.cluster.scheduler.tasks) if "reduce" in key]) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not left


@pytest.mark.parametrize("unit", [THREE, joined("sum")])
def test_a_table_takes_no_more_to_another_worker_than_it_holds(unit):
    """Arrow makes pieces of one memory of a large table, each of which would take all of it along."""
    rows = 200_000
    source = Held((({"id": pa.array(np.arange(rows)), "x": pa.array(np.ones(rows))},),))
    own = persons_of((SUM_X,), unit, DATASET, 1)
    outcome = collect_split(source, source.plan()[0], own)
    assert len(pickle.dumps(outcome, protocol=5)) < 3 * 8 * rows + 10_000
