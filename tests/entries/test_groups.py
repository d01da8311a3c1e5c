"""Groups from a public table: its values as they are written, every fault by name, and the sums of a thousand groups."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import dp_dask

from dp_dask.core.bounds import Bounds, Outside
from dp_dask.core.categories import CategoryCounts
from dp_dask.core.grid import choose_grid
from dp_dask.core.grouped import GroupedSum
from dp_dask.core.privacy import Neighbours
from dp_dask.core.statistic import BoundedSum
from dp_dask.entries.build import Faults
from dp_dask.entries.groups import read_group_by
from dp_dask.private.kernels import new_scratch
from dp_dask.private.sums import sum_batch


def read(folder, given):
    faults = Faults(folder)
    made = read_group_by(given, "m.group_by", faults)
    return made, "\n".join(f"{problem.path}: {problem.message}" for problem in faults.problems)


def test_a_text_file_lists_texts_each_once_in_order(tmp_path):
    (tmp_path / "sites.csv").write_text("site,name\n01,a\n1,b\n,c\n01,d\nNA x,e\n")
    made, told = read(tmp_path, {"column": "s", "groups": {"table": "sites.csv", "column": "site"}})
    assert told == ""
    assert (made.column, made.groups) == ("s", ("01", "1", "NA x"))


def test_a_parquet_file_lists_whole_numbers_or_texts(tmp_path):
    pq.write_table(pa.table({"i": pa.array([3, None, 1, 3], pa.int16()), "g": ["b", "a", "b", None]}), tmp_path / "a.parquet")
    for column, groups in (("i", (3, 1)), ("g", ("b", "a"))):
        made, told = read(tmp_path, {"column": "s", "groups": {"table": "a.parquet", "column": column}})
        assert (told, made.groups) == ("", groups)


@pytest.mark.parametrize(
    ("groups", "told"),
    [
        ({"table": "none.csv", "column": "i"}, "none.csv: cannot be read (no such file); give a public file"),
        (
            {"table": "bad.parquet", "column": "i"},
            "bad.parquet: cannot be read, or is not of its format; give a public file: .csv",
        ),
        ({"table": "a.txt", "column": "i"}, "a.txt: is of an unknown kind; give a public file: .csv"),
        ({"table": "a.csv", "column": "j"}, "m.group_by.groups.column: is 'j'; a.csv has, each once: i, x, x"),
        ({"table": "a.csv", "column": "x"}, "m.group_by.groups.column: is 'x'; a.csv has, each once: i, x, x"),
        ({"table": "f.parquet", "column": "f"}, "f of f.parquet holds neither texts nor whole numbers"),
        ({"table": "f.parquet", "column": "many"}, "many lists 100001 groups; at most 100000 are served"),
        ({"table": "a.csv"}, "m.group_by.groups.column: is missing"),
        ({"tabel": "a.csv", "column": "i"}, "m.group_by.groups.tabel: unknown key; did you mean 'table'?"),
    ],
)
def test_what_is_no_list_of_groups_is_refused_by_name(tmp_path, groups, told):
    (tmp_path / "a.csv").write_text("i,x,x\n1,2,3\n")
    (tmp_path / "bad.parquet").write_text("no")
    (tmp_path / "a.txt").write_text("i\n1\n")
    pq.write_table(pa.table({"f": np.arange(100_001) / 2, "many": np.arange(100_001)}), tmp_path / "f.parquet")
    made, found = read(tmp_path, {"column": "s", "groups": groups})
    assert made is None
    assert told in found


@pytest.mark.parametrize("kind", ["int", "sparse", "text", "dictionary", "dictionary of int"])
def test_a_thousand_groups_have_the_sums_of_plain_python(kind):
    rng = np.random.default_rng(4)
    bounds = Bounds(0, 8)
    grid = choose_grid(bounds, outside=Outside.CLAMP, neighbours=Neighbours.ADD_REMOVE, is_integer=True, epsilon=1.0, n=None)
    within = BoundedSum(column="x", bounds=bounds, outside=Outside.CLAMP, grid=grid, count_weight=3)
    numbers = [int(i) for i in rng.choice(2**40 if kind == "sparse" else 3000, 1000, replace=False)]
    groups = tuple(f"g{i}" for i in numbers) if kind in {"text", "dictionary"} else tuple(numbers)
    of_each = [
        None if i % 7 == 0 else groups[i % 1000] if i % 5 else "other" if isinstance(groups[0], str) else -1 for i in range(9000)
    ]
    x = rng.integers(-2, 12, 9000)
    column = pa.array(of_each)
    column = column.dictionary_encode() if kind.startswith("dictionary") else column
    found = sum_batch(
        GroupedSum(within=within, by=CategoryCounts(column="g", categories=groups)),
        {"x": pa.array(x), "g": column},
        new_scratch(),
    )
    expected = {group: [0, 0] for group in groups}
    for value, group in zip(x, of_each, strict=True):
        if group in expected:
            expected[group][0] += int(within.contributions(np.array([float(value)]))[0])
            expected[group][1] += 3
    assert list(found) == [value for pair in expected.values() for value in pair]


def test_a_run_has_a_posterior_for_each_group_of_the_table(tmp_path):
    (tmp_path / "sites.csv").write_text("site\nn\ns\nempty\n")
    (tmp_path / "data").mkdir()
    pq.write_table(pa.table({"x": [1, 0, 1, 1, 0], "g": ["n", "n", "s", None, "elsewhere"]}), tmp_path / "data" / "a.parquet")
    (tmp_path / "p.yaml").write_text("""
dataset: {name: people, source: {kind: parquet, path: data}, unit: record}
privacy: {neighbours: add_remove, expected_records: 5}
measurements:
  m: {model: bernoulli, column: x, epsilon: 1000, prior: {alpha: 1, beta: 1},
      group_by: {column: g, groups: {table: sites.csv, column: site}}}
ledger: sqlite:///ledger.db
output: out
""")
    dp_dask(tmp_path, "ledger", "init", "p.yaml", "--epsilon", "1000")
    done = dp_dask(tmp_path, "run", "p.yaml", "--json")
    assert done.returncode == 0, done.stderr
    made = json.loads(next((tmp_path / "out").rglob("release.json")).read_text())["measurements"]["m"]["release"]
    assert made["request"]["statistic"]["by"]["categories"] == ["n", "s", "empty"]
    weight = made["request"]["statistic"]["within"]["count_weight"]
    assert made["noisy_sums"][1::2] == [2 * weight, weight, 0]
    assert "p[empty]" in done.stdout


def test_a_url_in_place_of_a_path_is_refused_without_being_repeated(tmp_path):
    made, told = read(tmp_path, {"column": "s", "groups": {"table": "s3://KEY:SECRET@bucket/a.csv", "column": "i"}})
    assert made is None
    assert "m.group_by.groups.table: is a URL; give the path of a file or folder" in told
    assert "SECRET" not in told
