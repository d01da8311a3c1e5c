"""Particles over Dask: the same draws anywhere, nothing left behind, and a worker that dies changes nothing."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import BY_NAME, joint_observation
from distributed import Client

from dp_dask.clusters.local import plugin as Local  # noqa: N812
from dp_dask.core.privacy import Neighbours
from dp_dask.core.release import Release, Request
from dp_dask.errors import ClusterError, InferenceError
from dp_dask.fan_out import AHEAD, FEWEST, on_client, over
from dp_dask.posteriors import infer_from
from dp_dask.public.engines import kernel_is
from dp_dask.public.infer import infer
from dp_dask.public.publication import Publication, Published
from dp_dask.public.simulation import simulate
from dp_dask.public.spread import spread, spread_by

CASE = BY_NAME["normal_mu_sigma"]


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch):
    """So small that the first stage already has a dozen; the size is read where batches are made, never on a worker."""
    monkeypatch.setattr(kernel_is, "BATCH", 400)


@pytest.fixture(scope="module")
def client():
    with Local(workers=2).client() as client:
        yield client


def draws():
    like = joint_observation(CASE, n=5, epsilon=1.0)
    seen = simulate(np.random.default_rng(1), like, np.array([0.4, 1.2])).observation
    return infer(np.random.default_rng(2), seen, CASE.prior, 200, "kernel_is").draws


def nothing_is_left(client: Client) -> bool:
    """Within five seconds neither this client nor the scheduler knows a task."""
    for _ in range(100):
        if not client.futures and not client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)):
            return True
        time.sleep(0.05)
    return False


def test_the_draws_are_the_same_here_and_on_any_number_of_workers(client):
    here = draws()
    with spread_by(lambda function, items: on_client(client, function, items, stall_timeout=60)):
        assert np.array_equal(draws(), here)
    assert nothing_is_left(client)
    for workers in (1, 2):
        with over(Local(processes=True, workers=workers)) as mapper, spread_by(mapper):
            assert np.array_equal(draws(), here)


def test_another_map_that_loses_the_order_is_seen():
    here = draws()
    with spread_by(lambda function, items: list(map(function, items))[::-1]):
        assert not np.array_equal(draws(), here)


def test_a_task_holds_a_model_a_prior_a_release_and_a_seed_and_no_more():
    seen: list[Any] = []

    def look(function, items):
        seen.extend(items)
        return map(function, items)

    with spread_by(look):
        draws()
    assert {type(item) for item in seen} == {kernel_is.Batch}
    assert set(kernel_is.Batch.__slots__) == {"observation", "prior", "proposal", "seed", "size"}
    states = {tuple(item.seed.generate_state(4)) for item in seen}
    assert len(states) == len(seen)  # no two batches draw the same numbers


def slow(item: tuple[str, int]) -> int:
    folder, number = item
    (Path(folder) / f"{number}-{time.monotonic_ns()}").touch()
    time.sleep(0.2)
    return number


def test_at_most_a_window_of_batches_is_on_the_cluster(client, tmp_path):
    most = 0
    for number in on_client(client, slow, [(str(tmp_path), i) for i in range(12)], stall_timeout=60):
        assert number >= 0
        most = max(most, len(client.futures))
    assert 0 < most <= AHEAD * 2


def test_an_interrupt_leaves_no_tasks(client, tmp_path):
    """Ctrl-C while the first batches run: those that have not begun never do."""
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    mapper = spread_by(lambda function, items: on_client(client, function, items, stall_timeout=60))
    with pytest.raises(KeyboardInterrupt), mapper:
        spread(slow, [(str(tmp_path), i) for i in range(100)])
    timer.join()
    assert nothing_is_left(client)
    assert len(list(tmp_path.iterdir())) < 20


def fail(item: int) -> int:
    if item == 3:
        msg = "as the function said"
        raise ValueError(msg)
    return item


def test_what_the_function_raises_arrives_and_leaves_no_tasks(client):
    with pytest.raises(ValueError, match="as the function said"):
        list(on_client(client, fail, range(50), stall_timeout=60))
    assert nothing_is_left(client)


def refuse(item: int) -> int:
    msg = f"{item} cannot be served: " + "for a long reason, " * 30
    raise InferenceError(msg)


def test_a_long_refusal_arrives_cut_and_in_its_own_words(client):
    with pytest.raises(InferenceError) as caught:
        list(on_client(client, refuse, [7], stall_timeout=60))
    assert str(caught.value).startswith("7 cannot be served: for a long reason, for")
    assert str(caught.value).endswith("..")


def die_once(item: tuple[str, int]) -> int:
    folder, number = item
    mark = Path(folder) / "died"
    if number == 2 and not mark.exists():
        mark.touch()
        os._exit(1)
    return number * number


def test_a_worker_that_dies_changes_nothing(tmp_path):
    with Local(processes=True, workers=2).client() as client:
        found = list(on_client(client, die_once, [(str(tmp_path), i) for i in range(9)], stall_timeout=60))
        kept = client.run(os.getenv, "MALLOC_TRIM_THRESHOLD_")
    assert (tmp_path / "died").exists()
    assert found == [i * i for i in range(9)]
    assert set(kept.values()) == {str(2**27)}, "Dask's 64 kB makes large arrays slow"


def test_a_cluster_where_nothing_ends_is_given_up(client, tmp_path):
    with pytest.raises(ClusterError, match=r"lost simulations \(TimeoutError\)"):
        list(on_client(client, slow, [(str(tmp_path), 0)], stall_timeout=0.01))
    assert nothing_is_left(client)


@dataclass(frozen=True)
class Counting:
    """A cluster that tells how often it was started."""

    started: list[int]
    stall_timeout: float = 60.0
    driver_sees_records: bool = True

    @contextmanager
    def client(self):
        self.started.append(1)
        with Local(workers=1).client() as client:
            yield client


def test_a_cluster_is_started_once_and_only_for_enough_batches():
    cluster = Counting([])
    with over(cluster) as mapper:
        assert list(mapper(fail, [0] * (FEWEST - 1))) == [0] * (FEWEST - 1)
        assert not cluster.started
        for _ in range(2):
            assert list(mapper(fail, [1] * FEWEST)) == [1] * FEWEST
    assert cluster.started == [1]


def test_a_pipeline_simulates_on_its_cluster():
    """infer_from gives the same posterior with a cluster as without, and uses it."""
    like = joint_observation(CASE, n=5, epsilon=1.0)
    request = Request(dataset="d", statistic=like.statistic, neighbours=Neighbours.REPLACE, n=5, epsilon=Decimal(1))
    release = Release(
        id="0" * 32, created="2026-01-02T03:04:05+00:00", request=request, sampler="test",
        sensitivity=like.statistic.sensitivity(Neighbours.REPLACE), scale=like.scale, privacy_loss=1.0,
        noisy_sums=(10, 20), noisy_count=None,
    )  # fmt: skip
    prior = {"mu": 0, "kappa": 0.1, "alpha": 2, "beta": 2}
    one = Published(model="normal_mu_sigma", known={}, prior=prior, expected_records=None, release=release)
    publication = Publication(written_by="t", dataset="d", measurements={"m": one})
    cluster = Counting([])
    (here,), (there,) = (infer_from(publication, 200, "kernel_is", cluster=each) for each in (None, cluster))
    assert np.array_equal(here.inference.draws, there.inference.draws)
    assert cluster.started == [1]
    assert here.inference.reason == there.inference.reason
