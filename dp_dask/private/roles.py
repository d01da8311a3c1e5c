"""Roles: what a column is to be read as, a number, a text or a date, held against the type that a file or table has."""

from __future__ import annotations

import pyarrow as pa

from dp_dask.errors import SourceError
from dp_dask.private.arrow import is_date, is_numeric, is_text

__all__ = ["check_role", "listed"]

MOST_NAMES = 20


def listed(schema: pa.Schema) -> str:
    """Name the columns that there are, or the first of them."""
    return ", ".join(schema.names[:MOST_NAMES]) + (", .." if len(schema.names) > MOST_NAMES else "")


def check_role(kind: pa.DataType, name: str, column: str, texts: frozenset[str], dates: frozenset[str]) -> None:
    """Raise SourceError unless ``column`` of the file or table ``name``, of the type ``kind``, can be read as it is to be."""
    said = ""
    if column in dates:
        if not is_date(kind):
            said = ", and is compared with dates; give numbers or texts as it has them"
    elif column in texts:
        if not is_text(kind):
            said = "; its categories are texts: list them as the column has them"
    elif not is_numeric(kind):
        said = "; a measurement needs a number (integer, float, decimal or boolean)"
    if said:
        msg = f"{name}: column {column!r} is of type {kind}{said}"
        raise SourceError(msg)
