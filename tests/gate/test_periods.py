"""Periods: days of 23, 24 and 25 hours, weeks from Monday, months, held against a walk along the local clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from dp_dask.gate.periods import Per, check_zone, period_at

HOUR = timedelta(hours=1)
# An hour's change at 2 or 3 o'clock, half an hour's, at midnight itself (skipped, and come to twice), odd offsets, a lost day.
ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "America/Sao_Paulo",
    "America/Havana",
    "Asia/Beirut",
    "Africa/Cairo",
    "Asia/Kathmandu",
    "America/Nuuk",
    "Pacific/Apia",
    "Pacific/Kiritimati",
]
YEARS = datetime(2010, 1, 1, tzinfo=UTC), datetime(2030, 1, 1, tzinfo=UTC)


def name_of(moment, per, zone):
    """What a wall calendar calls the period of a moment: the oracle."""
    local = moment.astimezone(ZoneInfo(zone))
    return {Per.DAY: local.date(), Per.WEEK: local.isocalendar()[:2], Per.MONTH: (local.year, local.month)}[per]


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("per", Per)
def test_a_period_is_all_the_time_that_the_calendar_gives_one_name(zone, per):
    rng = np.random.default_rng(7)
    seconds = rng.uniform(0, (YEARS[1] - YEARS[0]).total_seconds(), 300)
    for moment in (YEARS[0] + timedelta(seconds=float(s)) for s in seconds):
        period = period_at(moment, per, zone)
        name = name_of(moment, per, zone)
        assert period.start <= moment < period.end
        assert name_of(period.start, per, zone) == name_of(period.end - timedelta(seconds=1), per, zone) == name
        assert name_of(period.start - timedelta(seconds=1), per, zone) != name != name_of(period.end, per, zone)


@pytest.mark.parametrize("zone", [zone for zone in ZONES if zone != "UTC"])
def test_each_change_of_the_clock_is_inside_one_day_or_between_two(zone):
    """Hour by hour through two years, a period begins where the one before it ended."""
    moment, end = datetime(2011, 1, 1, tzinfo=UTC), datetime(2012, 12, 31, tzinfo=UTC)
    period = period_at(moment, Per.DAY, zone)
    while moment < end:
        moment += HOUR
        found = period_at(moment, Per.DAY, zone)
        if found != period:
            before = period_at(found.start - timedelta(seconds=1), Per.DAY, zone)
            assert before == period
            assert period.end == found.start
        period = found


@pytest.mark.parametrize(
    ("day", "zone", "hours"),
    [
        ("2026-03-29", "Europe/Berlin", 23),
        ("2026-10-25", "Europe/Berlin", 25),
        ("2026-06-01", "Europe/Berlin", 24),
        ("2026-04-05", "Australia/Lord_Howe", 24.5),
        ("2018-11-04", "America/Sao_Paulo", 23),
        ("2026-11-01", "America/Havana", 25),
    ],
)
def test_a_day_has_as_many_hours_as_its_clock_goes_through(day, zone, hours):
    noon = datetime.fromisoformat(f"{day}T12:00").replace(tzinfo=ZoneInfo(zone))
    period = period_at(noon, Per.DAY, zone)
    assert (period.end - period.start) / HOUR == hours


def test_a_week_begins_on_monday_and_a_month_on_its_first():
    moment = datetime(2026, 3, 29, 12, tzinfo=UTC)  # a Sunday, on which the clocks change
    week, month = period_at(moment, Per.WEEK, "Europe/Berlin"), period_at(moment, Per.MONTH, "Europe/Berlin")
    assert [at.isoformat() for at in (week.start, week.end)] == ["2026-03-22T23:00:00+00:00", "2026-03-29T22:00:00+00:00"]
    assert [at.isoformat() for at in (month.start, month.end)] == ["2026-02-28T23:00:00+00:00", "2026-03-31T22:00:00+00:00"]


@pytest.mark.parametrize("name", ["Mars/Base", "localtime", "", "../../etc/passwd", "CET+1", "europe/berlin"])
def test_a_zone_that_is_none_is_refused(name):
    with pytest.raises(ValueError, match="IANA name such as Europe/Berlin"):
        check_zone(name)


def test_a_zone_that_this_machine_does_not_know_is_told():
    check_zone("Europe/Berlin")
    with pytest.raises(ValueError, match="pip install tzdata"):
        period_at(YEARS[0], Per.DAY, "Mars/Base")
