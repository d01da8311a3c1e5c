"""Schedules: by hand at changes of the clock, month ends, leap days, weeks; and against a clock watched minute by minute."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from dp_dask.core.schedule import Every, Schedule, missed, slot_at
from dp_dask.core.slots import Slot, read_slot

MINUTE = timedelta(minutes=1)


def slot(text):
    return read_slot(text)


def at(text):
    return read_slot(text).time


def due(schedule, first, last):
    return [str(each) for each in schedule.between(at(first), at(last))]


def daily(time, timezone="Europe/Amsterdam"):
    return Schedule(every=Every.DAY, timezone=timezone, at=time)


# By hand.


def test_the_night_that_loses_an_hour():
    """On 31 March 2024 Amsterdam's clock goes from 02:00 to 03:00."""
    assert due(daily("02:30"), "2024-03-30T00:00Z", "2024-04-02T00:00Z") == [
        "2024-03-30T01:30:00Z",
        "2024-03-31T01:30:00Z",  # 03:30 on the clock, half an hour after it was changed
        "2024-04-01T00:30:00Z",
    ]


def test_the_night_that_has_an_hour_twice():
    """On 27 October 2024 Amsterdam's clock goes from 03:00 back to 02:00."""
    assert due(daily("02:30"), "2024-10-26T00:00Z", "2024-10-29T00:00Z") == [
        "2024-10-26T00:30:00Z",
        "2024-10-27T00:30:00Z",  # the first 02:30, and not 01:30Z too
        "2024-10-28T01:30:00Z",
    ]


def test_hours_of_the_days_with_23_and_25_hours():
    hourly = Schedule(every=Every.HOUR, timezone="Europe/Amsterdam")
    assert len(due(hourly, "2024-03-30T22:59:59Z", "2024-03-31T22:00:00Z")) == 23
    assert len(due(hourly, "2024-10-26T21:59:59Z", "2024-10-27T23:00:00Z")) == 25


def test_hours_of_a_place_half_an_hour_off():
    hourly = Schedule(every=Every.HOUR, timezone="Asia/Kolkata")
    assert due(hourly, "2024-01-01T00:00Z", "2024-01-01T02:00Z") == ["2024-01-01T00:30:00Z", "2024-01-01T01:30:00Z"]


def test_a_place_that_changes_its_clock_by_half_an_hour():
    """On Lord Howe Island 02:00 became 02:30 (UTC+11) on 6 October 2024, and 02:00 became 01:30 on 7 April 2024."""
    hourly = Schedule(every=Every.HOUR, timezone="Australia/Lord_Howe")
    spring = ["2024-10-05T14:30:00Z", "2024-10-05T16:00:00Z"]  # 01:00, then 03:00: there was no 02:00
    assert due(hourly, "2024-10-05T14:00Z", "2024-10-05T16:30Z") == spring
    autumn = ["2024-04-06T14:00:00Z", "2024-04-06T15:30:00Z"]  # 01:00, then 02:00
    assert due(hourly, "2024-04-06T13:30Z", "2024-04-06T16:00Z") == autumn


def test_a_place_that_left_a_day_out():
    """Samoa had no 30 December 2011."""
    assert due(daily("02:00", "Pacific/Apia"), "2011-12-29T00:00Z", "2012-01-01T00:00Z") == [
        "2011-12-29T12:00:00Z",
        "2011-12-30T12:00:00Z",
        "2011-12-31T12:00:00Z",
    ]


def test_months_begin_on_the_first_in_a_leap_year_too():
    monthly = Schedule(every=Every.MONTH, timezone="America/New_York", at="00:30")
    assert due(monthly, "2024-01-31T00:00Z", "2024-04-30T00:00Z") == [
        "2024-02-01T05:30:00Z",
        "2024-03-01T05:30:00Z",
        "2024-04-01T04:30:00Z",
    ]


def test_days_about_leap_days():
    for year, is_leap in ((2000, True), (2023, False), (2024, True), (2100, False)):
        names = due(Schedule(every=Every.DAY), f"{year}-02-27T12:00Z", f"{year}-03-01T12:00Z")
        assert (f"{year}-02-29T00:00:00Z" in names) is is_leap
        assert len(names) == 2 + is_leap


def test_weeks_begin_on_monday_and_years_have_52_or_53_of_them():
    weekly = Schedule(every=Every.WEEK, at="06:00")
    for year in range(1995, 2026):
        slots = weekly.between(at(f"{year}-01-01T00:00Z"), at(f"{year + 1}-01-10T00:00Z"))
        weeks = [each.time.isocalendar().week for each in slots if each.time.isocalendar().year == year]
        first = 1 if date(year, 1, 1).isocalendar().year != year or date(year, 1, 1).isoweekday() == 1 else 2
        assert weeks == list(range(first, date(year, 12, 28).isocalendar().week + 1))
    assert slot_at(weekly, read_slot("2020-W53-1")) == slot("2020-12-28T06:00Z")


# Against a clock.


def watched(schedule, first, last):
    """Return what is due by looking at the clock each minute; a time that the clock jumped over is due as much after the jump."""
    zone = ZoneInfo(schedule.timezone)
    wanted = schedule.at or "00:00"
    found, now, done = [], first - timedelta(days=2), set()
    before = None
    while now < last:
        local = now.astimezone(zone)
        day = local.date()
        if schedule.every is Every.HOUR:
            if local.minute == 0 and local.second == 0:
                found.append(now)
        elif schedule.every is Every.DAY or (local.isoweekday() == 1 if schedule.every is Every.WEEK else local.day == 1):
            shown = local.strftime("%H:%M")
            if shown == wanted and day not in done:
                done.add(day)
                found.append(now)
            elif (
                before is not None and before < wanted < shown and local.utcoffset() > (now - MINUTE).astimezone(zone).utcoffset()
            ):
                late = sum(int(a) * b for a, b in zip(wanted.split(":"), (60, 1), strict=True))
                late -= sum(int(a) * b for a, b in zip(before.split(":"), (60, 1), strict=True))
                done.add(day)
                found.append(now - MINUTE + late * MINUTE)
            before = shown
        now += MINUTE
    return [str(Slot(each)) for each in sorted(found) if first < each < last]


ZONES = ["Europe/Amsterdam", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "UTC"]
CHANGES = [
    "2024-03-10T00:00Z",
    "2024-03-31T00:00Z",
    "2024-04-06T12:00Z",
    "2024-10-05T12:00Z",
    "2024-10-27T00:00Z",
    "2024-11-03T00:00Z",
]


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("time", [None, "01:45", "02:15", "02:59"])
def test_a_watched_clock_finds_the_same_about_a_change(zone, change, time):
    first, last = at(change) - timedelta(days=2), at(change) + timedelta(days=2)
    for every in (Every.HOUR,) if time is None else (Every.DAY,):
        schedule = Schedule(every=every, timezone=zone, at=time)
        assert [str(each) for each in schedule.between(first, last)] == watched(schedule, first, last)


@pytest.mark.parametrize("every", [Every.WEEK, Every.MONTH])
def test_a_watched_clock_finds_the_same_weeks_and_months(every):
    schedule = Schedule(every=every, timezone="Europe/Amsterdam", at="02:30")
    first, last = at("2024-02-20T00:00Z"), at("2024-04-09T00:00Z")
    assert [str(each) for each in schedule.between(first, last)] == watched(schedule, first, last)


# What is missed.


def test_nothing_is_missed_by_the_first_slot_or_the_next():
    nightly = daily("02:00")
    assert missed(nightly, [], slot("2024-03-31T00:00Z")) == ()
    assert missed(nightly, [slot("2024-03-30T01:00Z")], slot("2024-03-31T01:00Z")) == ()
    assert missed(nightly, [slot("2024-05-01T00:00Z")], slot("2024-03-31T01:00Z")) == ()


def test_what_lies_between_the_last_that_is_there_and_this_is_missed():
    nightly = daily("02:00")
    there = [slot("2024-03-20T01:00Z"), slot("2024-03-29T01:00Z"), slot("2024-04-09T00:00Z")]
    lost = missed(nightly, there, slot("2024-04-02T00:00Z"))
    assert [str(each) for each in lost] == ["2024-03-30T01:00:00Z", "2024-03-31T01:00:00Z", "2024-04-01T00:00:00Z"]


def test_missed_slots_by_brute_force():
    """Every subset of eight nights about a change of the clock: each night in turn is run, given those."""
    nightly = daily("02:30")
    nights = nightly.between(at("2024-03-27T12:00Z"), at("2024-04-04T12:00Z"))
    assert len(nights) == 8
    for mask in range(256):
        there = {night for i, night in enumerate(nights) if mask >> i & 1}
        for i, night in enumerate(nights):
            last = max((j for j in range(i) if nights[j] in there), default=None)
            assert list(missed(nightly, there, night)) == ([] if last is None else nights[last + 1 : i])


# What is meant.


def test_a_date_is_the_slot_of_that_day_and_without_a_schedule_midnight_in_utc():
    day = read_slot("2024-07-01")
    assert str(slot_at(None, day)) == "2024-07-01T00:00:00Z"
    assert str(slot_at(daily("02:00"), day)) == "2024-07-01T00:00:00Z"
    assert str(slot_at(daily("00:30"), day)) == "2024-06-30T22:30:00Z"
    assert str(slot_at(Schedule(every=Every.MONTH, timezone="Asia/Tokyo"), day)) == "2024-06-30T15:00:00Z"


@pytest.mark.parametrize(
    ("schedule", "given", "told"),
    [
        (daily("02:00"), "2024-07-01T00:03Z", "the slots about it are 2024-07-01T00:00:00Z and 2024-07-02T00:00:00Z"),
        (Schedule(every=Every.WEEK), "2024-07-02", "2024-07-01T00:00:00Z and 2024-07-08T00:00:00Z"),
        (Schedule(every=Every.MONTH), "2024-02-29", "2024-02-01T00:00:00Z and 2024-03-01T00:00:00Z"),
        (Schedule(every=Every.HOUR), "2024-02-29", "which has many slots; give the instant of one"),
        (Schedule(every=Every.HOUR), "2024-02-29T00:00:01Z", "2024-02-29T00:00:00Z and 2024-02-29T01:00:00Z"),
    ],
)
def test_a_time_off_the_schedule_is_refused_with_the_slots_about_it(schedule, given, told):
    with pytest.raises(ValueError, match=told):
        slot_at(schedule, read_slot(given))


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ({"timezone": "Europe/Amsterdm"}, "did you mean 'Europe/Amsterdam'"),
        ({"timezone": "../../etc/passwd"}, "timezone is"),
        ({"timezone": "Europe"}, "timezone is"),
        ({"timezone": ""}, "timezone is ''; give an IANA name"),
        ({"timezone": "localtime"}, "timezone is 'localtime'"),
        ({"at": "24:00"}, "at is '24:00'; give hours and minutes, as 02:00"),
        ({"at": "2:00"}, "at is '2:00'"),
        ({"at": "02:00:00"}, "at is"),
        ({"at": "02:00", "every": Every.HOUR}, "at goes with every: day, week or month"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(facts, told):
    with pytest.raises(ValueError, match=told):
        Schedule(**{"every": Every.DAY, **facts})


def test_every_zone_can_be_walked_through_a_year():
    from zoneinfo import available_timezones

    for zone in sorted(available_timezones() - {"localtime"})[::12]:
        slots = daily("00:15", zone).between(datetime(2023, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, tzinfo=UTC))
        gaps = {b.time - a.time for a, b in pairwise(slots)}
        assert all(timedelta(hours=22) <= gap <= timedelta(hours=26) for gap in gaps)
        assert len(slots) in (364, 365, 366)
