"""The eight summaries against a slow reading of their definitions, and against San Francisco's published values."""

from __future__ import annotations

import numpy as np
import pytest

from dp_dask.outbreaks.summaries import NAMES, SAN_FRANCISCO, WEIGHTS, distance, summarise

SIZES = [1] * 282 + [2] * 20 + [3] * 13 + [4] * 4 + [2 + 3, 2 + 3, 8, 10, 15, 23, 30]
MONTHS_OF_LARGEST = [0, 0, 1, 2, 3, 3, *[4] * 6, *[5] * 5, 7, 8, 8, 10, 11, 12, 14, 16, 16, 18, 20, 21, 23]


def slowly(cluster, month):
    if not len(cluster):
        return [0.0] * 8
    sizes = {c: int(np.sum(cluster == c)) for c in sorted(set(cluster.tolist()))}
    top = [*sorted(sizes.values(), reverse=True), 0, 0, 0][:4]
    largest = min(c for c, size in sizes.items() if size == top[0])
    months = month[cluster == largest]
    n = len(cluster)
    singles, pairs = (sum(size == k for size in sizes.values()) / n for k in (1, 2))
    decline = np.mean([top[i] - top[i + 1] for i in range(3)])
    return [n, len(sizes), top[0], decline, singles, pairs, months.max() - months.min() + 1, len(set(months.tolist()))]


def san_francisco():
    cluster = np.repeat(np.arange(len(SIZES)), SIZES).astype(np.int32)
    month = np.zeros(len(cluster), dtype=np.int32)
    month[-30:] = MONTHS_OF_LARGEST
    return cluster, month


def test_san_franciscos_summaries_are_those_published():
    cluster, month = san_francisco()
    found = summarise(np.array([len(cluster)]), cluster, month)[0]
    np.testing.assert_allclose(found, SAN_FRANCISCO, rtol=1e-12)
    np.testing.assert_allclose(found, [473, 326, 30, 6.667, 0.596, 0.0423, 24, 17], rtol=1e-3)
    assert distance(found, SAN_FRANCISCO) == 0


def test_many_outbreaks_are_summarised_as_one_by_one():
    rng = np.random.default_rng(1)
    counts = rng.integers(0, 40, 200)
    counts[:3] = (0, 1, 2)
    cluster = rng.geometric(0.2, counts.sum()).astype(np.int32)
    month = rng.integers(0, 24, counts.sum()).astype(np.int32)
    found = summarise(counts, cluster, month)
    ends = np.cumsum(counts)
    expected = [slowly(cluster[end - n : end], month[end - n : end]) for n, end in zip(counts, ends, strict=True)]
    np.testing.assert_allclose(found, expected, rtol=1e-13)
    assert len(NAMES) == found.shape[1]
    shuffled = np.concatenate([end - n + rng.permutation(n) for n, end in zip(counts, ends, strict=True)])
    np.testing.assert_array_equal(summarise(counts, cluster[shuffled], month[shuffled]), found)


def test_no_outbreak_and_outbreaks_without_cases_are_summarised():
    none = np.empty(0, dtype=np.int32)
    assert summarise(np.empty(0, dtype=np.int64), none, none).shape == (0, 8)
    np.testing.assert_array_equal(summarise(np.zeros(2, dtype=np.int64), none, none), np.zeros((2, 8)))


def test_the_distance_is_the_weighted_norm_with_relative_errors_of_the_shares():
    simulated = SAN_FRANCISCO.copy()
    simulated[0] += 3
    simulated[4] *= 1.04
    assert distance(simulated, SAN_FRANCISCO) == pytest.approx(5)
    for k, weight in enumerate(WEIGHTS):
        moved = SAN_FRANCISCO.copy()
        moved[k] += 1
        unit = SAN_FRANCISCO[k] if k in {4, 5} else 1
        assert distance(moved, SAN_FRANCISCO) == pytest.approx(weight / unit)
    assert distance(np.zeros((3, 2, 8)), SAN_FRANCISCO).shape == (3, 2)


def test_a_distance_relative_to_nothing_is_refused():
    observed = SAN_FRANCISCO.copy()
    observed[5] = 0
    with pytest.raises(ValueError, match="has no distance"):
        distance(SAN_FRANCISCO, observed)
