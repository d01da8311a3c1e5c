"""Files of one folder that differ in their columns: each is read as it is, filled up, or refused, as the pipeline file says."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.ipc as pai
import pytest
from core.exact import make_statistic
from private.tables import CANARY, Csv, Parquet, read, says_nothing, write

from dp_dask.core.where import Between, Known, Where
from dp_dask.entries.build import Faults
from dp_dask.entries.dataset import make_source
from dp_dask.entries.strict_yaml import parse
from dp_dask.errors import SourceError
from dp_dask.private.filtered import Filtered
from dp_dask.private.reduce import Failure, reduce_split
from dp_dask.private.sources import Source
from dp_dask.private.sources.ipc import plugin as Ipc  # noqa: N812
from dp_dask.schema import schema

KINDS = ["parquet", "ipc", "csv"]


def laid(folder: Path, kind: str, files: dict[str, dict[str, list]], **options) -> Source:
    for name, columns in files.items():
        table = pa.table(columns)
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "parquet":
            write(folder, name, table)
        elif kind == "ipc":
            with pai.new_file(str(path), table.schema) as writer:
                writer.write_table(table)
        else:
            rows = [",".join("" if value is None else str(value) for value in row.values()) for row in table.to_pylist()]
            path.write_text("\n".join([",".join(columns), *rows, ""]))
    if kind == "csv":
        return Csv(path=folder, columns={"x": "number", "t": "date", "s": "text", "y": "number"}, **options)
    return {"parquet": Parquet, "ipc": Ipc}[kind](path=folder, **options)


def both_say(source: Source, column: str = "x") -> str:
    """Return what a worker says of the first file that fails."""
    outcomes = [reduce_split(source, split, [make_statistic(0, 1, column=column)]) for split in source.plan()]
    failures = [outcome.message for outcome in outcomes if isinstance(outcome, Failure)]
    assert failures
    assert says_nothing(failures[0])
    return failures[0]


def from_yaml(folder: Path, text: str):
    faults = Faults(folder)
    made = make_source(parse(text, "p.yaml"), faults)
    return made, "\n".join(map(str, faults.problems))


# Files that lack a column

LACKING = {"1": {"y": [CANARY, CANARY]}, "2": {"x": [1.0, None], "y": [1.0, 2.0]}, "3": {"y": [3.0]}}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("missing", [None, "null"])
def test_a_file_without_the_column_has_nulls_where_that_is_asked_for(tmp_path: Path, kind: str, missing: str | None):
    source = laid(tmp_path, kind, LACKING, missing=missing)
    source.check(["x"])
    assert read(source) == ([None, None, 1.0, None, None], 5)
    assert read(source, ["x", "y"])[0] == [(None, CANARY), (None, CANARY), (1.0, 1.0), (None, 2.0), (None, 3.0)]


@pytest.mark.parametrize("kind", KINDS)
def test_and_is_refused_otherwise(tmp_path: Path, kind: str):
    source = laid(tmp_path, kind, LACKING)
    assert both_say(source).startswith("1: ")
    with pytest.raises(SourceError, match=r"^1: .*(no column 'x'; the file has: y|lacks one of the columns x)"):
        source.check(["x"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_column_that_no_file_has_is_a_misspelling(tmp_path: Path, kind: str):
    source = laid(tmp_path, kind, {"1": {"y": [1]}, "2": {"y": [1]}}, missing=None)
    with pytest.raises(SourceError, match="no file has a column 'x'; correct its name"):
        source.check(["x", "y"])


@pytest.mark.parametrize("kind", KINDS)
def test_texts_and_dates_are_filled_up_too(tmp_path: Path, kind: str):
    files = {"1": {"x": [1.0, 2.0]}, "2": {"x": [3.0], "t": pa.array([2], pa.date32()), "s": ["a"]}}
    source = laid(tmp_path, kind, files, missing=None)
    texts, dates = frozenset({"s"}), frozenset({"t"})
    source.check(["s", "t", "x"], texts, dates)
    batches = [batch for split in source.plan() for batch in source.read(split, ["s", "t", "x"], texts, dates)]
    assert [batch.columns["s"].is_valid().to_pylist() for batch in batches if batch.n_records] == [[False] * 2, [True]]
    for where in (Between("t", 0, 5, is_date=True), Known("x")):
        values, n_records = read(Filtered(source, Where((where,))))
        assert (values, n_records) == (([3.0], 1) if where.column == "t" else ([1.0, 2.0, 3.0], 3))


def test_a_partition_key_may_be_missing_too(tmp_path: Path):
    source = laid(tmp_path, "parquet", {"a": {"x": [1.0]}, "g=k/b": {"x": [2.0]}}, missing=None)
    texts = frozenset({"g"})
    source.check(["g"], texts)
    batches = [batch for split in source.plan() for batch in source.read(split, ["g"], texts)]
    assert [value for batch in batches for value in batch.columns["g"].to_pylist()] == [None, "k"]


def test_csv_records_are_counted_where_no_column_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Lines of the wrong width too, and whatever the other columns hold further down."""
    monkeypatch.setattr("dp_dask.private.sources.csv.BLOCK_BYTES", 40)
    source = laid(tmp_path, "csv", {"b": {"x": [1.0]}}, missing=None)
    (tmp_path / "a").write_text("y,y\n1,2\n3\n4,5\n" + "6,7\n" * 90 + "a,b\n")
    assert read(source) == ([None] * 93 + [1.0], 95)


# Types that are pinned


@pytest.mark.parametrize("kind", ["parquet", "ipc"])
def test_a_file_of_another_type_is_refused_by_file_column_and_both_types(tmp_path: Path, kind: str):
    files = {"1": {"x": pa.array([1, 2])}, "2": {"x": pa.array([CANARY])}}
    laid(tmp_path, kind, files).check(["x"])
    assert len(read(laid(tmp_path, kind, files))[0]) == 3
    source = laid(tmp_path, kind, files, types={"x": "int64"})
    source.check(["x"])
    said = "2: column 'x' is of type double, pinned as int64; convert it, or change source.schema"
    assert both_say(source) == said
    with pytest.raises(SourceError, match="1: column 'x' is of type int64, pinned as float64"):
        laid(tmp_path, kind, files, types={"x": "float64"}).check(["x"])


@pytest.mark.parametrize("kind", ["parquet", "ipc"])
def test_a_pinned_column_is_looked_at_where_it_is_not_read_and_must_be_there(tmp_path: Path, kind: str):
    files = {"1": {"x": pa.array([1]), "y": ["a"]}, "2": {"x": pa.array([1]), "y": [1]}, "3": {"x": pa.array([1])}}
    assert "2: column 'y' is of type int64, pinned as string" in both_say(laid(tmp_path, kind, files, types={"y": "string"}))
    del files["2"]
    (tmp_path / "2").unlink()
    source = laid(tmp_path, kind, files, types={"y": "string"})
    assert "3: no column 'y'" in both_say(source)
    assert read(laid(tmp_path, kind, files, types={"y": "string"}, missing=None)) == ([1.0, 1.0], 2)


PINS = {
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "uint64": pa.uint64(),
    "float16": pa.float16(),
    "float64": pa.float64(),
    "double": pa.float64(),
    "string": pa.string(),
    "large_string": pa.large_string(),
    "string_view": pa.string_view(),
    "binary": pa.binary(),
    "date32": pa.date32(),
    "date32[day]": pa.date32(),
    "timestamp[us]": pa.timestamp("us"),
    "timestamp[ns, Europe/Berlin]": pa.timestamp("ns", "Europe/Berlin"),
    "timestamp[ms, tz=UTC]": pa.timestamp("ms", "UTC"),
    "decimal32(5, 2)": pa.decimal32(5, 2),
    "decimal128(38,0)": pa.decimal128(38, 0),
    "decimal256(50, -3)": pa.decimal256(50, -3),
}


@pytest.mark.parametrize("name", PINS)
def test_every_type_can_be_pinned_by_arrows_name(tmp_path: Path, name: str):
    array = pa.array([None], PINS[name])
    texts = frozenset({"x"}) if "string" in name or name == "binary" else frozenset()
    dates = frozenset({"x"}) if "date" in name or "time" in name else frozenset()
    laid(tmp_path, "ipc", {"1": {"x": array}}, types={"x": name}).check(["x"], texts, dates)
    laid(tmp_path, "ipc", {"1": {"x": array}}, types={"x": str(array.type)}).check(["x"], texts, dates)
    with pytest.raises(SourceError, match="pinned as uint8"):
        laid(tmp_path, "ipc", {"1": {"x": array}}, types={"x": "uint8"}).check(["x"], texts, dates)


def test_how_values_are_encoded_is_no_type(tmp_path: Path):
    files = {"1": {"x": pa.array([1, 1])}, "2": {"x": pa.array([1, 1]).dictionary_encode()}}
    files["3"] = {"x": pa.RunEndEncodedArray.from_arrays(pa.array([2], pa.int32()), pa.array([1]))}
    assert read(laid(tmp_path, "ipc", files, types={"x": "int64"})) == ([1.0] * 6, 6)


@pytest.mark.parametrize(
    "name", ["number", "", "decimal128(99, 2)", "decimal(9, 2)", "timestamp[h]", "int", "list<int64>", "float65"]
)
def test_an_unknown_type_is_refused_in_the_file(tmp_path: Path, name: str):
    made, faults = from_yaml(tmp_path, f"{{kind: parquet, path: data, schema: {{x: '{name}'}}}}")
    assert made is None
    assert f"dataset.source: schema: the type of 'x' is {name!r}; give one of Arrow's, such as int64" in faults


def test_the_typesfor_editors_has_the_same_options():
    forms = schema()["properties"]["dataset"]["properties"]["source"]["oneOf"]
    by_kind = {form["properties"]["kind"]["const"]: form for form in forms}
    common = {"kind", "path", "filesystem", "missing", "split_bytes"}
    assert by_kind["parquet"]["properties"].keys() == by_kind["ipc"]["properties"].keys() == common | {"schema"}
    assert by_kind["csv"]["properties"].keys() > common
    assert by_kind["parquet"]["required"] == ["kind", "path"]
    filesystem = by_kind["parquet"]["properties"]["filesystem"]
    assert filesystem["properties"].keys() == {"endpoint", "region", "scheme", "anonymous"}
    assert not filesystem["additionalProperties"]


def test_the_options_in_a_pipeline_file(tmp_path: Path):
    for kind, rest in (("parquet", ""), ("ipc", ""), ("csv", ", columns: {x: number}")):
        made, faults = from_yaml(tmp_path, f"{{kind: {kind}, path: data, missing: null{rest}}}")
        assert faults == ""
        assert made.missing is None
    made, faults = from_yaml(tmp_path, "{kind: parquet, path: data, schema: {x: float64, t: 'timestamp[us, UTC]'}}")
    assert faults == ""
    assert made.types == {"x": "float64", "t": "timestamp[us, UTC]"}
    for text, said in {
        "{kind: parquet, path: data, missing: nul}": "dataset.source.missing: is 'nul'; it should be 'refuse' or 'null'",
        "{kind: parquet, path: data, types: {x: int64}}": "dataset.source.types: unknown key; known keys: path, filesystem,",
        "{kind: parquet, path: data, schema: [x]}": "dataset.source.schema: is ['x']; it should be a valid dictionary",
        "{kind: csv, path: data, columns: {x: number}, schema: {x: int64}}": "dataset.source.schema: unknown key",
    }.items():
        made, faults = from_yaml(tmp_path, text)
        assert made is None
        assert faults.startswith(said)


def test_a_partition_key_can_be_pinned_as_the_text_it_is(tmp_path: Path):
    files = {"g=a/1": {"x": [1.0]}}
    assert read(laid(tmp_path, "parquet", files, types={"g": "string"})) == ([1.0], 1)
    with pytest.raises(SourceError, match="column 'g' is of type string, pinned as int64"):
        laid(tmp_path, "parquet", files, types={"g": "int64"}).check(["x"])
