"""Clusters across splits: bands of any files are those of all records at once, and nothing keyed leaves the workers."""

from __future__ import annotations

import logging
import math
import os
import re
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from core.exact import make_statistic, total
from core.test_cluster_bands import slowly
from distributed import Client
from hypothesis import given, settings
from hypothesis import strategies as st
from private.tables import CANARY, CANARY_TEXT, Csv, Parquet, says_nothing, write

from dp_dask.clusters.local import plugin as Local  # noqa: N812
from dp_dask.core.cluster_bands import ClusterBands
from dp_dask.core.sensitive import Sensitive, reveal
from dp_dask.core.simulated import Simulated
from dp_dask.core.statistic import Total
from dp_dask.errors import SourceError
from dp_dask.private import keyed
from dp_dask.private.reduce import Failure, columns_of, conclude, merge, reduce, reduce_split
from dp_dask.private.sources import Batch, Part, Split

BANDS = ClusterBands(cluster="c", sizes=(1, 2, 3, 5), period="p", spans=(2, 3))
SIZES = ClusterBands(cluster="c", sizes=(2, 4))
PLAIN = make_statistic(0, 100, column="p", is_integer=True)


@dataclass(frozen=True)
class Held:
    """Splits of batches that are held in memory; each batch a column's arrays."""

    batches: tuple[tuple[dict[str, pa.Array], ...], ...]
    failing: tuple[int, ...] = ()
    seconds: float = 0.0  # that a split takes

    def plan(self) -> list[Split]:
        return [Split(i, (Part(f"file{i}", 0, 1),)) for i in range(len(self.batches))]

    def read(
        self,
        split: Split,
        columns: list[str],
        texts: frozenset[str] = frozenset(),  # noqa: ARG002
        dates: frozenset[str] = frozenset(),  # noqa: ARG002
    ) -> Iterator[Batch]:
        if split.index in self.failing:
            raise ValueError(CANARY_TEXT)
        time.sleep(self.seconds)
        for batch in self.batches[split.index]:
            yield Batch({column: batch[column] for column in columns}, len(batch["c"]))


@dataclass(frozen=True)
class Dying(Held):
    """The worker that reads the second split first is gone at once."""

    marker: str = ""

    def read(
        self, split: Split, columns: list[str], texts: frozenset[str] = frozenset(), dates: frozenset[str] = frozenset()
    ) -> Iterator[Batch]:
        if split.index == 1 and not Path(self.marker).exists():
            Path(self.marker).touch()
            time.sleep(0.5)  # while others end, and their tables are lost with this worker
            os._exit(1)
        yield from super().read(split, columns, texts, dates)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with Local(workers=2).client() as client:
        yield client


def run(client: Client, source, statistics=(BANDS,), *, progress=lambda _done, _of: None) -> Sensitive[Total]:
    return reduce(client, source, statistics, progress=progress, stall_timeout=30)


def here(source, statistics=(BANDS,), *, order=lambda outcomes: outcomes):
    """Merge in any order, without a cluster."""
    outcomes = order([reduce_split(source, split, statistics) for split in source.plan()])
    while len(outcomes) > 1:
        outcomes = [*outcomes[2:], merge(statistics, *outcomes[:2])]
    return conclude(statistics, outcomes[0])


def held(records, n_splits=1, batch_rows=3, c=None, p=None):
    """Records (cluster, period) as numbers, or as what ``c`` and ``p`` make of lists."""
    pieces = [[records[i] for i in part] for part in np.array_split(np.arange(len(records)), n_splits)]
    splits = []
    for piece in pieces:
        batches = [piece[i : i + batch_rows] for i in range(0, len(piece), batch_rows)]
        splits.append(
            tuple({"c": (c or floats)([r[0] for r in b]), "p": (p or floats)([r[1] for r in b])} for b in batches),
        )
    return Held(tuple(splits))


def floats(values):
    return pa.array(values, pa.float64())


RECORD = st.tuples(st.none() | st.integers(0, 3), st.none() | st.integers(0, 3))


# Totals


@given(records=st.lists(RECORD, max_size=12), n_splits=st.integers(1, 5), batch_rows=st.integers(1, 4), data=st.data())
@settings(deadline=None)
def test_bands_are_those_of_all_records_however_they_are_split_and_merged(records, n_splits, batch_rows, data):
    found = here(held(records, n_splits, batch_rows), (SIZES, BANDS), order=lambda o: data.draw(st.permutations(o)))
    expected = (*slowly(SIZES, records).tolist(), *slowly(BANDS, records).tolist())
    assert reveal(found) == Total(expected, len(records))


RNG = np.random.default_rng(5)
CLUSTER = RNG.geometric(0.03, 3000)
MONTH = RNG.integers(0, 9, 3000)
WANTED = tuple(BANDS.totals_of(Simulated(np.array([3000]), {"c": CLUSTER * 1.0, "p": MONTH * 1.0}))[0].tolist())


@pytest.mark.parametrize("n_files", [1, 3, 13])
@pytest.mark.parametrize("workers", [1, 3])
def test_the_simulated_totals_are_those_of_the_same_records_in_any_files(tmp_path: Path, n_files: int, workers: int):
    order = np.random.default_rng(n_files).permutation(3000)
    for i, part in enumerate(np.array_split(order, n_files)):
        write(tmp_path, f"{i}.parquet", {"c": CLUSTER[part], "p": MONTH[part]}, row_group_size=70 + i)
    with Local(workers=workers).client() as client:
        found = reveal(run(client, Parquet(path=tmp_path), (PLAIN, BANDS, PLAIN, SIZES, BANDS)))
    of_p = total(PLAIN, MONTH.tolist())
    of_sizes = SIZES.totals_of(Simulated(np.array([3000]), {"c": CLUSTER * 1.0}))[0].tolist()
    assert found == Total((of_p, *WANTED, of_p, *of_sizes, *WANTED), 3000)


def test_tables_are_merged_before_a_split_ends(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(keyed, "AT_ONCE", 10)
    records = list(zip(CLUSTER.tolist(), MONTH.tolist(), strict=True))
    assert reveal(here(held(records, 4, 20))).sums == WANTED


def test_a_worker_that_dies_changes_nothing(tmp_path: Path):
    records = list(zip(CLUSTER.tolist(), MONTH.tolist(), strict=True))
    source = Dying(held(records, 8, 1000).batches, marker=str(tmp_path / "died"))
    with Local(workers=2, processes=True).client() as client:
        assert reveal(run(client, source)).sums == WANTED
    assert (tmp_path / "died").exists()


def test_no_records_and_no_clusters_have_no_bands(client: Client):
    assert reveal(run(client, held([]))) == Total((0,) * 6, 0)
    assert reveal(run(client, held([(None, 1), (math.nan, 2)], 2))) == Total((0,) * 6, 2)


# Keys

TEXTS = ["a", "b", None, "a", "ä", "", "b ", "a"]  # a three times, of two periods of those in reverse; four others once
OF_TEXTS = ClusterBands(cluster="c", sizes=(1, 2, 3), period="p", spans=(1, 2), texts=("c", "p"))
KINDS = {
    "string": lambda v: pa.array(v, pa.string()),
    "large string": lambda v: pa.array(v, pa.large_string()),
    "dictionary": lambda v: pa.array(v, pa.string()).dictionary_encode(),
    "binary": lambda v: pa.array(v, pa.string()).cast(pa.binary()),
    "sliced": lambda v: pa.array(["x", *v, "x"], pa.string()).slice(1, len(v)),
}


@pytest.mark.parametrize("first", KINDS)
@pytest.mark.parametrize("second", KINDS)
def test_texts_are_compared_by_value_across_files_of_any_type(first, second):
    batches = tuple(({"c": KINDS[kind](TEXTS), "p": KINDS[kind](TEXTS[::-1])},) for kind in (first, second))
    assert reveal(here(Held(batches), (OF_TEXTS,))) == Total((5, 5, 4, 4, 1), 16)


def test_bytes_that_are_no_text_are_clusters_like_any_other():
    values = pa.array([b"\xff", b"a", b"\xff", b"\xff\x00"], pa.binary())
    assert reveal(here(Held((({"c": values, "p": values},),)), (OF_TEXTS,))).sums == (3, 1, 0, 3, 0)


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint16(), pa.int64(), pa.uint64(), pa.float32(), pa.decimal128(22, 2)])
@pytest.mark.parametrize("is_encoded", [False, True])
def test_whole_numbers_are_compared_by_value_across_files_of_any_type(kind, is_encoded):
    values = pa.array([3, 3, None, 7]).cast(kind)
    other = values.dictionary_encode() if is_encoded else values
    source = Held((({"c": other, "p": values},), ({"c": pa.array([7.0, 3.0, 3.5, math.inf]), "p": other},)))
    assert reveal(here(source, (ClusterBands(cluster="c", sizes=(1, 2, 3)),))) == Total((2, 2, 1), 8)


def test_large_whole_numbers_are_told_apart_where_their_type_can():
    sizes = ClusterBands(cluster="c", sizes=(1, 2))
    large = pa.array([2**62, 2**62 + 1, 2**62 + 1, -(2**63), None])
    assert reveal(here(Held((({"c": large},),)), (sizes,))).sums == (3, 1)
    larger = pa.array([2**64 - 1, 2**64 - 2, 2**64 - 1, 2**63, 5], pa.uint64())
    assert reveal(here(Held((({"c": larger},),)), (sizes,))).sums == (4, 1)
    rounded = pa.array([2.0**53, 2.0**53, 2.0**54, 2.0**54, -0.0, 0.0])
    assert reveal(here(Held((({"c": rounded},),)), (sizes,))).sums == (2, 2)


def test_columns_are_read_as_the_statistic_has_them(tmp_path: Path, client: Client):
    assert columns_of([BANDS, OF_TEXTS, PLAIN]) == (["c", "p"], frozenset({"c", "p"}))
    for name, text in (("a", "c,p,q\nx1,3,0\nx2,4,0\nx1,3,0\n,3,0\n"), ("b", "p,c\n4,x1\n,x2\nzero,x3\n")):
        (tmp_path / f"{name}.csv").write_text(text)
    bands = ClusterBands(cluster="c", sizes=(1, 2, 3), period="p", spans=(1, 2), texts=("c",))
    source = Csv(path=tmp_path, columns={"c": "text", "p": "number"})
    source.check(*columns_of([bands]))
    assert reveal(run(client, source, (bands,))) == Total((3, 2, 1, 2, 1), 7)
    with pytest.raises(SourceError, match=r"column 'c' is declared text; declare it, source.columns: \{c: number\}"):
        source.check(*columns_of([BANDS]))


def test_a_column_of_another_type_is_refused_by_its_type(tmp_path: Path, client: Client):
    write(tmp_path, "a.parquet", {"c": [CANARY_TEXT], "p": [1]})
    with pytest.raises(SourceError, match=r"^a.parquet: column 'c' is of type string") as caught:
        run(client, Parquet(path=tmp_path))
    assert says_nothing(str(caught.value))


# Failures, and what is told

RECORDS = [(i % 50, i % 7) for i in range(200)]


def everything_said(error, capfd, caplog):
    return "".join([*traceback.format_exception(error), *capfd.readouterr(), caplog.text])


def test_the_first_failure_in_file_order_is_raised(client: Client, capfd, caplog):
    caplog.set_level(logging.DEBUG)
    source = Held(held(RECORDS, 9).batches, failing=(7, 4))
    with pytest.raises(SourceError, match=r"^file4: reading failed with ValueError$") as caught:
        run(client, source)
    assert caught.value.__context__ is None
    assert says_nothing(everything_said(caught.value, capfd, caplog))


class Unforeseen(BaseException):
    """A panic."""


@pytest.mark.parametrize("kind", [ValueError, MemoryError, Unforeseen, pa.ArrowInvalid])
@pytest.mark.parametrize("where", ["merge_tables", "count_bands"])
def test_a_merge_that_fails_is_told_by_its_type_alone(client: Client, monkeypatch, capfd, caplog, kind, where):
    def fail(_statistic, tables):
        if where == "count_bands" or len(tables) > 1:
            raise kind(CANARY_TEXT, CANARY)
        return true(_statistic, tables)

    caplog.set_level(logging.DEBUG)
    true = getattr(keyed, where)
    source = held(RECORDS, 6, 1000)
    monkeypatch.setattr(f"dp_dask.private.reduce.{where}", fail)
    with pytest.raises(SourceError, match=rf"^merging clusters failed with {kind.__name__}; give the workers") as caught:
        run(client, source)
    assert caught.value.__context__ is None
    assert says_nothing(everything_said(caught.value, capfd, caplog))


@pytest.mark.parametrize("n_splits", [1, 2, 7])
def test_too_many_pairs_are_refused_however_they_are_split(client: Client, monkeypatch, n_splits):
    """There are 200 different pairs, of 50 clusters."""
    records = RECORDS * 2
    expected = slowly(BANDS, records).tolist()
    monkeypatch.setattr(keyed, "MOST_PAIRS", 200)
    assert list(reveal(run(client, held(records, n_splits))).sums) == expected
    monkeypatch.setattr(keyed, "MOST_PAIRS", 199)
    with pytest.raises(SourceError, match="the bands of c, p: more than 199 different pairs of cluster and period, or"):
        run(client, held(records, n_splits))
    monkeypatch.setattr(keyed, "MOST_PAIRS", 50)
    assert reveal(run(client, held(records, n_splits), (SIZES,))).sums == (50 * 2, 50 * 5)


def test_too_long_texts_are_refused(monkeypatch):
    values = pa.array(["ab", "cd", "ab"])
    source = Held((({"c": values, "p": values},),) * 3)
    monkeypatch.setattr(keyed, "MOST_TEXT", 8)
    assert reveal(here(source, (OF_TEXTS,))).n_records == 9
    monkeypatch.setattr(keyed, "MOST_TEXT", 7)
    refused = here(source, (OF_TEXTS,))
    assert isinstance(refused, Failure)
    assert "or 7 bytes of their texts" in refused.message


def test_what_the_workers_hold_is_sealed_and_never_fetched(client: Client, monkeypatch):
    fetched: list[str] = []
    gather = client.gather
    monkeypatch.setattr(client, "gather", lambda futures: fetched.extend(f.key for f in futures) or gather(futures))
    seen: set[str] = set()
    sealed = run(client, held(RECORDS, 5), progress=lambda _done, _of: seen.update(map(str, client.futures)))
    assert repr(sealed) == "Sensitive(***)"
    assert len(fetched) == 1
    assert re.fullmatch(r"dp-reduce-[0-9a-f]{32}-sums", fetched[0])
    assert all(re.fullmatch(r"dp-reduce-[0-9a-f]{32}-(\d|merge-\d|sums)", key) for key in seen)
    for outcome in (reduce_split(held(RECORDS), Split(0, (Part("file0", 0, 1),)), (BANDS,)),):
        assert repr(outcome) == repr(merge((BANDS,), outcome, outcome)) == "Sensitive(***)"


def test_nothing_stays_on_the_cluster(client: Client):
    run(client, held(RECORDS, 6))
    with pytest.raises(SourceError):
        run(client, Held(held(RECORDS, 6).batches, failing=(0,)))

    def stop(done: int, _of: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(client, held(RECORDS, 30), progress=stop)
    deadline = time.monotonic() + 5
    while (left := [key for key in map(str, client.cluster.scheduler.tasks) if "reduce" in key]) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not left
    assert not client.futures


def test_few_tables_wait_at_a_time_and_progress_is_told_to_the_end():
    """Of 128 splits: a table for each level of the tree and thread, and those that the scheduler has yet to forget."""
    held_at_once, told = [], []
    with Local(workers=2).client() as client:

        def progress(done: int, of: int) -> None:
            told.append((done, of))
            held_at_once.append(sum(ts.state == "memory" for ts in list(client.cluster.scheduler.tasks.values())))

        run(client, replace(held(RECORDS, 128), seconds=0.02), progress=progress)
    assert told == sorted(told)
    assert told[-1] == (128, 128)
    assert np.mean(held_at_once) < 60
