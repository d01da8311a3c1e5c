"""Types: each of Arrow's is read right, or refused by its name, from Parquet and from Arrow IPC."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.ipc as pai
import pytest
from private.tables import Parquet, plain, write

from dp_dask.core.where import Between, Where
from dp_dask.errors import SourceError
from dp_dask.private.arrow import as_bytes
from dp_dask.private.filtered import Filtered
from dp_dask.private.sources import Source
from dp_dask.private.sources.ipc import plugin as Ipc  # noqa: N812


def sources(folder: Path, columns: dict[str, pa.Array]) -> list[Source]:
    """Write the columns in both formats; what Parquet cannot hold in Arrow's alone."""
    table = pa.table(columns)
    with pai.new_file(str(folder / "a.arrow"), table.schema) as writer:
        writer.write_table(table)
    found: list[Source] = [Ipc(path=folder / "a.arrow")]
    try:
        found.append(Parquet(path=write(folder, "a.parquet", table)))
    except pa.ArrowNotImplementedError:
        assert any(pa.types.is_run_end_encoded(kind) or pa.types.is_dictionary(kind) for kind in table.schema.types)
    return found


def only(source: Source, column: str = "x", **how) -> pa.Array:
    source.check([column], **how)
    (batch,) = source.read(source.plan()[0], [column], **how)
    return batch.columns[column]


D = Decimal
NUMBERS = [
    (pa.bool_(), [True, None, False], [1.0, None, 0.0]),
    (pa.int8(), [-128, None, 127], [-128.0, None, 127.0]),
    (pa.uint64(), [2**64 - 1, None, 2**53 + 1], [1.8446744073709552e19, None, 9007199254740992.0]),
    (pa.int64(), [-(2**63), None, 2**53 + 3], [-9.223372036854775808e18, None, 9007199254740996.0]),
    (pa.float16(), [np.float16(0.1), None, np.float16(65504)], [0.0999755859375, None, 65504.0]),
    (pa.float32(), [0.1, None, 1e30], [float(np.float32(0.1)), None, float(np.float32(1e30))]),
    (pa.float64(), [0.1, None, 5e-324], [0.1, None, 5e-324]),
    (pa.decimal32(5, 2), [D("-999.99"), None, D("0.10")], [-999.99, None, 0.1]),
    (pa.decimal64(15, 3), [D("123456789012.345"), None, D("0.001")], [123456789012.345, None, 0.001]),
    (pa.decimal128(38, 10), [D("1234567890123456789012345678.0123456789"), None, D("0.1")], [1.2345678901234568e27, None, 0.1]),
    (pa.decimal256(76, 20), [D("9" * 56 + ".5"), None, D("-0.1")], [1e56, None, -0.1]),
    (pa.decimal128(9, -2), [D("1.234E5"), None, D("1E2")], [123400.0, None, 100.0]),
]


@pytest.mark.parametrize(
    ("kind", "given", "values"), NUMBERS, ids=lambda value: str(value) if isinstance(value, pa.DataType) else ""
)
@pytest.mark.parametrize("encoding", ["none", "dictionary", "runs"])
def test_a_number_of_every_type_is_the_nearest_float(tmp_path: Path, kind: pa.DataType, given: list, values: list, encoding: str):
    array = pa.array([value for value in given for _ in range(3)], kind)
    if encoding == "dictionary":
        array = pa.DictionaryArray.from_arrays(pa.array([0, 0, 0, None, None, None, 1, 1, 1]), pa.array(given[::2], kind))
    elif encoding == "runs":
        array = pa.RunEndEncodedArray.from_arrays(pa.array([3, 6, 9], pa.int32()), pa.array(given, kind))
    found = sources(tmp_path, {"x": array}) if kind != pa.decimal128(9, -2) else [ipc_alone(tmp_path, array)]
    for source in found:
        assert plain(only(source)) == [value for value in values for _ in range(3)]


def ipc_alone(folder: Path, array: pa.Array) -> Source:
    """Write what Parquet has no type for."""
    with pai.new_file(str(folder / "a.arrow"), pa.schema([("x", array.type)])) as writer:
        writer.write_table(pa.table({"x": array}))
    return Ipc(path=folder / "a.arrow")


TEXTS = [pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.string_view(), pa.binary_view()]


@pytest.mark.parametrize("kind", TEXTS, ids=str)
@pytest.mark.parametrize("encoding", ["none", "dictionary", "runs"])
def test_a_text_of_every_type_is_its_bytes_or_refused_by_its_type(tmp_path: Path, kind: pa.DataType, encoding: str):
    given = [b"a", None, "a longer text, é".encode()]
    array = pa.array(given, pa.binary()).cast(kind)
    is_view = kind in (pa.string_view(), pa.binary_view())
    if encoding == "dictionary":
        array = pa.DictionaryArray.from_arrays(pa.array([0, None, 1]), pa.array(given[::2], pa.binary()).cast(kind))
    elif encoding == "runs":
        array = pa.RunEndEncodedArray.from_arrays(pa.array([1, 2, 3], pa.int32()), array)
    texts = frozenset({"x"})
    if is_view and encoding != "none":
        with pytest.raises(SourceError, match=r"of type (dictionary|run_end_encoded)<.*_view.*its categories are texts"):
            only(ipc_alone(tmp_path, array), texts=texts)
        return
    for source in sources(tmp_path, {"x": array}):
        assert as_bytes(only(source, texts=texts)).to_pylist() == given
        with pytest.raises(SourceError, match="a measurement needs a number"):
            source.check(["x"])


INSTANT = datetime(1969, 12, 31, 23, 30, tzinfo=UTC)
DATES = [
    (pa.date32(), date(1969, 12, 31)),
    (pa.date64(), date(1969, 12, 31)),
    *[(pa.timestamp(unit), INSTANT.replace(tzinfo=None)) for unit in ("s", "ms", "us", "ns")],
    (pa.timestamp("us", "UTC"), INSTANT),
    (pa.timestamp("us", "Asia/Tokyo"), INSTANT.astimezone(ZoneInfo("Asia/Tokyo"))),  # there the next day
    (pa.timestamp("ns", "-05:00"), INSTANT),
]


@pytest.mark.parametrize(("kind", "value"), DATES, ids=lambda value: str(value) if isinstance(value, pa.DataType) else "")
@pytest.mark.parametrize("encoding", ["none", "dictionary", "runs"])
def test_a_date_or_an_instant_is_its_day_in_utc_in_a_condition_and_no_number(
    tmp_path: Path, kind: pa.DataType, value: date, encoding: str
):
    array = pa.array([value, None, value + timedelta(days=1)], kind)
    if encoding == "dictionary":
        array = array.dictionary_encode()
    elif encoding == "runs":
        array = pa.RunEndEncodedArray.from_arrays(pa.array([1, 2, 3], pa.int32()), array)
    day = (date(1969, 12, 31) - date(1970, 1, 1)).days
    where = Where((Between("t", day, day, is_date=True),))
    for source in sources(tmp_path, {"t": array, "x": pa.array([1.0, 2.0, 3.0])}):
        assert plain(only(Filtered(source, where))) == [1.0]
        with pytest.raises(SourceError, match=r"column 't' is of type .*; a measurement needs a number"):
            source.check(["t"])


REFUSED = [
    pa.nulls(2),
    pa.array([1, 2], pa.time32("s")),
    pa.array([1, 2], pa.time64("ns")),
    pa.array([1, 2], pa.duration("s")),
    pa.array([(1, 2, 3), None], pa.month_day_nano_interval()),
    pa.array([b"ab", None], pa.binary(2)),
    pa.array([[1.0], None]),
    pa.array([[1.0], None], pa.large_list(pa.float64())),
    pa.array([[1.0], None], pa.list_view(pa.float64())),
    pa.array([[1.0], None], pa.list_(pa.float64(), 1)),
    pa.array([{"x": 1.0}, None]),
    pa.array([[("a", 1.0)], None], pa.map_(pa.string(), pa.float64())),
    pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0], pa.int8())),
    pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"a" * 16, None], pa.binary(16))),
    pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1.0, 2.0]), pa.array([1, 2])]),
]


@pytest.mark.parametrize("array", REFUSED, ids=lambda array: str(array.type).split("<")[0])
def test_every_other_type_is_refused_by_its_name_whatever_it_is_read_as(tmp_path: Path, array: pa.Array):
    source = ipc_alone(tmp_path, array)
    for how in ({}, {"texts": frozenset({"x"})}, {"dates": frozenset({"x"})}):
        with pytest.raises(SourceError, match=r"^a.arrow: column 'x' is of type "):
            source.check(["x"], **how)
        with pytest.raises(SourceError, match=r"^a.arrow: column 'x' is of type "):
            list(source.read(source.plan()[0], ["x"], **how))


@pytest.mark.parametrize("array", REFUSED, ids=lambda array: str(array.type).split("<")[0])
def test_a_column_of_another_type_beside_does_not_matter(tmp_path: Path, array: pa.Array):
    for source in sources_if_possible(tmp_path, {"n": array, "x": pa.array([1.0, 2.0])}):
        assert plain(only(source)) == [1.0, 2.0]


def sources_if_possible(folder: Path, columns: dict[str, pa.Array]) -> list[Source]:
    try:
        return sources(folder, columns)
    except AssertionError:
        return [Ipc(path=folder / "a.arrow")]
