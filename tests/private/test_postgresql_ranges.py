from __future__ import annotations

import math
import random
from typing import Any

import psycopg
import pytest
from core.exact import make_statistic
from core.exact import total as exact
from private.asked import collect, fails_quietly, ids
from private.test_sql import keys

from dp_dask.clusters.local import plugin as Local  # noqa: N812
from dp_dask.core.sensitive import reveal
from dp_dask.private.reduce import reduce
from dp_dask.private.sources import postgresql as kind
from dp_dask.private.sources.postgresql import plugin as Postgresql  # noqa: N812

PAGES = 8192


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kind, "RANGE_BYTES", 16 * PAGES)


# Ranges


def make_numbered(server: psycopg.Connection, n: int, storage: str = "") -> None:
    server.execute(f"CREATE TABLE t (id int, x float8, pad text) {storage}")
    server.execute("INSERT INTO t SELECT i, i, repeat('x', i %% 50) FROM generate_series(0, %s) i", (n - 1,))


@pytest.mark.parametrize("seed", range(3))
def test_every_record_is_read_once_after_deletes_updates_and_vacuum(server: psycopg.Connection, seed: int):
    rng = random.Random(seed)
    make_numbered(server, 5000, "WITH (fillfactor = 70)")
    kept, free = set(range(5000)), 5000
    for _ in range(4):
        gone = rng.sample(sorted(kept), 500)
        kept -= set(gone)
        server.execute("DELETE FROM t WHERE id = ANY(%s)", (gone,))
        server.execute("UPDATE t SET x = x + 1 WHERE id %% 7 = %s", (rng.randrange(7),))
        if rng.random() < 0.7:
            server.execute(rng.choice(["VACUUM t", "VACUUM FULL t"]))
        more = range(free, free + 700)
        kept |= set(more)
        free += 700
        server.execute("INSERT INTO t SELECT unnest(%s::int[]), 1, 'y'", (list(more),))
    source = Postgresql(table="t")
    assert len(source.plan()) > 3
    assert ids(source) == sorted(kept)


@pytest.mark.parametrize("form", ["partitions", "inheritance", "materialized", "view", "query", "unlogged"])
def test_every_record_is_read_once_whatever_the_table_is(server: psycopg.Connection, form: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kind, "RANGE_BYTES", 5 * PAGES)
    source = Postgresql(table="t")
    if form == "partitions":
        server.execute("CREATE TABLE t (id int, x float8, pad text) PARTITION BY RANGE (id)")
        for i in range(3):
            server.execute(f"CREATE TABLE t{i} PARTITION OF t FOR VALUES FROM ({1000 * i}) TO ({1000 * i + 1000})")
        server.execute("INSERT INTO t SELECT i, i, repeat('x', i % 50) FROM generate_series(0, 2999) i")
    else:
        make_numbered(server, 3000)
    if form == "inheritance":
        server.execute("CREATE TABLE child () INHERITS (t)")
        server.execute("WITH moved AS (DELETE FROM ONLY t WHERE id % 3 > 0 RETURNING *) INSERT INTO child SELECT * FROM moved")
    elif form in {"materialized", "view"}:
        server.execute(f"CREATE {form.replace('view', '')} VIEW v AS SELECT * FROM t")
        source = Postgresql(table="v")
    elif form == "query":
        source = Postgresql(query="SELECT id, x FROM t")
    elif form == "unlogged":
        server.execute("ALTER TABLE t SET UNLOGGED")
    with source.pinned() as held:
        assert ids(held) == list(range(3000))
        assert (len(held.plan()) > 1) is (form not in {"view", "query"})


KEYED = [None, math.nan, math.inf, -math.inf, 0.0, -0.0, 1e300, 5.0, 5.5, 10.0, -1e9]


@pytest.mark.parametrize("type_", ["float8", "float4", "numeric", "int8"])
@pytest.mark.parametrize("bounds", [(0, 10, 4), (5, 5, 3), (-3, "5.5", 2)])
def test_every_record_is_in_one_range_of_a_key_whatever_the_bounds_say(server: psycopg.Connection, type_: str, bounds: Any):
    values = [value for value in KEYED if not (type_ == "int8" and value is not None and not float(value).is_integer())]
    values = [v if type_ != "int8" or v is None or abs(v) < 1e18 else None for v in values]
    values = [v if type_ != "float4" or v is None or abs(v) < 1e38 or math.isinf(v) else 1e30 for v in values]
    server.execute(f"CREATE TABLE t (id int, k {type_})")
    with server.cursor() as cursor:
        cursor.executemany("INSERT INTO t VALUES (%s, %s)", list(enumerate(values)))
    source = Postgresql(query="SELECT * FROM t", key=keys(*bounds))
    assert len(source.plan()) == bounds[2]
    assert ids(source) == list(range(len(values)))


def test_a_key_must_be_a_numeric_column(server: psycopg.Connection):
    server.execute("CREATE TABLE t (x float8, k text, b bool)")
    for column in ("k", "b", "nosuch"):
        source = Postgresql(table="t", key={**keys(0, 1, 2), "column": column})
        assert f"no numeric column {column!r}" in fails_quietly(lambda source=source: source.check(["x"]))


def test_an_empty_table_has_no_records(server: psycopg.Connection):
    server.execute("CREATE TABLE t (x float8)")
    source = Postgresql(table="t")
    source.check(["x"])
    assert collect(source, ["x"]) == []


def test_records_are_streamed_in_batches(server: psycopg.Connection):
    server.execute("CREATE TABLE t AS SELECT i::float8 AS x, repeat('x', 1000) AS g FROM generate_series(1, 20000) i")
    server.execute("CREATE VIEW v AS SELECT * FROM t")
    source = Postgresql(table="v")
    (split,) = source.plan()
    sizes = [batch.n_records for batch in source.read(split, ["g", "x"], frozenset({"g"}))]
    assert sum(sizes) == 20_000
    assert max(sizes) < 8000


# One state


def test_all_tasks_read_the_state_that_is_held(server: psycopg.Connection):
    make_numbered(server, 3000)
    with Postgresql(table="t").pinned() as source:
        splits = source.plan()
        first, *others = [source.read(split, ["id"]) for split in splits]
        found = [int(v) for batch in first for v in batch.columns["id"].to_pylist()]
        server.execute("UPDATE t SET id = id + 100000")
        server.execute("DELETE FROM t WHERE id % 2 = 0")
        server.execute("INSERT INTO t SELECT i, 1, 'y' FROM generate_series(900000, 903000) i")
        server.execute("VACUUM t")
        for read in others:
            found += [int(v) for batch in read for v in batch.columns["id"].to_pylist()]
        assert sorted(found) == list(range(3000))
        assert ids(source) == list(range(3000))
        for statement in ("TRUNCATE t", "VACUUM FULL t", "ALTER TABLE t DROP COLUMN x"):
            server.execute("SET lock_timeout = '50ms'")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                server.execute(statement)
    server.execute("TRUNCATE t")
    assert fails_quietly(lambda: source.plan()).startswith("t: the database did not answer as asked")  # noqa: PLW0108
    assert collect(Postgresql(table="t"), ["id"]) == []


def test_a_table_that_changes_while_a_cluster_reads_it_is_summed_as_it_was(server: psycopg.Connection):
    make_numbered(server, 5000)
    statistic = make_statistic(0, 10_000, column="id", is_integer=True)
    changes: list[int] = []

    def change(done: int, _of: int) -> None:
        changes.append(done)
        server.execute("UPDATE t SET id = id + 1; INSERT INTO t SELECT * FROM t LIMIT 100; DELETE FROM t WHERE id % 10 = 3")

    with Local(workers=1).client() as client, Postgresql(table="t").pinned() as source:
        total = reveal(reduce(client, source, [statistic], progress=change, stall_timeout=60))
    assert len(changes) > 2
    assert (total.sums, total.n_records) == ((exact(statistic, range(5000)),), 5000)
    assert ids(Postgresql(table="t")) != list(range(5000))


def test_nothing_can_be_written(server: psycopg.Connection):
    server.execute("CREATE TABLE t (x float8); CREATE SEQUENCE s")
    server.execute("CREATE FUNCTION f() RETURNS float8 LANGUAGE sql AS 'INSERT INTO t VALUES (1) RETURNING x'")
    fails_quietly(lambda: collect(Postgresql(query="SELECT f() AS x"), ["x"]))
    assert server.execute("SELECT count(*) FROM t").fetchone() == (0,)
