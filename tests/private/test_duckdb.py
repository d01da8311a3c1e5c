from __future__ import annotations

import random
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import duckdb
import pytest
from private import asked
from private.asked import check_conditions, collect, fails_quietly, ids
from private.tables import CANARY, CANARY_TEXT
from private.test_sql import NAMES

from dp_dask.core.where import Between, OneOf, Where
from dp_dask.private.filtered import Filtered
from dp_dask.private.sources import duckdb as kind
from dp_dask.private.sources.duckdb import plugin as Duckdb  # noqa: N812
from dp_dask.private.sql import quote


def make(folder: Path, *statements: str) -> Path:
    path = folder / "a.duckdb"
    with closing(duckdb.connect(str(path))) as connection:
        for statement in statements:
            connection.execute(statement)
    return path


TYPES = """CREATE TABLE t (i1 TINYINT, i2 SMALLINT, i4 INTEGER, i8 BIGINT, i16 HUGEINT, u1 UTINYINT, u8 UBIGINT, f4 FLOAT,
f8 DOUBLE, n DECIMAL(38, 10), b BOOLEAN, g VARCHAR, e ENUM('sad', 'ok'), d DATE, t TIMESTAMP, ns TIMESTAMP_NS, s TIMESTAMP_S,
tz TIMESTAMPTZ, u16 UHUGEINT, id UUID, iv INTERVAL, l INTEGER[], st STRUCT(x DOUBLE), bl BLOB, ti TIME, bi BIT)"""
VALUES = """INSERT INTO t VALUES (-1, -2, -3, 9007199254740993, 170141183460469231731687303715884105727, 255,
18446744073709551615, 0.1, 0.1, 1234567890123456789012345678.0123456789, true, 'ä', 'sad', '2024-02-29', '2024-02-29 23:59:59.9',
'2024-02-29 23:59:59.9', '2024-02-29 23:59:59', '2024-02-29 23:30:00-01', 340282366920938463463374607431768211455)"""


def test_every_type_is_read_as_what_it_is(tmp_path: Path):
    source = Duckdb(
        path=make(
            tmp_path,
            TYPES,
            VALUES.replace("455)", "455, NULL, NULL, NULL, NULL, NULL, NULL, NULL)"),
            "INSERT INTO t (g) VALUES (NULL)",
        ),
        table="t",
    )
    numbers = ["i1", "i2", "i4", "i8", "i16", "u1", "u8", "f4", "f8", "n", "b"]
    expected = (
        -1.0,
        -2.0,
        -3.0,
        2.0**53,
        2.0**127,
        255.0,
        2.0**64,
        0.10000000149011612,
        0.1,
        1234567890123456789012345678.0,
        1.0,
    )
    assert collect(source, numbers) == [expected, (None,) * len(numbers)]
    assert collect(source, ["g", "e"], texts=["g", "e"]) == [("ä", "sad"), (None, None)]
    dates = ["d", "t", "ns", "s", "tz"]
    assert collect(source, dates, dates=dates) == [(19782.0,) * 4 + (19783.0,), (None,) * 5]


@pytest.mark.parametrize("column", ["u16", "id", "iv", "l", "st", "bl", "ti", "bi", "g", "d", "tz"])
def test_what_is_no_number_is_refused_by_its_type(tmp_path: Path, column: str):
    """The library turns an UHUGEINT beyond 2^127 negative."""
    source = Duckdb(path=make(tmp_path, TYPES), table="t")
    assert f"a.duckdb: t: column {column!r} is of type " in fails_quietly(lambda: source.check([column]))


# Ranges


@pytest.mark.parametrize("seed", range(3))
def test_every_record_is_read_once_after_deletes(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kind, "RANGE_ROWS", 700)
    rng = random.Random(seed)
    path = make(tmp_path, "CREATE TABLE t AS SELECT range AS id FROM range(10000)")
    kept = set(range(10_000))
    with closing(duckdb.connect(str(path))) as connection:
        for i in range(3):
            gone = rng.sample(sorted(kept), 1500)
            kept = (kept - set(gone)) | set(range(10_000 + 1000 * i, 11_000 + 1000 * i))
            connection.execute("DELETE FROM t WHERE id IN (SELECT unnest(?))", [gone])
            connection.execute("INSERT INTO t SELECT range FROM range(?, ?)", [10_000 + 1000 * i, 11_000 + 1000 * i])
            connection.execute("UPDATE t SET id = id WHERE id % 3 = 0")
            if rng.random() < 0.5:
                connection.execute("CHECKPOINT")
    source = Duckdb(path=path, table="t")
    assert len(source.plan()) > 5
    assert ids(source) == sorted(kept)


@pytest.mark.parametrize("form", ["view", "query", "rowid", "schema", "empty"])
def test_every_record_is_read_once_whatever_the_table_is(tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kind, "RANGE_ROWS", 700)
    statements = ["CREATE TABLE t AS SELECT range AS id FROM range(3000)", "CREATE VIEW v AS SELECT * FROM t", "CREATE SCHEMA s"]
    statements += ["CREATE TABLE s.t AS SELECT range AS id FROM range(2000)", "CREATE TABLE e (id INT)"]
    statements += ["CREATE TABLE r AS SELECT 1 AS RowId, range AS id FROM range(3000)"]
    path = make(tmp_path, *statements)
    source, n, parts = {
        "view": (Duckdb(path=path, table="v"), 3000, 1),
        "query": (Duckdb(path=path, query="SELECT id FROM t"), 3000, 1),
        "rowid": (Duckdb(path=path, table="r"), 3000, 1),
        "schema": (Duckdb(path=path, table="t", schema_name="s"), 2000, 3),
        "empty": (Duckdb(path=path, table="e"), 0, 1),
    }[form]
    assert len(source.plan()) == parts
    assert ids(source) == list(range(n))


def test_records_are_streamed_in_batches(tmp_path: Path):
    source = Duckdb(path=make(tmp_path, "CREATE TABLE t AS SELECT range::DOUBLE AS x FROM range(1000000)"), table="t")
    (split,) = source.plan()
    sizes = [batch.n_records for batch in source.read(split, ["x"])]
    assert sum(sizes) == 1_000_000
    assert max(sizes) <= kind.BATCH_ROWS
    reading = source.read(split, ["x"])
    next(reading)
    reading.close()


# Names and state


@pytest.mark.parametrize("name", NAMES)
def test_any_name_of_a_table_and_a_column_is_read(tmp_path: Path, name: str):
    path = make(tmp_path, f"CREATE TABLE {quote(name)} AS SELECT 1.5::DOUBLE AS {quote(name)}, 2 AS other")
    assert collect(Duckdb(path=path, table=name), [name]) == [(1.5,)]


def test_names_match_exactly(tmp_path: Path):
    source = Duckdb(path=make(tmp_path, "CREATE TABLE t (x DOUBLE)"), table="t")
    assert fails_quietly(lambda: source.check(["X"])) == "a.duckdb: t: no column 'X'; there are: x"
    assert "did not answer" in fails_quietly(lambda: Duckdb(path=source.path, table="nosuch").check(["x"]))


def test_while_a_run_reads_nobody_writes(tmp_path: Path):
    path = make(tmp_path, "CREATE TABLE t (x DOUBLE)")
    before = Duckdb(path=path, table="t").version()
    code = f"import duckdb; duckdb.connect({str(path)!r}).execute('INSERT INTO t VALUES (1)')"
    with Duckdb(path=path, table="t").pinned() as source:
        assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 1
        assert collect(source, ["x"]) == []
        assert source.version() == before
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
    assert Duckdb(path=path, table="t").version() != before
    assert collect(Duckdb(path=path, table="t"), ["x"]) == [(1.0,)]


def test_what_is_asked_is_part_of_the_version(tmp_path: Path):
    path = make(tmp_path, "CREATE TABLE t (x DOUBLE)")
    asked_for = [Duckdb(path=path, table="t"), Duckdb(path=path, table="u"), Duckdb(path=path, query="SELECT x FROM t")]
    assert len({source.version() for source in asked_for} | {source.asked for source in asked_for}) == 6


@pytest.mark.parametrize("content", [None, b"", b"no database"])
def test_a_file_that_is_none_is_refused_by_name(tmp_path: Path, content: bytes | None):
    path = tmp_path / "b.duckdb"
    if content is not None:
        path.write_bytes(content)
    assert "b.duckdb" in fails_quietly(lambda: Duckdb(path=path, table="t").check(["x"]))
    assert path.exists() is (content is not None)


def test_an_error_quotes_no_value_and_no_other_file_is_read(tmp_path: Path):
    path = make(tmp_path, "CREATE TABLE t (g VARCHAR)", f"INSERT INTO t VALUES ('{CANARY_TEXT} {CANARY}')")
    for query in ("SELECT g::DOUBLE AS x FROM t", "SELECT error(g)::DOUBLE AS x FROM t"):
        source = Duckdb(path=path, query=query)
        source.check(["x"])
        fails_quietly(lambda source=source: collect(source, ["x"]), CANARY_TEXT, str(CANARY))
    (tmp_path / "x.csv").write_text("x\n1\n")
    fails_quietly(lambda: collect(Duckdb(path=path, query=f"SELECT x FROM read_csv('{tmp_path / 'x.csv'}')"), ["x"]))


# Conditions


@pytest.mark.parametrize(("seed", "collation"), [(1, ""), (2, "COLLATE NOCASE")])
def test_conditions_that_are_pushed_down_keep_every_record_that_meets_them(tmp_path: Path, seed: int, collation: str):
    table = asked.rows(300, seed)
    path = make(
        tmp_path, f"CREATE TABLE t (id INT, x DOUBLE, k BIGINT, n DECIMAL(38, 12), g VARCHAR {collation}, d DATE, t TIMESTAMPTZ)"
    )
    with closing(duckdb.connect(str(path))) as connection:
        values = [[row[name] and row[name].isoformat() if name == "t" else row[name] for name in row] for row in table]
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?, ?)", values)
    pushed = check_conditions(Duckdb(path=path, table="t"), table, ["x", "k", "n", "g", "d", "t"], seed, count=4)
    for column, least in {"x": 0.4, "k": 0.3, "n": 0.2, "g": 0.3, "d": 0.9, "t": 0.9}.items():
        assert pushed[column].left_out > least * pushed[column].of, column


def test_large_numbers_and_enumerations_are_compared_too(tmp_path: Path):
    path = make(
        tmp_path,
        "CREATE TABLE t (id INT, h HUGEINT, e ENUM('a', 'b'))",
        "INSERT INTO t VALUES (0, 2::HUGEINT ** 100, 'a'), (1, 5, 'b')",
    )
    source = Duckdb(path=path, table="t")
    for condition, expected in [
        (Between("h", 2.0**90, None), [0]),
        (Between("h", None, 2.0**90), [1]),
        (OneOf("h", (2.0**100,)), [0]),
        (OneOf("e", ("a", "zz")), [0]),
    ]:
        assert ids(Filtered(source, Where((condition,)))) == expected
