"""Filtered: conditions against plain Python on every type; what meets none is not there."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from private.tables import Csv, Parquet, plain, write

from dp_dask.core.where import Between, Known, OneOf, Where
from dp_dask.errors import SourceError
from dp_dask.private.filtered import Filtered

EPOCH = date(1970, 1, 1)


def day(text):
    return float((date.fromisoformat(text) - EPOCH).days)


def kept(source, *conditions, column="i", texts=frozenset()):
    filtered = Filtered(source, Where(conditions))
    filtered.check([column], texts)
    found, n_records = [], 0
    for split in filtered.plan():
        for batch in filtered.read(split, [column], texts):
            assert list(batch.columns) == [column]
            assert len(batch.columns[column]) == batch.n_records
            found += plain(batch.columns[column])
            n_records += batch.n_records
    assert len(found) == n_records
    return found


def table(tmp_path, **columns):
    size = len(next(iter(columns.values())))
    write(tmp_path / "data", "a.parquet", pa.table({"i": [float(i) for i in range(size)]} | columns), row_group_size=2)
    return Parquet(path=tmp_path / "data")


NUMBERS = [1.0, None, 2.5, math.nan, -0.0, math.inf, -math.inf, 2.0, 0.1]


@pytest.mark.parametrize(
    ("condition", "met"),
    [
        (OneOf("x", (2.5, 0.0)), lambda x: x in {2.5, 0.0}),
        (Between("x", 0.1, 2.5), lambda x: 0.1 <= x <= 2.5),
        (Between("x", 1.0, None), lambda x: x >= 1),
        (Between("x", None, 1.0), lambda x: x <= 1),
        (Known("x"), lambda x: not math.isnan(x)),
    ],
)
def test_numbers_are_compared_as_float64_and_a_null_meets_nothing(tmp_path, condition, met):
    source = table(tmp_path, x=pa.array(NUMBERS))
    assert kept(source, condition) == [float(i) for i, x in enumerate(NUMBERS) if x is not None and met(x)]


@pytest.mark.parametrize(
    "kind",
    [
        pa.int8(),
        pa.uint64(),
        pa.float16(),
        pa.float32(),
        pa.decimal128(9, 2),
        pa.decimal256(40, 3),
        pa.dictionary(pa.int8(), pa.int32()),
    ],
    ids=str,
)
def test_every_kind_of_number_is_compared_alike(tmp_path, kind):
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    given = [Decimal(v) if v is not None else None for v in (1, 2, None, 3)] if pa.types.is_decimal(value) else [1, 2, None, 3]
    array = (
        pa.array(np.array([1, 2, 0, 3], np.float16), mask=np.array([0, 0, 1, 0], bool))
        if kind == pa.float16()
        else pa.array(given, value)
    )
    source = table(tmp_path, x=array if value == kind else array.dictionary_encode())
    assert kept(source, OneOf("x", (2.0, 3.0))) == [1, 3]
    assert kept(source, Between("x", 0.0, 2.0)) == [0, 1]


def test_booleans_are_0_and_1(tmp_path):
    assert kept(table(tmp_path, x=[True, None, False, True]), OneOf("x", (1.0,))) == [0, 3]


TEXTS = ["a", "a ", None, "b", "", "á"]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.dictionary(pa.int16(), pa.string())], ids=str)
def test_texts_are_compared_byte_by_byte(tmp_path, kind):
    array = pa.array(TEXTS)
    source = table(tmp_path, g=array.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else array.cast(kind))
    for listed in (("a",), ("a", "b"), ("",), ("á", "c"), ("c",)):
        assert kept(source, OneOf("g", listed)) == [i for i, g in enumerate(TEXTS) if g in listed]
    assert kept(source, Known("g"), texts=frozenset({"g"})) == [0, 1, 3, 4, 5]


def test_a_text_that_is_not_valid_in_its_encoding_is_merely_not_listed(tmp_path):
    array = pa.array([b"\xff\xfe", b"a", None]).view(pa.string())
    assert kept(table(tmp_path, g=array), OneOf("g", ("a",))) == [1]


INSTANTS = [
    datetime(2026, 1, 31, 23, 59, 59, 999_999, UTC),
    datetime(2026, 2, 1, tzinfo=UTC),
    None,
    datetime(1969, 12, 31, 1, tzinfo=UTC),
]


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo"])
def test_a_day_holds_its_instants_of_utc(tmp_path, unit, zone):
    source = table(tmp_path, t=pa.array(INSTANTS, pa.timestamp("us", "UTC")).cast(pa.timestamp(unit, zone), safe=False))
    assert kept(source, Between("t", day("2026-01-01"), day("2026-01-31"), is_date=True)) == [0]
    assert kept(source, Between("t", day("2026-02-01"), None, is_date=True)) == [1]
    assert kept(source, Between("t", None, day("1969-12-31"), is_date=True)) == [3]


def test_dates_are_days(tmp_path):
    given = [date(2026, 1, 1), None, date(1900, 1, 1), date(2026, 12, 31)]
    source = table(tmp_path, d=pa.array(given, pa.date32()))
    assert kept(source, Between("d", day("2026-01-01"), day("2026-12-31"), is_date=True)) == [0, 3]


def test_dates_of_delimited_text(tmp_path):
    lines = ["2026-01-31", "2026-01-31T23:30:00-02:00", "31.01.2026", "", "2026-01-31 10:00:00", "9999-99-99", "a,b"]
    path = tmp_path / "a.csv"
    path.write_text("i,t\n" + "\n".join(f"{i},{line}" for i, line in enumerate(lines)) + "\n")
    source = Csv(path=path, columns={"i": "number", "t": "date"})
    assert kept(source, Between("t", day("2026-01-31"), day("2026-01-31"), is_date=True)) == [0, 4]
    east = datetime(2026, 1, 31, 23, 30, tzinfo=timezone(timedelta(hours=-2))).astimezone(UTC).date()
    assert kept(source, Between("t", day(east.isoformat()), None, is_date=True)) == [1]


def test_lines_without_values_are_not_counted(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("i,x\n0,1\n1,2,3\n2,1\n")
    assert kept(Csv(path=path, columns={"i": "number", "x": "number"}), OneOf("x", (1.0,))) == [0, 2]


def test_all_conditions_are_to_be_met_and_partition_keys_are_texts(tmp_path):
    write(tmp_path / "data", "site=n/a.parquet", {"i": [0.0, 1.0, 2.0], "x": [1, 2, 3]})
    write(tmp_path / "data", "site=s/a.parquet", {"i": [3.0, 4.0], "x": [2, 3]})
    source = Parquet(path=tmp_path / "data")
    assert kept(source, OneOf("site", ("n",)), Between("x", 2.0, None)) == [1, 2]
    twice = Filtered(source, Where((OneOf("site", ("n",)),))).narrowed(Where((Between("x", 2.0, None),)))
    assert [v for split in twice.plan() for batch in twice.read(split, ["i"]) for v in plain(batch.columns["i"])] == [1, 2]


def test_the_source_is_what_it_was(tmp_path):
    source = table(tmp_path, x=[1, 2])
    filtered = Filtered(source, Where((OneOf("x", (1.0,)),)))
    assert (filtered.version(), filtered.schema(), filtered.snapshot) == (source.version(), source.schema(), "")
    assert not filtered.keeps_places
    with filtered.pinned() as pinned:
        assert pinned == filtered


def test_a_column_of_another_type_than_its_condition_is_refused(tmp_path):
    source = table(tmp_path, x=[1, 2], g=["a", "b"], d=pa.array([1, 2], pa.date32()))
    for condition, text in (
        (OneOf("g", (1.0,)), "column 'g' is of type string; a measurement needs a number"),
        (OneOf("x", ("a",)), "column 'x' is of type int64; its categories are texts"),
        (Between("x", 1.0, None, is_date=True), "column 'x' is of type int64, and is compared with dates"),
        (Between("d", 1.0, None), "column 'd' is of type date32"),
        (Known("y"), "no column 'y'"),
    ):
        with pytest.raises(SourceError, match=text):
            kept(source, condition)
