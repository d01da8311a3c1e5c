from __future__ import annotations

import pickle
import random
from decimal import Decimal

import psycopg
import pytest
from core.exact import make_statistic
from private import asked
from private.asked import check_conditions, collect, fails_quietly, ids
from private.tables import CANARY, CANARY_TEXT
from private.test_sql import NAMES
from servers import PASSWORD, PostgreSQL

from dp_dask.core.where import Between, Known, OneOf, Where
from dp_dask.private.filtered import Filtered
from dp_dask.private.sources.postgresql import plugin as Postgresql  # noqa: N812
from dp_dask.private.sql import quote

# Types

TYPES = """
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE DOMAIN cents AS numeric(10, 2);
CREATE TABLE t (i2 int2, i4 int4, i8 int8, f4 float4, f8 float8, n numeric, n2 numeric(10, 2), c cents, b bool,
  g text, v varchar(5), h char(5), nm name, e mood, d date, ts timestamp, tz timestamptz, mo money, o oid, u uuid, j json,
  jb jsonb, iv interval, ti time, ar int[], by bytea)
"""
NUMBERS = ["i2", "i4", "i8", "f4", "f8", "n", "n2", "c", "b"]


def test_every_type_is_read_as_what_it_is(server: psycopg.Connection):
    server.execute(TYPES)
    server.execute(
        "INSERT INTO t VALUES (-7, 8, 9007199254740993, 0.1, 0.1, 0.1, 3.25, 4.5, true, 'ä', 'b', 'c', 'n', 'sad', '2024-02-29',"
        " '2024-02-29 23:59:59.999999', '2024-02-29 23:30:00-01', 3.5)"
    )
    server.execute("INSERT INTO t (i2) VALUES (NULL)")
    source = Postgresql(table="t")
    (row, nulls) = collect(source, NUMBERS)
    assert row == (-7.0, 8.0, 2.0**53, 0.10000000149011612, 0.1, 0.1, 3.25, 4.5, 1.0)
    assert nulls == (None,) * 9
    texts = ["g", "v", "h", "nm", "e"]
    assert collect(source, texts, texts=texts) == [("ä", "b", "c", "n", "sad"), (None,) * 5]
    dates = ["d", "ts", "tz"]
    assert collect(source, dates, dates=dates) == [(19782.0, 19782.0, 19783.0), (None,) * 3]
    kinds = dict(zip(source.schema().names, map(str, source.schema().types), strict=True))
    assert [kinds[name] for name in ("i8", "n", "b", "g", "d", "ts", "tz", "mo")] == [
        *("int64", "double", "bool", "string", "date32[day]", "timestamp[us]", "timestamp[us, tz=UTC]", "null")
    ]


@pytest.mark.parametrize("column", ["mo", "o", "u", "j", "jb", "iv", "ti", "ar", "by", "g", "d", "tz"])
def test_what_is_no_number_is_refused_by_its_type(server: psycopg.Connection, column: str):
    """The driver gives money in cents, and an oid with a sign."""
    server.execute(TYPES)
    assert f"t: column {column!r} is of type " in fails_quietly(lambda: Postgresql(table="t").check([column]))
    assert f"t: column {column!r} is of type " in fails_quietly(lambda: collect(Postgresql(table="t"), [column]))


@pytest.mark.parametrize("column", ["i4", "n", "u", "j", "by"])
def test_what_is_no_text_or_date_is_refused_by_its_type(server: psycopg.Connection, column: str):
    server.execute(TYPES)
    source, only = Postgresql(table="t"), frozenset({column})
    assert "its categories are texts" in fails_quietly(lambda: source.check([column], only))
    assert "compared with dates" in fails_quietly(lambda: source.check([column], dates=only))


def test_decimals_are_the_nearest_float_however_long(server: psycopg.Connection):
    rng = random.Random(1)
    texts = ["1e400", "-1e400", "1e-400", "0", "9007199254740993", "9007199254740992.99999999999999999999", "NaN", "Infinity"]
    texts += [f"{rng.choice('+-')}{rng.getrandbits(120)}e{rng.randint(-330, 290)}" for _ in range(300)]
    server.execute("CREATE TABLE t (id int, n numeric)")
    with server.cursor() as cursor:
        cursor.executemany("INSERT INTO t VALUES (%s, %s::numeric)", list(enumerate(texts)))
    found = [value for _, value in sorted(collect(Postgresql(table="t"), ["id", "n"]))]
    assert [asked.same(value) for value in found] == [asked.same(float(Decimal(text))) for text in texts]


def test_infinite_and_far_dates_are_no_other_dates(server: psycopg.Connection):
    """The driver turns an infinite one over, to the years before Christ."""
    server.execute("CREATE TABLE t (id int, d date, ts timestamp, tz timestamptz)")
    for i, far in enumerate(["infinity", "-infinity"]):
        server.execute("INSERT INTO t VALUES (%s, %s, %s, %s)", (i, far, far, far))
    server.execute(
        "INSERT INTO t VALUES (2, '5874897-12-31', '294276-12-31', '294276-12-31 12:00Z'), (3, '4713-01-01 BC', NULL, NULL)"
    )
    far, instant, early = server.execute(
        "SELECT '5874897-12-31'::date - '1970-01-01'::date, '294276-12-31'::date - '1970-01-01'::date,"
        " '4713-01-01 BC'::date - '1970-01-01'::date"
    ).fetchone()
    names = ["d", "ts", "tz"]
    found = collect(Postgresql(table="t"), names, dates=names)
    assert found == [(None,) * 3, (None,) * 3, (far, instant, instant), (early, None, None)]


def test_texts_of_another_encoding_are_read_as_the_same_texts(server: psycopg.Connection, monkeypatch: pytest.MonkeyPatch):
    server.execute("CREATE TABLE t (g text)")
    server.execute("INSERT INTO t VALUES ('ä')")
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    assert collect(Postgresql(table="t"), ["g"], texts=["g"]) == [("ä",)]


# Names


@pytest.mark.parametrize("name", NAMES)
def test_any_name_of_a_table_and_a_column_is_read(server: psycopg.Connection, name: str):
    server.execute(f"CREATE SCHEMA {quote(name)}")
    for schema in ("public", name):
        server.execute(
            f"CREATE TABLE {quote(schema)}.{quote(name)} AS SELECT i::float8 AS {quote(name)} FROM generate_series(1, 3) i"
        )
    for source in (Postgresql(table=name), Postgresql(table=name, schema_name=name)):
        with source.pinned() as held:
            held.check([name])
            assert collect(held.narrowed(Where((Known(name),))), [name]) == [(1.0,), (2.0,), (3.0,)]


def test_names_match_exactly(server: psycopg.Connection):
    server.execute('CREATE TABLE t (x float8, "X" float8)')
    server.execute("INSERT INTO t VALUES (1, 2)")
    assert collect(Postgresql(table="t"), ["x", "X"]) == [(1.0, 2.0)]
    assert fails_quietly(lambda: Postgresql(table="t").check(["y"])) == "t: no column 'y'; there are: x, X"
    assert "2 columns are called 'x'" in fails_quietly(lambda: Postgresql(query="SELECT 1 AS x, 2 AS x").check(["x"]))
    assert "no such table" in fails_quietly(lambda: Postgresql(table="T").check(["x"]))


# What is told


def test_an_error_quotes_no_value(server: psycopg.Connection):
    server.execute("CREATE TABLE t (g text)")
    server.execute("INSERT INTO t VALUES (%s)", (f"{CANARY_TEXT} {CANARY}",))
    for expression in ("g::int", "1 / (length(g) - length(g))", "g::date"):
        source = Postgresql(query=f"SELECT ({expression})::text::float8 AS x FROM t".replace("::text", "::text", 1))
        fails_quietly(lambda source=source: collect(source, ["x"]), CANARY_TEXT, str(CANARY))


@pytest.mark.parametrize(
    "uri",
    [
        "postgresql://dp:hunter2@localhost/db",
        "postgres://dp:hunter2@localhost/db",
        "postgresql://dp:@localhost/db",
        "postgresql://localhost/db?password=hunter2",
        "postgresql://localhost/db?pass%77ord=hunter2",
        "postgresql://localhost/db?sslpassword=hunter2",
        "postgresql://dp:hunter2@a,b:5433/db",
        "postgresql://dp:hunter2@[::1/db",
        "host=localhost password=hunter2",
    ],
)
def test_a_uri_with_a_password_is_refused_without_telling_it(uri: str):
    with pytest.raises(ValueError, match=r"^uri ") as caught:
        Postgresql(table="t", uri=uri)
    assert "hunter2" not in str(caught.value)


def test_no_password_travels_to_a_task(
    server: psycopg.Connection, postgresql_server: PostgreSQL, monkeypatch: pytest.MonkeyPatch
):
    server.execute("CREATE TABLE t AS SELECT 1.0::float8 AS x")
    uri = f"postgresql://dp:{PASSWORD}@127.0.0.1:{postgresql_server.port}/postgres"
    monkeypatch.setenv("RECORDS_URI", uri)
    where = Where((Between("x", 0.0, 2.0),))
    for given in (Postgresql(table="t"), Postgresql(table="t", uri_variable="RECORDS_URI")):
        if given.uri_variable:
            monkeypatch.delenv("PGPASSWORD")
        with Filtered(given, where).pinned() as source:
            sent = pickle.dumps([(source, split, [make_statistic(0, 1)]) for split in source.plan()])
            assert collect(source, ["x"]) == [(1.0,)]
        assert PASSWORD.encode() not in sent
        assert str(postgresql_server.port).encode() not in sent


@pytest.mark.usefixtures("server")
def test_a_login_that_fails_tells_neither_password_nor_uri(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PGPASSWORD", "wrong-hunter2")
    said = fails_quietly(lambda: collect(Postgresql(table="t"), ["x"]), "hunter2", PASSWORD, "127.0.0.1")
    assert said.startswith("t: the database did not answer as asked; see that it can be reached from here")
    monkeypatch.delenv("NOWHERE", raising=False)
    said = fails_quietly(lambda: Postgresql(table="t", uri_variable="NOWHERE").check(["x"]))
    assert said == "t: the environment variable NOWHERE is not set; set it here and on the workers"


# Conditions


@pytest.mark.parametrize(("seed", "text"), [(1, "text"), (2, "varchar"), (3, "text COLLATE nocase")])
def test_conditions_that_are_pushed_down_keep_every_record_that_meets_them(server: psycopg.Connection, seed: int, text: str):
    table = asked.rows(300, seed)
    server.execute("CREATE COLLATION nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
    server.execute(f"CREATE TABLE t (id int, x float8, k int8, n numeric, g {text}, d date, t timestamptz)")
    with server.cursor() as cursor:
        cursor.executemany("INSERT INTO t VALUES (%(id)s, %(x)s, %(k)s, %(n)s, %(g)s, %(d)s, %(t)s)", table)
    pushed = check_conditions(Postgresql(table="t"), table, ["x", "k", "n", "g", "d", "t"], seed, count=4)
    for column, least in {"x": 0.4, "k": 0.3, "n": 0.2, "g": 0.1, "d": 0.9, "t": 0.9}.items():
        assert pushed[column].left_out > least * pushed[column].of, column


@pytest.mark.parametrize("type_", ["char(6)", "mood", "name"])
def test_conditions_on_other_texts_compare_what_is_read(server: psycopg.Connection, type_: str):
    server.execute("CREATE TYPE mood AS ENUM ('a', 'ab', '')")
    server.execute(f"CREATE TABLE t (id int, g {type_})")
    server.execute("INSERT INTO t VALUES (0, 'a'), (1, 'ab'), (2, ''), (3, NULL)")
    for texts, expected in {("a", "zz"): [0], ("a ",): [], ("",): [2], ("ab", "a"): [0, 1]}.items():
        assert ids(Filtered(Postgresql(table="t"), Where((OneOf("g", texts),)))) == expected


def test_instants_are_compared_in_utc_whatever_the_session_is_in(server: psycopg.Connection, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PGTZ", "America/New_York")
    server.execute("CREATE TABLE t (id int, t timestamptz)")
    server.execute(
        "INSERT INTO t VALUES (0, '2024-02-28 23:59:59.999999Z'), (1, '2024-02-29 00:00Z'), (2, '2024-02-29 23:59:59.9Z')"
    )
    where = Where((Between("t", 19782.0, 19782.0, is_date=True),))
    assert ids(Filtered(Postgresql(table="t"), where)) == [1, 2]
    assert ids(Postgresql(table="t").narrowed(where)) == [1, 2]
