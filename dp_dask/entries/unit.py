"""Unit: whom a pipeline file protects and under which relation; the entries ``dataset.unit`` and ``privacy``."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from dp_dask.core.cluster_bands import ClusterBands
from dp_dask.core.combined import measured
from dp_dask.core.grid import MAX_PRIVATE_RECORDS
from dp_dask.core.privacy import Neighbours, exact_delta
from dp_dask.core.unit import RECORD, Combine, IdType, UnitOfProtection
from dp_dask.entries.build import Faults, build, show

__all__ = ["MOST_PASSES", "Persons", "Privacy", "Relation", "check_unit", "read_unit"]

MOST_PASSES = 2**10


@dataclass(frozen=True, slots=True)
class Relation:
    """The relation, and n where it is public; the delta at which losses in rho are told as an epsilon too.

    Where persons are protected n is their number, and ``expected_records`` a guess of the number of records that count.
    """

    neighbours: Neighbours
    n: int | None = None
    expected_records: float | None = None
    delta: Decimal | None = None

    def __post_init__(self) -> None:
        if self.delta is not None:
            object.__setattr__(self, "delta", exact_delta(self.delta))
        if self.neighbours is Neighbours.REPLACE:
            if self.n is None:
                msg = "neighbours: replace needs n, the public and exact number of records; where it is not public use add_remove"
                raise ValueError(msg)
            if not 0 <= self.n <= MAX_PRIVATE_RECORDS:
                msg = f"n is {self.n}; it must be between 0 and 2^40"
                raise ValueError(msg)
            if self.expected_records is not None:
                msg = "expected_records is for add_remove; under replace n itself is public"
                raise ValueError(msg)
        elif self.n is not None:
            msg = "n is private under add_remove and released with noise; leave it out (expected_records takes a public guess)"
            raise ValueError(msg)
        if self.expected_records is not None and not 0 < self.expected_records <= MAX_PRIVATE_RECORDS:
            msg = f"expected_records is {self.expected_records}; give a public guess of the number of records, above 0"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class Privacy(Relation):
    """Who is protected: the unit, under the relation."""

    unit: UnitOfProtection = RECORD


@dataclass(frozen=True, slots=True)
class Persons:
    """A person in place of a record, and in how many passes over the data, each of them with a part of the persons."""

    column: str
    type: IdType
    max_records: int | None = None
    combine: Combine | None = None
    passes: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.passes <= MOST_PASSES:
            msg = f"passes is {self.passes}; give a whole number from 1 to {MOST_PASSES}, more where memory is short"
            raise ValueError(msg)
        _ = self.unit  # refuses what cannot be

    @property
    def unit(self) -> UnitOfProtection:
        """The unit of protection, whatever the number of passes."""
        return UnitOfProtection(
            kind="person", column=self.column, type=self.type, max_records=self.max_records, combine=self.combine
        )


def read_unit(given: Any, faults: Faults) -> tuple[UnitOfProtection, int]:
    """Read ``dataset.unit``; return the unit and the number of passes, those of a record where there was a fault."""
    if given == "record":
        return RECORD, 1
    if not isinstance(given, dict):
        forms = (
            "record, or a person as {column: .., type: number or text, max_records: ..} or {column: .., type: .., combine: ..}"
        )
        faults.add("dataset.unit", f"is {show(given)}; give {forms}, combine: mean or sum")
        return RECORD, 1
    persons = build(Persons, given, "dataset.unit", faults)
    return (RECORD, 1) if persons is None else (persons.unit, persons.passes)


def check_unit(unit: UnitOfProtection, statistic: Any, name: str, faults: Faults, *, is_integer: bool) -> None:
    """Note why a measurement of this name cannot be made of such persons."""
    if not unit.is_person:
        return
    told = f"does not go with measurement {name}: "
    if unit.column in statistic.columns:
        faults.add("dataset.unit", f"{told}column {unit.column} says whose a record is, and is not measured")
    if isinstance(statistic, ClusterBands):
        faults.add("dataset.unit", f"{told}clusters are counted over all records, of a person too; write unit: record")
    elif unit.combine is not None:
        if unit.combine == "mean" and is_integer:
            faults.add("dataset.unit", f"{told}it is of whole numbers, which a mean is not; give combine: sum, or max_records")
        try:
            measured(statistic)
        except ValueError as error:
            faults.add("dataset.unit", f"{told}{error}")
