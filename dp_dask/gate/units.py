"""Units: a data set protects records, or persons of one column, for good; losses of the two do not add up."""

from __future__ import annotations

import json
from collections.abc import Iterable

import sqlalchemy as sa

from dp_dask.core.unit import RECORD, UnitOfProtection
from dp_dask.gate import journal

__all__ = ["other_unit"]


def other_unit(connection: sa.Connection, dataset: str, units: Iterable[UnitOfProtection]) -> str:
    """Say which of the units is not the one that the data set's first charge was for; empty where all are it.

    How many records of a person count, or how they are combined, may change: the person is protected all the same.
    """
    entries = journal.entries.c
    charges = sa.select(entries.release).where((entries.dataset == dataset) & (entries.kind == "charge"))
    first = connection.execute(charges.order_by(entries.seq).limit(1)).scalar_one_or_none()
    asked = {_whom(unit): unit for unit in units}
    if first is not None:
        stored = json.loads(first)["request"].get("unit")
        paid = UnitOfProtection(**stored) if stored else RECORD
        asked = {_whom(paid): paid} | asked
    if len(asked) < 2:  # noqa: PLR2004
        return ""
    one, other = list(asked.values())[:2]
    return (
        f"data set {dataset!r} protects {one}, this run {other}; epsilons of the two do not add up: use one unit for a data set, "
        "or keep the other under a name and a budget of its own"
    )


def _whom(unit: UnitOfProtection) -> tuple[str, str | None, str | None]:
    return unit.kind, unit.column, unit.type
