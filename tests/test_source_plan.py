"""What `dp-dask check` says of a source: types and names, and no statistic of the records."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import dp_dask
from private.tables import Csv, Parquet

from dp_dask.core.where import Between, OneOf, Where
from dp_dask.private import listing
from dp_dask.private.filtered import Filtered
from dp_dask.source_plan import SourcePlan, source_plan

FILE = """
dataset: {name: d, source: {kind: parquet, path: data}, unit: record, where: {s: [a], t: {from: 2026-01-01}}}
privacy: {neighbours: add_remove, expected_records: 100}
measurements:
  m: {model: exponential, column: x, bounds: [0, 5], epsilon: 0.5, prior: {alpha: 1, beta: 1}}
ledger: sqlite:///ledger.db
output: out
"""


def laid(folder: Path, rows: int, value: float) -> Path:
    """Write three files of so many records, of which the last one has the value."""
    for i in range(3):
        x = np.full(rows, value if i == 2 else 1.0)
        table = pa.table({"x": x, "s": ["a"] * rows, "t": pa.array([20_500] * rows, pa.date32()), "unused": x})
        (folder / f"g={i}").mkdir(parents=True, exist_ok=True)
        pq.write_table(table, folder / f"g={i}" / "part.parquet")
    return folder


def test_the_columns_that_are_used_and_the_splits_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    source = Parquet(path=laid(tmp_path, 10, 1.0))
    where = Where((OneOf("s", ("a",)), Between("t", 0, None, is_date=True)))
    names = ["g=0/part.parquet", "g=1/part.parquet", "g=2/part.parquet"]
    whole = SourcePlan({"s": "string", "t": "date32[day]", "x": "double"}, 1, (", ".join(names),))
    assert source_plan(Filtered(source, where), ["x"]) == whole
    assert source_plan(source, ["x", "g"]).columns == {"g": "string", "x": "double"}
    size = (tmp_path / names[0]).stat().st_size
    monkeypatch.setattr(listing, "SPLIT_BYTES", size - 1)
    cut = source_plan(source, ["x"])
    assert cut.splits == 6
    assert cut.first == (f"{names[0]} (piece 1 of 2)", f"{names[0]} (piece 2 of 2)", f"{names[1]} (piece 1 of 2)")


def test_many_files_of_a_split_are_not_all_named(tmp_path: Path):
    for i in range(9):
        (tmp_path / f"{i}.csv").write_text("x\n1\n")
    plan = source_plan(Csv(path=tmp_path, columns={"x": "number", "y": "text"}, missing=None), ["x", "y"])
    assert plan == SourcePlan({"x": "double", "y": "string"}, 1, ("0.csv, 1.csv, 2.csv and 6 more",))


def test_a_column_that_came_later_is_told_apart(tmp_path: Path):
    laid(tmp_path, 10, 1.0)
    pq.write_table(pa.table({"y": [1]}), tmp_path / "0.parquet")
    assert source_plan(Parquet(path=tmp_path, missing=None), ["x"]).columns == {"x": "not in the first file"}


def test_check_shows_them_as_a_table_and_as_json_and_nothing_of_the_records(tmp_path: Path):
    """The same for other numbers of records and other values: files' sizes, row counts and statistics are nowhere."""
    (tmp_path / "p.yaml").write_text(FILE)
    told = []
    for rows, value in ((10, 1.0), (4321, 987654.5)):
        laid(tmp_path / "data", rows, value)
        shown, as_json = dp_dask(tmp_path, "check", "p.yaml"), dp_dask(tmp_path, "check", "p.yaml", "--json")
        assert (shown.returncode, as_json.returncode) == (0, 0), shown.stderr + as_json.stderr
        told.append((shown.stdout, as_json.stdout))
    assert told[0] == told[1]
    assert re.search(r"^x +double *$", told[0][0], re.MULTILINE)
    assert re.search(r"^t +date32\[day\] *$", told[0][0], re.MULTILINE)
    assert "1 task would read: g=0/part.parquet, g=1/part.parquet, g=2/part.parquet\n" in told[0][0]
    assert json.loads(told[0][1])["source"] == {
        "columns": {"s": "string", "t": "date32[day]", "x": "double"},
        "splits": 1,
        "first": ["g=0/part.parquet, g=1/part.parquet, g=2/part.parquet"],
    }
