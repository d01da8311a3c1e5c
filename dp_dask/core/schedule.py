"""Schedule: when scheduled runs are due, by the clock of a place; a pure function, right where that clock is changed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo, available_timezones

from dp_dask.core.slots import Slot

__all__ = ["Every", "Schedule", "missed", "slot_at"]

AT = re.compile(r"([01]\d|2[0-3]):[0-5]\d", re.ASCII)
OF_THE_MACHINE = "localtime"  # another place on another machine
DAY = timedelta(days=1)
FURTHEST = 2 * DAY  # of a local date from the UTC date, with a day that a place left out
LONGEST = {"hour": DAY, "day": 3 * DAY, "week": 9 * DAY, "month": 33 * DAY}  # between two slots, at the very most


class Every(StrEnum):
    """How often a run is due."""

    HOUR = "hour"  # at each full hour of the local clock
    DAY = "day"
    WEEK = "week"  # on Monday, as weeks of ISO 8601 begin
    MONTH = "month"  # on the first day


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When runs are due: every hour, or at a time of a day, of Mondays or of first days of months.

    A day whose clock skips the time has its slot as much later as the clock is put forward; one that shows the time twice has
    it the first time (PEP 495, fold=0). Of hours, one that is skipped has no slot and one that comes twice has two.
    """

    every: Every
    timezone: str = "UTC"
    at: str | None = None  # HH:MM, midnight where it is left out

    def __post_init__(self) -> None:
        try:
            if self.timezone == OF_THE_MACHINE:
                raise ValueError(self.timezone)  # noqa: TRY301
            ZoneInfo(self.timezone)
        except (ValueError, OSError, KeyError):
            near = difflib.get_close_matches(self.timezone, sorted(available_timezones()), n=1)
            hint = f"did you mean {near[0]!r}?" if near else "give an IANA name such as Europe/Amsterdam"
            msg = f"timezone is {self.timezone!r}; {hint}"
        else:
            msg = ""
        if msg:
            raise ValueError(msg)
        if self.at is not None and self.every is Every.HOUR:
            msg = "at goes with every: day, week or month; an hour's runs are due at the full hour"
            raise ValueError(msg)
        if self.at is not None and not AT.fullmatch(self.at):
            msg = f"at is {self.at!r}; give hours and minutes, as 02:00"
            raise ValueError(msg)

    def __str__(self) -> str:
        at = "" if self.every is Every.HOUR else f" at {self.at or '00:00'}"
        return f"every {self.every}{at}, {self.timezone}"

    def between(self, after: datetime, until: datetime) -> list[Slot]:
        """Return the slots after one instant and before the other, in order."""
        found = {Slot(each) for each in self._about(after, until) if after < each < until}
        return sorted(found)

    def _about(self, after: datetime, until: datetime) -> Iterator[datetime]:
        zone = ZoneInfo(self.timezone)
        day, last = (after - FURTHEST).date(), (until + FURTHEST).date()
        while day <= last:
            if self.every is Every.HOUR:
                for hour in range(24):
                    yield from _shown(datetime.combine(day, time(hour)), zone)
            elif self._is_due(day):
                yield self._instant(day, zone)
            day += DAY

    def _is_due(self, day: date) -> bool:
        return {Every.DAY: True, Every.WEEK: day.isoweekday() == 1, Every.MONTH: day.day == 1}[self.every]

    def _instant(self, day: date, zone: ZoneInfo) -> datetime:
        return datetime.combine(day, time.fromisoformat(self.at or "00:00"), zone).astimezone(UTC)

    def neighbours(self, instant: datetime) -> tuple[Slot, Slot]:
        """Return the last slot before an instant and the first one after it."""
        reach = LONGEST[self.every]
        return self.between(instant - reach, instant)[-1], self.between(instant, instant + reach)[0]

    def of_day(self, day: date) -> Slot | None:
        """Return a local day's slot, if there is one alone."""
        if self.every is Every.HOUR or not self._is_due(day):
            return None
        return Slot(self._instant(day, ZoneInfo(self.timezone)))


def _shown(wall: datetime, zone: ZoneInfo) -> Iterator[datetime]:
    """Yield the instants, none to two, at which a place's clock shows a time."""
    for fold in (0, 1):
        instant = wall.replace(tzinfo=zone, fold=fold).astimezone(UTC)
        if instant.astimezone(zone).replace(tzinfo=None) == wall:
            yield instant


def slot_at(schedule: Schedule | None, given: Slot | date) -> Slot:
    """Return the slot that is meant: of a date the schedule's slot of that day, without a schedule its midnight in UTC.

    Raises ValueError for what is not on the schedule: a run that starts a little later must not be another slot.
    """
    if schedule is None:
        return given if isinstance(given, Slot) else Slot(datetime.combine(given, time(), UTC))
    slot = given if isinstance(given, Slot) else schedule.of_day(given)
    if slot is not None and schedule.between(slot.time - DAY, slot.time + DAY).count(slot):
        return slot
    if schedule.every is Every.HOUR and not isinstance(given, Slot):
        msg = f"is {given}, a day of the schedule ({schedule}), which has many slots; give the instant of one"
        raise ValueError(msg)
    near = given.time if isinstance(given, Slot) else datetime.combine(given, time(), UTC)
    before, after = schedule.neighbours(near)
    msg = f"is {given}, which is not on the schedule ({schedule}); the slots about it are {before} and {after}"
    raise ValueError(msg)


def missed(schedule: Schedule, there: Collection[Slot], slot: Slot) -> tuple[Slot, ...]:
    """Return the slots that were due between the last one that is there before this slot, and this; none for the first."""
    earlier = [each for each in there if each < slot]
    return tuple(schedule.between(max(earlier).time, slot.time)) if earlier else ()
