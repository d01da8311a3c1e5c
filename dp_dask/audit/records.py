"""Records that the audit makes up, all but one of them always the same, and the values that this one takes in turn."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dp_dask.audit.examples import N

__all__ = ["COLUMNS", "CSV_LINES", "VALUES", "rows", "source", "write"]

FILES = 3
PLACE = 4  # of the record that changes, in the first file


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its type, a small and a large value within the examples' bounds, and one between."""

    kind: pa.DataType
    small: Any
    large: Any
    between: Any


COLUMNS = {
    "count": Column(pa.int64(), 0, 30, 22),
    "binary": Column(pa.int64(), 0, 1, 1),
    "colour": Column(pa.string(), "a", "b", "c"),
    "positive": Column(pa.float64(), 0.1, 9.0, 2.5),
    "real": Column(pa.float64(), -4.0, 5.0, 0.3),
    "share": Column(pa.float64(), 0.02, 0.98, 0.5),
    "above": Column(pa.float64(), 2.0, 40.0, 5.0),
    "x": Column(pa.float64(), 0.0, 5.0, 2.2),
    "day": Column(pa.float64(), 0.0, 24.0, 11.0),
    "y": Column(pa.float64(), -3.0, 3.0, 0.7),
    "cluster": Column(pa.float64(), 1.0, 2.0, 77.0),
    "week": Column(pa.float64(), 0.0, 10.0, 3.0),
}
BEYOND = {pa.int64(): (2**62, -(2**62)), pa.string(): ("unlisted", ""), pa.float64(): (1e300, -1e300)}
STRANGE = {"NaN": math.nan, "infinite": math.inf, "minus infinite": -math.inf, "minus 0": -0.0}
Row = dict[str, Any]


def _values() -> dict[str, Row]:
    found = {name: {key: getattr(c, name) for key, c in COLUMNS.items()} for name in ("small", "large", "between")}
    found["beyond the bounds"] = {key: BEYOND[c.kind][0] for key, c in COLUMNS.items()}
    found["below the bounds"] = {key: BEYOND[c.kind][1] for key, c in COLUMNS.items()}
    found["null"] = dict.fromkeys(COLUMNS)
    for name, value in STRANGE.items():
        found[name] = {key: value if c.kind == pa.float64() else None for key, c in COLUMNS.items()}
    # At opposite bounds in columns that are multiplied with each other, and in another group of records.
    found["large and small in turn"] = {key: (c.large, c.small)[i % 2] for i, (key, c) in enumerate(COLUMNS.items())}
    found["small and large in turn"] = {key: (c.small, c.large)[i % 2] for i, (key, c) in enumerate(COLUMNS.items())}
    return found


VALUES = _values()
WIDTH = len(COLUMNS)
CSV_LINES = {
    "text in every column": ",".join(["abc"] * WIDTH),
    "a number of 400 digits": ",".join(["9" * 400] * WIDTH),
    "hexadecimal": ",".join(["0x1F"] * WIDTH),
    "a line too short": "1,2",
    "a line too long": ",".join(["1"] * (WIDTH + 3)),
    "no fields": "," * (WIDTH - 1),
    "bytes that are no text": ",".join(["\udcff\udcfe"] * WIDTH),
}  # values of one record that a text file may hold, and no Parquet file


def _others(seed: int) -> list[Row]:
    """The records that never change: values inside the bounds, a few at and beyond them."""
    rng = np.random.default_rng([seed, N])
    rows = [{key: (c.small, c.large, c.between)[rng.integers(3)] for key, c in COLUMNS.items()} for _ in range(N - 1)]
    for key in ("cluster", "week"):
        for row in rows:
            row[key] = float(rng.integers(1, 5))
    return rows


def source(kind: str, folder: Path) -> dict[str, Any]:
    """Return the entry of a source of this kind in a pipeline file."""
    if kind == "parquet":
        return {"kind": kind, "path": str(folder)}
    return {
        "kind": kind,
        "path": str(folder),
        "columns": {key: "text" if c.kind == pa.string() else "number" for key, c in COLUMNS.items()},
    }


def rows(seed: int, record: Row | str | None) -> list[Any]:
    """Return all records, among them one of these values or, as text, of this line; without it where it is None."""
    found: list[Any] = _others(seed)
    if record is not None:
        found.insert(PLACE, record)
    return found


def write(kind: str, folder: Path, seed: int, record: Row | str | None) -> None:
    """Write all records, the one that changes in the first of three files."""
    every = rows(seed, record)
    size = N // FILES - (record is None)
    parts = [every[:size], every[size : size + N // FILES], every[size + N // FILES :]]
    folder.mkdir()
    for i, part in enumerate(parts):
        if kind == "parquet":
            columns = {key: pa.array([row[key] for row in part], c.kind) for key, c in COLUMNS.items()}
            pq.write_table(pa.table(columns), folder / f"part-{i}.parquet")
        else:
            lines = [",".join(COLUMNS), *map(_line, part)]
            text = "\n".join(lines) + "\n"
            (folder / f"part-{i}.csv").write_bytes(text.encode("utf-8", "surrogateescape"))


def _line(row: Row | str) -> str:
    if isinstance(row, str):
        return row
    return ",".join("" if row[key] is None else str(row[key]) for key in COLUMNS)
