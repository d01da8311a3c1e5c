"""Groups: the column that names a record's group, and the public list of groups, from the file or from a public table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dp_dask.core.categories import MOST_CATEGORIES
from dp_dask.entries.build import Faults, build, show

__all__ = ["GroupBy", "read_group_by"]

READERS = ".csv (every value a text), .parquet (texts or whole numbers)"


@dataclass(frozen=True, slots=True)
class GroupBy:
    """The column that names a record's group, and the public list of groups."""

    column: str
    groups: tuple[str, ...] | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PublicTable:
    """A small file that anyone may see, and the column of it that lists the groups, each once or more often."""

    table: Path
    column: str


def read_group_by(given: Any, path: str, faults: Faults) -> GroupBy | None:
    """Read ``group_by``; None where there was a fault. A public table is read whole, and its list is part of the request."""
    if isinstance(given, dict) and isinstance(given.get("groups"), dict):
        listed = build(PublicTable, given["groups"], f"{path}.groups", faults)
        groups = None if listed is None else _groups_of(listed, f"{path}.groups", faults)
        if groups is None:
            return None
        given = {**given, "groups": groups}
    return build(GroupBy, given, path, faults)


def _groups_of(listed: PublicTable, path: str, faults: Faults) -> list[Any] | None:
    """Return the different values of the column in the order in which they come; a null is no group."""
    table = _read(listed.table)
    if isinstance(table, str):
        faults.add(f"{path}.table", f"{listed.table}: {table}")
        return None
    if table.column_names.count(listed.column) != 1:
        known = ", ".join(table.column_names[:20])
        faults.add(f"{path}.column", f"is {show(listed.column)}; {listed.table.name} has, each once: {known}")
        return None
    values = list(dict.fromkeys(value for value in table[listed.column].to_pylist() if value is not None))
    if not all(isinstance(value, str | int) and not isinstance(value, bool) for value in values):
        faults.add(f"{path}.column", f"{listed.column} of {listed.table.name} holds neither texts nor whole numbers")
        return None
    if len(values) > MOST_CATEGORIES:
        faults.add(f"{path}.column", f"{listed.column} lists {len(values)} groups; at most {MOST_CATEGORIES} are served")
        return None
    return values


def _read(file: Path) -> Any:
    """Return the table, or why there is none."""
    import pyarrow as pa  # noqa: PLC0415  (only where a table is named)
    import pyarrow.csv as pcsv  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    if not file.is_file():
        return f"cannot be read (no such file); give a public file: {READERS}"
    try:
        if file.suffix == ".parquet":
            return pq.read_table(file)
        if file.suffix == ".csv":
            names = pcsv.open_csv(file).schema.names
            texts = pcsv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=True)
            return pcsv.read_csv(file, convert_options=texts)
    except (OSError, pa.ArrowException):
        return f"cannot be read, or is not of its format; give a public file: {READERS}"
    return f"is of an unknown kind; give a public file: {READERS}"
