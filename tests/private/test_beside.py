"""Beside the data: distances record by record are those of the definition, sealed, and failures are values that tell nothing."""

from __future__ import annotations

import logging
import math
import pickle
import traceback
from dataclasses import dataclass, replace

import numpy as np
import pytest
from gate.selected_examples import Frozen, make_candidates, make_request, sparse, top
from private.fakes import ATTEMPTS, BASE_ERRORS, ERRORS, GO_ON, Fake
from private.tables import CANARY, Parquet, says_nothing, write, write_text

from dp_dask.clusters.local import plugin as Local  # noqa: N812
from dp_dask.core.candidates import CandidateBatch
from dp_dask.core.recordwise import Recordwise
from dp_dask.core.sensitive import Sensitive, reveal
from dp_dask.errors import ClusterError, SourceError
from dp_dask.gate.selecting import run
from dp_dask.private.attempts import Failure
from dp_dask.private.beside import MOST_NUMBERS, compare_beside, compare_records

N = 60
RNG = np.random.default_rng(3)
X = np.where(RNG.random(N) < 0.1, math.nan, RNG.random(N) * 3)
Y = RNG.integers(0, 5, N)
DISTANCE = Recordwise(columns=("y", "x"), weights=(0.5, 2.0), clip=1.5, n=N)
OF_SIX = Recordwise(columns=("x",), weights=(1.0,), clip=2.0, n=6)  # as many records as a Fake has
ONE = Recordwise(columns=("x",), weights=(1.0,), clip=1.5, n=N)
SIMULATED = RNG.random((7, N, 2)) * 3


@pytest.fixture(scope="module")
def client():
    with Local(workers=2).client() as client:
        yield client


@pytest.fixture(autouse=True)
def _fresh():
    ATTEMPTS.clear()
    GO_ON.clear()
    yield
    GO_ON.set()


def expected(distance, simulated, records):
    """In steps of clip / (4096 n), term by term."""
    found = []
    for each in simulated:
        steps = 0
        for one, other in zip(each, records, strict=True):
            squares = [(w * (a - b)) ** 2 for w, a, b in zip(distance.weights, one, other, strict=True)]
            far = math.sqrt(sum(squares)) if not math.isnan(sum(squares)) else math.inf
            steps += math.floor(min(far / distance.clip, 1) * 4096)
        found.append(steps)
    return found


def parquet(folder, n_files, *, x=X, y=Y):
    for i, (a, b) in enumerate(zip(np.array_split(x, n_files), np.array_split(y, n_files), strict=True)):
        write(folder, f"{i:02d}.parquet", {"x": a, "y": b}, row_group_size=7)
    return Parquet(path=folder)


@pytest.mark.parametrize("n_files", [1, 3, 17])
@pytest.mark.parametrize("split_bytes", [200, 10**6])
def test_distances_are_those_of_the_records_in_the_files_order(tmp_path, client, monkeypatch, n_files, split_bytes):
    monkeypatch.setattr("dp_dask.private.listing.SPLIT_BYTES", split_bytes)
    compare = compare_beside(client, parquet(tmp_path, n_files), DISTANCE, stall_timeout=30)
    sealed = compare(CandidateBatch(0, SIMULATED, ()))
    assert repr(sealed) == "Sensitive(***)"
    assert reveal(sealed).tolist() == expected(DISTANCE, SIMULATED, np.stack([Y, X], axis=1))


def test_one_record_moves_every_distance_by_the_sensitivity_at_most(tmp_path, client):
    values = [math.nan, math.inf, -1e300, 1.25]
    base = reveal(
        compare_beside(client, parquet(tmp_path / "a", 3), ONE, stall_timeout=30)(CandidateBatch(0, SIMULATED[..., :1], ()))
    )
    for i, value in enumerate(values):
        moved = X.copy()
        moved[7 * i + 3] = value
        source = parquet(tmp_path / f"b{i}", 3, x=moved)
        other = reveal(compare_beside(client, source, ONE, stall_timeout=30)(CandidateBatch(0, SIMULATED[..., :1], ())))
        assert np.abs(other - base).max() <= 4096


@pytest.mark.parametrize("question", [sparse(distance=ONE), top(distance=ONE)])
def test_a_run_is_answered_beside_the_data_as_it_is_by_definition(tmp_path, client, question):
    request = make_request(question, distance=ONE, n=N)
    candidates = make_candidates(request)
    compare = compare_beside(client, parquet(tmp_path, 2), ONE, stall_timeout=30)

    def by_definition(batch):
        return Sensitive(np.array(expected(ONE, batch.data, X[:, None])))

    made, same = (run(request, candidates.batches(), each, Frozen(5)) for each in (compare, by_definition))
    assert replace(made, id=same.id, created=same.created) == same


@pytest.mark.parametrize("error", [*ERRORS, *BASE_ERRORS])
def test_an_error_beside_the_data_is_a_value_that_tells_nothing(error):
    outcome = compare_records(Fake(error), Fake().plan(), OF_SIX, np.zeros((2, 6, 1)))
    assert isinstance(outcome, Failure)
    assert says_nothing(repr(outcome) + repr(pickle.dumps(outcome)))
    kind = "RuntimeError" if error == "StopIteration" else error  # as Python has it of a generator
    assert outcome.message == f"file1: reading failed with {kind}"


@dataclass(frozen=True)
class Keeping(Fake):
    """A fake whose records keep their places."""

    keeps_places: bool = True


@pytest.mark.parametrize("error", ["ValueError", "SourceError", "Unforeseen"])
def test_a_failure_is_raised_at_the_client_without_what_it_quoted(client, capfd, caplog, error):
    compare = compare_beside(client, Keeping(error), OF_SIX, stall_timeout=30)
    with caplog.at_level(logging.DEBUG), pytest.raises(SourceError, match="file1: ") as caught:
        compare(CandidateBatch(0, np.zeros((2, 6, 1)), ()))
    assert says_nothing("".join([*traceback.format_exception(caught.value), *capfd.readouterr(), caplog.text]))


def test_a_failure_of_the_disk_is_tried_again_and_then_told(client):
    compare = compare_beside(client, Keeping("OSError", failures=2), OF_SIX, stall_timeout=30)
    assert reveal(compare(CandidateBatch(0, np.ones((1, 6, 1)), ()))).tolist() == [3 * 4096]  # three ones and three nulls
    ATTEMPTS.clear()
    compare = compare_beside(client, Keeping("OSError"), OF_SIX, stall_timeout=30)
    with pytest.raises(SourceError, match="file1: reading failed with OSError"):
        compare(CandidateBatch(0, np.ones((1, 6, 1)), ()))


@pytest.mark.parametrize("n", [5, 7])
def test_another_number_of_records_is_refused_without_telling_it(client, n):
    distance = replace(OF_SIX, n=n)
    compare = compare_beside(client, Keeping(), distance, stall_timeout=30)
    with pytest.raises(SourceError, match=f"^privacy.n is {n}, but the data have another number of records") as caught:
        compare(CandidateBatch(0, np.zeros((2, n, 1)), ()))
    assert "6" not in str(caught.value)


def test_a_stalled_read_is_the_clusters_fault_and_leaves_no_task(client):
    compare = compare_beside(client, Keeping("ValueError", stalling=True), OF_SIX, stall_timeout=0.3)
    with pytest.raises(ClusterError, match=r"for 0\.3 s"):
        compare(CandidateBatch(0, np.zeros((2, 6, 1)), ()))
    GO_ON.set()
    assert not client.futures


def test_too_many_numbers_are_refused_before_anything_is_read(client, tmp_path):
    distance = replace(ONE, n=MOST_NUMBERS + 1)
    with pytest.raises(SourceError, match=f"{MOST_NUMBERS + 1} records of 1 columns .* use a distance of sums"):
        compare_beside(client, Parquet(path=tmp_path / "none"), distance, stall_timeout=30)


def test_text_files_are_refused_since_a_broken_line_would_move_the_others(client, tmp_path):
    source = write_text(tmp_path, "x,y\n5,1\n7\n9,1\n")
    with pytest.raises(SourceError, match="moves those after it to other places"):
        compare_beside(client, source, replace(OF_SIX, n=3), stall_timeout=30)


def test_partition_keys_are_refused_since_a_record_might_change_its_folder(client, tmp_path):
    write(tmp_path, "a=1/0.parquet", {"x": [1.0]})
    with pytest.raises(SourceError, match="its folder is chosen by a record's values"):
        compare_beside(client, Parquet(path=tmp_path), replace(OF_SIX, n=1), stall_timeout=30)


def test_a_column_that_is_not_there_is_refused_at_once(client, tmp_path):
    write(tmp_path, "a.parquet", {"y": [CANARY]})
    with pytest.raises(SourceError, match="no column 'x'"):
        compare_beside(client, Parquet(path=tmp_path), replace(OF_SIX, n=1), stall_timeout=30)
