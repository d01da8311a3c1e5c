"""UnitOfProtection: whom a privacy loss protects, a record or a person, and how much more a person can move a sum."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from typing import Literal, Protocol

from dp_dask.core.privacy import DECIMALS, EXACT, Loss, Neighbours, Unit

__all__ = ["MOST_RECORDS", "RECORD", "Combine", "IdType", "Moved", "UnitOfProtection"]

Combine = Literal["mean", "sum"]
IdType = Literal["number", "text"]
MOST_RECORDS = 2**10  # of a person


class Moved(Protocol):
    """What one record moves by a known distance."""

    def sensitivity(self, neighbours: Neighbours) -> int:
        """Return the largest change between data sets that differ in one record."""
        ...


class _SquaredMoved(Protocol):
    def squared_sensitivity(self, neighbours: Neighbours) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitOfProtection:
    """A record, or a person: all records with one value of ``column``, compared as numbers or as texts (``type``).

    Of a person either at most ``max_records`` records count, or one that all are combined to: the mean or the sum of each
    measured column. A record without a person counts nowhere. Raises ValueError for what cannot be.

    Theorem. Let K(R) be the records that count of a person's records R, at most m of them, by a rule that looks at R and at
    public facts alone. Where a person is added or removed, with all records, sums and count move by at most m times the L1
    norm, and m^2 times the squared L2 norm, that one record added or removed moves them by. Where every person has exactly one
    record that counts and one person's records are replaced by any others, they move by at most what one record replaced moves
    them by.
    Proof. The released vector is the sum over persons of the sum over K(R) of (weight, c(x)). Data sets that differ in one
    person differ in one inner sum, as no other person's K looks at it: by at most m vectors, each no longer than the statistic's
    own sensitivity to an added record; the rest is the triangle inequality, which m equal records attain. With one vector a
    person, (weight, c(x)) becomes (weight, c(x')): the statistic's own sensitivity to a replaced one.

    With m > 1 the number of the records that count is private, even where that of the persons is not: hence no ``replace``.
    """

    kind: Literal["record", "person"] = "record"
    column: str | None = None
    type: IdType | None = None
    max_records: int | None = None
    combine: Combine | None = None

    def __post_init__(self) -> None:
        if self.kind == "record":
            if (self.column, self.type, self.max_records, self.combine) != (None,) * 4:
                msg = "a record has neither column, type, max_records nor combine; these are of a person"
                raise ValueError(msg)
            return
        if not self.column or self.type is None:
            msg = "a person needs a column, whose value says whose a record is, and its type: number or text"
            raise ValueError(msg)
        if (self.max_records is None) is (self.combine is None):
            msg = "give max_records, how many records of a person count at most, or combine: mean or sum, not both"
            raise ValueError(msg)
        if self.max_records is not None and not 1 <= self.max_records <= MOST_RECORDS:
            msg = f"max_records is {self.max_records}; it must be from 1 to {MOST_RECORDS}, and the noise grows with it"
            raise ValueError(msg)

    def __str__(self) -> str:
        if self.kind == "record":
            return "a record"
        if self.combine is not None:
            return f"a person (column {self.column}, by the {self.combine} of the records)"
        return f"a person (column {self.column}, at most {self.most} record{'s' if self.most > 1 else ''})"

    @property
    def is_person(self) -> bool:
        """Whether a person is protected, not only a record."""
        return self.kind == "person"

    @property
    def most(self) -> int:
        """The records of one unit that count, at most."""
        return self.max_records or 1

    def in_words(self, neighbours: Neighbours) -> str:
        """Say which change of the data set epsilon limits."""
        if not self.is_person:
            return neighbours.in_words
        if neighbours is Neighbours.REPLACE:
            return "all records of any one person replaced by any others of one person"
        return "any one person, with all records, added or left out"

    def fault(self, neighbours: Neighbours) -> str:
        """Say why the relation does not go with the unit; empty where it does."""
        if neighbours is Neighbours.REPLACE and self.most > 1:
            return (
                f"max_records is {self.most} under neighbours: replace, whose n would be the number of records that count, and "
                "that is private where persons have different numbers of them: give max_records: 1 or combine, with n the number "
                "of persons, or neighbours: add_remove"
            )
        return ""

    def sensitivity(self, of: Moved, neighbours: Neighbours) -> int:
        """Return the largest change, in L1 or as a distance has it, between data sets that differ in one unit."""
        return self.most * of.sensitivity(neighbours)

    def squared_sensitivity(self, of: _SquaredMoved, neighbours: Neighbours) -> int:
        """Return the square of the largest L2 change between data sets that differ in one unit."""
        return self.most**2 * of.squared_sensitivity(neighbours)

    def for_a_record(self, loss: Loss) -> Loss:
        """Return the loss at which a record would be protected with the same noise: what grids and summaries are chosen for.

        An m-th of epsilon, an m^2-th of rho, rounded up to what a loss may be.
        """
        if self.most == 1:
            return loss
        share = EXACT.divide(loss.amount, Decimal(self.most if loss.unit is Unit.EPSILON else self.most**2))
        return Loss(loss.unit, share.quantize(Decimal(1).scaleb(-DECIMALS), ROUND_CEILING, EXACT))


RECORD = UnitOfProtection()
