"""Scheduled runs: once for each slot, whatever the data do; refused, warned of and told."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from commands import PROCESSES, dp_dask
from slot_racers import race
from test_cli import GOOD, changed, spent

from dp_dask.config import load
from dp_dask.core.slots import Slot
from dp_dask.errors import ConfigError, SourceError
from dp_dask.gate.ledger import Ledger
from dp_dask.pipeline import run as run_pipeline
from dp_dask.private.sources import OfFiles
from dp_dask.scheduled import Scheduled, schedule

NIGHTLY = {"every": "day", "timezone": "Europe/Amsterdam", "at": "02:00"}
NOON = datetime(2024, 6, 1, 12, tzinfo=UTC)


def records(folder, shift=0.0):
    (folder / "data").mkdir(exist_ok=True)
    pq.write_table(pa.table({"x": [i / 25 + shift for i in range(100)]}), folder / "data" / "a.parquet")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.delenv("DP_DASK_SLOT", raising=False)
    records(tmp_path)
    write(tmp_path, GOOD)
    assert dp_dask(tmp_path, "ledger", "init", "p.yaml", "--epsilon", "3").returncode == 0
    return tmp_path


def write(folder, content):
    (folder / "p.yaml").write_text(yaml.safe_dump(content))


def run(folder, slot, *words):
    done = dp_dask(folder, "run", "p.yaml", "--slot", slot, "--json", *words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def release_of(told):
    return json.loads((Path(told["folder"]) / "release.json").read_text())["measurements"]["m"]["release"]


def test_a_slot_is_charged_once_whatever_the_data_do_since(folder):
    first, _ = run(folder, "2024-05-01T02:00Z")
    assert (first["slot"], first["charged"], first["missed"]) == ("2024-05-01T02:00:00Z", "0.5", None)
    assert Path(first["folder"]) == folder / "out" / "2024-05-01T020000Z"
    records(folder, 0.5)
    second, _ = run(folder, "2024-05-01T04:00+02:00")  # the same instant
    shutil.rmtree(folder / "data")
    third, _ = run(folder, "2024-05-01 02:00:00Z")
    assert (second["charged"], third["charged"], spent(folder)) == ("0", "0", "0.5")
    assert release_of(first) == release_of(second) == release_of(third)
    assert second["measurements"]["m"]["parameters"] == first["measurements"]["m"]["parameters"]
    assert [path.name for path in (folder / "out").iterdir()] == ["2024-05-01T020000Z"]
    assert not list((folder / "out").rglob("*.part"))


def test_another_slot_is_another_question_on_the_same_data(folder):
    first, _ = run(folder, "2024-05-01T02:00Z")
    second, _ = run(folder, "2024-05-01T02:00:01Z")
    assert (first["charged"], second["charged"], spent(folder)) == ("0.5", "0.5", "1.0")
    assert release_of(first)["id"] != release_of(second)["id"]
    unscheduled = json.loads(dp_dask(folder, "run", "p.yaml", "--json").stdout)
    assert (unscheduled["charged"], "slot" in unscheduled) == ("0.5", False)


def test_no_version_that_is_written_by_hand_is_a_slot(folder):
    """Neither one that looks like it, nor the very text, which a file can only hold as an escape."""
    slot = Slot(datetime(2024, 5, 1, 2, tzinfo=UTC))
    pipeline, _ = schedule(load(folder / "p.yaml"), str(slot), now=NOON)
    ledger = Ledger(pipeline.ledger)
    alike = (str(slot), f"slot {slot}", slot.folder, "ÿslot " + str(slot), "?" + slot.version[1:])
    assert len({ledger.digest(pipeline.requests[0], version) for version in (pipeline.version, *alike)}) == 1 + len(alike)
    ledger.close()
    text = yaml.safe_dump(changed(dataset__version="VERSION")).replace("VERSION", f'"\\udcff{slot.version[1:]}"')
    (folder / "p.yaml").write_text(text)
    done = dp_dask(folder, "run", "p.yaml")
    assert (done.returncode, "dataset.version: begins with a character that no text holds" in done.stderr) == (2, True)


@pytest.mark.parametrize("where", [None, {"x": {"from": 1}}])
def test_another_table_of_a_database_is_another_question_of_the_same_slot(folder, where):
    def version(table):
        source = {"kind": "sqlite", "path": "a.db", "table": table}
        content = changed(dataset__source=source, dataset__version="any", privacy={"neighbours": "add_remove"})
        write(folder, {**content, "dataset": {**content["dataset"], **({"where": where} if where else {})}})
        return schedule(load(folder / "p.yaml"), "2024-05-01", now=NOON)[0].version

    assert version("people") == version("people") != version("visits")
    assert version("people").startswith(Slot(datetime(2024, 5, 1, tzinfo=UTC)).version)


class Gone(OfFiles):
    """A table that is there no more."""

    def pinned(self, look=None):  # noqa: ARG002
        msg = "no such table"
        raise SourceError(msg)


def test_a_release_of_a_slot_is_found_without_the_table_that_it_was_read_from(folder):
    first, _ = run(folder, "2024-05-01")
    pipeline, _ = schedule(load(folder / "p.yaml"), "2024-05-01", now=NOON)
    found = run_pipeline(replace(pipeline, source=Gone()))
    assert (found.charged, found.publication.measurements["m"].release.id) == ((), release_of(first)["id"])
    other, _ = schedule(load(folder / "p.yaml"), "2024-05-02", now=NOON)
    with pytest.raises(SourceError, match="no such table"):
        run_pipeline(replace(other, source=Gone()))


def test_a_slot_stands_in_place_of_a_version_that_is_written_by_hand(folder):
    run(folder, "2024-05-01")
    write(folder, changed(dataset__version="monday"))
    again, _ = run(folder, "2024-05-01")
    assert (again["charged"], spent(folder)) == ("0", "0.5")


def test_the_slot_comes_from_the_environment_too_and_an_empty_one_is_a_fault(folder, monkeypatch):
    pipeline = load(folder / "p.yaml")
    assert schedule(pipeline, None, now=NOON) == (pipeline, None)
    monkeypatch.setenv("DP_DASK_SLOT", "2024-05-01T02:00Z")
    of_environment = schedule(pipeline, None, now=NOON)
    assert of_environment == schedule(pipeline, "2024-05-01T02:00Z", now=NOON)
    assert str(schedule(pipeline, "2024-05-02", now=NOON)[1].slot) == "2024-05-02T00:00:00Z"  # the option wins
    monkeypatch.setenv("DP_DASK_SLOT", "")
    with pytest.raises(ConfigError, match=r"DP_DASK_SLOT: is ''; give an instant"):
        schedule(pipeline, None, now=NOON)


@pytest.mark.parametrize("given", ["2024-06-01T12:00:01Z", "2024-06-02", "2024-06-01T12:30+00:15"])
def test_a_slot_to_come_is_refused_to_the_second(folder, given):
    pipeline = load(folder / "p.yaml")
    with pytest.raises(ConfigError, match="which is to come: it is 2024-06-01T12:00:00Z"):
        schedule(pipeline, given, now=NOON)
    schedule(pipeline, "2024-06-01T14:00+02:00", now=NOON)


@pytest.mark.parametrize("given", ["tonight", "", "2024-02-30", "2024-05-01T02:00", "3024-05-01"])
def test_what_is_no_slot_is_refused_with_code_2_and_charges_nothing(folder, given):
    for command in ("run", "check"):
        done = dp_dask(folder, command, "p.yaml", "--slot", given)
        assert (done.returncode, f"--slot: is {given!r}" in done.stderr) == (2, True), done.stderr
    assert (spent(folder), (folder / "out").exists()) == ("0", False)


@pytest.mark.parametrize("epsilon", [0.5, 3])
def test_two_runs_of_one_slot_at_once_are_charged_once_and_show_the_same(folder, epsilon):
    """Both look into the ledger before either commits, and both write the same files; the budget may be enough for one alone."""
    write(folder, changed(measurements__m__epsilon=epsilon))
    barrier = PROCESSES.Barrier(2)
    files = [folder / f"told-{i}" for i in range(2)]
    racers = [PROCESSES.Process(target=race, args=(folder / "p.yaml", "2024-05-01", barrier, file)) for file in files]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(120)
    assert [racer.exitcode for racer in racers] == [0, 0]
    charged, ids, folders = zip(*[json.loads(file.read_text()) for file in files], strict=True)
    assert sorted(charged) == [[], ["m"]]
    assert (len(set(ids)), len(set(folders)), spent(folder)) == (1, 1, str(epsilon))
    ledger = Ledger(load(folder / "p.yaml").ledger)
    assert ledger.verify() == 2
    ledger.close()
    assert release_of({"folder": folders[0]})["id"] == ids[0]
    names = {path.name for path in Path(folders[0]).iterdir()}
    assert names == {"posterior.nc", "release.json", "report.html", "run.json"}


def test_check_tells_whether_the_slot_is_released_already(folder):
    def check():
        done = dp_dask(folder, "check", "p.yaml", "--slot", "2024-05-01", "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    before = check()
    assert before["slot"] == {
        "slot": "2024-05-01T00:00:00Z", "schedule": None, "missed": None, "released": {"m": False}, "written": False,
        "folder": str(folder / "out" / "2024-05-01T000000Z"),
    }  # fmt: skip
    assert not (folder / "out").exists()
    run(folder, "2024-05-01")
    after = check()["slot"]
    assert (after["released"], after["written"]) == ({"m": True}, True)
    assert "slot 2024-05-01T00:00:00Z: released already" in dp_dask(folder, "check", "p.yaml", "--slot", "2024-05-01").stdout
    assert "not released yet" in dp_dask(folder, "check", "p.yaml", "--slot", "2024-05-02").stdout
    measurements = {**GOOD["measurements"], "more": {**GOOD["measurements"]["m"], "epsilon": 0.25}}
    write(folder, {**GOOD, "measurements": measurements})
    assert check()["slot"]["released"] == {"m": True, "more": False}
    assert "a run charges for more" in dp_dask(folder, "check", "p.yaml", "--slot", "2024-05-01").stdout
    assert "slot" not in json.loads(dp_dask(folder, "check", "p.yaml", "--json").stdout)
    assert spent(folder) == "0.5"


def test_check_of_a_slot_without_a_ledger_finds_nothing_released(folder):
    (folder / "ledger.db").unlink()
    done = dp_dask(folder, "check", "p.yaml", "--slot", "2024-05-01", "--json")
    assert json.loads(done.stdout)["slot"]["released"] == {"m": False}
    assert not (folder / "ledger.db").exists()


def test_slots_that_were_missed_are_told_and_not_charged(folder):
    write(folder, {**GOOD, "schedule": NIGHTLY})
    first, warned = run(folder, "2024-03-29")
    assert (first["missed"], first["schedule"], warned) == ([], NIGHTLY, "")
    later, warned = run(folder, "2024-04-02")
    assert later["missed"] == ["2024-03-30T01:00:00Z", "2024-03-31T01:00:00Z", "2024-04-01T00:00:00Z"]
    assert "warning: 3 slots of the schedule before 2024-04-02T00:00:00Z have no release in the output folder: " in warned
    assert "2024-03-30T01:00:00Z, 2024-03-31T01:00:00Z, 2024-04-01T00:00:00Z; nothing is charged for them" in warned
    assert spent(folder) == "1.0"
    filled, warned = run(folder, "2024-03-31")
    assert filled["missed"] == ["2024-03-30T01:00:00Z"]
    assert "a slot of the schedule before 2024-03-31T01:00:00Z has no release in the output folder: " in warned
    assert run(folder, "2024-04-02")[0]["missed"] == ["2024-04-01T00:00:00Z"]
    assert spent(folder) == "1.5"
    told = dp_dask(folder, "check", "p.yaml", "--slot", "2024-04-04").stdout
    assert "missing before it: 2024-04-03T00:00:00Z" in told


def test_a_slot_off_the_schedule_is_refused(folder):
    write(folder, {**GOOD, "schedule": NIGHTLY})
    done = dp_dask(folder, "run", "p.yaml", "--slot", "2024-05-01T00:07Z")
    assert (done.returncode, spent(folder)) == (2, "0")
    assert "the slots about it are 2024-05-01T00:00:00Z and 2024-05-02T00:00:00Z" in done.stderr


def test_a_folder_without_a_release_is_a_slot_that_was_missed(folder):
    write(folder, {**GOOD, "schedule": NIGHTLY})
    pipeline = load(folder / "p.yaml")
    for name in ("2024-05-01T000000Z", "2024-05-02T000000Z", "2024-05-03T000000Z"):
        (pipeline.output / name).mkdir(parents=True)
    (pipeline.output / "2024-05-01T000000Z" / "release.json").write_text("")
    _, scheduled = schedule(pipeline, "2024-05-04", now=NOON)
    assert [str(each)[:10] for each in scheduled.missed] == ["2024-05-02", "2024-05-03"]


def test_many_missed_slots_are_warned_of_in_one_line(tmp_path):
    slots = tuple(Slot(NOON + timedelta(days=i)) for i in range(50))
    warning = Scheduled(slot=Slot(NOON + timedelta(days=50)), folder=tmp_path, schedule=None, missed=slots).warning
    assert "50 slots" in warning
    assert "2024-06-01T12:00:00Z, 2024-06-02T12:00:00Z, .., 2024-07-20T12:00:00Z;" in warning


def test_a_slot_s_folder_that_holds_another_question_is_left_as_it_is(folder):
    first, _ = run(folder, "2024-05-01")
    kept = (Path(first["folder"]) / "release.json").read_text()
    write(folder, changed(measurements__m__bounds=[0, 4]))
    done = dp_dask(folder, "run", "p.yaml", "--slot", "2024-05-01")
    assert (done.returncode, spent(folder)) == (2, "0.5")
    assert "holds what this file does not ask for" in done.stderr
    assert (Path(first["folder"]) / "release.json").read_text() == kept
    elsewhere, _ = run(folder, "2024-05-01", "--output", str(folder / "other"))
    assert (elsewhere["charged"], Path(elsewhere["folder"]).parent) == ("0.5", folder / "other")
    measurements = {**GOOD["measurements"], "more": {**GOOD["measurements"]["m"], "epsilon": 0.25}}
    write(folder, {**GOOD, "measurements": measurements})  # what is there is asked for still
    assert run(folder, "2024-05-01")[0]["charged"] == "0.25"
    write(folder, GOOD)  # one of the two would be lost
    assert dp_dask(folder, "run", "p.yaml", "--slot", "2024-05-01").returncode == 2


def test_a_file_in_the_place_of_the_slot_s_folder_is_refused_before_anything_is_charged(folder):
    (folder / "out").mkdir()
    (folder / "out" / "2024-05-01T000000Z").write_text("")
    done = dp_dask(folder, "run", "p.yaml", "--slot", "2024-05-01")
    assert (done.returncode, spent(folder)) == (2, "0")
    assert "is no folder that may be written to" in done.stderr


def test_a_slot_s_report_is_written_again(folder):
    told, _ = run(folder, "2024-05-01")
    (Path(told["folder"]) / "report.html").unlink()
    assert dp_dask(folder, "report", told["folder"]).returncode == 0
    assert (Path(told["folder"]) / "report.html").exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"every": "night"}, "schedule.every: is 'night'"),
        ({"timezone": "UTC"}, "schedule.every: is missing"),
        ({**NIGHTLY, "on": "monday"}, "schedule.on: unknown key"),
        ({**NIGHTLY, "timezone": "Amsterdam"}, "schedule: timezone is 'Amsterdam'"),
        ({**NIGHTLY, "at": 2}, "schedule.at: is 2"),
        ("daily", "schedule: is 'daily'; give a mapping with the keys every, timezone, at"),
    ],
)
def test_a_faulty_schedule_is_refused_with_its_path(folder, given, message):
    write(folder, {**GOOD, "schedule": given})
    with pytest.raises(ConfigError, match=message):
        load(folder / "p.yaml")


def test_the_schema_knows_the_schedule(folder):
    found = json.loads(dp_dask(folder, "schema").stdout)["properties"]["schedule"]
    assert found["required"] == ["every"]
    assert set(found["properties"]) == {"every", "timezone", "at"}
    assert found["properties"]["every"]["enum"] == ["hour", "day", "week", "month"]


def test_a_series_is_reported_from_its_folders_alone(folder):
    write(folder, {**GOOD, "schedule": NIGHTLY})
    slots = ["2024-03-29", "2024-03-30", "2024-04-01"]
    told = [run(folder, slot)[0] for slot in slots]
    for lost in ("ledger.db", "p.yaml", "data/a.parquet"):
        (folder / lost).unlink()
    done = dp_dask(folder, "report", "--series", "out", "--json")
    assert done.returncode == 0, done.stderr
    series = json.loads(done.stdout)
    assert [(each["slot"], each["loss"], each["total"]) for each in series["slots"]] == [
        ("2024-03-29T01:00:00Z", "0.5", "0.5"), ("2024-03-30T01:00:00Z", "0.5", "1.0"), ("2024-04-01T00:00:00Z", "0.5", "1.5"),
    ]  # fmt: skip
    assert (series["missed"], series["ledger"]["left"]) == (["2024-03-31T01:00:00Z"], "1.5")
    (line,) = series["lines"]
    assert [(p["mean"], p["lower"]) for p in line["points"]] == [
        (of["mean"], of["lower"]) for each in told for of in each["measurements"]["m"]["parameters"].values()
    ]
    assert [p["follows"] for p in line["points"]] == [False, True, False]
    assert (folder / "out" / "series.html").read_text().count("<svg") == 1
    assert dp_dask(folder, "report", "--series", "out").stdout.strip() == "out/series.html"
    again = dp_dask(folder, "report", "--json", told[0]["folder"])
    assert json.loads(again.stdout) == {"report": str(Path(told[0]["folder"]) / "report.html")}
    refused = dp_dask(folder, "report", "--series", told[0]["folder"])
    assert (refused.returncode, "give the output folder of runs with --slot" in refused.stderr) == (2, True)
