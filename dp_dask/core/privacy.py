"""Neighbouring relations (which two data sets must be hard to tell apart) and exact epsilons."""

from __future__ import annotations

from decimal import Context, Decimal, InvalidOperation
from enum import StrEnum

__all__ = ["EXACT", "Neighbours", "exact_epsilon"]

DECIMALS = 12
LARGEST = 10**6
EXACT = Context(prec=100, traps=[InvalidOperation])  # for sums of epsilons: the caller's own context may round


class Neighbours(StrEnum):
    """The relation that epsilon refers to; it is always chosen by the user."""

    REPLACE = "replace"  # one record becomes any other value; the number of records n is public
    ADD_REMOVE = "add_remove"  # one record is added or removed; n is private and released with noise

    @property
    def in_words(self) -> str:
        """Say which change of the data set epsilon limits."""
        if self is Neighbours.REPLACE:
            return "any one record's values replaced by any others"
        return "any one record added or left out"


def exact_epsilon(value: Decimal) -> Decimal:
    """Return epsilon in its one canonical form, so that 0.5 and 0.50 are the same request.

    Raises ValueError unless 0 < epsilon <= 10^6 with at most 12 decimals, within which sums of budgets are exact.
    """
    if not (value.is_finite() and value > 0):
        msg = f"epsilon is {value}; it must be above 0 (0.1 to 1 is usual, smaller protects more)"
        raise ValueError(msg)
    if value > LARGEST or value != value.quantize(Decimal(1).scaleb(-DECIMALS), context=EXACT):
        msg = f"epsilon is {value}; it may have at most {DECIMALS} decimals and be at most {LARGEST}"
        raise ValueError(msg)
    return Decimal(format(value.normalize(EXACT), "f"))
