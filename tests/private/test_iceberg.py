from __future__ import annotations

import datetime as dt
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from core.exact import make_statistic
from private.lakes import catalog, compare_narrowed, delete, iceberg, many, rows_of
from private.tables import CANARY, read, says_nothing
from pyiceberg.catalog import load_catalog
from pyiceberg.transforms import parse_transform
from pyiceberg.types import LongType, StringType

from dp_dask.core.where import Between, OneOf, Where
from dp_dask.errors import SourceError
from dp_dask.private.filtered import Filtered
from dp_dask.private.reduce import Failure, reduce_split
from dp_dask.private.sources.iceberg import plugin as Iceberg  # noqa: N812

X = pa.schema([("x", pa.float64())])


def source(folder: Path, at: int | None = None) -> Iceberg:
    return Iceberg(catalog=catalog(folder), table="ns.people", at=at)


def refusal(of: Iceberg, column: str = "x") -> str:
    with pytest.raises(SourceError) as caught:
        rows_of(of, [column])
    assert says_nothing(str(caught.value))
    assert caught.value.__context__ is None
    return str(caught.value)


def files(table: Any) -> list[str]:
    return sorted(task.file.file_path for task in table.scan().plan_files())


# Snapshots


def test_the_newest_snapshot_is_read_or_the_one_that_is_given(tmp_path: Path):
    table = iceberg(tmp_path, X)
    table.append(pa.table({"x": pa.array([1.0, None])}))
    first = table.current_snapshot().snapshot_id
    table.append(pa.table({"x": [3.0]}))
    assert sorted(rows_of(source(tmp_path), ["x"])[0], key=str) == [(1.0,), (3.0,), (None,)]
    assert rows_of(source(tmp_path, first), ["x"]) == ([(1.0,), (None,)], 2)


def test_a_pinned_source_stays_at_its_snapshot_while_the_table_goes_on(tmp_path: Path):
    table = iceberg(tmp_path, X)
    table.append(pa.table({"x": [1.0]}))
    with source(tmp_path).pinned() as held:
        state = held.version()
        assert held.snapshot == f"iceberg snapshot {table.current_snapshot().snapshot_id}"
        table.overwrite(pa.table({"x": [2.0]}))
        assert held.version() == state != source(tmp_path).version()
        assert read(held) == ([1.0], 1)
    assert rows_of(source(tmp_path), ["x"]) == ([(2.0,)], 1)


def test_a_table_without_a_snapshot_has_no_records_and_stays_so_while_it_is_pinned(tmp_path: Path):
    table = iceberg(tmp_path, X)
    with source(tmp_path).pinned() as held:
        assert held.snapshot == "iceberg without a snapshot"
        (split,) = held.plan()
        table.append(pa.table({"x": [1.0]}))
        assert read(held) == ([], 0)
        assert read(held, splits=[split]) == ([], 0)
        assert held.version() != source(tmp_path).version()


def test_what_cannot_be_read_is_refused_by_name(tmp_path: Path):
    table = iceberg(tmp_path, pa.schema([("x", pa.float64()), ("s", pa.string())]))
    assert refusal(source(tmp_path, 5)) == "ns.people: no snapshot 5 is kept (none yet); give another id, or none"
    table.append(pa.table({"x": [CANARY], "s": ["CANARY"]}))
    newest = table.current_snapshot().snapshot_id
    assert f"ns.people: no snapshot 5 is kept (the newest is {newest}); give another id" in refusal(source(tmp_path, 5))
    assert refusal(source(tmp_path), "y") == "ns.people: no column 'y'; the table has: x, s"
    assert "ns.people: column 's' is of type" in refusal(source(tmp_path), "s")
    other = Iceberg(catalog=catalog(tmp_path), table="ns.other")
    assert "ns.other: the catalog has no such table; give namespace.name" in refusal(other)
    elsewhere = Iceberg(catalog=catalog(tmp_path) | {"name": "prod"}, table="ns.people")
    assert "and the catalog's name where it is not default" in refusal(elsewhere)


def test_a_catalog_that_is_not_there_is_refused_and_not_made(tmp_path: Path):
    assert "ns.people: the catalog cannot be opened or read (" in refusal(source(tmp_path / "no"))
    other = Iceberg(catalog={"type": "sql", "uri": f"sqlite:///{tmp_path}/new.db"}, table="ns.people")
    assert "the catalog cannot be opened or read" in refusal(other) or "no such table" in refusal(other)
    assert not (tmp_path / "new.db").exists() or (tmp_path / "new.db").stat().st_size == 0


def test_another_table_in_the_same_place_is_not_read_for_the_first(tmp_path: Path):
    iceberg(tmp_path, X).append(pa.table({"x": [1.0]}))
    with source(tmp_path).pinned() as held:
        load_catalog("default", **catalog(tmp_path)).drop_table("ns.people")
        iceberg(tmp_path, X, location=f"file://{tmp_path}/again").append(pa.table({"x": [2.0]}))
        with pytest.raises(SourceError, match="another table has taken this one's place"):
            held.plan()


def test_a_file_that_is_gone_or_broken_is_named(tmp_path: Path):
    table = iceberg(tmp_path, X)
    table.append(pa.table({"x": [CANARY]}))
    path = Path(files(table)[0].removeprefix("file://"))
    path.write_bytes(path.read_bytes()[:50])
    assert refusal(source(tmp_path)).startswith(f"data/{path.name}: not a readable data file")
    path.unlink()
    assert refusal(source(tmp_path)) == f"data/{path.name}: it, or a file of deletes for it, is gone; pin a newer snapshot"
    with source(tmp_path).pinned() as held:
        outcome = reduce_split(held, held.plan()[0], [make_statistic(0, 1, column="x")])
    assert isinstance(outcome, Failure)
    assert outcome.message == f"data/{path.name}: it, or a file of deletes for it, is gone; pin a newer snapshot"


# Catalogs


@pytest.mark.parametrize(
    "properties",
    [
        {"s3.secret-access-key": "CANARY"},
        {"s3.access-key-id": "CANARY"},
        {"token": "CANARY"},
        {"credential": "CANARY:CANARY"},
        {"adls.account-key": "CANARY"},
        {"adls.sas-token": "CANARY"},
        {"adls.connection-string": "CANARY"},
        {"header.Authorization": "CANARY"},
        {"uri": "postgresql+psycopg://me:CANARY@host/db"},
        {"uri": "postgresql+psycopg://host/db?user=me&password=CANARY"},
    ],
)
def test_what_looks_like_a_secret_is_refused_and_not_repeated(properties: dict[str, str]):
    with pytest.raises(ValueError, match="looks like a secret, which would be sent to every task") as caught:
        Iceberg(catalog={"type": "sql", **properties}, table="ns.people")
    assert says_nothing(str(caught.value))


def test_a_refused_secret_says_where_to_put_it():
    with pytest.raises(ValueError, match="as PYICEBERG_CATALOG__PROD__S3__SECRET_ACCESS_KEY or in"):
        Iceberg(catalog={"name": "prod", "s3.secret-access-key": "x"}, table="ns.people")


def test_paths_and_names_that_workers_would_not_find_are_refused(tmp_path: Path):
    with pytest.raises(ValueError, match="is a relative path, but workers have folders of their own; write sqlite:////PATH"):
        Iceberg(catalog={"type": "sql", "uri": "sqlite:///catalog.db"}, table="ns.people")
    with pytest.raises(ValueError, match="table is 'people'; give its namespace and its name"):
        Iceberg(catalog=catalog(tmp_path), table="people")


def test_secrets_of_the_workers_surroundings_are_used_and_not_pickled(tmp_path: Path):
    """The catalog's address itself is told by the environment alone; what is sent holds neither it nor the key beside it."""
    iceberg(tmp_path, X).append(pa.table({"x": [7.0]}))
    code = (
        "import pickle; from private.lakes import rows_of; from dp_dask.private.sources.iceberg import plugin\n"
        "source = plugin(catalog={'type': 'sql'}, table='ns.people')\n"
        "with source.pinned() as held: sent = pickle.dumps((held, held.plan()))\n"
        "table = held._table(); assert table.io.properties['s3.secret-access-key'] == 'CANARY-7731'\n"
        "assert b'CANARY' not in sent and b'catalog.db' not in sent; print(rows_of(pickle.loads(sent)[0], ['x']))"
    )
    told = {"URI": catalog(tmp_path)["uri"], "S3__SECRET_ACCESS_KEY": "CANARY-7731"}
    surroundings = {f"PYICEBERG_CATALOG__DEFAULT__{name}": value for name, value in told.items()}
    surroundings |= {"PYTHONPATH": os.pathsep.join(sys.path), "HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=surroundings, capture_output=True, text=True, check=False)
    assert done.stdout == "([(7.0,)], 1)\n", done.stderr


def test_splits_hold_names_and_sizes_of_files_alone(tmp_path: Path):
    table = iceberg(tmp_path, pa.schema([("x", pa.float64()), ("s", pa.string())]))
    table.append(pa.table({"x": [CANARY], "s": ["CANARY-7731"]}))
    with source(tmp_path).pinned() as held:
        sent = pickle.dumps((held, held.plan()))
    assert b"CANARY" not in sent
    assert np.float64(CANARY).tobytes() not in sent


# Deletes


def test_a_record_that_a_positional_delete_marks_never_comes_back(tmp_path: Path):
    table = iceberg(tmp_path, X)
    values = np.arange(200_000, dtype=np.float64)
    table.append(pa.table({"x": values}))
    table.append(pa.table({"x": -values[:10]}))
    before = table.current_snapshot().snapshot_id
    gone = sorted(np.random.default_rng(4).choice(200_000, 3_000, replace=False).tolist())
    (name,) = [name for name in files(table) if pq.read_metadata(name.removeprefix("file://")).num_rows == 200_000]
    delete(table, {name: gone})
    found, n_records = rows_of(source(tmp_path), ["x"])
    assert n_records == 200_010 - 3_000
    assert sorted(x for (x,) in found) == sorted([*np.delete(values, gone), *-values[:10]])
    delete(table, {name: np.delete(np.arange(200_000), gone).tolist()})
    assert sorted(rows_of(source(tmp_path), ["x"])[0]) == sorted((x,) for x in -values[:10])
    assert rows_of(source(tmp_path, before), ["x"])[1] == 200_010


def test_equality_deletes_are_refused_and_older_snapshots_are_read(tmp_path: Path):
    table = iceberg(tmp_path, X)
    table.append(pa.table({"x": [1.0, CANARY]}))
    before = table.current_snapshot().snapshot_id
    delete(table, {files(table)[0]: [1]}, equality=True)
    assert "ns.people: it has equality deletes, which pyiceberg cannot apply" in refusal(source(tmp_path))
    assert rows_of(source(tmp_path, before), ["x"])[1] == 2


def test_a_file_of_deletes_that_is_gone_stops_the_run(tmp_path: Path):
    table = iceberg(tmp_path, X)
    table.append(pa.table({"x": [1.0, CANARY]}))
    delete(table, {files(table)[0]: [1]})
    (path,) = (tmp_path / "ns" / "people" / "data").glob("*-deletes.parquet")
    path.unlink()
    assert "it, or a file of deletes for it, is gone" in refusal(source(tmp_path))


# Schemas


def test_columns_that_are_renamed_added_or_moved_are_read_by_their_ids(tmp_path: Path):
    table = iceberg(tmp_path, pa.schema([("x", pa.float64()), ("y", pa.float64()), ("k", pa.int32())]))
    table.append(pa.table({"x": [1.0, 2.0], "y": [10.0, 20.0], "k": pa.array([1, None], pa.int32())}))
    first, state = table.current_snapshot().snapshot_id, source(tmp_path).version()
    with table.update_schema() as schema:
        schema.rename_column("x", "z")
    with table.update_schema() as schema:
        schema.rename_column("y", "x")  # the name of another column before
        schema.move_first("y")
        schema.update_column("k", LongType())
        schema.add_column("new", StringType())
    assert rows_of(source(tmp_path), ["x", "z", "k"])[0] == [(10.0, 1.0, 1), (20.0, 2.0, None)]
    assert source(tmp_path).version() != state  # x means another column now
    table.append(pa.table({"x": [30.0], "z": [3.0], "k": [2**40], "new": ["n"]}))
    found, _ = rows_of(source(tmp_path), ["x", "z", "k", "new"], ["new"])
    assert sorted(found) == [(10.0, 1.0, 1, None), (20.0, 2.0, None, None), (30.0, 3.0, 2**40, "n")]
    assert rows_of(source(tmp_path, first), ["x", "y"])[0] == [(1.0, 10.0), (2.0, 20.0)]


def test_a_dotted_name_is_the_column_and_not_the_nested_field(tmp_path: Path):
    columns = {"a": pa.array([{"b": 7.0}, None]), "c": pa.array([2.0, 3.0])}
    table = iceberg(tmp_path, pa.table(columns).schema)
    table.append(pa.table(columns))
    assert refusal(source(tmp_path), "a.b") == "ns.people: no column 'a.b'; the table has: a, c"
    assert rows_of(source(tmp_path), ["c"]) == ([(2.0,), (3.0,)], 2)


def partitioned(folder: Path, schema: pa.Schema, **by: str) -> Any:
    """A table whose columns are partitioned by transforms."""
    table = iceberg(folder, schema)
    with table.update_spec() as spec:
        for column, transform in by.items():
            spec.add_field(column, parse_transform(transform), f"p_{column}")
    return table


BY = [
    {},
    {"i": "identity"},
    {"s": "identity", "b": "identity"},
    {"d": "month", "i": "bucket[3]"},
    {"t": "day"},
    {"s": "truncate[5]", "big": "truncate[4]"},
    {"d": "identity"},
    {"big": "identity"},
    {"t": "hour"},
]


@pytest.mark.parametrize("by", BY, ids=str)
def test_what_conditions_leave_out_is_what_does_not_meet_them(tmp_path: Path, by: dict[str, str]):
    rng = np.random.default_rng(12)
    table = partitioned(tmp_path, many(rng, 1).schema, **by)
    written = [many(rng, 1 + 3 * i) for i in range(5)]
    for part in written:
        table.append(part)
    whole = pa.concat_tables(written)
    columns = ["row", "i", "s", "b", "d", "t"]
    found, n_records = rows_of(source(tmp_path), columns, ["s"], ["d", "t"])
    wanted = zip(*[whole[name].to_pylist() for name in columns], strict=True)
    assert (sorted(found, key=repr), n_records) == (sorted(wanted, key=repr), len(whole))
    assert compare_narrowed(source(tmp_path), rng) > 2  # or nothing was tested


@pytest.mark.parametrize("by", [{}, {"big": "identity"}])
def test_an_integer_that_a_float_rounds_into_the_condition_is_kept(tmp_path: Path, by: dict[str, str]):
    """2^53 + 1 is 2^53 as a float64."""
    table = partitioned(tmp_path, pa.schema([("big", pa.int64())]), **by)
    table.append(pa.table({"big": [2**53 + 1]}))
    with source(tmp_path).pinned() as held:
        for condition in (Between("big", None, 2.0**53), OneOf("big", (2.0**53,)), Between("big", 2.0**53, 2.0**53)):
            filtered = Filtered(held, Where((condition,)))
            assert sum(batch.n_records for split in filtered.plan() for batch in filtered.read(split, ["big"])) == 1


def test_conditions_are_right_after_an_integer_was_widened_and_a_column_renamed(tmp_path: Path):
    rng = np.random.default_rng(13)
    table = partitioned(tmp_path, many(rng, 1).schema, i="identity")
    table.append(many(rng, 9))
    before = table.current_snapshot().snapshot_id
    with table.update_schema() as schema:
        schema.update_column("i", LongType())
    with table.update_schema() as schema:
        schema.rename_column("s", "old")
    with table.update_schema() as schema:
        schema.add_column("s", StringType())
    assert compare_narrowed(source(tmp_path), rng) > 0
    assert compare_narrowed(source(tmp_path, before), rng) == 0  # its names are not those of the present schema


def test_only_partition_values_change_the_number_of_tasks(tmp_path: Path):
    """It is shown, and ranges of values are of records."""
    table = partitioned(tmp_path, pa.schema([("x", pa.int64()), ("g", pa.string())]), g="identity")
    for i in range(3):
        table.append(pa.table({"x": [i], "g": [f"{i}"]}))
    with source(tmp_path).pinned() as held:
        parts = [len(held.narrowed(Where((c,))).plan()[0].parts) for c in (OneOf("x", (1.0,)), OneOf("g", ("1",)))]
        assert parts == [3, 1]
        assert read(held.narrowed(Where((OneOf("x", (1.0,)),)))) == ([1.0], 1)


def test_a_partition_that_was_never_stored_in_the_files_is_read_from_the_manifest(tmp_path: Path):
    """As in tables that were made from hive folders."""
    table = iceberg(tmp_path, pa.schema([("x", pa.float64()), ("g", pa.string())]))
    table.append(pa.table({"x": [1.0], "g": ["a"]}))
    with table.update_spec() as spec:
        spec.add_identity("g")
    table.append(pa.table({"x": [2.0, 3.0], "g": ["b", None]}))
    for name in files(table)[:]:
        path = Path(name.removeprefix("file://"))
        if "g=b" in name:
            kept = pq.read_table(path).select(["x"])
            pq.write_table(kept, path)
    assert sorted(rows_of(source(tmp_path), ["x", "g"], ["g"])[0]) == [(1.0, "a"), (2.0, "b"), (3.0, None)]


def test_sums_are_those_of_the_same_records_in_arrow(tmp_path: Path):
    rng = np.random.default_rng(5)
    whole = pa.table({"x": rng.integers(0, 100, 20_000), "d": [dt.date(2020, 1, 1 + i) for i in rng.integers(0, 9, 20_000)]})
    table = partitioned(tmp_path, whole.schema, d="day")
    table.append(whole)
    with source(tmp_path).pinned() as held:
        arrays = [batch.columns["x"] for split in held.plan() for batch in held.read(split, ["x"])]
    assert len(arrays) > 8
    assert pc.sum(pa.chunked_array(arrays)).as_py() == pc.sum(whole["x"]).as_py()


def test_without_the_package_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pyiceberg.catalog", None)
    assert refusal(source(tmp_path)) == (
        "a source of kind iceberg needs the package pyiceberg, which is not installed here: pip install 'dp-dask[iceberg]'"
    )
