from __future__ import annotations

import decimal
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from core.exact import LAW, contribution, edges, make_statistic, records, statistics, total
from hypothesis import given
from hypothesis import strategies as st

from dp_dask.core.bounds import Bounds, Outside
from dp_dask.core.grid import Grid
from dp_dask.core.privacy import Neighbours
from dp_dask.core.statistic import BoundedSum
from dp_dask.private.arrow import is_numeric, values_and_validity
from dp_dask.private.kernels import BLOCK, new_scratch, sum_array

SCRATCH = new_scratch()
STATISTICS = [
    make_statistic(0.1, 300.5, outside, neighbours, is_integer=is_integer)
    for outside in Outside
    for neighbours in Neighbours
    for is_integer in (False, True)
] + [make_statistic(-3, 4, outside) for outside in Outside]


def sum_of(statistic: BoundedSum, array: pa.Array) -> int:
    SCRATCH.fill(math.nan)  # nothing may depend on what an earlier block left
    return sum_array(statistic, array, SCRATCH)


def decimals(kind: pa.DataType, unscaled: list[int | None]) -> tuple[pa.Array, list[Any]]:
    """Make a decimal array from its integers, for scales that pa.array does not take, and its exact values."""
    width = kind.byte_width
    data = b"".join((number or 0).to_bytes(width, "little", signed=True) for number in unscaled)
    valid = np.packbits([number is not None for number in unscaled], bitorder="little").tobytes()
    array = pa.Array.from_buffers(kind, len(unscaled), [pa.py_buffer(valid), pa.py_buffer(data)])
    with decimal.localcontext(prec=200):
        return array, [None if number is None else Decimal(number).scaleb(-kind.scale) for number in unscaled]


INTEGERS = {
    kind: [None, 0, 1, 2, 3, 4, 100, int(np.iinfo(str(kind)).min), int(np.iinfo(str(kind)).max), None, 5, 7]
    for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
}
FLOATS = [None, 0.0, -0.0, 0.1, 0.5, 1.5, 2.5, 3.0, 299.5, 300.5, 301.0, -1e4, 6e-8, math.nan, math.inf, -math.inf, None, 1.0]
NARROW = [None, 0, 1, 10, 11, 29, 35, 57, 30050, 30051, -400, 123456, -(10**9), 99]
WIDE = [*NARROW, 2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64 + 3, -(2**64), 10**37 - 1, -(10**37) + 1]


def arrays() -> dict[str, tuple[pa.Array, list[Any]]]:
    """Return an array of every numeric type with the exact value of each slot."""
    made: dict[str, tuple[pa.Array, list[Any]]] = {
        str(kind): (pa.array(values, kind), values) for kind, values in INTEGERS.items()
    }
    made["bool"] = (pa.array([True, None, False, True, True, None, False, True, True]), [1, None, 0, 1, 1, None, 0, 1, 1])
    for kind, dtype in ((pa.float16(), np.float16), (pa.float32(), np.float32), (pa.float64(), np.float64)):
        rounded = [None if value is None else float(dtype(value)) for value in FLOATS]
        made[str(kind)] = (pa.array([None if v is None else dtype(v) for v in FLOATS], kind), rounded)
    for kind, unscaled in (
        (pa.decimal128(10, 2), NARROW),
        (pa.decimal128(18, 0), NARROW),
        (pa.decimal128(18, -1), NARROW),
        (pa.decimal128(38, 2), WIDE),
        (pa.decimal128(38, 30), WIDE),
        (pa.decimal256(18, 2), NARROW),
        (pa.decimal256(76, 2), [*WIDE, 10**75, -(10**75), 2**192 + 7]),
        (pa.decimal256(76, 70), [*WIDE, 10**75, -(10**75), 2**192 + 7]),
        (pa.decimal256(76, -3), WIDE),
    ):
        made[str(kind)] = decimals(kind, unscaled)
    return made | dictionaries(made)


def dictionaries(plain: dict[str, tuple[pa.Array, list[Any]]]) -> dict[str, tuple[pa.Array, list[Any]]]:
    """Encode some of the arrays as they are: the dictionary itself holds a null, and is used backwards and with null codes."""
    made = {}
    for name in ("int16", "uint64", "double", "halffloat", "bool", "decimal128(10, 2)", "decimal256(76, 2)"):
        array, values = plain[name]
        codes = [*reversed(range(len(values))), None, 0, 0]
        encoded = pa.DictionaryArray.from_arrays(pa.array(codes, pa.int16()), array)
        made[f"dictionary of {name}"] = (encoded, [None if code is None else values[code] for code in codes])
    return made


ARRAYS = arrays()
EVERY_TYPE = pytest.mark.parametrize("name", ARRAYS)


@EVERY_TYPE
def test_every_type_is_converted_to_the_nearest_float64(name: str):
    array, values = ARRAYS[name]
    converted, valid = values_and_validity(array)
    assert converted.dtype == np.float64
    nulls = [value is None for value in values]
    assert ([False] * len(values) if valid is None else list(~valid)) == nulls
    for value, found in zip(values, converted, strict=True):
        if value is not None:
            assert found == float(value) or (math.isnan(value) and math.isnan(found))


@EVERY_TYPE
@pytest.mark.parametrize("statistic", STATISTICS, ids=lambda s: f"{s.outside}-{s.grid.unit:g}-{s.grid.origin}")
def test_the_sum_over_every_type_is_that_of_rational_arithmetic(name: str, statistic: BoundedSum):
    array, values = ARRAYS[name]
    assert sum_of(statistic, array) == total(statistic, values)


def repeated(array: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(array.type):
        return pa.DictionaryArray.from_arrays(pa.concat_arrays([array.indices] * 3), array.dictionary)
    return pa.concat_arrays([array] * 3)


@EVERY_TYPE
def test_a_slice_of_every_type_sums_its_own_slots_only(name: str):
    array, values = ARRAYS[name]
    many, values, statistic = repeated(array), values * 3, STATISTICS[0]
    for start in (0, 1, 7, 8, 9, len(array), len(many)):
        for length in (0, 1, 2, 8, 11, len(many)):
            assert sum_of(statistic, many.slice(start, length)) == total(statistic, values[start : start + length])


@EVERY_TYPE
def test_empty_and_all_null_arrays_of_every_type_sum_to_zero(name: str):
    array, _ = ARRAYS[name]
    for statistic in STATISTICS:
        assert sum_of(statistic, array.slice(3, 0)) == 0
        assert sum_of(statistic, pa.nulls(0, array.type)) == 0
        assert sum_of(statistic, pa.nulls(5, array.type)) == 0
        assert sum_of(statistic, pa.nulls(20, array.type).slice(3, 11)) == 0


@pytest.mark.parametrize("garbage", [math.nan, math.inf, -math.inf, 1e308, 100.0])
@pytest.mark.parametrize("statistic", STATISTICS, ids=lambda s: f"{s.outside}-{s.grid.unit:g}-{s.grid.origin}")
def test_what_lies_in_a_null_slot_does_not_matter(statistic: BoundedSum, garbage: float):
    data = np.array([1.0, garbage, 2.0, garbage, garbage, 3.0, 4.0, 5.0, garbage])
    valid = pa.py_buffer(np.packbits(data != garbage if garbage == garbage else ~np.isnan(data), bitorder="little").tobytes())  # noqa: PLR0124
    array = pa.Array.from_buffers(pa.float64(), 9, [valid, pa.py_buffer(data.tobytes())])
    assert sum_of(statistic, array) == total(statistic, [1.0, 2.0, 3.0, 4.0, 5.0])
    assert sum_of(statistic, array.slice(3, 4)) == total(statistic, [3.0, 4.0])


@pytest.mark.parametrize("byte", [0x00, 0x7F, 0x80, 0xFF])
@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64(), pa.float32(), pa.decimal128(38, 2), pa.decimal256(76, 2), pa.bool_()])
def test_any_bytes_may_lie_in_a_null_slot(kind: pa.DataType, byte: int):
    data = bytes([byte]) * (32 * 8)
    array = pa.Array.from_buffers(kind, 8, [pa.py_buffer(b"\0"), pa.py_buffer(data)])
    assert sum_of(make_statistic(5, 6), array) == 0


def test_a_bitmap_of_a_slice_without_nulls_is_not_read_as_one():
    array = pa.array([None, 1.0, 2.0, 3.0, None]).slice(1, 3)
    assert array.null_count == 0
    assert sum_of(make_statistic(0, 4, is_integer=True), array) == 6


def test_a_float32_is_compared_with_the_bounds_as_float64():
    inside, outside = make_statistic(0.0, float(np.float32(0.1)), Outside.TRUNCATE), make_statistic(0.0, 0.1, Outside.TRUNCATE)
    array = pa.array([np.float32(0.1)], pa.float32())
    assert sum_of(inside, array) == inside.grid.upper
    assert sum_of(outside, array) == 0  # float32(0.1) is above 0.1


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64()])
def test_integers_beyond_2_to_the_53_are_rounded_to_the_nearest_before_the_bounds_are_asked(kind: pa.DataType):
    statistic = make_statistic(0, 2.0**53, Outside.TRUNCATE)
    counted = [sum_of(statistic, pa.array([2**53 + more], kind)) > 0 for more in (0, 1, 2)]
    assert counted == [True, True, False]  # 2^53 + 1 becomes 2^53
    assert list(values_and_validity(pa.array([2**53 + 3, 2**62 + 1], kind))[0]) == [2.0**53 + 4, 2.0**62]


def test_the_largest_uint64_is_2_to_the_64():
    assert list(values_and_validity(pa.array([2**64 - 1, 2**63], pa.uint64()))[0]) == [2.0**64, 2.0**63]


def test_a_float16_is_widened_before_it_is_squared_or_divided():
    statistic = make_statistic(0, 2.0**-20)
    assert sum_of(statistic, pa.array([np.float16(60000)], pa.float16())) == statistic.grid.upper


def test_a_wide_decimal_is_rounded_once():
    with decimal.localcontext(prec=100):
        value = Decimal(2**53 + 1) + Decimal(10) ** -30
    converted, _ = values_and_validity(pa.array([value], pa.decimal256(60, 30)))
    assert converted[0] == float(value) == 2.0**53 + 2  # rounded to 28 digits first, it is a tie, and 2^53


def test_a_wide_decimal_does_not_depend_on_the_threads_decimal_context():
    array, _ = decimals(pa.decimal128(38, 2), [2**60 + 1, 10**30])
    expected = [float(Decimal(2**60 + 1) / 100), 1e28]
    with decimal.localcontext(prec=3, Emax=10, traps=[decimal.Inexact, decimal.Overflow, decimal.Rounded]):
        assert list(values_and_validity(array)[0]) == expected


@pytest.mark.parametrize("scale", [22, 23, 38, -22, -23, -300, -1000, 400])
def test_a_decimal_of_any_scale_is_converted_without_a_failure(scale: int):
    array, _ = decimals(pa.decimal128(38, scale), [7, -7, 0])
    assert list(values_and_validity(array)[0]) == [float(f"7e{-scale}"), -float(f"7e{-scale}"), 0.0]


NUMERIC = [array.type for array, _ in ARRAYS.values()]
OTHER = [
    *[pa.string(), pa.large_string(), pa.binary(), pa.null(), pa.date32(), pa.timestamp("us"), pa.time64("us"), pa.duration("s")],
    *[pa.list_(pa.int64()), pa.struct({"x": pa.int64()}), pa.dictionary(pa.int8(), pa.string()), pa.map_(pa.string(), pa.int8())],
]


@pytest.mark.parametrize("kind", NUMERIC, ids=str)
def test_numbers_are_numeric(kind: pa.DataType):
    assert is_numeric(kind)


@pytest.mark.parametrize("kind", OTHER, ids=str)
def test_text_times_and_nested_values_are_not_numeric(kind: pa.DataType):
    assert not is_numeric(kind)


@pytest.mark.parametrize("kind", [pa.decimal32(7, 2), pa.decimal64(16, 2)], ids=str)
def test_the_narrow_decimals_are_numbers_too(kind: pa.DataType):
    array = pa.array([Decimal("1.25"), None, Decimal("-3.5"), Decimal("12345.67")], kind)
    assert is_numeric(kind)
    assert sum_of(make_statistic(-3, 4), array) == total(make_statistic(-3, 4), [1.25, None, -3.5, 12345.67])


@LAW
@given(statistic=statistics(), data=st.data())
def test_the_kernel_computes_the_definition(statistic: BoundedSum, data: st.DataObject):
    chosen = edges(statistic) + data.draw(st.lists(records(statistic), max_size=20))
    values = [math.nan if record is None else record for record in chosen]
    expected = [contribution(statistic, record) for record in chosen]
    assert sum_of(statistic, pa.array(chosen, pa.float64())) == sum_of(statistic, pa.array(values)) == sum(expected)
    assert [sum_of(statistic, pa.array([value])) for value in values] == expected
    assert [int(c) for c in statistic.contributions(np.array(values))] == expected


@LAW
@given(statistic=statistics(), data=st.data())
def test_neighbours_are_never_further_apart_than_the_sensitivity_after_the_kernel(statistic: BoundedSum, data: st.DataObject):
    others = data.draw(st.lists(records(statistic), max_size=4))
    one, another = data.draw(records(statistic)), data.draw(records(statistic))
    at = data.draw(st.integers(0, len(others)))

    def summed(chosen: list[float | None]) -> int:
        return sum_of(statistic, pa.array(chosen, pa.float64()))

    here = summed([*others[:at], one, *others[at:]])
    if statistic.count_weight:
        moved = statistic.count_weight + abs(here - summed(others))
        assert moved <= statistic.sensitivity(Neighbours.ADD_REMOVE)
    else:
        moved = abs(here - summed([*others, another]))
        assert moved <= statistic.sensitivity(Neighbours.REPLACE)


@LAW
@given(data=st.data())
def test_the_total_is_the_same_under_any_slicing(data: st.DataObject):
    statistic = data.draw(st.sampled_from(STATISTICS))
    chosen = data.draw(st.lists(records(statistic), min_size=1, max_size=40))
    array = pa.array(chosen, pa.float64())
    cuts = sorted(data.draw(st.lists(st.integers(0, len(chosen)), max_size=6)))
    pieces = zip([0, *cuts], [*cuts, len(chosen)], strict=True)
    assert (
        sum(sum_of(statistic, array.slice(a, b - a)) for a, b in pieces) == sum_of(statistic, array) == total(statistic, chosen)
    )


def test_several_blocks_of_every_kind_of_value_sum_to_the_definition():
    rng = np.random.default_rng(11)
    values = rng.normal(50, 400, 3 * BLOCK + 17)
    values[rng.random(len(values)) < 0.05] = math.nan
    nulls = rng.random(len(values)) < 0.1
    nulls[BLOCK : 2 * BLOCK] = False  # a block without a null and one without a NaN between the others
    values[BLOCK : 2 * BLOCK] = np.nan_to_num(values[BLOCK : 2 * BLOCK])
    array = pa.array(values, mask=nulls)
    for statistic in STATISTICS:
        expected = int(statistic.contributions(np.where(nulls, math.nan, values)).sum())
        assert sum_of(statistic, array) == expected
        assert sum(sum_of(statistic, array.slice(start, 70_001)) for start in range(0, len(array), 70_001)) == expected


@pytest.mark.parametrize("top", [2**37 - 1, 2**37, 2**37 + 1, 2**44 + 1, 2**46 - 1])
def test_a_block_whose_sum_passes_2_to_the_53_is_summed_exactly(top: int):
    statistic = BoundedSum(
        column="x", bounds=Bounds(0, top), outside=Outside.CLAMP, grid=Grid(unit=1.0, lower=0, upper=top, origin=0)
    )
    cells = np.random.default_rng(3).integers(top - top // 8, top, BLOCK, endpoint=True) | 1
    cells[:] = np.minimum(cells, top)
    assert sum_of(statistic, pa.array(cells)) == sum(cells.tolist())
    assert sum_of(statistic, pa.array([top] * BLOCK)) == top * BLOCK
    with_nan = cells.astype(np.float64)
    with_nan[5] = math.nan
    assert sum_of(statistic, pa.array(with_nan)) == sum(cells.tolist()) - int(cells[5])


@pytest.mark.parametrize("outside", Outside)
@pytest.mark.parametrize("origin", [0, 2**50, -(2**50), 12345])
def test_indices_as_far_from_zero_as_a_grid_allows_are_summed_exactly(outside: Outside, origin: int):
    end = 2**50
    grid = Grid(unit=0.25, lower=-end, upper=end, origin=origin)
    statistic = BoundedSum(column="x", bounds=Bounds(-end / 4, end / 4), outside=outside, grid=grid)
    cells = [
        end,
        end - 0.5,
        end - 1.5,
        -end,
        0.5 - end,
        1.5 - end,
        end + 1,
        -end - 1,
        0.5,
        -0.5,
        1.5,
        1e300,
        -1e300,
        math.inf,
        None,
    ]
    values = [None if cell is None else cell / 4 for cell in cells]
    assert sum_of(statistic, pa.array(values)) == total(statistic, values)
    for value in values:
        assert sum_of(statistic, pa.array([value], pa.float64())) == contribution(statistic, value)


@pytest.mark.parametrize("unit", [2.0**-900, 2.0**900])
@pytest.mark.parametrize("outside", Outside)
def test_the_smallest_and_the_largest_unit_are_as_exact_as_any(unit: float, outside: Outside):
    grid = Grid(unit=unit, lower=-200, upper=300, origin=0)
    statistic = BoundedSum(column="x", bounds=Bounds(-200 * unit, 300 * unit), outside=outside, grid=grid)
    values = edges(statistic)
    for value in values:
        assert sum_of(statistic, pa.array([value], pa.float64())) == contribution(statistic, value)
    assert sum_of(statistic, pa.array(values, pa.float64())) == total(statistic, values)


def test_the_records_are_not_written_to():
    array = pa.array([5.0, -1e9, math.nan, 0.25])
    before = array.buffers()[1].to_pybytes()
    sum_of(STATISTICS[0], array)
    assert array.buffers()[1].to_pybytes() == before
