"""Neighbouring relations (which two data sets must be hard to tell apart) and exact privacy losses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal, InvalidOperation
from enum import StrEnum

__all__ = [
    "DECIMALS",
    "EXACT",
    "USUAL",
    "Loss",
    "Neighbours",
    "Spent",
    "Unit",
    "exact_amount",
    "exact_delta",
    "exact_epsilon",
    "price",
    "rounded_up",
]

DECIMALS = 12
LARGEST = 10**6
EXACT = Context(prec=100, traps=[InvalidOperation])  # for sums of losses: the caller's own context may round


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


class Unit(StrEnum):
    """What a privacy loss, or a budget, is measured in."""

    EPSILON = "epsilon"  # of pure differential privacy
    RHO = "rho"  # of zero-concentrated differential privacy (Bun & Steinke 2016)


USUAL = {Unit.EPSILON: "0.1 to 1", Unit.RHO: "0.005 to 0.5"}


@dataclass(frozen=True, slots=True)
class Loss:
    """The privacy loss that a request asks for, in its one canonical form: the discrete Laplace's epsilon or the Gaussian's rho.

    Raises ValueError as ``exact_amount`` does.
    """

    unit: Unit
    amount: Decimal

    def __post_init__(self) -> None:
        object.__setattr__(self, "amount", exact_amount(self.amount, self.unit))

    def __str__(self) -> str:
        return f"{self.unit} {self.amount}"

    def priced(self, unit: Unit) -> Decimal:
        """Return what this loss costs in a unit, exactly.

        An epsilon-differentially private release is epsilon^2 / 2 zero-concentrated differentially private (Bun & Steinke 2016,
        proposition 1.4). Raises ValueError for rho in epsilon: no finite epsilon bounds Gaussian noise.
        """
        if unit is self.unit:
            return self.amount
        if unit is Unit.EPSILON:
            msg = f"rho {self.amount} has no price in epsilon: no finite epsilon bounds Gaussian noise"
            raise ValueError(msg)
        return _canonical(EXACT.divide(EXACT.multiply(self.amount, self.amount), Decimal(2)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """An amount in its unit; of rho also what it means as (epsilon, delta)-differential privacy, where a delta was given."""

    unit: Unit
    amount: Decimal
    epsilon: float | None = None
    delta: Decimal | None = None

    def __post_init__(self) -> None:
        if self.delta is not None:
            object.__setattr__(self, "delta", exact_delta(self.delta))

    def __str__(self) -> str:
        meaning = "" if self.epsilon is None else f", that is epsilon {rounded_up(self.epsilon)} at delta {self.delta}"
        return f"{self.unit} {self.amount}{meaning}"


def price(losses: Iterable[Loss], unit: Unit) -> Decimal:
    """Return what losses cost together in a unit: both compose by addition. Raises ValueError for rho in epsilon."""
    total = Decimal(0)
    for loss in losses:
        total = EXACT.add(total, loss.priced(unit))
    return total


def rounded_up(bound: float) -> str:
    """Show a bound with four significant figures that is still one: 2.3651 as 2.366."""
    return format(Context(prec=4, rounding=ROUND_CEILING).create_decimal_from_float(bound), "g")


def _canonical(value: Decimal) -> Decimal:
    """Return a number in its one form, so that 0.5 and 0.50 are the same request."""
    return Decimal(format(value.normalize(EXACT), "f"))


def exact_amount(value: Decimal, unit: Unit) -> Decimal:
    """Return an epsilon or a rho in its one canonical form.

    Raises ValueError unless 0 < value <= 10^6 with at most 12 decimals, within which sums of budgets are exact.
    """
    if not (value.is_finite() and value > 0):
        msg = f"{unit} is {value}; it must be above 0 ({USUAL[unit]} is usual, smaller protects more)"
        raise ValueError(msg)
    if value > LARGEST or value != value.quantize(Decimal(1).scaleb(-DECIMALS), context=EXACT):
        msg = f"{unit} is {value}; it may have at most {DECIMALS} decimals and be at most {LARGEST}"
        raise ValueError(msg)
    return _canonical(value)


def exact_epsilon(value: Decimal) -> Decimal:
    """Return epsilon in its one canonical form; raises ValueError as ``exact_amount`` does."""
    return exact_amount(value, Unit.EPSILON)


def exact_delta(delta: Decimal) -> Decimal:
    """Return delta in its one canonical form; raises ValueError unless it is a probability strictly between 0 and 1."""
    if not (delta.is_finite() and 0 < delta < 1):
        msg = f"delta is {delta}; it must lie between 0 and 1, far below one over the number of records (1e-6 is usual)"
        raise ValueError(msg)
    return _canonical(delta)
