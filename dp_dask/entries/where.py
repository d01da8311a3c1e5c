"""Where: the conditions on records, from their entry in the pipeline file."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

from dp_dask.core.where import EPOCH, Between, Condition, Known, OneOf, Where
from dp_dask.entries.build import Faults, check_keys, leaf, leaves, show

__all__ = ["read_where"]

FORMS = "a value, a list of values, {from: .., to: ..} with numbers or dates such as 2026-01-31, or {is: known}"


def read_where(given: Any, faults: Faults) -> Where | None:
    """Read ``dataset.where``, a mapping from columns to conditions; None where there was a fault, or there are none."""
    path = "dataset.where"
    if not isinstance(given, dict) or not given:
        faults.add(path, f"is {show(given)}; give a mapping from columns to conditions, each {FORMS}")
        return None
    conditions = [_condition(column, value, f"{path}.{column}", faults) for column, value in given.items()]
    kept = tuple(condition for condition in conditions if condition is not None)
    return Where(kept) if len(kept) == len(conditions) else None


def _condition(column: str, given: Any, path: str, faults: Faults) -> Condition | None:
    if isinstance(given, dict):
        return _is_known(column, given, path, faults) if "is" in given else _between(column, given, path, faults)
    values = given if isinstance(given, list) else [given]
    if values and all(isinstance(value, str) for value in values):
        texts = leaves(str, values, path, faults)
        return OneOf(column, tuple(texts)) if texts else None
    if not values or not all(isinstance(value, bool | Decimal | int | float) for value in values):
        faults.add(path, f"is {show(given)}; give {FORMS}, all texts or all numbers")
        return None
    numbers = [leaf(float, Decimal(value) if isinstance(value, bool) else value, path, faults) for value in values]
    return None if None in numbers else OneOf(column, tuple(numbers))


def _is_known(column: str, given: dict[str, Any], path: str, faults: Faults) -> Known | None:
    values = check_keys(given, path, ["is"], ["is"], faults)
    if values.get("is") != "known":
        faults.add(f"{path}.is", f"is {show(values.get('is'))}; write known, for records that hold a value")
        return None
    return Known(column)


def _between(column: str, given: dict[str, Any], path: str, faults: Faults) -> Between | None:
    values = check_keys(given, path, ["from", "to"], [], faults)
    before = len(faults.problems)
    ends = [_end(values[name], f"{path}.{name}", faults) if name in values else None for name in ("from", "to")]
    if len(faults.problems) > before:
        return None
    kinds = {is_date for end in ends if end is not None for _, is_date in [end]}
    if len(kinds) != 1:
        faults.add(path, f"is {show(given)}; give from, to, or both, as two numbers or two dates")
        return None
    lower, upper = (None if end is None else end[0] for end in ends)
    if lower is not None and upper is not None and lower > upper:
        faults.add(path, f"is {show(given)}; from must not be beyond to")
        return None
    return Between(column, lower, upper, kinds.pop())


def _end(value: Any, path: str, faults: Faults) -> tuple[float, bool] | None:
    """Return a number or, of a date, its day, and whether it is one."""
    if not isinstance(value, str):
        number = leaf(float, value, path, faults)
        return None if number is None else (number, False)
    try:
        return float((date.fromisoformat(value) - EPOCH).days), True
    except ValueError:
        faults.add(path, f"is {show(value)}; give a number, or a date as 2026-01-31")
        return None
