"""Iceberg filter: conditions as pyiceberg's expressions, where it surely looks at them as we do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import ceil, floor
from typing import Any

from dp_dask.core.where import Between, Condition, OneOf

__all__ = ["pushed"]

EXACT = 2**53  # integers below are what they are as float64
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
INTEGERS = {"int", "long"}
DATES = {"date", "timestamp", "timestamptz"}
FURTHEST = 2_900_000  # days since then, about the year 9900


def pushed(expressions: Any, condition: Condition, kind: str) -> list[Any]:
    """Return expressions that each record meets which meets the condition; a null meets neither.

    Texts are compared byte by byte in both, dates and instants by the day. An integer is compared as a float64, hence only with
    ends at which it is exact; other numbers are not looked at.
    """
    if "." in condition.column:  # pyiceberg would look inside another column
        return []
    if isinstance(condition, OneOf):
        return _one_of(expressions, condition, kind)
    return _between(expressions, condition, kind) if isinstance(condition, Between) else []


def _one_of(expressions: Any, condition: OneOf, kind: str) -> list[Any]:
    if condition.is_text:
        return [expressions.In(condition.column, set(condition.values))] if kind == "string" else []
    values = [float(value) for value in condition.values]
    is_exact = kind in INTEGERS and all(abs(value) < EXACT for value in values)
    whole = {int(value) for value in values if value.is_integer()} if is_exact else set()
    return [expressions.In(condition.column, whole)] if whole else []


def _between(expressions: Any, condition: Between, kind: str) -> list[Any]:
    column, lower, upper = condition.column, condition.lower, condition.upper
    if condition.is_date and kind in DATES:
        first, last = (None if end is None or abs(end) > FURTHEST else EPOCH + timedelta(days=end) for end in (lower, upper))
        above = [] if first is None else [expressions.GreaterThanOrEqual(column, _instant(first, kind))]
        return [*above, *([] if last is None else [expressions.LessThan(column, _instant(last + timedelta(days=1), kind))])]
    if kind in INTEGERS and not condition.is_date:
        low, high = (None if end is None or abs(end) >= EXACT else end for end in (lower, upper))
        above = [] if low is None else [expressions.GreaterThanOrEqual(column, ceil(low))]
        return [*above, *([] if high is None else [expressions.LessThanOrEqual(column, floor(high))])]
    return []


def _instant(moment: datetime, kind: str) -> str:
    zone = "+00:00" if kind == "timestamptz" else ""
    return moment.date().isoformat() if kind == "date" else f"{moment:%Y-%m-%dT%H:%M:%S}{zone}"
