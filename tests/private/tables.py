"""Tables: small files to read, what a source makes of them, and a value to look for in everything that is said."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dp_dask.private.arrow import values_and_validity
from dp_dask.private.sources import Source, Split
from dp_dask.private.sources.csv import plugin as Csv  # noqa: N812
from dp_dask.private.sources.parquet import plugin as Parquet  # noqa: N812

CANARY = 987654321.125
CANARY_TEXT = "CANARY-7731"


def says_nothing(text: str) -> bool:
    """Tell whether neither canary is in a text, in whatever notation."""
    return "987654321" not in text and "9.876" not in text and "CANARY" not in text


def write(folder: Path, name: str, table: pa.Table | dict[str, Any], **options: Any) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(table) if isinstance(table, dict) else table, path, **options)
    return path


def write_text(folder: Path, text: str | bytes, name: str = "a.csv") -> Csv:
    """Write a file and return the source that reads its column x."""
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return Csv(path=path, columns={"x": "number"})


def read(source: Source, columns: Iterable[str] = ("x",), splits: list[Split] | None = None) -> tuple[list[Any], int]:
    """Return the values (one column: plain, several: tuples; None for a null) and the number of records."""
    columns = list(columns)
    found: list[Any] = []
    n_records = 0
    for split in source.plan() if splits is None else splits:
        for batch in source.read(split, columns):
            n_records += batch.n_records
            found.extend(zip(*[plain(batch.columns[column]) for column in columns], strict=True))
    return ([row[0] for row in found] if len(columns) == 1 else found), n_records


def plain(array: pa.Array) -> list[float | None]:
    values, valid = values_and_validity(array)
    return [float(v) if valid is None or valid[i] else None for i, v in enumerate(values)]


__all__ = ["CANARY", "CANARY_TEXT", "Csv", "Parquet", "plain", "read", "says_nothing", "write", "write_text"]
