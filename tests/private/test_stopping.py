"""A worker that closes ends its scans at the next batch, and Dask gives them to another: no failure, and nobody waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pytest
from core.exact import make_statistic
from distributed import Client, LocalCluster
from private.fakes import Fake

from dp_dask.clusters.local import plugin as Local  # noqa: N812
from dp_dask.core.sensitive import Sensitive
from dp_dask.private.reduce import reduce_split
from dp_dask.private.sources import Batch, Split

STATISTIC = make_statistic(0, 30, is_integer=True)
BEGUN, ENDED, ENOUGH = threading.Event(), threading.Event(), threading.Event()


@dataclass(frozen=True)
class Endless(Fake):
    """Records without end, until there are enough or nobody reads them any more."""

    def read(self, split: Split, columns: list[str], *_: object, **__: object) -> Iterator[Batch]:  # noqa: ARG002
        try:
            while not ENOUGH.is_set():
                yield Batch(dict.fromkeys(columns, pa.array([1])), 1)
                BEGUN.set()
                time.sleep(0.01)
        finally:
            ENDED.set()


@pytest.fixture(autouse=True)
def _fresh():
    for event in (BEGUN, ENDED, ENOUGH):
        event.clear()
    yield
    ENOUGH.set()


def test_a_scan_ends_when_its_cluster_is_left():
    with Local(workers=1).client() as client:
        future = client.submit(reduce_split, Endless(), Split(0, Endless().plan()[0].parts), (STATISTIC,))
        assert BEGUN.wait(30)
    assert ENDED.is_set()
    assert future.status != "finished"


def test_a_scan_whose_worker_closes_goes_on_at_another():
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        first = cluster.workers[0]
        future = client.submit(
            reduce_split, Endless(), Endless().plan()[0], (STATISTIC,), workers=[first.address], allow_other_workers=True
        )
        assert BEGUN.wait(30)
        cluster.sync(first.close)
        assert ENDED.is_set()
        ENOUGH.set()
        assert isinstance(future.result(timeout=30), Sensitive)
