"""Periods: the days, weeks and months of a time zone as spans of real time, so that a day has 23, 24 or 25 hours."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

__all__ = ["Per", "Period", "check_zone", "period_at"]


class Per(StrEnum):
    """How often a limit renews."""

    DAY = "day"  # from local midnight
    WEEK = "week"  # from Monday's
    MONTH = "month"  # from that of the first


@dataclass(frozen=True, slots=True)
class Period:
    """From ``start`` on, and before ``end``: both in UTC."""

    start: datetime
    end: datetime


def check_zone(name: str) -> None:
    """Raise ValueError unless this is the name of a time zone that means the same everywhere."""
    if name not in available_timezones() - {"localtime"}:
        msg = f"is {name!r}, no time zone that this machine knows; give an IANA name such as Europe/Berlin, or UTC"
        raise ValueError(msg)


def period_at(moment: datetime, per: Per, zone: str) -> Period:
    """Return the period that a moment lies in; raises ValueError for a zone that this machine does not know."""
    try:
        there = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        msg = f"time zone {zone!r} is not known on this machine; pip install tzdata"
        raise ValueError(msg) from None
    day = moment.astimezone(there).date()
    match per:
        case Per.DAY:
            end = day + timedelta(days=1)
        case Per.WEEK:
            day -= timedelta(days=day.weekday())
            end = day + timedelta(days=7)
        case Per.MONTH:
            day = day.replace(day=1)
            end = (day + timedelta(days=31)).replace(day=1)
    return Period(_midnight(day, there), _midnight(end, there))


def _midnight(day: date, zone: ZoneInfo) -> datetime:
    # Of a midnight that comes twice this is the first; of one that is skipped, the moment of the skip, when the day begins.
    return datetime.combine(day, time(), zone).astimezone(UTC)
