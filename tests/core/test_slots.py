"""Slots: one form for a time however it is written, and nothing for what is none."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import pytest

from dp_dask.core.slots import Slot, read_slot

TWO = Slot(datetime(2024, 1, 31, 2, tzinfo=UTC))


@pytest.mark.parametrize(
    "text",
    [
        "2024-01-31T02:00:00Z",
        "2024-01-31T02:00Z",
        "2024-01-31 02:00:00+00:00",
        "2024-01-31T03:00+01:00",
        "2024-01-30T18:00:00.000-08:00",
        "20240131T020000Z",
        "2024-W05-3T02:00Z",
        "2024-01-31T02:00:00-00:00",
        str(TWO),
        TWO.folder,
    ],
)
def test_one_instant_has_one_form_however_it_is_written(text):
    slot = read_slot(text)
    assert slot == TWO
    assert (str(slot), slot.folder) == ("2024-01-31T02:00:00Z", "2024-01-31T020000Z")


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("2024-02-29", date(2024, 2, 29)),
        ("20240229", date(2024, 2, 29)),
        ("2024-W09-4", date(2024, 2, 29)),
        ("2020-W53-5", date(2021, 1, 1)),
        ("2026-W01-1", date(2025, 12, 29)),
    ],
)
def test_a_date_stays_a_date(text, day):
    assert read_slot(text) == day
    assert not isinstance(read_slot(text), datetime)


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "now", "yesterday", "2023-02-29", "2024-13-01", "2024-01-31T25:00Z", "2024-01-31T02:60Z", "2021-W53-1",
        "2024-01-31x02:00Z", "1706666400", "20240131020000", "2024-01-31T02:00Z2024", "../2024-01-31", "\uff12024-01-31",
        "2024-01-31T02:00:60Z", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "1969-12-31", "{{ ds }}",
        "2024-01-31\n", "-2024-01-31",
    ],
)  # fmt: skip
def test_nonsense_is_refused_with_what_is_allowed(text):
    with pytest.raises(ValueError, match=r"give an instant with its offset, as 2026-01-31T02:00Z, or a date") as caught:
        read_slot(text)
    assert repr(text) in str(caught.value)


def test_an_instant_without_an_offset_and_a_part_of_a_second_are_refused():
    with pytest.raises(ValueError, match="without an offset"):
        read_slot("2024-01-31T02:00")
    with pytest.raises(ValueError, match="whole seconds"):
        read_slot("2024-01-31T02:00:00.5Z")


def test_a_folder_s_name_leads_back_and_sorts_by_time():
    start = datetime(1999, 12, 31, 23, 59, 58, tzinfo=UTC)
    slots = [Slot(start + timedelta(seconds=i, hours=i * i, days=i**3)) for i in range(40)]
    folders = [slot.folder for slot in slots]
    assert [Slot.of_folder(name) for name in folders] == slots
    assert sorted(folders) == folders
    assert len({name.casefold() for name in folders}) == len(slots)
    assert not set(':/\\*?"<>| ') & set("".join(folders))


@pytest.mark.parametrize("name", ["20240131T020000Z-0f0f0f0f", "2024-01-31", "2024-13-31T020000Z", "2024-01-31t020000z", "x"])
def test_another_folder_is_no_slot_s(name):
    assert Slot.of_folder(name) is None


def test_a_slot_is_in_utc_and_whole_seconds():
    for time in (datetime(2024, 1, 1), TWO.time.astimezone(timezone(timedelta(hours=1))), TWO.time.replace(microsecond=1)):  # noqa: DTZ001
        with pytest.raises(ValueError, match="no instant in UTC"):
            Slot(time)
