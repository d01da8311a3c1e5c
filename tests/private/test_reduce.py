from __future__ import annotations

import logging
import math
import re
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from core.exact import make_statistic, total
from distributed import Client
from private.fakes import ATTEMPTS, BASE_ERRORS, ERRORS, GO_ON, Fake
from private.tables import CANARY, Parquet, says_nothing, write, write_text

from dp_dask.clusters.local import plugin as Local  # noqa: N812
from dp_dask.core.bounds import Outside
from dp_dask.core.sensitive import Sensitive, reveal
from dp_dask.core.statistic import Total
from dp_dask.errors import ClusterError, SourceError
from dp_dask.private.reduce import Failure, reduce, reduce_split

STATISTIC = make_statistic(0, 30, is_integer=True)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with Local(workers=2).client() as client:
        yield client


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    ATTEMPTS.clear()
    GO_ON.clear()
    yield
    GO_ON.set()


def run(
    client: Client, source, statistics=(STATISTIC,), *, progress=lambda _done, _of: None, stall_timeout: float = 30
) -> Sensitive[Total]:
    return reduce(client, source, statistics, progress=progress, stall_timeout=stall_timeout)


def everything_said(error: BaseException, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> str:
    """Return the error as a traceback with all it hangs on, both output streams and the log."""
    return "".join([*traceback.format_exception(error), *capfd.readouterr(), caplog.text])


# Totals

RNG = np.random.default_rng(17)
RECORDS = np.where(RNG.random(1700) < 0.1, math.nan, RNG.normal(5, 20, 1700))
STATISTICS = [
    make_statistic(-3, 25),
    make_statistic(-3, 25, Outside.TRUNCATE),
    make_statistic(0, 100, column="y", is_integer=True),
    make_statistic(1.0, 2.0, column="x"),
]
EXPECTED = Total(
    tuple(total(statistic, RECORDS.tolist() if statistic.column == "x" else range(1700)) for statistic in STATISTICS),
    len(RECORDS),
)


@pytest.mark.parametrize("n_files", [1, 3, 17])
@pytest.mark.parametrize("workers", [1, 4])
def test_the_totals_are_the_same_for_any_number_of_files_and_workers(tmp_path: Path, n_files: int, workers: int):
    pieces = zip(np.array_split(RECORDS, n_files), np.array_split(np.arange(1700), n_files), strict=True)
    for i, (x, y) in enumerate(pieces):
        write(tmp_path, f"{i}.parquet", {"x": x, "y": y}, row_group_size=50 + i)
    with Local(workers=workers).client() as client:
        assert reveal(run(client, Parquet(path=tmp_path), STATISTICS)) == EXPECTED


@pytest.mark.parametrize("split_bytes", [200, 1000, 10**6])
def test_the_totals_are_the_same_for_any_size_of_splits(
    tmp_path: Path, client: Client, monkeypatch: pytest.MonkeyPatch, split_bytes: int
):
    monkeypatch.setattr("dp_dask.private.listing.SPLIT_BYTES", split_bytes)
    for i, (x, y) in enumerate(zip(np.array_split(RECORDS, 3), np.array_split(np.arange(1700), 3), strict=True)):
        write(tmp_path, f"{i}.parquet", {"x": x, "y": y}, row_group_size=100)
    assert reveal(run(client, Parquet(path=tmp_path), STATISTICS)) == EXPECTED


def test_separate_processes_sum_and_fail_as_threads_do(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
):
    write(tmp_path, "good/a.parquet", {"x": RECORDS, "y": np.arange(1700)})
    write(tmp_path, "bad/a.parquet", {"x": [CANARY]})
    write(tmp_path, "bad/b.parquet", {"y": [CANARY]})
    with Local(workers=1, processes=True).client() as client:
        assert reveal(run(client, Parquet(path=tmp_path / "good"), STATISTICS)) == EXPECTED
        with pytest.raises(SourceError, match=r"^b.parquet: no column 'x'; the file has: y$") as caught:
            run(client, Parquet(path=tmp_path / "bad"))
    assert says_nothing(everything_said(caught.value, capfd, caplog))


def test_a_null_contributes_zero_and_counts_as_a_record(client: Client):
    assert reveal(run(client, Fake())) == Total((3,), 6)


def test_text_files_sum_like_any_other(tmp_path: Path, client: Client):
    source = write_text(tmp_path, "x,y\n5,1\nCANARY-7731,1\n99\n,1\n99,1\n")
    assert reveal(run(client, source)) == Total((5 + 30,), 5)


def test_the_total_is_sealed(client: Client):
    sealed = run(client, Fake())
    assert isinstance(sealed, Sensitive)
    assert repr(sealed) == "Sensitive(***)"


def test_a_worker_returns_its_sums_sealed():
    sealed = reduce_split(Fake(), Fake().plan()[0], [STATISTIC])
    assert isinstance(sealed, Sensitive)
    assert repr(sealed) == "Sensitive(***)"


def test_no_records_sum_to_zero(tmp_path: Path, client: Client):
    source = write_text(tmp_path, "x\n")
    assert reveal(run(client, source)) == Total((0,), 0)


# Failures


@pytest.mark.parametrize("error", sorted(ERRORS))
def test_an_exception_comes_back_as_a_value_that_names_its_split_and_type(error: str):
    outcome = reduce_split(Fake(error), Fake().plan()[1], [STATISTIC])
    assert isinstance(outcome, Failure)
    assert outcome.index == 1
    assert outcome.message == f"file1: reading failed with {'RuntimeError' if error == 'StopIteration' else error}"


@pytest.mark.parametrize("error", sorted(BASE_ERRORS))
def test_what_is_no_exception_comes_back_as_a_value_too(error: str):
    outcome = reduce_split(Fake(error), Fake().plan()[1], [STATISTIC])
    assert isinstance(outcome, Failure)
    assert outcome.message == f"file1: reading failed with {error}"


@pytest.mark.parametrize("error", ["ValueError", "OSError", "ArrowInvalid", "MemoryError", "SourceError"])
def test_a_failure_is_raised_with_the_split_and_without_a_record(
    client: Client, error: str, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)
    with pytest.raises(SourceError, match=r"^file1: ") as caught:
        run(client, Fake(error))
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None
    assert says_nothing(everything_said(caught.value, capfd, caplog))


def test_the_text_of_a_source_error_arrives_whole(client: Client):
    with pytest.raises(SourceError, match=r"^file1: not as declared$"):
        run(client, Fake("SourceError"))


def test_the_first_failure_in_file_order_is_raised(client: Client):
    with pytest.raises(SourceError, match=r"^file1: "):
        run(client, Fake("ValueError", failing=(2, 1)))


def test_a_failure_of_the_disk_is_tried_again_and_counted_once(client: Client):
    assert reveal(run(client, Fake("OSError", failures=2))) == Total((3,), 6)
    assert ATTEMPTS.count(1) == 3


def test_a_failure_of_the_disk_is_tried_three_times():
    assert isinstance(reduce_split(Fake("OSError"), Fake().plan()[1], [STATISTIC]), Failure)
    assert ATTEMPTS == [1, 1, 1]


@pytest.mark.parametrize("error", ["ValueError", "SourceError", "MemoryError"])
def test_any_other_failure_is_not_tried_again(error: str):
    reduce_split(Fake(error), Fake().plan()[1], [STATISTIC])
    assert ATTEMPTS == [1]


# Progress, keys, deadlines


def test_progress_is_told_in_order_up_to_the_end(client: Client):
    told: list[tuple[int, int]] = []
    run(client, Fake(), progress=lambda done, of: told.append((done, of)))
    assert told == sorted(told)
    assert told[-1] == (3, 3)
    assert {of for _, of in told} == {3}


def keys_of(client: Client, source) -> set[str]:
    seen: set[str] = set()
    run(client, source, progress=lambda _done, _of: seen.update(map(str, client.futures)))
    return seen


def test_task_keys_are_explicit_and_tell_nothing(tmp_path: Path, client: Client):
    write(tmp_path, "CANARY.parquet", {"x": [CANARY]})
    source = Parquet(path=tmp_path)
    first, second = keys_of(client, source), keys_of(client, source)
    assert len(first) == len(second) == 1
    for key in first | second:
        assert re.fullmatch(r"dp-reduce-[0-9a-f]{32}-0", key)
    assert first != second  # no digest of what is read


def test_nothing_stays_on_the_cluster(client: Client):
    run(client, Fake())
    with pytest.raises(SourceError):
        run(client, Fake("ValueError"))
    deadline = time.monotonic() + 5
    while (left := scheduled(client)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not left


def scheduled(client: Client) -> list[str]:
    return [key for key in map(str, client.cluster.scheduler.tasks) if key.startswith("dp-reduce-")]


def test_a_stalled_split_is_given_up(client: Client):
    begun = time.monotonic()
    with pytest.raises(
        ClusterError, match=r"^no split finished for 3 s \(2 of 3 done\); look at the workers, or raise"
    ) as caught:
        run(client, Fake(stalling=True), stall_timeout=3)
    assert time.monotonic() - begun < 30
    assert caught.value.__context__ is None


def test_a_split_that_finishes_in_time_is_waited_for(client: Client):
    threading.Timer(0.4, GO_ON.set).start()
    assert reveal(run(client, Fake(stalling=True), stall_timeout=5)) == Total((3,), 6)


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit, RuntimeError])
def test_an_interrupt_ends_the_wait_at_once_and_cancels_the_tasks(client: Client, interrupt: type[BaseException]):
    def stop(_done: int, _of: int) -> None:
        raise interrupt

    begun = time.monotonic()
    with pytest.raises(interrupt):
        run(client, Fake(stalling=True), progress=stop)
    assert time.monotonic() - begun < 5
    assert not client.futures


def test_a_cluster_lost_in_mid_run_is_the_clusters_failure():
    with Local(workers=1).client() as client:

        def lose(done: int, _of: int) -> None:
            if done == 0:
                client.cluster.close()

        with pytest.raises(ClusterError, match=r"nothing was released or charged, run again|no split finished") as caught:
            run(client, Fake(stalling=True), progress=lose, stall_timeout=2)
        assert caught.value.__context__ is None
        GO_ON.set()


def test_a_cluster_without_workers_is_given_up():
    with Local(workers=1).client() as client:
        client.cluster.scale(0)
        with pytest.raises(ClusterError, match=r"no split finished for 0.5 s \(0 of 3 done\)"):
            run(client, Fake(), stall_timeout=0.5)
