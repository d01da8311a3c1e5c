"""SQL: the text of statements. Names and literals are quoted, queries wrapped, keys cut into ranges, conditions pushed down."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import ROUND_FLOOR, Decimal

from dp_dask.core.where import Between, Condition, Known, OneOf, Where

__all__ = ["Column", "Dialect", "Keys", "check_asked", "check_repeatable", "narrowing", "quote", "text_literal"]

EPOCH = date(1970, 1, 1)
MOST_PARTS = 10_000
MOST_VALUES = 100  # of a condition that is pushed down
SLACK, LEAST = 1e-12, 1e-300  # of a pushed number: more than any database's own conversions are off by
LARGEST = 2**63 - 1
VARYING = r"\b(limit|offset|fetch|top|sample|tablesample|rand\w*|uuid\w*|newid|row_number|distinct\s+on|clock_timestamp)\b"
FORBIDDEN = (";", "--", "/*", "\\", "$", "\0")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table, its type as the database calls it, and what it can be read as."""

    name: str
    type: str
    number: str = ""  # integer, float, decimal or boolean
    is_text: bool = False
    date: str = ""  # date, timestamp or instant, which has a zone


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one database writes what SQL leaves open; what it has no form for is not pushed down."""

    folds_case: bool = True  # two names that differ by case alone may be one
    text: str = "{}"  # a column as text
    real: str = "{}"  # a literal of a column of floats
    decimal: str = "{}"  # the same of decimals
    dates: Mapping[str, str] = field(default_factory=dict)  # literals of dates, timestamps and instants
    pushed_text: str = r"[ -~]*"  # the texts that surely mean themselves in a literal


def quote(name: str) -> str:
    """Quote an identifier, whatever it holds; raises ValueError where it is empty or holds a NUL."""
    if not name or "\0" in name:
        msg = f"{name!r} is no name of a table or column"
        raise ValueError(msg)
    return '"' + name.replace('"', '""') + '"'


def text_literal(text: str) -> str:
    """Quote a text as SQL does where a backslash means itself."""
    return "'" + text.replace("'", "''") + "'"


def check_asked(table: str, query: str) -> None:
    """Raise ValueError unless either a table is named or a query given that is a single SELECT, safe to stand in parentheses."""
    if bool(table) == bool(query):
        msg = "give either table or query"
        raise ValueError(msg)
    if table:
        quote(table)
        return
    found = [mark for mark in FORBIDDEN if mark in query]
    if found:
        msg = (
            f"query holds {', '.join(map(repr, found))}; give a single SELECT without comments, or make a view and give its name"
        )
        raise ValueError(msg)
    if not re.match(r"\s*(select|with)\b", query, re.IGNORECASE):
        msg = "query does not begin with SELECT or WITH; give a single SELECT, or make a view and give its name"
        raise ValueError(msg)
    if not _is_whole(query):
        msg = "query has a parenthesis or a quote that is not closed, or closes one that is not open"
        raise ValueError(msg)


def check_repeatable(query: str) -> None:
    """Raise ValueError where a query that is asked once a range may give other rows each time, as a view may too."""
    found = re.search(VARYING, query, re.IGNORECASE)
    if found:
        msg = (
            f"query holds {found.group(0)}: with a key it is asked once a range, may give other rows each time, and would lose "
            "some and double others; leave key out, or read a table"
        )
        raise ValueError(msg)


def _is_whole(query: str) -> bool:
    depth = 0
    for found in re.findall(r"'[^']*'|\"[^\"]*\"|[()'\"]", query):
        depth += {"(": 1, ")": -1}.get(found, 0)
        if depth < 0 or found in "'\"":
            return False
    return depth == 0


@dataclass(frozen=True, slots=True)
class Keys:
    """A numeric key cut into ranges: the first and the last are open, nulls are in the first; each record is in exactly one."""

    column: str
    start: Decimal
    stop: Decimal
    parts: int

    @classmethod
    def of(cls, given: Mapping[str, str | Decimal]) -> Keys:
        """Read ``key: {column, from, to, parts}``; raises ValueError."""
        wrong = sorted({"column", "from", "to", "parts"} ^ set(given))
        if wrong:
            msg = f"key is not made of column, from, to and parts; see to {', '.join(wrong)}"
            raise ValueError(msg)
        column, start, stop, parts = (given[name] for name in ("column", "from", "to", "parts"))
        if not isinstance(column, str):
            msg = "key.column is no text; give the name of a numeric column"
            raise ValueError(msg)  # noqa: TRY004  (a fault of the file)
        numbers = [n for n in (start, stop, parts) if isinstance(n, Decimal) and n.is_finite()]
        if len(numbers) < 3 or numbers[0] > numbers[1]:  # noqa: PLR2004
            msg = "key: give numbers for from, to and parts, with from not beyond to"
            raise ValueError(msg)
        if numbers[2] != int(numbers[2]) or not 1 <= numbers[2] <= MOST_PARTS:
            msg = f"key.parts is {numbers[2]}; give a whole number from 1 to {MOST_PARTS}"
            raise ValueError(msg)
        quote(column)
        return cls(column, numbers[0], numbers[1], int(numbers[2]))

    def condition(self, i: int, column: str) -> str:
        """Return what puts a record into range ``i``; empty where there is one range.

        Record by record, "key < cut" is unknown for a null and else true for no cut or from some cut on, however a database
        orders NaN or texts. A record is thus in exactly one range.
        """
        below = [f"{column} < {cut}" for cut in self._cuts()]
        if not below:
            return ""
        if i == 0:
            return f"({below[0]} OR {column} IS NULL)"
        least = f"NOT ({below[i - 1]})"
        return f"({least})" if i == len(below) else f"({least} AND {below[i]})"

    def _cuts(self) -> list[str]:
        width = self.stop - self.start
        cuts = [self.start + width * i / self.parts for i in range(1, self.parts)]
        if self.start == int(self.start) and self.stop == int(self.stop):
            cuts = [cut.to_integral_value(ROUND_FLOOR) for cut in cuts]
        return [f"{cut:f}" for cut in cuts]


def narrowing(where: Where, columns: Sequence[Column], dialect: Dialect) -> str:
    """Return a condition that holds for every record that meets ``where``, and for few others; empty where there is none."""
    known = {column.name: column for column in columns}
    pushed = [_pushed(c, known[c.column], dialect) for c in where.conditions if c.column in known]
    return " AND ".join(f"({text})" for text in pushed if text)


def _pushed(condition: Condition, column: Column, dialect: Dialect) -> str:
    name = f"r.{quote(column.name)}"
    if isinstance(condition, Known):
        return f"{name} IS NOT NULL"
    if isinstance(condition, OneOf):
        return _one_of(name, condition, column, dialect)
    if condition.is_date:
        return _days(name, condition, dialect.dates.get(column.date, ""), is_date=column.date == "date")
    return _numbers(name, condition.lower, condition.upper, column, dialect)


def _one_of(name: str, condition: OneOf, column: Column, dialect: Dialect) -> str:
    if len(condition.values) > MOST_VALUES:
        return ""
    if condition.is_text:
        # Equal byte by byte is equal under any collation: more may be equal there, and are left out later.
        texts = [str(value) for value in condition.values]
        if not column.is_text or not all(re.fullmatch(dialect.pushed_text, text) for text in texts):
            return ""
        return f"{dialect.text.format(name)} IN ({', '.join(map(text_literal, texts))})"
    each = [_numbers(name, float(value), float(value), column, dialect) for value in condition.values]
    return " OR ".join(f"({one})" for one in each) if all(each) else ""


def _numbers(name: str, lower: float | None, upper: float | None, column: Column, dialect: Dialect) -> str:
    """Bound a column by two numbers, a little outside: what is stored may differ from a bound, and yet round to it."""
    if column.number not in {"integer", "float", "decimal"}:
        return ""
    ends = []
    for sign, end, compares in ((-1, lower, ">="), (1, upper, "<=")):
        if end is None or not math.isfinite(end):
            continue
        wide = end + sign * (abs(end) * SLACK + LEAST)
        if column.number == "integer":
            if sign * wide < LARGEST:  # else every value of 64 bits is within, and wider ones may be
                whole = math.floor(wide) if sign > 0 else math.ceil(wide)
                ends.append(f"{name} {compares} {max(-LARGEST, min(whole, LARGEST))}")
        elif math.isfinite(wide):
            form = dialect.real if column.number == "float" else dialect.decimal
            ends.append(f"{name} {compares} {form.format(repr(wide))}")
    return " AND ".join(ends)


def _days(name: str, condition: Between, form: str, *, is_date: bool) -> str:
    if not form:
        return ""
    ends = []
    try:
        if condition.lower is not None:
            ends.append(f"{name} >= {form.format(EPOCH + timedelta(math.floor(condition.lower)))}")
        if condition.upper is not None:
            last = EPOCH + timedelta(math.ceil(condition.upper) + (0 if is_date else 1))
            ends.append(f"{name} {'<=' if is_date else '<'} {form.format(last)}")
    except OverflowError:  # beyond the years 1 to 9999
        return ""
    return " AND ".join(ends)
