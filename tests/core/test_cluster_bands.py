"""ClusterBands: against its definition, its sensitivity over all neighbours of small data, and simulated data sets at once."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_dask.core.cluster_bands import EXACT, ClusterBands
from dp_dask.core.privacy import Neighbours
from dp_dask.core.release import Release, Request
from dp_dask.core.simulated import Simulated
from dp_dask.errors import InferenceError
from dp_dask.gate.forms import release_json, request_json
from dp_dask.public.observe import planned
from dp_dask.public.report import in_words

ADD_REMOVE, REPLACE = Neighbours.ADD_REMOVE, Neighbours.REPLACE
SIZES, SPANS = (1, 2, 3, 4, 6, 11, 21), (2, 3, 4, 7, 13)
TUBERCULOSIS = ClusterBands(cluster="cluster", sizes=SIZES, period="month", spans=SPANS)


def bands(sizes, spans=()):
    return ClusterBands(cluster="c", sizes=sizes, period="p" if spans else None, spans=spans)


def slowly(made, records):
    """The definition, rank by rank, of records (cluster or None, period or None)."""
    clusters = Counter(c for c, _ in records if c is not None)
    seen = {c: len({p for d, p in records if d == c and p is not None}) for c in clusters}
    found = []
    for lowest, reached in ((made.sizes, clusters.values()), (made.spans, seen.values())):
        for low, end in itertools.pairwise((*lowest, len(records) + 1)):
            found.append(sum(sum(r >= k for r in reached) for k in range(low, max(end, low))))
    return np.array(found[: len(made.units)])


def simulated(made, datasets):
    """Data sets of records as a simulator gives them, a null as NaN."""
    rows = [[math.nan if v is None else v for v in record] for records in datasets for record in records]
    flat = np.array(rows, dtype=np.float64).reshape(-1, 2).T
    return Simulated(np.array([len(each) for each in datasets], dtype=np.int64), dict(zip(made.columns, flat, strict=False)))


def moves(made, most):
    """Each way in which one record of a cluster of up to so many moves the bands, with the cluster and without the record."""
    found = {(0,) * len(made.units): ((), ())}  # the record has no cluster
    for n in range(1, most + 1):
        for periods in itertools.combinations_with_replacement((None, 0, 1, 2, 3, 4) if made.spans else (None,), n):
            for i in range(n):
                without = periods[:i] + periods[i + 1 :]
                change = slowly(made, [(0, p) for p in periods]) - slowly(made, [(0, p) for p in without])
                found[tuple(change.tolist())] = periods, without
    return found


def norms(change):
    return int(np.abs(change).sum()), int((change**2).sum())


RECORD = st.tuples(st.none() | st.integers(0, 3), st.none() | st.integers(0, 3))
BANDS = st.lists(st.integers(1, 6), min_size=1, max_size=4, unique=True).map(lambda ends: tuple(sorted(ends)))
MADE = st.builds(bands, BANDS, st.just(()) | BANDS)


@given(made=MADE, datasets=st.lists(st.lists(RECORD, max_size=9), max_size=4))
def test_simulated_totals_equal_the_definition_whatever_the_order(made, datasets):
    expected = np.array([slowly(made, records) for records in datasets]).reshape(-1, len(made.units))
    np.testing.assert_array_equal(made.totals_of(simulated(made, datasets)), expected)
    turned = [records[::-1] for records in datasets]
    np.testing.assert_array_equal(made.totals_of(simulated(made, turned)), expected)


@settings(max_examples=300)
@given(made=MADE, records=st.lists(RECORD, max_size=9), one=RECORD, other=RECORD)
def test_no_neighbour_moves_the_bands_by_more_than_the_sensitivity(made, records, one, other):
    base, first, second = (slowly(made, [*records, *more]) for more in ([], [one], [other]))
    for change, neighbours in ((first - base, ADD_REMOVE), (first - second, REPLACE)):
        l1, squared = norms(change)
        assert l1 <= made.sensitivity(neighbours)
        assert squared <= made.squared_sensitivity(neighbours)


@pytest.mark.parametrize("sizes", [(1,), (2,), (4,), (1, 2), (1, 4), (2, 3), (3, 5), (1, 2, 3)])
@pytest.mark.parametrize("spans", [(), (1,), (3,), (1, 2), (2, 3), (3, 4), (4, 5)])
def test_the_sensitivity_is_the_largest_change_there_is(sizes, spans):
    """All clusters of up to six records, one record taken out of one, or out of one and put into another."""
    made = bands(sizes, spans)
    found = moves(made, 6)
    l1, squared = map(max, zip(*[norms(np.array(change)) for change in found], strict=True))
    assert (l1, squared) == (made.sensitivity(ADD_REMOVE), made.squared_sensitivity(ADD_REMOVE))
    replaced = []
    for (lost, lost_without), (won, won_without) in itertools.product(found.values(), repeat=2):
        before = [(0, p) for p in lost] + [(1, p) for p in won_without]
        after = [(0, p) for p in lost_without] + [(1, p) for p in won]
        replaced.append(norms(slowly(made, after) - slowly(made, before)))
    l1, squared = map(max, zip(*replaced, strict=True))
    assert (l1, squared) == (made.sensitivity(REPLACE), made.squared_sensitivity(REPLACE))


def test_the_bands_of_an_outbreak_move_by_one_and_by_two():
    of_sizes = ClusterBands(cluster="cluster", sizes=SIZES)
    assert [of_sizes.sensitivity(each) for each in (ADD_REMOVE, REPLACE)] == [1, 2]
    assert [TUBERCULOSIS.sensitivity(each) for each in (ADD_REMOVE, REPLACE)] == [2, 4]
    assert TUBERCULOSIS.units == (1.0,) * 12


def test_the_sizes_of_bands_from_one_add_up_to_the_records_that_have_a_cluster():
    records = [(c, None) for c in (1, 1, 1, None, 2, 2, 7)]
    assert bands((1, 2, 3)).totals_of(simulated(bands((1,)), [records])).tolist() == [[3, 2, 1]]


def test_many_large_data_sets_equal_the_definition():
    rng = np.random.default_rng(1)
    counts = np.array([400, 0, 1, 700, 0])
    cluster = rng.geometric(0.02, counts.sum()).astype(float) * 10.0 ** rng.integers(0, 9, counts.sum())
    month = rng.integers(0, 24, counts.sum()) * 1e9
    made = TUBERCULOSIS.totals_of(Simulated(counts, {"cluster": cluster, "month": month}))
    records = list(zip(cluster.tolist(), month.tolist(), strict=True))
    ends = np.cumsum(counts)
    expected = [slowly(TUBERCULOSIS, records[end - n : end]) for n, end in zip(counts, ends, strict=True)]
    np.testing.assert_array_equal(made, expected)


def test_codes_that_would_not_fit_in_64_bits_are_made_dense(monkeypatch):
    monkeypatch.setattr("dp_dask.core.cluster_bands.LARGEST_KEY", 100)
    test_many_large_data_sets_equal_the_definition()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 0.5, -1.5, 2.0 * EXACT])
def test_what_is_no_whole_number_is_no_cluster_and_no_period(bad):
    made = bands((1, 2), (1, 2))
    values = {"c": np.array([3.0, bad, 3.0, -0.0, 0.0]), "p": np.array([bad, 1.0, 7.0, bad, 1.0])}
    assert made.totals_of(Simulated(np.array([5]), values)).tolist() == [[2, 2, 2, 0]]


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"sizes": ()}, "sizes must be 1 to 256 whole numbers from 1 to"),
        ({"sizes": (0, 1)}, "sizes must be"),
        ({"sizes": tuple(range(1, 258))}, "sizes must be"),
        ({"sizes": (1, 3, 3)}, "sizes is 1, 3, 3; the lower ends of the bands must ascend"),
        ({"spans": (2,)}, "give period and spans, or neither"),
        ({"period": "p"}, "give period and spans, or neither"),
        ({"period": "c", "spans": (2,)}, "period is another column than cluster"),
        ({"period": "p", "spans": (3, 2)}, "spans is 3, 2"),
        ({"texts": ("p",)}, "texts is p; it names columns among c, in this order, each once"),
        ({"texts": ("c", "c")}, "texts is c, c"),
        ({"period": "p", "spans": (2,), "texts": ("p", "c")}, "texts is p, c; it names columns among c, p, in this order"),
    ],
)
def test_bands_that_cannot_be_are_refused(facts, message):
    with pytest.raises(ValueError, match=message):
        ClusterBands(**({"cluster": "c", "sizes": (1, 2)} | facts))


@pytest.mark.parametrize("statistic", [TUBERCULOSIS, ClusterBands(cluster="c", sizes=(2, 5), texts=("c",))])
def test_requests_and_releases_return_from_json(statistic):
    request = Request(dataset="d", statistic=statistic, neighbours=ADD_REMOVE, n=None, epsilon=Decimal("0.5"))
    sensitivity = statistic.sensitivity(ADD_REMOVE)
    release = Release(
        id="0" * 32,
        created="2026-01-01T00:00:00+00:00",
        request=request,
        sampler="test",
        sensitivity=sensitivity,
        scale=2.0 * sensitivity,
        privacy_loss=0.5,
        noisy_sums=(3,) * len(statistic.units),
        noisy_count=None,
    )
    assert request_json.validate_json(request_json.dump_json(request)) == request
    assert release_json.validate_json(release_json.dump_json(release)) == release
    assert in_words(release)["what"].startswith(f"column {statistic.cluster}, records by their rank")
    with pytest.raises(InferenceError, match="a simulator explains them"):
        planned(request, None)
