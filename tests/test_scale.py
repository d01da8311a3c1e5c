from __future__ import annotations

import pickle
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from core.exact import make_statistic
from distributed import Client
from private.tables import Parquet, write

from dp_dask.clusters.local import plugin as Local  # noqa: N812
from dp_dask.core.categories import CategoryCounts
from dp_dask.core.cluster_bands import ClusterBands
from dp_dask.core.sensitive import reveal
from dp_dask.private import tasks
from dp_dask.private.reduce import Reducible, reduce
from dp_dask.private.sources import Split

ROOT = Path(__file__).parent.parent
BANDS = ClusterBands(cluster="x", sizes=(1, 2))
STATISTIC = make_statistic(0, 30, is_integer=True)
BYTES = 300  # of a split in what the driver sends, at most: 60 a part and 45 a key are as few as there can be
FEW, MANY = 40, 200


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with Local(workers=2).client() as client:
        yield client


@dataclass(frozen=True)
class Repeated(Parquet):
    """The one split of a file, so many times."""

    times: int = 1

    def plan(self) -> list[Split]:
        (split,) = Parquet.plan(self)
        return [Split(i, split.parts) for i in range(self.times)]


@dataclass
class Counts:
    """Of a reduction: messages in which the driver sends tasks, their bytes, tasks that the scheduler looks at to free them."""

    messages: int = 0
    size: int = 0
    released: int = 0


def counted(client: Client, folder: Path, times: int, statistic: Reducible = STATISTIC) -> Counts:
    """Count over a reduction of so many splits."""
    counts, scheduler = Counts(), client.cluster.scheduler
    send, release = client._send_to_scheduler, scheduler._client_releases_keys

    def sent(message: dict[str, Any]) -> None:
        if "expr_ser" in message:
            counts.messages += 1
            counts.size += sum(len(frame) for frame in message["expr_ser"].frames)
        send(message)

    def released(keys: list[str], **options: Any) -> None:
        counts.released += len(keys)
        release(keys=keys, **options)

    write(folder, "a.parquet", {"x": [1.0, 2.0]})
    source = Repeated(path=folder, times=times)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "_send_to_scheduler", sent)
        patch.setattr(scheduler, "_client_releases_keys", released)
        total = reveal(reduce(client, source, [statistic], progress=lambda _done, _of: None, stall_timeout=60))
        wait_until_forgotten(client)
    assert total.n_records == 2 * times
    return counts


def wait_until_forgotten(client: Client) -> None:
    until = time.monotonic() + 30
    while any(key.startswith("dp-reduce-") for key in client.cluster.scheduler.tasks.copy()):
        assert time.monotonic() < until
        time.sleep(0.01)


def growing(client: Client, folder: Path, statistic: Reducible = STATISTIC, most: int = BYTES, of_tree: int = 0) -> list[str]:
    """Name what a split takes more of, or too much, where there are five times as many."""
    few, many = (counted(client, folder, times, statistic) for times in (FEW, MANY))
    faults = []
    if many.size > most * MANY or many.size / MANY > 1.02 * few.size / FEW:
        faults.append("bytes")
    if many.messages > max(1, of_tree * MANY):
        faults.append("messages")
    if many.released / MANY > 1.5 * few.released / FEW:
        faults.append("released")
    return faults


def test_a_split_costs_the_same_bytes_messages_and_looks_however_many_there_are(tmp_path: Path, client: Client):
    assert growing(client, tmp_path) == []


def test_so_does_a_split_of_a_tree_whose_tasks_and_merges_are_messages_of_their_own(tmp_path: Path, client: Client):
    assert growing(client, tmp_path, BANDS, most=5 * BYTES, of_tree=2) == []


@pytest.mark.parametrize("statistic", [STATISTIC, BANDS])
@pytest.mark.parametrize("stop_at", [0, 20])
def test_an_interrupt_takes_back_more_tasks_than_one_message_does(
    tmp_path: Path, client: Client, statistic: Reducible, stop_at: int
):
    write(tmp_path, "a.parquet", {"x": [1.0, 2.0]})

    def stop(done: int, _of: int) -> None:
        if done >= stop_at:
            raise KeyboardInterrupt

    source = Repeated(path=tmp_path, times=3 * tasks.CANCELLED)
    with pytest.raises(KeyboardInterrupt):
        reduce(client, source, [statistic], progress=stop, stall_timeout=60)
    assert not client.futures
    wait_until_forgotten(client)


@pytest.mark.parametrize(("name", "value", "faults"), [("AT_ONCE", 1, ["bytes", "messages"]), ("CANCELLED", 10**6, ["released"])])
def test_costs_that_grow_are_seen(
    tmp_path: Path, client: Client, monkeypatch: pytest.MonkeyPatch, name: str, value: int, faults: list[str]
):
    monkeypatch.setattr(tasks, name, value)
    assert growing(client, tmp_path) == faults


def test_what_the_tasks_share_is_sent_once_however_large_it_is(tmp_path: Path, client: Client):
    wide = CategoryCounts(column="x", categories=tuple(range(5000)))
    plain, large = counted(client, tmp_path, FEW), counted(client, tmp_path, FEW, wide)
    assert large.size - plain.size < 2 * len(pickle.dumps(wide))


def test_the_benchmark_runs(tmp_path: Path):
    sizes = {"rows": ["1000", "2000"], "splits": ["4", "8"], "workers": ["1"], "trees": ["2"], "files": ["10"], "rounds": ["1"]}
    options = [word for name, given in sizes.items() for word in (f"--{name}", *given)]
    command = [sys.executable, str(ROOT / "benchmarks" / "scale.py"), *options]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    assert len(re.findall(r"CPU.*: .* s \+ .* a (?:row|split)", ran.stdout)) == 3
    assert "nan" not in ran.stdout
    for part in ("rows:", "splits of", "workers:", "trees:", "files:"):
        assert re.search(rf"^{part}", ran.stdout, re.MULTILINE), part
