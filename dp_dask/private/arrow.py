"""Arrow arrays as float64 values and validity, exactly each type by one fixed rule.

The only file that knows buffers, offsets, limbs, runs and dictionaries. Conversion never raises on a value: pyarrow's own
casts quote the offending value in their error text.
"""

from __future__ import annotations

from decimal import Context, Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

__all__ = [
    "as_bytes",
    "days_and_validity",
    "is_date",
    "is_numeric",
    "is_text",
    "plain",
    "values_and_validity",
    "without_encoding",
]

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
EXACT = 2**53  # integers below are exact in float64
EXACT_POWER = 22  # 10^22 is the last power of ten that float64 holds exactly
PER_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
WIDE = Context(prec=80, Emin=-(10**6), Emax=10**6, traps=[])  # a decimal256 has 76 digits, the thread's own context 28


def is_numeric(kind: pa.DataType) -> bool:
    """Tell whether a column of this type can be summed; a type is schema and public."""
    kind = without_encoding(kind)
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean)
    return any(test(kind) for test in tests)


def is_text(kind: pa.DataType) -> bool:
    """Tell whether a column of this type holds texts."""
    if not _is_view(kind):  # which pyarrow does not decode
        kind = without_encoding(kind)
        return any(
            test(kind) for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
        )
    return True


def is_date(kind: pa.DataType) -> bool:
    """Tell whether a column of this type holds dates or instants; an instant without a zone is read as one of UTC."""
    return any(test(without_encoding(kind)) for test in (pa.types.is_date, pa.types.is_timestamp))


def without_encoding(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values of a column that lists each distinct one, or each run of equal ones, once."""
    return kind.value_type if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind) else kind


def plain(array: pa.Array) -> pa.Array:
    """Return an array that every function of pyarrow takes: runs of equal values decoded, views of texts as texts."""
    if pa.types.is_run_end_encoded(array.type):
        return pc.run_end_decode(array)
    return array.cast(pa.binary()) if _is_view(array.type) else array


def _is_view(kind: pa.DataType) -> bool:
    return pa.types.is_string_view(kind) or pa.types.is_binary_view(kind)


def as_bytes(array: pa.Array) -> pa.Array:
    """Return texts as bytes, of which a text that is not valid in its encoding is as good as any."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type):
        return array.view(pa.large_binary()).cast(pa.binary())
    return array.view(pa.binary())


def days_and_validity(array: pa.Array) -> tuple[Floats, Mask | None]:
    """Return the day (UTC) of each date or instant, counted from 1970-01-01, and which slots are not null (None: all)."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind = array.type
    if pa.types.is_date32(kind):
        per_day, stored = 1, pa.int32()
    else:
        per_day, stored = PER_DAY["ms" if pa.types.is_date64(kind) else kind.unit], pa.int64()
    data = array.buffers()[1]
    if data is None or len(array) == 0:
        return np.zeros(len(array)), _validity(array)
    raw = np.frombuffer(data, dtype=stored.to_pandas_dtype())[array.offset : array.offset + len(array)]
    return (raw // per_day).astype(np.float64), _validity(array)


def values_and_validity(array: pa.Array) -> tuple[Floats, Mask | None]:
    """Return each slot's value, rounded to the nearest float64, and which slots are not null (None: all).

    A null slot's value is arbitrary. The values may share the array's memory: do not write to them.
    """
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()  # also brings out nulls inside the dictionary
    if pa.types.is_decimal32(array.type) or pa.types.is_decimal64(array.type):
        array = array.cast(pa.decimal128(array.type.precision, array.type.scale))  # wider: fails for no value
    kind = array.type
    valid = _validity(array)
    if pa.types.is_boolean(kind):
        return _bits(array.buffers()[1], array.offset, len(array)).astype(np.float64), valid
    if pa.types.is_decimal(kind):
        return _decimals(array), valid
    dtype = np.dtype(kind.to_pandas_dtype())
    data = array.buffers()[1]
    if data is None or len(array) == 0:
        return np.zeros(len(array)), valid
    raw = np.frombuffer(data, dtype=dtype)[array.offset : array.offset + len(array)]
    with np.errstate(all="ignore"):
        return raw.astype(np.float64, copy=False), valid


def _validity(array: pa.Array) -> Mask | None:
    bitmap = array.buffers()[0]
    if bitmap is None or array.null_count == 0:
        return None
    return _bits(bitmap, array.offset, len(array))


def _bits(bitmap: pa.Buffer | None, offset: int, length: int) -> Mask:
    if bitmap is None:
        return np.zeros(length, dtype=np.bool_)
    first = offset // 8
    raw = np.frombuffer(bitmap, dtype=np.uint8)[first : (offset + length + 7) // 8]
    start = offset - 8 * first
    return np.unpackbits(raw, bitorder="little")[start : start + length].view(np.bool_)


def _decimals(array: pa.Array) -> Floats:
    """Divide the integer by its power of ten, one correctly rounded operation; beyond 2^53, Python's decimal does it."""
    scale = array.type.scale
    n_limbs = array.type.byte_width // 8
    limbs = np.frombuffer(array.buffers()[1], dtype=np.int64).reshape(-1, n_limbs)
    limbs = limbs[array.offset : array.offset + len(array)]
    low = limbs[:, 0]
    with np.errstate(all="ignore"):
        power = np.float64(10.0) ** abs(scale)
        values = low / power if scale >= 0 else low * power
    exact = (low > -EXACT) & (low < EXACT)
    for j in range(1, n_limbs):
        exact &= limbs[:, j] == low >> 63
    if abs(scale) > EXACT_POWER:
        exact[:] = False
    for i in np.flatnonzero(~exact):
        # A null slot is read here as well: its bytes decide nothing, but must not stop the run.
        value = 0
        for j in reversed(range(n_limbs)):
            limb = int(limbs[i, j])
            value = limb if j == n_limbs - 1 else (value << 64) | (limb & (2**64 - 1))
        values[i] = float(WIDE.scaleb(Decimal(value), -scale)) if abs(value) < 10**78 else np.nan
    return values
