"""Slots: the times that scheduled runs are for, each in one form, whatever form it was given in."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime

__all__ = ["MARK", "Slot", "read_slot"]

FIRST_YEAR, LAST_YEAR = 1970, 9998
FOLDER = re.compile(r"\d{4}-\d\d-\d\dT\d{6}Z", re.ASCII)
CHARACTERS = re.compile(r"[-+:.,0-9TWZ ]+")
MARK = "\udcff"  # a byte that no UTF-8 text holds: what begins with it was not written by hand
ALLOWED = "give an instant with its offset, as 2026-01-31T02:00Z, or a date, as 2026-01-31"


@dataclass(frozen=True, slots=True, order=True)
class Slot:
    """An instant in UTC, in whole seconds."""

    time: datetime

    def __post_init__(self) -> None:
        if self.time.tzinfo is not UTC or self.time.microsecond:
            msg = f"{self.time} is no instant in UTC and whole seconds"
            raise ValueError(msg)

    def __str__(self) -> str:
        return self.time.strftime("%Y-%m-%dT%H:%M:%SZ")

    @property
    def folder(self) -> str:
        """The name of its folder: without colons, which not every file system has, and in the order of time."""
        return self.time.strftime("%Y-%m-%dT%H%M%SZ")

    @property
    def version(self) -> str:
        """The data version that its requests are of: one that no user can write and no list of files looks like."""
        return f"{MARK}slot {self}"

    @classmethod
    def of_folder(cls, name: str) -> Slot | None:
        """Return the slot that a folder's name is of, if any."""
        if FOLDER.fullmatch(name) is None:
            return None
        try:
            return cls(datetime.fromisoformat(name))
        except ValueError:
            return None


def read_slot(text: str) -> Slot | date:
    """Read an ISO 8601 instant or date, the forms of weeks among them; raises ValueError with what is allowed.

    A date alone is returned as one: which instant of it is meant, a schedule says.
    """
    problem = f"is {text!r}; {ALLOWED}"
    time = _parsed(text)
    if time is None or not FIRST_YEAR <= time.year <= LAST_YEAR:
        raise ValueError(problem)
    if not isinstance(time, datetime):
        return time
    if time.tzinfo is None:
        msg = f"is {text!r}, without an offset, so that it is another instant in another place; {ALLOWED}"
        raise ValueError(msg)
    if time.microsecond:
        msg = f"is {text!r}; give whole seconds"
        raise ValueError(msg)
    return Slot(time.astimezone(UTC))


def _parsed(text: str) -> date | datetime | None:
    if not CHARACTERS.fullmatch(text):  # fromisoformat takes any letter for T
        return None
    with suppress(ValueError):
        return datetime.fromisoformat(text) if "T" in text or " " in text else date.fromisoformat(text)
    return None
