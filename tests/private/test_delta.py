from __future__ import annotations

import datetime as dt
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from core.exact import make_statistic
from deltalake import DeltaTable, write_deltalake
from private.lakes import add, beside, column, compare_narrowed, head, inline, log, many, remove, rows_of
from private.tables import CANARY, Parquet, read, says_nothing

from dp_dask.core.where import Between, OneOf, Where
from dp_dask.errors import SourceError
from dp_dask.private.filtered import Filtered
from dp_dask.private.reduce import Failure, reduce_split
from dp_dask.private.sources.delta import plugin as Delta  # noqa: N812

VECTORS = ("deletionVectors",)
LONG = 300_000  # records: more than two batches


def scanned(path: Path, columns: list[str], at: int | None = None) -> list[tuple]:
    """What deltalake's own engine reads: another implementation of the same format."""
    found = pa.table(DeltaTable(path, version=at).scan(columns))
    return list(zip(*[found[name].to_pylist() for name in columns], strict=True))


def refusal(path: Path, columns: tuple[str, ...] = ("x",), at: int | None = None) -> str:
    with pytest.raises(SourceError) as caught:
        rows_of(Delta(path=path, at=at), list(columns))
    assert says_nothing(str(caught.value))
    assert caught.value.__context__ is None
    return str(caught.value)


# Versions


def test_the_newest_version_is_read_or_the_one_that_is_given(tmp_path: Path):
    for values in ([1.0, None], [3.0]):
        write_deltalake(tmp_path, pa.table({"x": pa.array(values, pa.float64())}), mode="append")
    assert sorted(rows_of(Delta(path=tmp_path), ["x"])[0], key=str) == [(1.0,), (3.0,), (None,)]
    assert rows_of(Delta(path=tmp_path, at=0), ["x"]) == ([(1.0,), (None,)], 2)


def test_a_pinned_source_stays_at_its_version_while_the_table_goes_on(tmp_path: Path):
    write_deltalake(tmp_path, pa.table({"x": [1.0]}))
    with Delta(path=tmp_path).pinned() as held:
        state = held.version()
        write_deltalake(tmp_path, pa.table({"x": [2.0]}), mode="overwrite")
        assert held.snapshot == "delta version 0"
        assert held.version() == state != Delta(path=tmp_path).version()
        assert read(held) == ([1.0], 1)
    with Delta(path=tmp_path).pinned() as held:
        assert held.snapshot == "delta version 1"
        assert read(held) == ([2.0], 1)


def test_a_version_is_the_same_after_a_move_and_a_checkpoint_and_another_in_a_copy_that_goes_on(tmp_path: Path):
    first, second = tmp_path / "a", tmp_path / "b"
    write_deltalake(first, pa.table({"x": [1.0]}))
    state = Delta(path=first).version()
    DeltaTable(first).create_checkpoint()
    shutil.copytree(first, second)
    assert Delta(path=second).version() == Delta(path=first).version() == state
    write_deltalake(first, pa.table({"x": [2.0]}), mode="append")
    write_deltalake(second, pa.table({"x": [3.0, 4.0, 5.0]}), mode="append")
    assert Delta(path=first, at=0).version() == state
    assert Delta(path=second).version() != Delta(path=first).version()


def test_another_table_in_the_same_place_is_not_read_for_the_first(tmp_path: Path):
    write_deltalake(tmp_path / "t", pa.table({"x": [1.0]}))
    with Delta(path=tmp_path / "t").pinned() as held:
        shutil.rmtree(tmp_path / "t")
        write_deltalake(tmp_path / "t", pa.table({"x": [2.0]}))
        with pytest.raises(SourceError, match="another table has taken this one's place"):
            held.plan()


def test_what_cannot_be_read_is_refused_by_name(tmp_path: Path):
    assert refusal(tmp_path / "no").endswith("no: no Delta table; give the folder that holds _delta_log")
    assert "no Delta table" in refusal(tmp_path)
    write_deltalake(tmp_path, pa.table({"x": [CANARY], "s": ["CANARY"]}))
    assert "version 7 of this Delta table cannot be read; give the number of one that is kept" in refusal(tmp_path, at=7)
    assert refusal(tmp_path, ("y",)) == f"{tmp_path.name}: no column 'y'; the table has: x, s"
    assert f"{tmp_path.name}: column 's' is of type string; a measurement needs a number" in refusal(tmp_path, ("s",))
    with pytest.raises(ValueError, match="version is -1; give a version of the table, 0 or more"):
        Delta(path=tmp_path, at=-1)


def test_a_folder_whose_name_the_engine_would_misread_is_refused(tmp_path: Path):
    """It would open the folder ``a b`` in place of this one."""
    for name, value in (("a b", CANARY), ("a%20b", 1.0)):
        log(tmp_path / name, 0, [*head([column("x", "double")]), add(tmp_path / name, "a.parquet", pa.table({"x": [value]}))])
    assert "a % in a folder's name is read as a code" in refusal(tmp_path / "a%20b")


@pytest.mark.parametrize("feature", ["typeWidening", "notKnownYet"])
def test_a_reader_feature_that_is_not_supported_is_refused_by_its_name(tmp_path: Path, feature: str):
    log(tmp_path, 0, [*head([column("x", "double")], features=[feature]), add(tmp_path, "a.parquet", pa.table({"x": [CANARY]}))])
    assert f"the table needs the reader feature {feature}, which this source does not have" in refusal(tmp_path)


def test_a_table_that_a_catalog_manages_is_refused(tmp_path: Path):
    log(tmp_path, 0, [*head([column("x", "double")], features=["catalogManaged"]), add(tmp_path, "a", pa.table({"x": [CANARY]}))])
    assert "the table is managed by a catalog, and what its folder holds may not be its newest version" in refusal(tmp_path)


def test_features_that_do_not_change_what_is_read_are_no_obstacle(tmp_path: Path):
    features = ["v2Checkpoint", "vacuumProtocolCheck", "timestampNtz"]
    log(tmp_path, 0, [*head([column("x", "double")], features=features), add(tmp_path, "a.parquet", pa.table({"x": [2.0]}))])
    assert rows_of(Delta(path=tmp_path), ["x"]) == ([(2.0,)], 1)


def test_a_file_that_is_gone_or_broken_is_named(tmp_path: Path):
    write_deltalake(tmp_path, pa.table({"x": [CANARY]}))
    (name,) = [path for path in tmp_path.iterdir() if path.suffix == ".parquet"]
    name.write_bytes(name.read_bytes()[:50])
    assert refusal(tmp_path) == f"{name.name}: not a readable Parquet file (cut short, empty or encrypted)"
    name.unlink()
    assert refusal(tmp_path) == f"{name.name}: it is gone: this version of the table was vacuumed; give a newer one"


def test_a_log_that_names_a_file_twice_or_on_another_system_is_refused(tmp_path: Path):
    once = add(tmp_path, "a.parquet", pa.table({"x": [1.0]}))
    for i, path in enumerate(["s3://bucket/a.parquet", (tmp_path / "0/a.parquet").as_uri()]):
        root = tmp_path / str(i)
        other = {"add": {**once["add"], "path": path}}
        log(root, 0, [*head([column("x", "double")]), add(root, "a.parquet", pa.table({"x": [1.0]})), other])
    assert "its log names a file twice, or files on another file system" in refusal(tmp_path / "0")
    assert rows_of(Delta(path=tmp_path / "1"), ["x"]) == ([(1.0,), (1.0,)], 2)  # two files of one content


def test_an_empty_table_has_no_records(tmp_path: Path):
    DeltaTable.create(tmp_path, schema=pa.schema([("x", pa.float64())]))
    assert rows_of(Delta(path=tmp_path), ["x"]) == ([], 0)
    with Delta(path=tmp_path).pinned() as held:
        assert [len(split.parts) for split in held.plan()] == [0]


# Deletion vectors


@pytest.mark.parametrize("stored", ["in the log", "in a file"])
@pytest.mark.parametrize("place", ["plain", "with spaces/é=1"])
def test_a_record_that_a_deletion_vector_marks_never_comes_back(tmp_path: Path, stored: str, place: str):
    root = tmp_path / place
    values, gone = np.arange(LONG, dtype=np.float64), np.random.default_rng(3).choice(LONG, 5_000, replace=False)
    vector = inline(gone[:500]) if stored == "in the log" else beside(root, gone)
    lost = gone[:500] if stored == "in the log" else gone
    other = pa.table({"x": [-1.0, -2.0]})
    added = [add(root, "k=a b%/part é.parquet", pa.table({"x": values}), vector=vector), add(root, "b.parquet", other)]
    log(root, 0, [*head([column("x", "double")], features=VECTORS), *added])
    found, n_records = rows_of(Delta(path=root), ["x"])
    assert n_records == LONG - len(lost) + 2
    assert sorted(x for (x,) in found) == [-2.0, -1.0, *np.delete(values, lost)]
    assert sorted(found) == sorted(scanned(root, ["x"]))
    assert len(read(Parquet(path=root / "k=a b%"))[0]) == LONG  # they are still in the file


def test_each_version_has_its_own_deletion_vectors(tmp_path: Path):
    table = pa.table({"x": [1.0, 2.0, 3.0, CANARY]})
    whole = add(tmp_path, "a.parquet", table)
    less = add(tmp_path, "a.parquet", table, vector=inline([3]))
    least = add(tmp_path, "a.parquet", table, vector=beside(tmp_path, [0, 3]))
    log(tmp_path, 0, [*head([column("x", "double")], features=VECTORS), whole])
    log(tmp_path, 1, [remove(whole), less])
    log(tmp_path, 2, [remove(less), least])
    for at, values in enumerate(([1.0, 2.0, 3.0, CANARY], [1.0, 2.0, 3.0], [2.0, 3.0])):
        assert rows_of(Delta(path=tmp_path, at=at), ["x"]) == ([(x,) for x in values], len(values))
        assert scanned(tmp_path, ["x"], at) == [(x,) for x in values]
    DeltaTable(tmp_path).create_checkpoint()
    assert rows_of(Delta(path=tmp_path), ["x"]) == ([(2.0,), (3.0,)], 2)


def test_a_file_whose_records_are_all_deleted_has_none(tmp_path: Path):
    added = add(tmp_path, "a.parquet", pa.table({"x": [CANARY] * 3}), vector=inline(range(3)))
    log(tmp_path, 0, [*head([column("x", "double")], features=VECTORS), added])
    assert rows_of(Delta(path=tmp_path), ["x"]) == ([], 0)


@pytest.mark.parametrize("records", [None, 2, 4])
def test_a_deletion_vector_that_does_not_fit_its_file_is_refused(tmp_path: Path, records: int | None):
    """Without the number of records, or with a wrong one, the vector might be cut short and the deleted come back."""
    added = add(tmp_path, "a.parquet", pa.table({"x": [1.0, 2.0, CANARY]}), vector=inline([2]))
    added["add"]["stats"] = json.dumps({} if records is None else {"numRecords": records})
    log(tmp_path, 0, [*head([column("x", "double")], features=VECTORS), added])
    assert "deletion vector" in refusal(tmp_path)


def test_a_deletion_vector_whose_file_is_gone_or_broken_is_refused(tmp_path: Path):
    added = add(tmp_path, "a.parquet", pa.table({"x": [1.0, CANARY]}), vector=beside(tmp_path, [1]))
    log(tmp_path, 0, [*head([column("x", "double")], features=VECTORS), added])
    (path,) = tmp_path.glob("deletion_vector_*.bin")
    data = path.read_bytes()
    path.write_bytes(data[:10])
    assert "the deletion vectors cannot be read; nothing was read" in refusal(tmp_path)
    path.unlink()
    assert "the deletion vectors cannot be read; nothing was read" in refusal(tmp_path)


# Column mapping


def with_ids(names: list[str], arrays: list[pa.Array], ids: list[int | None]) -> pa.Table:
    fields = [
        pa.field(name, array.type, metadata={} if number is None else {"PARQUET:field_id": str(number)})
        for name, array, number in zip(names, arrays, ids, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def test_columns_that_have_swapped_their_names_are_read_by_their_own(tmp_path: Path):
    """By the names in the file, each would be the other one."""
    fields = [column("x", "double", own="y", number=1), column("y", "double", own="x", number=2)]
    fields.append(column("g", "long", own="col-g", number=3))
    file = pa.table({"x": [1.0, 2.0, 3.0], "y": [10.0, 20.0, 30.0]})
    added = add(tmp_path, "a.parquet", file, values={"col-g": "7"}, vector=inline([1]))
    log(tmp_path, 0, [*head(fields, features=VECTORS, mode="name", keys=["g"]), added])
    assert rows_of(Delta(path=tmp_path), ["x", "y", "g"]) == ([(10.0, 1.0, 7), (30.0, 3.0, 7)], 2)
    assert scanned(tmp_path, ["x", "y", "g"]) == [(10.0, 1.0, 7), (30.0, 3.0, 7)]


def test_columns_that_are_mapped_by_id_are_read_by_it(tmp_path: Path):
    fields = [column("x", "double", own="col-1", number=1), column("y", "double", own="col-2", number=2)]
    arrays = [pa.array([1.0, 2.0]), pa.array([10.0, 20.0])]
    log(tmp_path, 0, [*head(fields, mode="id"), add(tmp_path, "a.parquet", with_ids(["p", "q"], arrays, [2, 1]))])
    assert rows_of(Delta(path=tmp_path), ["x", "y"]) == ([(10.0, 1.0), (20.0, 2.0)], 2)
    (tmp_path / "a.parquet").unlink()
    add(tmp_path, "a.parquet", with_ids(["p", "q"], arrays, [2, None]))
    assert "a.parquet: it has no field ids, by which the table maps its columns" in refusal(tmp_path)


# Schemas


def test_a_column_that_was_added_later_is_null_in_older_files(tmp_path: Path):
    write_deltalake(tmp_path, pa.table({"x": [1.0, 2.0]}))
    write_deltalake(tmp_path, pa.table({"s": ["a"], "y": [5], "x": [3.0]}), mode="append", schema_mode="merge")
    found, n_records = rows_of(Delta(path=tmp_path), ["s", "x", "y"], texts=["s"])
    assert (sorted(found, key=str), n_records) == ([("a", 3.0, 5), (None, 1.0, None), (None, 2.0, None)], 3)
    assert sorted(found, key=str) == sorted(scanned(tmp_path, ["s", "x", "y"]), key=str)


def test_a_file_that_spells_the_column_otherwise_or_holds_another_kind_is_refused(tmp_path: Path):
    """The column would else be null in it."""
    log(tmp_path, 0, [*head([column("x", "double")]), add(tmp_path, "a.parquet", pa.table({"X": [CANARY]}))])
    assert "a.parquet: it calls the column 'x' 'X'; names must be the same" in refusal(tmp_path)
    log(tmp_path, 1, [add(tmp_path, "0.parquet", pa.table({"x": ["CANARY"]}))])
    assert "0.parquet: column 'x' is of type string; a measurement needs a number" in refusal(tmp_path)


KEYS = {
    "i": pa.array([1, None, -3], pa.int32()),
    "l": pa.array([2**53 + 1, None, -3], pa.int64()),
    "d": pa.array([dt.date(2020, 1, 1), None, dt.date(1960, 5, 5)]),
    "b": pa.array([True, None, False]),
    "f": pa.array([1.5, None, -0.25]),
    "s": pa.array(["it's a%20b/é", None, "01"]),
    "t": pa.array(
        [dt.datetime(2020, 1, 1, 12, 30, 1, 5, dt.UTC), None, dt.datetime(1960, 1, 1, tzinfo=dt.UTC)], pa.timestamp("us", "UTC")
    ),
}


@pytest.mark.parametrize("key", KEYS)
def test_partition_columns_come_in_their_type(tmp_path: Path, key: str):
    table = pa.table({key: KEYS[key], "x": [1.0, 2.0, 3.0]})
    write_deltalake(tmp_path, table, partition_by=[key])
    texts, dates = ([key] if key == "s" else []), ([key] if key in "dt" else [])
    found, n_records = rows_of(Delta(path=tmp_path), ["x", key], texts, dates)
    assert (sorted(found), n_records) == (list(zip([1.0, 2.0, 3.0], KEYS[key].to_pylist(), strict=True)), 3)
    assert sorted(rows_of(Delta(path=tmp_path), [key], texts, dates)[0], key=str) == sorted([(v,) for _, v in found], key=str)


def test_an_empty_partition_value_is_a_null_and_a_binary_one_is_refused(tmp_path: Path):
    added = add(tmp_path, "g=/a.parquet", pa.table({"x": [1.0]}), values={"g": ""})
    log(tmp_path, 0, [*head([column("x", "double"), column("g", "string")], keys=["g"]), added])
    assert rows_of(Delta(path=tmp_path), ["x", "g"], ["g"]) == ([(1.0, None)], 1)
    write_deltalake(tmp_path / "b", pa.table({"x": [1.0], "g": [b"a"]}), partition_by=["g"])
    assert "it is partitioned by a binary column" in refusal(tmp_path / "b")


def test_instants_of_the_old_kind_keep_their_day_beyond_the_year_2262(tmp_path: Path):
    day = dt.datetime.fromisoformat("9999-12-31T00:00:00")
    table = pa.table({"x": [1.0], "t": pa.array([day], pa.timestamp("us"))})
    pq.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    added = add(tmp_path, "a.parquet", table)
    log(tmp_path, 0, [*head([column("x", "double"), column("t", "timestamp_ntz")], features=["timestampNtz"]), added])
    assert rows_of(Delta(path=tmp_path), ["t"], dates=["t"]) == ([(day,)], 1)


# Conditions


@pytest.mark.parametrize("keys", [[], ["i"], ["s"], ["d", "b"], ["f"], ["big"]])
def test_what_conditions_leave_out_is_what_does_not_meet_them(tmp_path: Path, keys: list[str]):
    rng = np.random.default_rng(11)
    for i in range(6):  # of few records each, so that whole files fall outside
        write_deltalake(tmp_path, many(rng, 1 + 3 * i), mode="append", partition_by=keys or None)
    assert compare_narrowed(Delta(path=tmp_path), rng, rounds=3) > 5  # or nothing was tested


def test_an_instant_or_a_day_that_python_does_not_have_stops_no_condition(tmp_path: Path):
    kinds = {"t": pa.timestamp("us", "UTC"), "d": pa.date32()}
    far = {"t": pa.array([3_660_000 * 86_400 * 10**6], kinds["t"]), "d": pa.array([3_660_000], kinds["d"])}
    table = pa.table({"x": [1]} | far)
    write_deltalake(tmp_path, table)
    with Delta(path=tmp_path).pinned() as held:
        for condition in (OneOf("x", (1.0,)), Between("d", 0, None, is_date=True), Between("t", 0, None, is_date=True)):
            filtered = Filtered(held, Where((condition,)))
            assert sum(batch.n_records for split in filtered.plan() for batch in filtered.read(split, ["x"])) == 1


def test_only_partition_values_change_the_number_of_tasks(tmp_path: Path):
    """It is shown, and ranges of values are of records."""
    for i in range(3):
        write_deltalake(tmp_path, pa.table({"x": [i], "g": [f"{i}"]}), mode="append", partition_by=["g"])
    with Delta(path=tmp_path).pinned() as held:
        parts = [len(held.narrowed(Where((c,))).plan()[0].parts) for c in (OneOf("x", (1.0,)), OneOf("g", ("1",)))]
        assert parts == [3, 1]
        assert read(held.narrowed(Where((OneOf("x", (1.0,)),)))) == ([1.0], 1)


# Sums, tasks and the package


def test_sums_are_those_of_the_same_records_in_arrow(tmp_path: Path):
    rng = np.random.default_rng(5)
    table = pa.table({"x": rng.integers(0, 100, 20_000), "g": rng.choice(["a", "b", "c"], 20_000)})
    write_deltalake(tmp_path, table, partition_by=["g"], target_file_size=2_000)
    with Delta(path=tmp_path).pinned() as held:
        arrays = [batch.columns["x"] for split in held.plan() for batch in held.read(split, ["x"])]
    assert pc.sum(pa.chunked_array(arrays)).as_py() == pc.sum(table["x"]).as_py()


def test_a_worker_says_what_the_driver_would(tmp_path: Path):
    write_deltalake(tmp_path, pa.table({"x": [CANARY]}))
    with Delta(path=tmp_path).pinned() as held:
        (split,) = held.plan()
        next(tmp_path.glob("*.parquet")).unlink()
        outcome = reduce_split(held, split, [make_statistic(0, 1, column="x")])
    assert isinstance(outcome, Failure)
    assert "it is gone: this version of the table was vacuumed" in outcome.message


def test_without_the_package_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "deltalake", None)
    assert refusal(tmp_path) == (
        "a source of kind delta needs the package deltalake, which is not installed here: pip install 'dp-dask[delta]'"
    )
