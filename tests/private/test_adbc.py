from __future__ import annotations

import pickle
import sqlite3
from contextlib import closing
from pathlib import Path

import adbc_driver_sqlite
import psycopg
import pytest
from private import asked
from private.asked import check_conditions, collect, fails_quietly, ids
from private.tables import CANARY, CANARY_TEXT
from private.test_sql import NAMES, keys
from servers import PASSWORD

from dp_dask.private.sources.adbc import plugin as Adbc  # noqa: N812
from dp_dask.private.sql import quote

SQLITE = {"driver": "adbc_driver_sqlite", "columns": {"id": "number", "x": "number", "k": "number", "g": "text"}}


@pytest.fixture(autouse=True)
def _where(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECORDS", "postgresql://")  # and what libpq finds


def make(folder: Path, n: int = 300, seed: int = 1) -> tuple[str, list]:
    table = asked.rows(n, seed)
    with closing(sqlite3.connect(folder / "a.db")) as connection:
        connection.execute("CREATE TABLE t (id INT, x REAL, k INT, g TEXT)")
        connection.executemany(
            "INSERT INTO t VALUES (?, ?, ?, ?)", [tuple(row[c] for c in ("id", "x", "k", "g")) for row in table]
        )
        connection.commit()
    return f"file:{folder / 'a.db'}?mode=ro", table


@pytest.mark.parametrize("driver", ["adbc_driver_sqlite", adbc_driver_sqlite._driver_path()])
def test_a_package_or_a_shared_library_is_a_driver(tmp_path: Path, driver: str):
    uri, table = make(tmp_path)
    source = Adbc(**{**SQLITE, "driver": driver}, uri=uri, table="t")
    assert ids(source) == list(range(300))
    assert collect(source, ["g"], texts=["g"]) == [(row["g"],) for row in table]


@pytest.mark.parametrize("bounds", [(0, 10, 1), (0, 300, 7), (-5, "5.5", 3), (1000, 2000, 2)])
def test_every_record_is_in_one_range_of_a_key(tmp_path: Path, bounds):
    uri, _ = make(tmp_path)
    for column in ("id", "k", "x"):
        source = Adbc(**SQLITE, uri=uri, table="t", key={**keys(*bounds), "column": column})
        assert len(source.plan()) == bounds[2]
        assert ids(source) == list(range(300))


def test_conditions_that_are_pushed_down_keep_every_record_that_meets_them(tmp_path: Path):
    uri, table = make(tmp_path)
    pushed = check_conditions(Adbc(**SQLITE, uri=uri, query="SELECT * FROM t"), table, ["x", "k", "g"])
    for column in ("x", "k", "g"):
        assert 0.2 * pushed[column].of < pushed[column].left_out, column


def test_postgresql_is_read_by_this_kind_too(server: psycopg.Connection):
    table = asked.rows(100, 5)
    server.execute("CREATE SCHEMA s")
    server.execute("CREATE TABLE s.t (id int, x float8, k int8, n numeric, g text, d date, m money, o oid, b bool)")
    with server.cursor() as cursor:
        cursor.executemany("INSERT INTO s.t VALUES (%(id)s, %(x)s, %(k)s, %(n)s, %(g)s, %(d)s, 1, 2, true)", table)
    source = Adbc(
        driver="adbc_driver_postgresql", uri_variable="RECORDS", schema_name="s", table="t", key={**keys(0, 9, 2), "column": "x"}
    )
    pushed = check_conditions(source, table, ["x", "k", "n", "g"], count=3)
    assert pushed["n"].left_out > 0
    assert pushed["x"].left_out > 0
    assert collect(source, ["b"])[0] == (1.0,)
    for column in ("m", "o", "g", "d"):
        assert f"column {column!r} is of type " in fails_quietly(lambda column=column: source.check([column]))
    assert "kind: postgresql" in fails_quietly(lambda: source.check(["d"], dates=frozenset({"d"})))


def test_nulls_come_first_without_harm(tmp_path: Path):
    """A driver that takes a type from the first rows calls texts that are not there numbers."""
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        connection.execute("CREATE TABLE t (id INT, g TEXT)")
        connection.executemany("INSERT INTO t VALUES (?, NULL)", [(i,) for i in range(10)])
        connection.commit()
    source = Adbc(driver="adbc_driver_sqlite", uri=f"file:{tmp_path / 'a.db'}", table="t", columns={"id": "number", "g": "text"})
    assert collect(source, ["id", "g"], texts=["g"]) == [(float(i), None) for i in range(10)]


def test_what_comes_as_another_type_than_declared_is_refused_by_its_type(tmp_path: Path):
    uri, _ = make(tmp_path)
    source = Adbc(driver="adbc_driver_sqlite", uri=uri, table="t", columns={"g": "number", "x": "text", "k": "date"})
    for column, role in {"g": "number", "x": "text", "k": "date"}.items():
        roles = {f"{role}s": [column]} if role != "number" else {}
        said = fails_quietly(lambda column=column, roles=roles: collect(source, [column], **roles))
        assert said.startswith(f"t: column {column!r} came as ")


@pytest.mark.parametrize("name", NAMES)
def test_any_name_of_a_table_and_a_column_is_read(tmp_path: Path, name: str):
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        connection.execute(f"CREATE TABLE {quote(name)} AS SELECT 1.5 AS {quote(name)}")
        connection.commit()
    source = Adbc(driver="adbc_driver_sqlite", uri=f"file:{tmp_path / 'a.db'}", table=name, columns={name: "number"})
    assert collect(source, [name]) == [(1.5,)]


@pytest.mark.parametrize(
    "given",
    [
        {"uri": "postgresql://dp:hunter2@localhost/db"},
        {"uri": "x://localhost/db?password=hunter2"},
        {"uri": "host=localhost password=hunter2"},
        {"options": {"adbc.snowflake.sql.auth_token": "hunter2"}},
        {"options": {"password": "hunter2"}},
        {"options": {"adbc.flight.sql.authorization_header": "Bearer hunter2"}},
        {"options": {"adbc.other.uri": "grpc://dp:hunter2@localhost"}},
    ],
)
def test_a_secret_in_the_file_is_refused_without_telling_it(given):
    with pytest.raises(ValueError, match="option_variables") as caught:
        Adbc(driver="adbc_driver_sqlite", table="t", **given)
    assert "hunter2" not in str(caught.value)


def test_secrets_come_from_the_environment_of_whoever_connects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    uri, _ = make(tmp_path)
    monkeypatch.setenv("WHERE", uri)
    for given in ({"uri_variable": "WHERE"}, {"option_variables": {"uri": "WHERE"}}):
        source = Adbc(**SQLITE, table="t", **given)
        assert ids(source) == list(range(300))
        assert uri.encode() not in pickle.dumps([(source, split) for split in source.plan()])
    monkeypatch.delenv("WHERE")
    assert "the environment variable WHERE is not set" in fails_quietly(lambda: source.check(["x"]))


def test_an_error_quotes_no_value(server: psycopg.Connection):
    server.execute("CREATE TABLE t (g text)")
    server.execute("INSERT INTO t VALUES (%s)", (f"{CANARY_TEXT} {CANARY}",))
    source = Adbc(driver="adbc_driver_postgresql", uri_variable="RECORDS", query="SELECT g::int AS x FROM t")
    fails_quietly(lambda: collect(source, ["x"]), CANARY_TEXT, str(CANARY), PASSWORD)


@pytest.mark.parametrize("driver", ["adbc_driver_nosuch", "/no/such.so"])
def test_a_driver_that_is_not_there_is_refused(driver: str):
    assert "t: the database did not answer" in fails_quietly(lambda: Adbc(driver=driver, table="t").check(["x"]))
