"""Persons across splits: what counts of each is the same however records are split, and is what plain Python finds."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from private.people import (
    COMBINABLE,
    COUNTS_G,
    COUNTS_Y,
    KINDS,
    SUM_X,
    Held,
    at_most,
    bits,
    count_slowly,
    held,
    here,
    joined,
    total_of,
)

from dp_dask.core.combined import Combined, combined
from dp_dask.core.sensitive import reveal
from dp_dask.core.statistic import Total
from dp_dask.private import kept, persons
from dp_dask.private.reduce import Failure

NUMBER = st.none() | st.just(math.nan) | st.sampled_from([0.0, -0.0, 1.0, 2.5, 11.0, math.inf, -math.inf, 1e300])
RECORD = st.tuples(
    st.none() | st.integers(0, 2), NUMBER, st.sampled_from([None, 0.0, 1.0, 2.0]), st.sampled_from("abz") | st.none()
)
RECORDS = st.lists(RECORD, max_size=14)
ALL = tuple(KINDS.values())
LAW = settings(deadline=None, derandomize=True, database=None, max_examples=80)


def whole(found):
    totals = [reveal(each) for each in found]
    return Total(tuple(map(sum, zip(*(each.sums for each in totals), strict=True))), sum(each.n_records for each in totals))


# At most so many records


@LAW
@given(
    records=RECORDS,
    m=st.integers(1, 4),
    n_splits=st.integers(1, 5),
    rows=st.integers(1, 4),
    passes=st.integers(1, 3),
    data=st.data(),
)
def test_what_counts_is_what_plain_python_finds_however_records_are_split_and_merged(records, m, n_splits, rows, passes, data):
    records = data.draw(st.permutations(records))
    found = here(held(records, n_splits, rows), ALL, at_most(m), passes=passes, order=lambda o: data.draw(st.permutations(o)))
    assert whole(found) == total_of(ALL, count_slowly(ALL, at_most(m), records))


@pytest.mark.parametrize("m", [1, 3, 1024])
def test_exactly_so_many_count_of_a_person_who_has_as_many(m):
    rng = np.random.default_rng(m)
    ids = rng.geometric(0.02, 6000)
    records = [(int(i), float(x), 0.0, "a") for i, x in zip(ids, rng.integers(0, 3, 6000), strict=True)]
    expected = sum(min(m, count) for count in Counter(ids.tolist()).values())
    assert whole(here(held(records, 4, 500), (SUM_X, COUNTS_G), at_most(m))).n_records == expected < 6000 + (m > 600)


def test_without_enough_records_all_count_and_equal_ones_as_often_as_they_are():
    records = [(1, 2.0, 0.0, "a")] * 5 + [(1, 3.0, 1.0, None)] + [(2, 2.0, 0.0, "a")]
    assert whole(here(held(records, 3), ALL, at_most(6))) == total_of(ALL, records)


@pytest.mark.parametrize("most_copies", [kept.MOST_COPIES, 16])
def test_each_record_of_a_person_is_as_likely_to_count_as_any_other(monkeypatch, most_copies):
    """4,000 persons with four fifths of zeros. Were different values alike, half of those that count would be 2: 65 sds off."""
    monkeypatch.setattr(kept, "MOST_COPIES", most_copies)
    records = [(i, value, 0.0, "a") for i in range(4000) for value in [0.0] * 16 + [2.0] * 4]
    twos = CATEGORIES_OF_X
    [_, found] = whole(here(held(records, 2, 40_000), (twos,), at_most(1))).sums
    assert abs(found - 800) < 4.5 * math.sqrt(4000 * 0.2 * 0.8)
    [_, found] = whole(here(held(records, 2, 40_000), (twos,), at_most(5))).sums
    assert abs(found - 4000) < 4.5 * math.sqrt(4000 * 5 * 0.2 * 0.8 * 15 / 19)


def test_what_counts_depends_on_the_name_of_the_data_set():
    from dp_dask.private.reduce import collect_split, conclude_persons, persons_of

    records = [(i, float(x), 0.0, "a") for i in range(100) for x in range(9)]
    source = held(records, 1, 1000)
    found = set()
    for name in ("people", "others"):
        own = persons_of((SUM_X,), at_most(2), name, 1)
        found.add(reveal(conclude_persons(own, collect_split(source, source.plan()[0], own))).sums)
    assert len(found) == 2


@LAW
@given(records=RECORDS, n_splits=st.integers(1, 4), data=st.data())
def test_records_that_are_hashed_alike_are_told_apart_by_their_values_and_never_by_their_places(records, n_splits, data):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept, "mixed", lambda numbers: numbers & np.uint64(1))
        one, other = (whole(here(held(data.draw(st.permutations(records)), n), ALL, at_most(2))) for n in (1, n_splits))
    assert one == other
    of_person = Counter(record[0] for record in records if record[0] is not None)
    assert one.n_records == sum(min(2, count) for count in of_person.values())


@LAW
@given(records=RECORDS, most=st.integers(1, 3), n_splits=st.integers(1, 5), data=st.data())
def test_different_records_beyond_the_most_are_left_out_alike_in_every_part(records, most, n_splits, data):
    """Of one pass that leaves out early, at each merge, and of one that does at the end alone."""
    records = data.draw(st.permutations(records))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept, "MOST_DIFFERENT", most)
        late = whole(here(held(records), ALL, at_most(3)))
        patch.setattr(persons, "_is_much", lambda *tables: len(tables) > 1 or tables[0].num_rows > 9)
        early = whole(here(held(records, n_splits, 2), ALL, at_most(3)))
    different = Counter(person for person, *_ in {(r[0], bits(r[1]), bits(r[2]), r[3]) for r in records if r[0] is not None})
    assert late == early
    if max(different.values(), default=0) <= most:
        assert late == total_of(ALL, count_slowly(ALL, at_most(3), records))


def test_tables_wait_or_are_merged_with_the_same_totals(monkeypatch):
    rng = np.random.default_rng(3)
    records = [(int(i), float(x), float(y), "ab"[y % 2]) for i, x, y in zip(*rng.integers(0, 9, (3, 3000)), strict=True)]
    expected = whole(here(held(records, 6, 100), ALL, at_most(3)))
    for few in (1, 100):
        monkeypatch.setattr(persons, "FEW", few)
        assert whole(here(held(records, 6, 100), ALL, at_most(3))) == expected


# Who is a person

TEXTS = ["a", "b", None, "a", "ä", "", "b ", "a"]  # a three times, five others once
OF_TEXTS = {
    "string": lambda v: pa.array(v, pa.string()),
    "large string": lambda v: pa.array(v, pa.large_string()),
    "dictionary": lambda v: pa.array(v, pa.string()).dictionary_encode(),
    "binary": lambda v: pa.array(v, pa.string()).cast(pa.binary()),
    "sliced": lambda v: pa.array(["x", *v, "x"], pa.string()).slice(1, len(v)),
}
CATEGORIES_OF_X = COUNTS_Y.__class__(column="x", categories=(0, 2))


def persons_in(*ids, kind="number"):
    """How many persons there are."""
    batches = tuple(({"id": each, "x": pa.array([0.0] * len(each))},) for each in ids)
    return whole(here(Held(batches), (CATEGORIES_OF_X,), at_most(1, kind))).n_records


@pytest.mark.parametrize("first", OF_TEXTS)
@pytest.mark.parametrize("second", OF_TEXTS)
def test_texts_are_compared_byte_by_byte_across_files_of_any_type(first, second):
    assert persons_in(OF_TEXTS[first](TEXTS), OF_TEXTS[second](TEXTS[::-1]), kind="text") == 5


def test_bytes_that_are_no_text_are_persons_like_any_other():
    assert persons_in(pa.array([b"\xff", b"a", b"\xff", b"\xff\x00", b"a ", None], pa.binary()), kind="text") == 4


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint16(), pa.int64(), pa.uint64(), pa.float32(), pa.decimal128(22, 2)])
@pytest.mark.parametrize("is_encoded", [False, True])
def test_whole_numbers_are_compared_by_value_across_files_of_any_type(kind, is_encoded):
    values = pa.array([3, 3, None, 7]).cast(kind)
    assert persons_in(values.dictionary_encode() if is_encoded else values, pa.array([7.0, 3.0, 3.5, math.inf, math.nan])) == 2


def test_large_whole_numbers_are_told_apart_where_their_type_can():
    assert persons_in(pa.array([2**53, 2**53 + 1, 2**62, 2**62 + 1, 2**62 + 1, -(2**63), None])) == 5
    assert persons_in(pa.array([2**64 - 1, 2**64 - 2, 2**64 - 1, 2**63, 5], pa.uint64())) == 4
    assert persons_in(pa.array([2.0**53, 2.0**54, -0.0, 0.0])) == 2  # beyond 2^53 a float64 may have been rounded


@pytest.mark.parametrize("kind", ["number", "text"])
@pytest.mark.parametrize("passes", [1, 2, 7])
def test_every_person_is_in_one_pass_and_no_pass_has_nearly_all(kind, passes):
    ids = pa.array(range(2000)) if kind == "number" else pa.array([f"p{i}" for i in range(2000)])
    source = Held((({"id": ids, "x": pa.array([0.0] * 2000)},),))
    sizes = [reveal(each).n_records for each in here(source, (CATEGORIES_OF_X,), at_most(1, kind), passes=passes)]
    assert sum(sizes) == 2000
    assert all(abs(size - 2000 / passes) < 5 * math.sqrt(2000 / passes) for size in sizes)


@pytest.mark.parametrize("unit", [at_most(1), joined("sum")])
def test_a_person_beside_records_of_nobody_is_in_the_same_pass_as_elsewhere(unit):
    records = [(i, 1.0, 0.0, "a") for i in range(40)]
    batches = [held(records, 1, 40), held([(None, 1.0, 0.0, "a"), *records], 1, 41)]
    source = Held(tuple(each.batches[0] for each in batches))
    assert whole(here(source, (SUM_X,), unit, passes=3)).n_records == 40


def test_no_records_and_no_persons_add_nothing():
    assert whole(here(held([]), ALL, at_most(2))) == total_of(ALL, [])
    assert whole(here(held([(None, 1.0, 1.0, "a")] * 3, 2), ALL, at_most(2))) == total_of(ALL, [])


# Combined records


def exactly(statistic, records, how):
    """What combined records contribute: rational arithmetic on the fine grid, in the order of the records."""
    parts = combined(statistic, how)
    people = sorted({record[0] for record in records if record[0] is not None})
    rows = []
    for person in people:
        row = []
        for one in parts:
            values = [r["xy".index(one.column) + 1] for r in records if r[0] == person]
            cells = [round(clamped(one, v) / Fraction(one.unit)) for v in values if v is not None and not math.isnan(v)]
            if not cells:
                row.append(math.nan)
                continue
            value = Fraction(sum(cells), len(cells) if how == "mean" else 1)
            row.append(one.offset + float(value) * one.unit)
        rows.append(row)
    values = np.array(rows).reshape(len(people), len(parts))
    moves = statistic.contributions(values if len(parts) > 1 else values[:, 0])
    return tuple(int(v) for v in moves.reshape(len(people), len(statistic.units)).sum(axis=0)), len(people)


def clamped(one, value):
    low, high = one.ends
    return Fraction(min(max(value, low), high)) - Fraction(one.offset)


@LAW
@given(
    records=RECORDS, how=st.sampled_from(["mean", "sum"]), n_splits=st.integers(1, 5), passes=st.integers(1, 3), data=st.data()
)
@pytest.mark.parametrize("kind", COMBINABLE)
def test_combined_records_are_what_rational_arithmetic_finds_in_any_order(kind, records, how, n_splits, passes, data):
    records = data.draw(st.permutations(records))
    statistics = (KINDS[kind],)
    found = whole(
        here(held(records, n_splits, 2), statistics, joined(how), passes=passes, order=lambda o: data.draw(st.permutations(o)))
    )
    assert (found.sums, found.n_records) == exactly(KINDS[kind], records, how)


def test_several_statistics_of_a_column_have_bounds_of_their_own():
    records = [(1, 0.0, 0.0, "a"), (1, 20.0, 0.0, "a"), (2, None, 1.0, "a"), (2, 4.0, 1.0, "a")]
    wide = KINDS["stacked"]
    found = whole(here(held(records, 2), (SUM_X, wide, SUM_X), joined("mean")))
    of_x, of_wide = (exactly(statistic, records, "mean")[0] for statistic in (SUM_X, wide))
    assert found == Total((*of_x, *of_wide, *of_x), 2)


def test_the_integers_of_a_person_cannot_overflow():
    from dp_dask.core.bounds import Bounds
    from dp_dask.core.combined import LEVELS

    for ends in ((-1e-300, 3e-300), (1e6, 1e6 + 1e-3), (-7.0, 0.0), (5.0, 1e300)):
        for how in ("mean", "sum"):
            one = Combined("x", Bounds(*ends), how)
            cells = one.cells(np.array([-math.inf, *ends, 0.0, math.inf, math.nan]))
            assert np.abs(cells).max() <= LEVELS
            assert np.abs(cells).max() > LEVELS / 2 - 1
    assert LEVELS * 2**40 < 2**63


# Too many


@pytest.mark.parametrize("n_splits", [1, 2, 7])
@pytest.mark.parametrize(("unit", "rows"), [(at_most(2), 200), (joined("mean"), 50)])
def test_too_many_rows_are_refused_however_they_are_split_and_fit_in_several_passes(monkeypatch, n_splits, unit, rows):
    """50 persons, each with four different records."""
    records = [(i, float(x), 0.0, "a") for i in range(50) for x in (0, 1, 2, 3)] * 2
    monkeypatch.setattr(persons, "MOST_ROWS", rows)
    expected = whole(here(held(records, n_splits), (SUM_X,), unit))
    monkeypatch.setattr(persons, "MOST_ROWS", rows - 1)
    [refused] = here(held(records, n_splits), (SUM_X,), unit)
    assert isinstance(refused, Failure)
    assert f"dataset.unit: more than {rows - 1} " in refused.message
    assert "give more passes (dataset.unit.passes, 1 now)" in refused.message
    assert whole(here(held(records, n_splits), (SUM_X,), unit, passes=3)) == expected


def test_too_many_bytes_are_refused(monkeypatch):
    records = [(name, 1.0, 0.0, "a") for name in ("ab", "cd", "ab")]
    size = 2 * (3 * 8 + 2)
    monkeypatch.setattr(persons, "MOST_BYTES", size)
    [found] = here(held(records, 3, id=pa.string()), (SUM_X,), at_most(1, "text"))
    assert reveal(found).n_records == 2
    monkeypatch.setattr(persons, "MOST_BYTES", size - 1)
    assert isinstance(here(held(records, 3, id=pa.string()), (SUM_X,), at_most(1, "text"))[0], Failure)


def test_one_person_with_many_different_records_does_not_have_a_run_refused(monkeypatch):
    monkeypatch.setattr(persons, "MOST_ROWS", 20)
    monkeypatch.setattr(kept, "MOST_DIFFERENT", 8)
    records = [(1, float(x), 0.0, "a") for x in range(100)]
    for n_splits in (1, 5):
        assert whole(here(held(records, n_splits), (SUM_X,), at_most(3))).n_records == 3
