"""Where: which records are asked about, by public conditions on their columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Literal

__all__ = ["EPOCH", "Between", "Condition", "Known", "OneOf", "Where"]

EPOCH = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class OneOf:
    """The column holds one of the values: all texts, or all numbers."""

    column: str
    values: tuple[str, ...] | tuple[float, ...]
    kind: Literal["one_of"] = "one_of"

    def __str__(self) -> str:
        shown = [value if isinstance(value, str) else f"{value:.15g}" for value in self.values]
        return f"{self.column} is {' or '.join(shown)}"

    @property
    def is_text(self) -> bool:
        """Whether texts are compared, byte by byte."""
        return isinstance(self.values[0], str)


@dataclass(frozen=True, slots=True)
class Between:
    """The column lies between two numbers or, with ``is_date``, two days since 1970-01-01 (UTC), both included; None is open."""

    column: str
    lower: float | None
    upper: float | None
    is_date: bool = False
    kind: Literal["between"] = "between"

    def __str__(self) -> str:
        shown = [(EPOCH + timedelta(end)).isoformat() if self.is_date else f"{end:.15g}" for end in self._ends]
        words = [word for word, end in (("from", self.lower), ("to", self.upper)) if end is not None]
        return f"{self.column} is {' '.join(f'{word} {end}' for word, end in zip(words, shown, strict=True))}"

    @property
    def _ends(self) -> list[float]:
        return [end for end in (self.lower, self.upper) if end is not None]


@dataclass(frozen=True, slots=True)
class Known:
    """The column holds a value: neither a null nor NaN."""

    column: str
    kind: Literal["known"] = "known"

    def __str__(self) -> str:
        return f"{self.column} is known"


Condition = OneOf | Between | Known


@dataclass(frozen=True, slots=True)
class Where:
    """Records that meet all conditions; a null meets none. What is left out is not counted: the number of records is private."""

    conditions: tuple[Condition, ...]

    def __str__(self) -> str:
        return ", ".join(map(str, self.conditions))

    @property
    def columns(self) -> list[str]:
        """The columns that the conditions read."""
        return sorted({condition.column for condition in self.conditions})

    @property
    def texts(self) -> frozenset[str]:
        """Those that are compared as texts."""
        return frozenset(c.column for c in self.conditions if isinstance(c, OneOf) and c.is_text)

    @property
    def dates(self) -> frozenset[str]:
        """Those that are compared as dates."""
        return frozenset(c.column for c in self.conditions if isinstance(c, Between) and c.is_date)

    def fault(self, numbers: Iterable[str], texts: Iterable[str]) -> str:
        """Say which column conditions and measurements read as different things; empty where none is."""
        compared = {c.column for c in self.conditions if not isinstance(c, Known)}
        as_numbers = (compared - self.texts - self.dates) | set(numbers)
        kinds = {"numbers": as_numbers, "texts": self.texts | set(texts), "dates": self.dates}
        for column in self.columns:
            told = [kind for kind, columns in kinds.items() if column in columns]
            if len(told) > 1:
                return f"{column} would be read as {' and as '.join(told)}; a column is one of them: compare another one"
        return ""
