from __future__ import annotations

import pickle
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from private import asked
from private.asked import check_conditions, collect, fails_quietly, ids
from private.tables import CANARY, CANARY_TEXT
from private.test_sql import NAMES, keys
from servers import PASSWORD

from dp_dask.private.sources.odbc import plugin as Odbc  # noqa: N812
from dp_dask.private.sql import quote


def drivers() -> str:
    if shutil.which("odbcinst") is None:
        return ""
    return subprocess.run(["odbcinst", "-q", "-d"], capture_output=True, text=True, check=False).stdout


pytestmark = pytest.mark.skipif(
    "[PostgreSQL Unicode]" not in drivers() or "[SQLite3]" not in drivers(),
    reason="no ODBC drivers; apt-get install -y unixodbc odbc-postgresql libsqliteodbc",
)
COLUMNS = {"id": "int32", "x": "float64", "k": "int64", "n": "float64", "g": "string", "d": "date", "t": "timestamp", "b": "bool"}


@pytest.fixture(autouse=True)
def _login(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECORDS_USER", "dp")
    monkeypatch.setenv("RECORDS_PASSWORD", PASSWORD)


def postgresql(server: psycopg.Connection, **given) -> Odbc:
    connection = f"Driver={{PostgreSQL Unicode}};Server=127.0.0.1;Port={server.info.port};Database=postgres;UseDeclareFetch=1"
    login = {"user_variable": "RECORDS_USER", "password_variable": "RECORDS_PASSWORD"}
    return Odbc(
        **{"columns": COLUMNS, "connection": connection, **login, **({} if "query" in given else {"table": "t"}), **given}
    )


def make(server: psycopg.Connection, n: int = 100) -> list:
    table = asked.rows(n, 7, odd=False)
    server.execute("CREATE TABLE t (id int, x float8, k int8, n numeric, g text, d date, t timestamp, b bool)")
    with server.cursor() as cursor:
        cursor.executemany("INSERT INTO t VALUES (%(id)s, %(x)s, %(k)s, %(n)s, %(g)s, %(d)s, %(t)s, true)", table)
    return table


def test_columns_are_fetched_as_they_are_declared(server: psycopg.Connection):
    """Their driver tells 32 bits of a double precision, of which 0.1 + 0.2 has 53."""
    server.execute("CREATE TABLE t (id int, x float8, k int8, n numeric, g text, d date, t timestamp, b bool)")
    server.execute(
        "INSERT INTO t VALUES (1, 0.1::float8 + 0.2::float8, 9007199254740993, 0.1, 'ä', '2024-02-29', '2024-02-29 23:59', true)"
    )
    server.execute("INSERT INTO t (id) VALUES (NULL)")
    source = postgresql(server)
    found = collect(source, [*COLUMNS], texts=["g"], dates=["d", "t"])
    assert found == [(1.0, 0.1 + 0.2, 2.0**53, 0.1, "ä", 19782.0, 19782.0, 1.0), (None,) * 8]
    assert [str(kind) for kind in source.schema().types][1:3] == ["double", "int64"]


@pytest.mark.parametrize("bounds", [(0, 10, 1), (0, 100, 4), (-5, "5.5", 3)])
def test_every_record_is_in_one_range_of_a_key(server: psycopg.Connection, bounds):
    make(server)
    for column in ("id", "k"):
        source = postgresql(server, key={**keys(*bounds), "column": column})
        assert len(source.plan()) == bounds[2]
        assert ids(source) == list(range(100))


def test_conditions_that_are_pushed_down_keep_every_record_that_meets_them(server: psycopg.Connection):
    table = make(server)
    pushed = check_conditions(postgresql(server, query="SELECT * FROM t"), table, ["x", "k", "n", "g", "d", "t"], count=4)
    for column in ("x", "k", "g"):
        assert pushed[column].left_out > 0.1 * pushed[column].of, column
    assert pushed["d"].left_out == 0


def test_sqlite_is_read_by_its_driver(tmp_path: Path):
    table = asked.rows(1000, 9)
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        connection.execute("CREATE TABLE t (id INT, x REAL, g TEXT)")
        connection.executemany("INSERT INTO t VALUES (?, ?, ?)", [(row["id"], row["x"] or 0.5, row["g"]) for row in table])
        connection.commit()
    columns = {"id": "int64", "x": "float64", "g": "string"}
    source = Odbc(columns=columns, table="t", connection=f"Driver={{SQLite3}};Database={tmp_path / 'a.db'}")
    assert ids(source) == list(range(1000))
    assert collect(source, ["g"], texts=["g"]) == [(row["g"],) for row in table]


@pytest.mark.parametrize("name", [name for name in NAMES if name.isascii()])
def test_any_name_of_a_table_and_a_column_is_read(server: psycopg.Connection, name: str):
    server.execute(f"CREATE SCHEMA {quote(name)}")
    server.execute(f"CREATE TABLE {quote(name)}.{quote(name)} AS SELECT 1.5::float8 AS {quote(name)}")
    source = postgresql(server, columns={name: "float64"}, table=name, schema_name=name)
    assert collect(source, [name]) == [(1.5,)]


def test_a_column_that_is_not_there_or_not_declared_is_refused(server: psycopg.Connection):
    make(server)
    said = fails_quietly(lambda: postgresql(server, columns={"nosuch": "float64"}).check(["nosuch"]))
    assert "there is no such column" in said
    assert "there is no such table" in fails_quietly(lambda: postgresql(server, table="nosuch").check(["x"]))
    assert "no column 'y'" in fails_quietly(lambda: postgresql(server).check(["y"]))
    assert "is of type string" in fails_quietly(lambda: postgresql(server).check(["g"]))
    with pytest.raises(ValueError, match="known types: int16"):
        Odbc(table="t", connection="Driver=x", columns={"x": "number"})


def test_a_text_that_is_too_long_is_refused_and_not_cut(server: psycopg.Connection):
    server.execute("CREATE TABLE t AS SELECT repeat('x', 5000) AS g")
    source = postgresql(server, columns={"g": "string"}, query="SELECT g FROM t")
    assert "a text is longer than 1024 bytes" in fails_quietly(lambda: collect(source, ["g"], texts=["g"]), "xxx")
    source = postgresql(server, columns={"g": "string"}, query="SELECT g FROM t", longest_text=6000)
    assert collect(source, ["g"], texts=["g"]) == [("x" * 5000,)]


@pytest.mark.parametrize(
    "connection",
    ["Driver=x;PWD=hunter2", "Driver=x; pwd = hunter2;", "Driver=x;Password={hunter2}", "Driver=x;AccessToken=hunter2"],
)
def test_a_secret_in_the_file_is_refused_without_telling_it(connection: str):
    with pytest.raises(ValueError, match="password_variable") as caught:
        Odbc(table="t", columns={"x": "float64"}, connection=connection)
    assert "hunter2" not in str(caught.value)


def test_no_password_travels_to_a_task_and_none_is_told(server: psycopg.Connection, monkeypatch: pytest.MonkeyPatch):
    make(server)
    source = postgresql(server)
    assert PASSWORD.encode() not in pickle.dumps([(source, split) for split in source.plan()])
    monkeypatch.setenv("RECORDS_PASSWORD", "wrong-hunter2")
    fails_quietly(lambda: collect(source, ["x"]), "hunter2", "127.0.0.1")
    monkeypatch.delenv("RECORDS_PASSWORD")
    assert "the environment variable RECORDS_PASSWORD is not set" in fails_quietly(lambda: source.check(["x"]))


def test_an_error_quotes_no_value(server: psycopg.Connection):
    server.execute("CREATE TABLE t (g text)")
    server.execute("INSERT INTO t VALUES (%s)", (f"{CANARY_TEXT} {CANARY}",))
    source = postgresql(server, columns={"x": "float64"}, query="SELECT g::int AS x FROM t")
    said = fails_quietly(lambda: collect(source, ["x"]), CANARY_TEXT, str(CANARY))
    assert "SQLSTATE 22P02" in said or "did not answer" in said
