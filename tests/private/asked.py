"""Asked: random tables for databases, what comes out of a source, and which records meet conditions, in plain Python."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
from private.tables import plain

from dp_dask.core.where import Between, Condition, Known, OneOf, Where
from dp_dask.private.arrow import as_bytes, days_and_validity
from dp_dask.private.filtered import Filtered
from dp_dask.private.sources import Source, Split

EPOCH = date(1970, 1, 1)
FLOATS = [0.0, -0.0, 5e-324, 1e300, -1e300, 0.1, 0.1 + 0.2, float(np.float32(0.1)), 1.0, 2.5, None]
ODD_FLOATS = [math.nan, math.inf, -math.inf]
INTEGERS = [0, 1, 2, 3, 2**53 - 1, 2**53, 2**53 + 1, 2**53 + 3, -(2**53) - 1, 2**62, 2**63 - 1, -(2**63), None]
DECIMALS = [Decimal(text) for text in ("0.1", "0.1000000000", "9007199254740992.5", "9007199254740993", "0.3", "-2.5", "1e-10")]
TEXTS = ["a", "A", "b", "ab", "a ", "", "ä", "a\u0308", "o'b", 'q"q', "back\\slash", "%", "x;--", "NULL", "1", None]
DATES = [date(2024, 2, 28), date(2024, 2, 29), date(2024, 3, 1), date(1969, 12, 31), date(1970, 1, 1), date(1, 1, 1), None]
DATES += [date(9999, 12, 31)]
INSTANTS = [datetime(2024, 2, 29, tzinfo=UTC) + timedelta(microseconds=us) for us in (-1, 0, 1, 86_399_999_999, 86_400_000_000)]
INSTANTS += [None, datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)]
VALUES = {"x": FLOATS, "k": INTEGERS, "n": [*DECIMALS, None], "g": TEXTS, "d": DATES, "t": INSTANTS}
KINDS = {"x": "number", "k": "number", "n": "number", "g": "text", "d": "date", "t": "date"}


def rows(n: int, seed: int, *, odd: bool = True) -> list[dict[str, Any]]:
    """Make records with a number ``id`` and columns x, k, n, g, d and t; ``odd`` floats are NaN and infinite."""
    rng = random.Random(seed)
    values = {**VALUES, "x": [*FLOATS, *ODD_FLOATS] if odd else FLOATS}
    return [{"id": i, **{name: rng.choice(values[name]) for name in values}} for i in range(n)]


def collect(
    source: Source, columns: Iterable[str], *, splits: list[Split] | None = None, **roles: Iterable[str]
) -> list[tuple[Any, ...]]:
    """Return the records: numbers as floats, texts as texts, dates as days, None for a null."""
    columns = list(columns)
    roles = {name: frozenset(roles.get(name, ())) for name in ("texts", "dates")}
    found: list[tuple[Any, ...]] = []
    for split in source.plan() if splits is None else splits:
        for batch in source.read(split, columns, **roles):
            parts = [_values(batch.columns[name], name, **roles) for name in columns]
            assert all(len(part) == batch.n_records for part in parts)
            found += zip(*parts, strict=True)
    return found


def _values(array: Any, name: str, texts: frozenset[str], dates: frozenset[str]) -> list[Any]:
    if name in texts:
        return [None if value is None else value.decode() for value in as_bytes(array).to_pylist()]
    if name in dates:
        days, valid = days_and_validity(array)
        return [float(day) if valid is None or valid[i] else None for i, day in enumerate(days)]
    return plain(array)


def same(value: Any) -> Any:
    """Make NaN equal to itself, and to nothing else."""
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def ids(source: Source, splits: list[Split] | None = None) -> list[int]:
    return sorted(int(value) for (value,) in collect(source, ["id"], splits=splits))


def read_as(value: Any) -> float | str | None:
    """Return what a value is read as: the nearest float64, a text, a day."""
    if isinstance(value, datetime):
        return float((value.astimezone(UTC).date() - EPOCH).days)
    if isinstance(value, date):
        return float((value - EPOCH).days)
    return float(value) if isinstance(value, int | float | Decimal) else value


def meets(condition: Condition, row: dict[str, Any]) -> bool:
    value = read_as(row[condition.column])
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return False
    if isinstance(condition, OneOf):
        return value in condition.values
    if isinstance(condition, Known):
        return True
    low, high = condition.lower, condition.upper
    return (low is None or value >= low) and (high is None or value <= high)


def random_condition(rng: random.Random, table: list[dict[str, Any]], column: str) -> Condition:
    """Draw a condition whose ends are values of the table, or their neighbours."""
    known = [v for v in (read_as(row[column]) for row in table) if v is not None and same(v) != "NaN"]
    if KINDS[column] == "text":
        return OneOf(column, tuple(rng.sample(sorted(set(known)), rng.randint(1, 3))))
    ends = [rng.choice(known), rng.choice(known)]
    is_date = KINDS[column] == "date"
    if not is_date:
        ends = [float(np.nextafter(end, rng.choice([-math.inf, end, math.inf]))) for end in ends]
        if rng.random() < 0.4:
            return OneOf(column, tuple(dict.fromkeys(ends)))
        if rng.random() < 0.1:
            return Known(column)
    lower, upper = sorted(ends)
    return Between(column, *rng.choice([(lower, upper), (None, upper), (lower, None)]), is_date=is_date)


@dataclass(frozen=True)
class Pushed:
    """How many records a source left out by itself, of those that conditions on one column leave out."""

    left_out: int
    of: int


def check_conditions(
    source: Source, table: list[dict[str, Any]], columns: Iterable[str], seed: int = 1, *, count: int = 12
) -> dict[str, Pushed]:
    """Hold random conditions, pushed down, against plain Python; tell what was pushed column by column."""
    rng = random.Random(seed)
    pushed: dict[str, Pushed] = {}
    splits = source.plan()
    assert ids(source, splits) == [row["id"] for row in table]
    for column in columns:
        left_out = of = 0
        for _ in range(count):
            where = Where((random_condition(rng, table, column),))
            expected = [row["id"] for row in table if meets(where.conditions[0], row)]
            assert ids(Filtered(source, where), splits) == expected, where
            narrowed = ids(source.narrowed(where), splits)
            assert set(expected) <= set(narrowed)
            assert len(set(narrowed)) == len(narrowed)
            left_out += len(table) - len(narrowed)
            of += len(table) - len(expected)
        pushed[column] = Pushed(left_out, of)
    both = [random_condition(rng, table, column) for column in list(columns)[:2]]
    assert ids(Filtered(source, Where(tuple(both))), splits) == [row["id"] for row in table if all(meets(c, row) for c in both)]
    return pushed


def fails_quietly(work: Callable[[], Any], *secrets: str) -> str:
    """Return the text of the SourceError that work raises, which hangs on no other error and tells no secret."""
    import traceback

    import pytest

    from dp_dask.errors import SourceError

    with pytest.raises(SourceError) as caught:
        work()
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None
    told = "".join(traceback.format_exception(caught.value))
    assert not [secret for secret in secrets if secret in str(caught.value)], told
    return str(caught.value)
