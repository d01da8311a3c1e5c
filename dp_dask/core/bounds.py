"""Bounds: the public interval that a record's value is held to."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Bounds", "Outside", "check_support"]


class Outside(StrEnum):
    """What becomes of a record outside the bounds."""

    CLAMP = "clamp"  # it is moved to the nearest bound
    TRUNCATE = "truncate"  # it contributes nothing (Bernstein & Sheldon 2018)


@dataclass(frozen=True, slots=True)
class Bounds:
    """A closed interval ``[lower, upper]`` in the units of the column; public, never from the data."""

    lower: float
    upper: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.lower) and math.isfinite(self.upper)):
            msg = f"bounds [{self.lower}, {self.upper}] must be finite numbers; choose the range that values can sensibly take"
            raise ValueError(msg)
        if not self.lower < self.upper:
            msg = f"bounds [{self.lower}, {self.upper}]: the first must be below the second; write [smallest, largest]"
            raise ValueError(msg)
        for name in ("lower", "upper"):  # -0.0 equals 0.0 but is written otherwise: one form, one digest
            object.__setattr__(self, name, getattr(self, name) + 0.0)

    @property
    def width(self) -> float:
        """The length of the interval."""
        return self.upper - self.lower


def check_support(bounds: Bounds, support: tuple[float, float], *, is_integer: bool) -> None:
    """Raise ValueError for bounds that reach beyond a model's support, or that are not whole where its records are."""
    low, high = support
    told = f"[{bounds.lower:g}, {bounds.upper:g}]"
    if bounds.lower < low or bounds.upper > high:
        msg = f"{told} reaches beyond what the model can produce, {low} to {high}"
        raise ValueError(msg)
    if is_integer and not (bounds.lower.is_integer() and bounds.upper.is_integer()):
        msg = f"{told}: records of this model are whole numbers; give whole bounds"
        raise ValueError(msg)
