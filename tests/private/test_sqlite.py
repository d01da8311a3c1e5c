from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import adbc_driver_sqlite.dbapi
import pytest
from private import asked
from private.asked import check_conditions, collect, fails_quietly, ids
from private.tables import CANARY, CANARY_TEXT
from private.test_sql import NAMES

from dp_dask.core.where import OneOf, Where
from dp_dask.private.sources import sqlite as kind
from dp_dask.private.sources.sqlite import plugin as Sqlite  # noqa: N812
from dp_dask.private.sql import quote


def make(folder: Path, *statements: str, rows: list[tuple[Any, ...]] = [], name: str = "a.db") -> Path:  # noqa: B006
    """Make a file by statements; the last one is executed for each row."""
    path = folder / name
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements[: len(statements) - bool(rows)]:
            connection.execute(statement)
        if rows:
            connection.executemany(statements[-1], rows)
        connection.commit()
    return path


def test_columns_are_read_as_what_they_are_declared(tmp_path: Path):
    table = "CREATE TABLE t (x REAL, k INTEGER, b BOOLEAN, n DECIMAL(10, 2), g VARCHAR(9), d DATE, z BLOB, a)"
    row = (1.5, 2**53 + 1, True, 0.25, "ä", "2024-02-29", b"x", 3)
    source = Sqlite(
        path=make(tmp_path, table, "INSERT INTO t VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows=[row, (None,) * 8]), table="t"
    )
    names = ["x", "k", "b", "n", "g", "d", "a"]
    found = collect(source, names, texts=["g"], dates=["d"])
    assert found == [(1.5, 2.0**53, 1.0, 0.25, "ä", 19782.0, 3.0), (None,) * 7]
    told = [str(field.type) for field in source.schema()]
    assert told == ["double", "int64", "double", "double", "string", "timestamp[us]", "null", "string"]
    assert "column 'g' is of type VARCHAR(9)" in fails_quietly(lambda: source.check(["g"]))
    assert "column 'k' is of type INTEGER" in fails_quietly(lambda: source.check(["k"], frozenset({"k"})))
    assert "column 'x' is of type REAL" in fails_quietly(lambda: source.check(["x"], dates=frozenset({"x"})))
    assert "column 'z' is of type BLOB" in fails_quietly(lambda: source.check(["z"]))


def test_a_value_of_another_type_than_declared_is_a_null_wherever_it_stands(tmp_path: Path):
    """The driver alone would stop at it, and where nulls come first, at the first number."""
    values = [None] * 3000 + [1.5, "many", b"\x01", 2, None, float("inf")]
    path = make(tmp_path, "CREATE TABLE t (x REAL, g TEXT)", "INSERT INTO t VALUES (?, ?)", rows=[(v, v) for v in values])
    source = Sqlite(path=path, table="t")
    found = collect(source, ["x", "g"], texts=["g"])
    assert found[:3000] == [(None, None)] * 3000
    assert [x for x, _ in found[3000:]] == [1.5, None, None, 2.0, None, float("inf")]
    assert [g for _, g in found[3000:]] == ["1.5", "many", None, "2", None, "Inf"]


def test_records_equal_to_the_row_that_tells_the_types_are_all_counted(tmp_path: Path):
    path = make(tmp_path, "CREATE TABLE t (x REAL, g TEXT)", "INSERT INTO t VALUES (?, ?)", rows=[(0.5, "")] * 3)
    assert collect(Sqlite(path=path, table="t"), ["x", "g"], texts=["g"]) == [(0.5, "")] * 3


def test_texts_that_are_not_valid_are_merely_other_texts(tmp_path: Path):
    path = make(tmp_path, "CREATE TABLE t (g TEXT)", "INSERT INTO t VALUES (CAST(x'ff61' AS TEXT)), ('a')")
    (batch,) = [
        b for s in Sqlite(path=path, table="t").plan() for b in Sqlite(path=path, table="t").read(s, ["g"], frozenset("g"))
    ]
    assert asked.as_bytes(batch.columns["g"]).to_pylist() == [b"\xffa", b"a"]


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("2024-02-29", 19782),
        ("2024-02-29 23:59:59.999", 19782),
        ("2024-02-29T23:30:00-01:00", 19783),
        ("2023-02-29", None),
        ("2024-13-01", None),
        ("now", None),
        ("2024-02-29 25:00", None),
        ("1969-12-31", -1),
        (19782, None),
        ("0001-01-01", -719162),
    ],
)
def test_dates_are_iso_texts_of_utc(tmp_path: Path, text: Any, day: int | None):
    path = make(tmp_path, "CREATE TABLE t (d DATETIME)", "INSERT INTO t VALUES (?)", rows=[(text,)])
    assert collect(Sqlite(path=path, table="t"), ["d"], dates=["d"]) == [(day,)]


# Ranges


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kind, "RANGE_BYTES", 4096)


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("seed", range(6))
def test_every_record_is_read_once_whatever_its_rowid(tmp_path: Path, seed: int):
    rng = random.Random(seed)
    span = rng.choice([3000, 2**40, 2**63 - 1])
    keys = list(
        {rng.randint(-span if seed % 2 else 0, span) for _ in range(2000)} | {0} | ({-(2**63), 2**63 - 1} if seed > 4 else set())
    )
    path = make(
        tmp_path,
        "CREATE TABLE t (id INTEGER PRIMARY KEY, x INT)",
        "INSERT INTO t VALUES (?, ?)",
        rows=[(k, i) for i, k in enumerate(keys)],
    )
    with closing(sqlite3.connect(path)) as connection:
        gone = rng.sample(range(len(keys)), rng.choice([0, 500, len(keys) - 1]))
        connection.executemany("DELETE FROM t WHERE x = ?", [(i,) for i in gone])
        connection.commit()
        if seed % 3 == 0:
            connection.execute("VACUUM")
    source = Sqlite(path=path, table="t")
    assert len(source.plan()) > 1 or len(gone) > 1000
    assert sorted(int(x) for (x,) in collect(source, ["x"])) == sorted(set(range(len(keys))) - set(gone))


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE t (id INTEGER PRIMARY KEY, x INT) WITHOUT ROWID",
        "CREATE TABLE t (rowid TEXT, id INT)",
        "CREATE TABLE t (ROWID INT, id INT)",
        "CREATE TABLE t (oid TEXT, _rowid_ INT, id INT)",
    ],
)
def test_tables_without_a_plain_rowid_are_read_once_too(tmp_path: Path, statement: str):
    path = make(tmp_path, statement, "INSERT INTO t (id) VALUES (?)", rows=[(i,) for i in range(3000)])
    assert ids(Sqlite(path=path, table="t")) == list(range(3000))


@pytest.mark.usefixtures("_small")
def test_views_and_queries_are_read_once(tmp_path: Path):
    statements = ["CREATE TABLE t (id INT, g TEXT)", "CREATE VIEW v AS SELECT id, g FROM t UNION ALL SELECT id + 3000, g FROM t"]
    path = make(tmp_path, *statements, "INSERT INTO t VALUES (?, 'a')", rows=[(i,) for i in range(3000)])
    assert ids(Sqlite(path=path, table="v")) == list(range(6000))
    query = "WITH w AS (SELECT id, g FROM v WHERE g = 'a' AND id < 10) SELECT id, g FROM w"
    source = Sqlite(path=path, query=query)
    assert collect(source, ["id", "g"], texts=["g"]) == [(float(i), "a") for i in range(10)]


def test_an_empty_table_has_no_records(tmp_path: Path):
    source = Sqlite(path=make(tmp_path, "CREATE TABLE t (x REAL)"), table="t")
    source.check(["x"])
    assert collect(source, ["x"]) == []


# Names


@pytest.mark.parametrize("name", NAMES)
def test_any_name_of_a_table_and_a_column_is_read(tmp_path: Path, name: str):
    path = make(
        tmp_path,
        f"CREATE TABLE {quote(name)} ({quote(name)} REAL, other TEXT)",
        f"INSERT INTO {quote(name)} VALUES (?, ?)",
        rows=[(1.5, "a")],
    )
    assert collect(Sqlite(path=path, table=name), [name]) == [(1.5,)]


def test_a_name_that_is_missing_is_no_text(tmp_path: Path):
    """SQLite takes an unknown name in double quotes for a text."""
    source = Sqlite(path=make(tmp_path, "CREATE TABLE t (x REAL, X2 REAL)", "INSERT INTO t VALUES (1, 2)"), table="t")
    assert fails_quietly(lambda: collect(source, ["nosuch"])) == "a.db: t: no column 'nosuch'; there are: x, X2"
    assert "no column 'x2'" in fails_quietly(lambda: source.check(["x2"]))
    assert "no such table" in fails_quietly(lambda: Sqlite(path=source.path, table="nosuch").check(["x"]))


def test_names_that_differ_by_case_alone_are_told_apart(tmp_path: Path):
    path = make(tmp_path, "CREATE TABLE t (a REAL, b REAL)", "INSERT INTO t VALUES (1, 2)")
    source = Sqlite(path=path, query="SELECT a AS x, b AS X FROM t")
    assert collect(source, ["x"]) == [(1.0,)]
    assert "no column 'X'" in fails_quietly(lambda: source.check(["X"]))


# State


def test_the_version_tells_of_every_change(tmp_path: Path):
    path = make(tmp_path, "CREATE TABLE t (x REAL)", "INSERT INTO t VALUES (1)")
    versions = {Sqlite(path=path, table="t").version()}
    with closing(sqlite3.connect(path)) as connection:
        status = path.stat()
        connection.execute("UPDATE t SET x = 2")
        connection.commit()
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # as a coarse clock would leave it
        versions.add(Sqlite(path=path, table="t").version())
        connection.execute("PRAGMA journal_mode = wal")
        versions.add(Sqlite(path=path, table="t").version())
        connection.execute("UPDATE t SET x = 3")
        connection.commit()
        versions.add(Sqlite(path=path, table="t").version())
        assert collect(Sqlite(path=path, table="t"), ["x"]) == [(3.0,)]
    versions.add(Sqlite(path=path, query="SELECT x FROM t").version())
    assert len(versions) == 5


def test_reading_changes_nothing(tmp_path: Path):
    """Whoever may write would, at the end, move what the log holds into the file."""
    path = make(tmp_path, "PRAGMA journal_mode = wal", "CREATE TABLE t (x REAL)", name="b.db")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO t VALUES (1)")
        connection.commit()
        for suffix in ("", "-wal"):
            shutil.copy(f"{path}{suffix}", tmp_path / f"a.db{suffix}")
    source = Sqlite(path=tmp_path / "a.db", table="t")
    before, data = source.version(), source.path.read_bytes()
    assert collect(source, ["x"]) == [(1.0,)]
    assert (source.version(), source.path.read_bytes()) == (before, data)
    fails_quietly(lambda: collect(Sqlite(path=source.path, query="SELECT x FROM t WHERE load_extension('x') = 1"), ["x"]))


WRITER = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN EXCLUSIVE")
connection.execute("UPDATE t SET x = 2")
print("begun", flush=True)
time.sleep(1.5)
connection.execute("COMMIT")
"""


def test_a_writer_that_is_about_to_commit_is_waited_for(tmp_path: Path):
    path = make(tmp_path, "CREATE TABLE t (x REAL)", "INSERT INTO t VALUES (1)")
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        adbc_driver_sqlite.dbapi.connect().close()  # so that what follows is quick
        assert writer.stdout.readline() == "begun\n"
        assert collect(Sqlite(path=path, table="t"), ["x"]) == [(2.0,)]


@pytest.mark.parametrize("content", [None, b"no database", b""])
def test_a_file_that_is_none_is_refused_by_name(tmp_path: Path, content: bytes | None):
    path = tmp_path / "b.db"
    if content is not None:
        path.write_bytes(content)
    assert "b.db" in fails_quietly(lambda: Sqlite(path=path, table="t").check(["x"]))
    assert not path.exists() or path.read_bytes() == content


def test_an_error_quotes_no_value(tmp_path: Path):
    path = make(tmp_path, "CREATE TABLE t (g TEXT)", "INSERT INTO t VALUES (?)", rows=[(f"{CANARY_TEXT} {CANARY}",)])
    source = Sqlite(path=path, query="SELECT json(g) AS x FROM t")
    assert "did not answer as asked" in fails_quietly(lambda: collect(source, ["x"]), CANARY_TEXT, str(CANARY))


# Conditions


def declared(table: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    plain = ("id", "x", "k", "g")
    return [(*(row[c] for c in plain), row["d"] and row["d"].isoformat(), row["n"] and float(row["n"])) for row in table]


@pytest.mark.parametrize("collation", ["BINARY", "NOCASE", "RTRIM"])
@pytest.mark.parametrize("seed", [1, 2])
def test_conditions_that_are_pushed_down_keep_every_record_that_meets_them(tmp_path: Path, collation: str, seed: int):
    table = asked.rows(300, seed)
    create = f"CREATE TABLE t (id INT, x REAL, k INT, g TEXT COLLATE {collation}, d DATE, n NUMERIC)"
    path = make(tmp_path, create, "INSERT INTO t VALUES (?, ?, ?, ?, ?, ?)", rows=declared(table))
    pushed = check_conditions(Sqlite(path=path, table="t"), table, ["x", "k", "g", "d"], seed, count=6)
    for column in ("x", "k", "g"):
        assert pushed[column].left_out > 0.5 * pushed[column].of
    assert pushed["d"].left_out == 0


def test_conditions_on_columns_of_any_type_compare_what_is_read(tmp_path: Path):
    values = [1, 1.0, "1", "a", b"a", None, 2**53 + 1]
    path = make(tmp_path, "CREATE TABLE t (id INT, a)", "INSERT INTO t VALUES (?, ?)", rows=list(enumerate(values)))
    source = Sqlite(path=path, table="t")
    for condition, expected in [(OneOf("a", ("1",)), [2]), (OneOf("a", (1.0,)), [0, 1]), (OneOf("a", (2.0**53,)), [6])]:
        assert ids(asked.Filtered(source, Where((condition,)))) == expected
