"""SQL: the text of statements, tried on Python's own SQLite."""

from __future__ import annotations

import math
import random
import sqlite3
from contextlib import closing
from decimal import Decimal
from typing import Any

import pytest
from core.exact import LAW
from hypothesis import given
from hypothesis import strategies as st

from dp_dask.core.where import Between, OneOf, Where
from dp_dask.private.sql import Column, Dialect, Keys, check_asked, check_repeatable, narrowing, quote, text_literal

NAMES = ['a"b; drop table t', "a'b", "a b", '"', '""', "select", "A", "ä", "a.b", "--", "%"]


@pytest.mark.parametrize("name", NAMES)
def test_a_quoted_name_is_that_name(name: str):
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(f"CREATE TABLE {quote(name)} ({quote(name)} TEXT)")
        connection.execute(f"INSERT INTO {quote(name)} ({quote(name)}) VALUES ({text_literal(name)})")
        assert connection.execute("SELECT name FROM sqlite_schema").fetchall() == [(name,)]
        assert connection.execute(f"SELECT r.{quote(name)} FROM {quote(name)} r").fetchall() == [(name,)]


@pytest.mark.parametrize("name", ["", "a\0b"])
def test_what_cannot_be_a_name_is_refused(name: str):
    with pytest.raises(ValueError, match="no name of a table or column"):
        quote(name)


SELECTS = [
    "SELECT x FROM t",
    "  select\n x from t where g in ('a', 'b)', '(') and (x > 1)",
    'WITH w AS (SELECT 1 AS x) SELECT x, "a(b" FROM w',
    "SELECT 'it''s' AS g",
]


@pytest.mark.parametrize("query", SELECTS)
def test_a_single_select_is_accepted(query: str):
    check_asked("", query)


NO_SELECTS = [
    "DELETE FROM t",
    "SELECT x FROM t; DELETE FROM t",
    "SELECT x FROM t;",
    "SELECT 1) r, (SELECT 2",
    "SELECT (1",
    "SELECT 1 -- ) r",
    "SELECT 1 /* ) */",
    "SELECT 'a\\' AS g",
    "SELECT $$)$$",
    "SELECT 'open",
    'SELECT "open',
    "selection",
    "VALUES (1)",
]


@pytest.mark.parametrize("query", NO_SELECTS)
def test_what_is_no_single_select_is_refused(query: str):
    with pytest.raises(ValueError, match=r"^query "):
        check_asked("", query)


@pytest.mark.parametrize(("table", "query"), [("", ""), ("t", "SELECT 1")])
def test_either_a_table_or_a_query_is_asked(table: str, query: str):
    with pytest.raises(ValueError, match="either table or query"):
        check_asked(table, query)


# Keys


def keys(start: Any, stop: Any, parts: Any) -> dict[str, Any]:
    return {"column": "k", "from": Decimal(start), "to": Decimal(stop), "parts": Decimal(parts)}


NUMBERS = st.one_of(
    st.none(), st.integers(-(2**63), 2**63 - 1), st.integers(-20, 20), st.floats(-30, 30), st.sampled_from([1e300])
)
CUTS = st.decimals(-25, 25, places=2)


@LAW
@given(values=st.lists(NUMBERS, max_size=20), start=CUTS, stop=CUTS, parts=st.integers(1, 7))
def test_every_record_is_in_exactly_one_range_whatever_the_bounds_say(values: list[Any], start, stop, parts: int):
    cut = Keys.of(keys(min(start, stop), max(start, stop), parts))
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE t (k)")
        connection.executemany("INSERT INTO t VALUES (?)", [(value,) for value in [*values, "text", b"blob"]])
        conditions = [cut.condition(i, 'r."k"') or "1 = 1" for i in range(parts)]
        found = [row for c in conditions for (row,) in connection.execute(f"SELECT rowid FROM t r WHERE {c}")]
    assert sorted(found) == list(range(1, len(values) + 3))


def test_ranges_of_whole_numbers_are_cut_at_whole_numbers():
    """Where 2.5 was a cut, PostgreSQL would compare decimals and not use the index of an integer key."""
    cut = Keys.of(keys(0, 10, 4))
    assert [cut.condition(i, "k") for i in range(4)] == [
        "(k < 2 OR k IS NULL)",
        "(NOT (k < 2) AND k < 5)",
        "(NOT (k < 5) AND k < 7)",
        "(NOT (k < 7))",
    ]


@pytest.mark.parametrize(
    "given",
    [
        {"column": "k"},
        {**keys(0, 1, 2), "by": "x"},
        keys(2, 1, 2),
        keys(0, 1, 0),
        keys(0, 1, "2.5"),
        keys(0, "inf", 2),
        keys(0, 1, 10**6),
        {**keys(0, 1, 2), "from": "2020-01-01"},
        {**keys(0, 1, 2), "column": Decimal(1)},
    ],
)
def test_a_key_that_cuts_nothing_is_refused(given: dict[str, Any]):
    with pytest.raises(ValueError, match="key"):
        Keys.of(given)


@pytest.mark.parametrize("rest", ["LIMIT 10", "ORDER BY random()", "fetch first 3 rows only", "TABLESAMPLE SYSTEM (1)"])
def test_a_query_that_may_give_other_rows_each_time_is_not_cut(rest: str):
    with pytest.raises(ValueError, match="leave key out"):
        check_repeatable(f"SELECT x FROM t {rest}")
    check_repeatable("SELECT x, limits FROM t")


# Conditions


@pytest.mark.parametrize("number", ["integer", "float", "decimal"])
def test_what_rounds_to_a_bound_is_not_left_out(number: str):
    """Of every stored number between a bound and its neighbours, in exact arithmetic."""
    rng = random.Random(3)
    dialect = Dialect(folds_case=False)
    for _ in range(300):
        bound = rng.choice([0.0, 1.0, 2.0**53, -(2.0**60), 1e-300, rng.gauss(0, 1), rng.gauss(0, 1e18), 0.1, 1e300])
        low, high = (Decimal(math.nextafter(bound, end)) for end in (-math.inf, math.inf))
        stored = [low + (high - low) * i / 32 for i in range(33)]
        if number == "integer":
            stored = [Decimal(int(value)) for value in stored if abs(value) < 2**63]
        text = narrowing(Where((Between("x", bound, bound),)), [Column("x", "", number)], dialect)
        ends = [Decimal(end.split()[-1].strip(")")) for end in text.strip("()").split(" AND ")]
        for value in stored:
            if float(value) == bound:
                assert ends[0] <= value <= ends[-1] or (len(ends) == 1 and abs(bound) >= 2**63)


def test_whole_numbers_are_bounded_exactly():
    text = narrowing(Where((Between("x", 3.0, 5.0),)), [Column("x", "", "integer")], Dialect())
    assert text == '(r."x" >= 3 AND r."x" <= 5)'


@pytest.mark.parametrize("bound", [1e19, -1e19, math.inf, -math.inf, 1.7e308])
@pytest.mark.parametrize("number", ["integer", "float", "decimal"])
def test_bounds_beyond_every_number_leave_nothing_out_that_meets_them(bound: float, number: str):
    """Numbers of 128 bits and infinite floats may lie there."""
    column = Column("x", "", number)
    assert ">=" not in narrowing(Where((Between("x", -abs(bound), None),)), [column], Dialect()) or number != "integer"
    assert "<=" not in narrowing(Where((Between("x", None, abs(bound)),)), [column], Dialect()) or number != "integer"
    text = narrowing(Where((Between("x", abs(bound), None),)), [column], Dialect())
    assert text == "" or float(text.strip("()").split()[-1]) <= abs(bound)


@pytest.mark.parametrize(
    ("condition", "column"),
    [
        (OneOf("x", ("a",)), Column("x", "int", "integer")),
        (OneOf("x", (1.0,)), Column("x", "text", is_text=True)),
        (Between("x", 0.0, 1.0), Column("x", "bool", "boolean")),
        (Between("x", 0.0, 1.0, is_date=True), Column("x", "date", date="date")),
        (OneOf("x", ("é",)), Column("x", "text", is_text=True)),
        (OneOf("x", tuple(map(float, range(200)))), Column("x", "int", "integer")),
        (OneOf("y", ("a",)), Column("x", "text", is_text=True)),
    ],
)
def test_what_is_not_sure_is_not_pushed(condition, column: Column):
    assert narrowing(Where((condition,)), [column], Dialect()) == ""


def test_a_text_is_quoted():
    text = narrowing(Where((OneOf("x", ("o'b", "b")),)), [Column("x", "text", is_text=True)], Dialect())
    assert text == "(r.\"x\" IN ('o''b', 'b'))"
