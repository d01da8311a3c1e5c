"""Lake: what the sources of table formats have in common; their packages are extras, imported where a table is opened."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pyarrow as pa

from dp_dask.core.where import Between, Condition, OneOf
from dp_dask.errors import SourceError
from dp_dask.private.arrow import is_date, is_numeric, is_text
from dp_dask.private.roles import check_role, listed

__all__ = ["check_columns", "import_extra", "is_comparable"]


def import_extra(module: str, extra: str) -> Any:
    """Import a module of a package that is not always installed; SourceError says which extra brings it."""
    try:
        return import_module(module)
    except ImportError:
        pass
    package = module.partition(".")[0]
    msg = f"a source of kind {extra} needs the package {package}, which is not installed here: pip install 'dp-dask[{extra}]'"
    raise SourceError(msg)


def check_columns(
    table: str, schema: pa.Schema, columns: list[str], texts: frozenset[str] = frozenset(), dates: frozenset[str] = frozenset()
) -> None:
    """Raise SourceError unless a table's schema has each column as what it is to be read as: texts, dates or numbers."""
    for column in columns:
        if column not in schema.names:
            msg = f"{table}: no column {column!r}; the table has: {listed(schema)}"
            raise SourceError(msg)
        check_role(schema.field(column).type, table, column, texts, dates)


def is_comparable(condition: Condition, kind: pa.DataType) -> bool:
    """Tell whether a condition can be looked at in a column of this type; where not, ``check_columns`` refuses it."""
    if isinstance(condition, OneOf):
        return is_text(kind) if condition.is_text else is_numeric(kind)
    if isinstance(condition, Between):
        return is_date(kind) if condition.is_date else is_numeric(kind)
    return is_text(kind) or is_numeric(kind)
