"""Sums: tables and category counts of one batch equal their definitions, whatever the column's type."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from cases import CASES, statistic
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_dask.core.bounds import Bounds, Outside
from dp_dask.core.categories import CategoryCounts
from dp_dask.distances.means import means
from dp_dask.distances.mmd_product import mmd_product
from dp_dask.distances.mmd_random import mmd_random
from dp_dask.private import sums
from dp_dask.private.kernels import BLOCK, new_scratch
from dp_dask.private.sums import sum_batch

TABLES = [case for case in CASES if case.model.spacing is not None]


@pytest.mark.parametrize("case", TABLES, ids=[case.name for case in TABLES])
@pytest.mark.parametrize("outside", list(Outside))
@settings(max_examples=25, deadline=None)
@given(values=st.lists(st.none() | st.floats(width=32) | st.floats(-5, 50, width=32), max_size=40))
def test_a_table_sum_equals_its_definition(case, outside, values):
    made = statistic(case, outside=outside)
    plain = np.array([math.nan if v is None else v for v in values])
    wanted = tuple(made.contributions(plain).sum(axis=0))
    for kind in (pa.float64(), pa.float32()):
        assert sum_batch(made, {"x": pa.array(values, kind)}, new_scratch()) == wanted


def test_a_table_sum_is_the_same_over_blocks_and_slices():
    made = statistic(TABLES[0])
    values = np.random.default_rng(1).gamma(1, 1, BLOCK + 1000)
    array = pa.array(values)
    whole = sum_batch(made, {"x": array}, new_scratch())
    parts = [sum_batch(made, {"x": array.slice(start, 70_000)}, new_scratch())[0] for start in range(0, len(values), 70_000)]
    assert whole == (sum(parts),) == (int(made.contributions(values).sum()),)


@pytest.mark.parametrize(
    "distance",
    [
        means({"x": Bounds(-1, 3), "y": Bounds(0, 1)}, {"x": 0.5, "y": 3}, 10),
        mmd_product({"x": Bounds(-1, 3), "y": Bounds(0, 1)}, 1.5, 10, tolerance=1e-3),
        mmd_random({"x": Bounds(-1, 3), "y": Bounds(0, 1)}, 1.5, 10, features=7),
    ],
    ids=["means", "mmd_product", "mmd_random"],
)
def test_sums_of_several_columns_equal_their_definitions(distance, monkeypatch):
    monkeypatch.setattr(sums, "AT_ONCE", 2000)  # some records at once
    rng = np.random.default_rng(2)
    values = rng.normal(0.5, 1.5, (300, 2))
    values[rng.random((300, 2)) < 0.1] = math.nan
    values[:2] = [[math.inf, 0.5], [0.5, -math.inf]]
    wanted = tuple(distance.statistic.contributions(values).sum(axis=0))
    x = pa.array([None if math.isnan(v) else v for v in values[:, 0]], pa.float64())
    arrays = {"x": x, "y": pa.array(values[:, 1])}
    assert sum_batch(distance.statistic, arrays, new_scratch()) == wanted
    assert any(wanted)


TEXTS = ["b", None, "a", "ä", "a", "", "c ", "b"]
COUNTS = CategoryCounts(column="x", categories=("a", "b", "ä"))
KINDS = {
    "string": pa.array(TEXTS),
    "large string": pa.array(TEXTS, pa.large_string()),
    "dictionary": pa.array(TEXTS).dictionary_encode(),
    "binary": pa.array(TEXTS, pa.string()).cast(pa.binary()),
    "sliced": pa.array(["a", *TEXTS, "b"]).slice(1, len(TEXTS)),
}


@pytest.mark.parametrize("name", KINDS)
def test_texts_are_counted_by_value(name):
    assert sum_batch(COUNTS, {"x": KINDS[name]}, new_scratch()) == (2, 2, 1)


def test_bytes_that_are_no_text_are_counted_nowhere_and_stop_nothing():
    assert sum_batch(COUNTS, {"x": pa.array([b"\xff", b"a", None], pa.binary())}, new_scratch()) == (1, 0, 0)


@pytest.mark.parametrize("kind", [pa.int8(), pa.int64(), pa.float64(), pa.decimal128(20, 1)])
def test_whole_numbers_are_counted_by_value(kind):
    made = CategoryCounts(column="x", categories=(7, -2, 3))
    assert sum_batch(made, {"x": pa.array([3, 3, None, 7, 9, -2, 3]).cast(kind)}, new_scratch()) == (1, 1, 3)
    assert sum_batch(made, {"x": pa.array([], kind)}, new_scratch()) == (0, 0, 0)


def test_a_number_between_categories_is_none_of_them():
    made = CategoryCounts(column="x", categories=(0, 1))
    assert sum_batch(made, {"x": pa.array([0.5, math.nan, math.inf, -0.0, 1.0])}, new_scratch()) == (1, 1)
