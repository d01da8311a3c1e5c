"""Databases: from a pipeline file to the ledger, by the command line."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import duckdb
import psycopg
import pytest
from commands import dp_dask
from servers import PASSWORD, PostgreSQL

from dp_dask import pipeline
from dp_dask.config import load
from dp_dask.errors import SourceError

N = 500
CANARY = 7731.40625
FILE = """
dataset: {{name: people, source: {source}, unit: record{version}}}
privacy: {{neighbours: {neighbours}}}
measurements:
  m: {{model: exponential, column: x, bounds: [0, 9000], epsilon: 0.5, prior: {{alpha: 1, beta: 1}}}}
inference: {{draws: 100}}
ledger: sqlite:///ledger.db
output: out
"""
RECORDS = f"SELECT {CANARY} AS x, 'a' AS g UNION ALL SELECT 20 + i, CASE WHEN i % 2 = 0 THEN 'a' ELSE 'b' END FROM "


def write(folder: Path, source: str, version: str = "", neighbours: str = f"replace, n: {N}") -> None:
    (folder / "p.yaml").write_text(FILE.format(source=source, version=version and f", version: {version}", neighbours=neighbours))


def make_sqlite(folder: Path) -> str:
    with closing(sqlite3.connect(folder / "a.db")) as connection:
        connection.execute("CREATE TABLE t (x REAL, g TEXT)")
        series = f"(WITH RECURSIVE s(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM s WHERE i < {N - 2}) SELECT i FROM s)"
        connection.execute(f"INSERT INTO t {RECORDS}{series}")
        connection.commit()
    return "{kind: sqlite, path: a.db, table: t}"


def make_duckdb(folder: Path) -> str:
    with closing(duckdb.connect(str(folder / "a.duckdb"))) as connection:
        connection.execute(f"CREATE TABLE t AS {RECORDS} range({N - 1}) r(i)")
    return "{kind: duckdb, path: a.duckdb, query: SELECT x * 1 AS x FROM t}"


def make_adbc(folder: Path) -> str:
    make_sqlite(folder)
    return f"{{kind: adbc, driver: adbc_driver_sqlite, uri: 'file:{folder}/a.db', table: t, columns: {{x: number, g: text}}}}"


MAKERS = [make_sqlite, make_duckdb, make_adbc]


def run(folder: Path) -> dict:
    result = dp_dask(folder, "run", "p.yaml", "--json")
    assert result.returncode == 0, result.stderr
    assert str(CANARY) not in result.stdout + result.stderr
    return json.loads(result.stdout)


@pytest.mark.parametrize("make", MAKERS)
def test_a_database_is_charged_once(tmp_path: Path, make: Callable[[Path], str]):
    write(tmp_path, make(tmp_path), "monday" if make is make_adbc else "")
    for words in (("ledger", "init", "p.yaml", "--epsilon", "2"), ("check", "p.yaml")):
        result = dp_dask(tmp_path, *words)
        assert result.returncode == 0, result.stderr
    assert run(tmp_path)["charged"] == "0.5"
    assert run(tmp_path)["charged"] == "0"


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path):
    write(tmp_path, make_sqlite(tmp_path))
    dp_dask(tmp_path, "ledger", "init", "p.yaml", "--epsilon", "2")

    def change(*_: object) -> None:
        # Another process: the library that reads has its own copy of SQLite, and two copies in one process do not share locks.
        code = "import sqlite3; c = sqlite3.connect('a.db', timeout=60); c.execute('UPDATE t SET x = x + 1'); c.commit()"
        subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)

    with pytest.raises(SourceError, match="the data changed while they were read; nothing was released or charged"):
        pipeline.run(load(tmp_path / "p.yaml"), progress=change)
    assert '"spent": "0"' in dp_dask(tmp_path, "ledger", "show", "p.yaml", "--json").stdout


def test_a_table_without_a_version_is_refused_before_anything_is_opened(tmp_path: Path):
    write(tmp_path, "{kind: postgresql, uri: 'postgresql://127.0.0.1:1/nowhere', table: t}")
    for words in (("check", "p.yaml"), ("run", "p.yaml")):
        result = dp_dask(tmp_path, *words)
        assert result.returncode == 2
        assert "dataset.version: is missing; a database does not tell when its data changed" in result.stdout + result.stderr


def test_another_table_of_the_same_version_is_another_question(tmp_path: Path):
    source = make_adbc(tmp_path)
    write(tmp_path, source, "monday")
    dp_dask(tmp_path, "ledger", "init", "p.yaml", "--epsilon", "2")
    assert run(tmp_path)["charged"] == "0.5"
    write(tmp_path, source.replace("table: t", "query: SELECT x * 2 AS x FROM t").replace(", g: text", ""), "monday")
    assert run(tmp_path)["charged"] == "0.5"
    assert run(tmp_path)["charged"] == "0"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("{kind: postgresql, uri: 'postgresql://dp:hunter2@localhost/db', table: t}", "dataset.source: uri holds a password"),
        ("{kind: odbc, connection: 'Driver=x;PWD=hunter2', columns: {x: float64}, table: t}", "connection holds a password"),
        ("{kind: adbc, driver: d, uri: 'x://dp:hunter2@localhost/db', table: t}", "uri or options hold a password"),
        ("{kind: postgresql, password: hunter2, table: t}", "dataset.source.password: unknown key"),
        ("{kind: sqlite, path: a.db, query: SELECT 1; SELECT 2}", "query holds ';'"),
        ("{kind: duckdb, path: a.db}", "give either table or query"),
        ("{kind: postgresql, table: t, key: {column: id, from: 0, to: 9}}", "key is not made of column, from, to and parts"),
    ],
)
def test_what_a_file_may_not_say_is_refused_in_words(tmp_path: Path, source: str, said: str):
    write(tmp_path, source, "monday")
    result = dp_dask(tmp_path, "check", "p.yaml")
    assert result.returncode == 2
    assert said in result.stdout + result.stderr
    assert "hunter2" not in result.stdout + result.stderr


# PostgreSQL, whose password is in the environment


def call(folder: Path, *words: str, known: str = PASSWORD) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PGPASSWORD": known}
    command = [sys.executable, "-m", "dp_dask", *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def everything(folder: Path, *results: subprocess.CompletedProcess[str]) -> str:
    files = [path.read_bytes().decode("latin-1") for path in folder.rglob("*") if path.is_file()]
    return "\n".join([*files, *(result.stdout + result.stderr for result in results)])


def test_postgresql_is_charged_once_and_nothing_where_the_login_fails(tmp_path: Path, postgresql_server: PostgreSQL):
    postgresql_server.emptied()
    with psycopg.connect(postgresql_server.conninfo, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE t AS {RECORDS} generate_series(0, {N - 2}) i")
    uri = f"postgresql://dp@127.0.0.1:{postgresql_server.port}/postgres"
    processes = "cluster: {kind: local, processes: true, workers: 1}"
    write(tmp_path, f"{{kind: postgresql, uri: '{uri}', table: t}}", "monday")
    (tmp_path / "p.yaml").write_text((tmp_path / "p.yaml").read_text() + processes)
    assert dp_dask(tmp_path, "ledger", "init", "p.yaml", "--epsilon", "2").returncode == 0
    wrong = call(tmp_path, "run", "p.yaml", known="wrong-hunter2")
    assert wrong.returncode == 4
    assert "t: the database did not answer as asked" in wrong.stderr
    shown = dp_dask(tmp_path, "ledger", "show", "p.yaml", "--json")
    assert '"spent": "0"' in shown.stdout
    first, second = call(tmp_path, "run", "p.yaml", "--json"), call(tmp_path, "run", "p.yaml", "--json")
    assert json.loads(first.stdout)["charged"] == "0.5", first.stderr
    assert json.loads(second.stdout)["charged"] == "0"
    told = everything(tmp_path, wrong, shown, first, second)
    for secret in ("hunter2", PASSWORD, str(CANARY)):
        assert secret not in told


def test_a_server_that_quotes_a_value_is_not_quoted(tmp_path: Path, postgresql_server: PostgreSQL):
    postgresql_server.emptied()
    with psycopg.connect(postgresql_server.conninfo, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE t AS SELECT 'secret {CANARY}' AS g")
    uri = f"postgresql://dp@127.0.0.1:{postgresql_server.port}/postgres"
    write(tmp_path, f"{{kind: postgresql, uri: '{uri}', query: 'SELECT g::float8 AS x FROM t'}}", "monday")
    assert dp_dask(tmp_path, "ledger", "init", "p.yaml", "--epsilon", "2").returncode == 0
    failed = call(tmp_path, "run", "p.yaml")
    assert failed.returncode == 4
    assert "the query: the database did not answer as asked" in failed.stderr
    told = everything(tmp_path, failed)
    assert "secret" not in told
    assert str(CANARY) not in told
    assert '"spent": "0"' in dp_dask(tmp_path, "ledger", "show", "p.yaml", "--json").stdout
