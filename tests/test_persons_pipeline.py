"""Persons in pipeline files: what is refused and said, and a run of each kind by the command line."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import replace
from decimal import Decimal
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from changes import changed_in
from commands import dp_dask
from gate.selected_examples import DISTANCE, N, make_request, sparse

from dp_dask.check import check
from dp_dask.config import load
from dp_dask.core.privacy import Neighbours
from dp_dask.core.recordwise import Recordwise
from dp_dask.core.release import Release
from dp_dask.core.selected import Selection
from dp_dask.core.unit import RECORD, UnitOfProtection
from dp_dask.errors import ConfigError, SourceError
from dp_dask.gate.forms import canonical, parsed, written
from dp_dask.pipeline import run
from dp_dask.public.publication import read
from dp_dask.schema import schema

PERSON = {"column": "id", "type": "number", "max_records": 3}
GOOD = {
    "dataset": {"name": "visits", "source": {"kind": "parquet", "path": "data"}, "unit": PERSON},
    "privacy": {"neighbours": "add_remove", "expected_records": 300},
    "measurements": {
        "m": {"model": "exponential", "column": "x", "bounds": [0, 5], "epsilon": 3, "prior": {"alpha": 1, "beta": 1}}
    },
    "cluster": {"kind": "local", "workers": 2},
    "ledger": "sqlite:///ledger.db",
    "output": "out",
}
MIXTURE = {"simulator": "uniform_mixture", "components": 3, "prior": {"kind": "dirichlet", "alpha": 1}, "epsilon": 4}
HISTOGRAM = {"kind": "histogram", "column": "x", "bounds": [0, 3], "edges": [1, 2]}
NEAR = {**MIXTURE, "method": "svt", "distance": HISTOGRAM, "c": 5, "tolerance": 0.1, "simulations": 400}

CATEGORIES = {"model": "categorical", "column": "g", "categories": ["a", "b"], "epsilon": 1, "prior": {"alpha": 1}}


changed = partial(changed_in, GOOD)


def of_kind(**facts):
    return {key: value for key, value in {**PERSON, "max_records": None, **facts}.items() if value is not None}


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(1)
    columns = {"id": rng.integers(0, 100, 500), "x": rng.exponential(0.5, 500), "g": rng.choice(["a", "b"], 500)}
    (tmp_path / "data").mkdir()
    for i, part in enumerate(np.array_split(np.arange(500), 3)):
        pq.write_table(pa.table({name: values[part] for name, values in columns.items()}), tmp_path / "data" / f"{i}.parquet")
    return tmp_path


def write(folder, content):
    (folder / "p.yaml").write_text(yaml.safe_dump(content))
    return folder / "p.yaml"


BAD = {
    "no form": (changed(dataset__unit="person"), r"dataset.unit: is 'person'; give record, or a person as \{column"),
    "unknown key": (changed(dataset__unit__most=3), r"dataset.unit.most: unknown key; did you mean 'passes'|known keys"),
    "no type": (changed(dataset__unit__type=None), "dataset.unit.type: is missing"),
    "other type": (changed(dataset__unit__type="int"), "dataset.unit.type: is 'int'; it should be 'number' or 'text'"),
    "neither": (changed(dataset__unit__max_records=None), "dataset.unit: give max_records, .* or combine"),
    "both": (changed(dataset__unit__combine="mean"), "dataset.unit: give max_records, .* not both"),
    "none": (changed(dataset__unit__max_records=0), "max_records is 0; it must be from 1 to 1024"),
    "passes": (changed(dataset__unit__passes=0), "passes is 0; give a whole number from 1"),
    "public n": (
        changed(privacy={"neighbours": "replace", "n": 100}),
        "dataset.unit: max_records is 3 under neighbours: replace.* give max_records: 1 or combine, with n the number of persons",
    ),
    "measured": (changed(measurements__m__column="id"), "measurement m: column id says whose a record is, and is not measured"),
    "categories": (
        changed(
            dataset__unit=of_kind(combine="mean"),
            measurements__m=CATEGORIES,
        ),
        "measurement m: combine: g: categories and groups have no mean",
    ),
    "groups": (
        changed(dataset__unit=of_kind(combine="sum"), measurements__m__group_by={"column": "g", "groups": ["a", "b"]}),
        "measurement m: combine: x, g: categories and groups have no mean",
    ),
    "truncated": (
        changed(dataset__unit=of_kind(combine="sum"), measurements__m__outside="truncate"),
        "measurement m: combine holds every record to the bounds.* outside: clamp",
    ),
    "means of whole numbers": (
        changed(dataset__unit=of_kind(combine="mean"), measurements__m__model="poisson"),
        "measurement m: it is of whole numbers, which a mean is not; give combine: sum, or max_records",
    ),
    "clusters": (
        changed(
            measurements__m={
                **MIXTURE, "simulator": "uniform_mixture", "column": "x", "summary": {"kind": "clusters", "sizes": [1, 2]}
            }
        ),
        "measurement m: clusters are counted over all records, of a person too; write unit: record",
    ),
    "record by record": (
        changed(
            dataset__unit=of_kind(max_records=1),
            privacy={"neighbours": "replace", "n": 100},
            measurements__m={**NEAR, "distance": {"kind": "recordwise", "weights": {"x": 1}, "clip": 1}},
        ),
        "measurement m: records are compared place by place",
    ),
    "read as two things": (changed(dataset__where={"id": ["a", "b"]}), "id would be read as numbers and as texts"),
}  # fmt: skip


@pytest.mark.parametrize(("content", "message"), BAD.values(), ids=BAD)
def test_a_unit_that_cannot_be_is_refused_before_anything_is_read(tmp_path, content, message):
    with pytest.raises(ConfigError) as caught:
        load(write(tmp_path, content))
    assert re.search(message, str(caught.value)), str(caught.value)


def test_the_column_of_persons_is_looked_up_before_anything_is_spent(folder):
    with pytest.raises(SourceError, match="no column 'who'"):
        check(load(write(folder, changed(dataset__unit__column="who"))))
    with pytest.raises(SourceError, match="column 'id'"):
        check(load(write(folder, changed(dataset__unit__type="text"))))


def test_the_noise_is_that_of_a_person(folder):
    """Three times that of a record; nothing else of the plan is another."""
    record, person = (check(load(write(folder, changed(dataset__unit=unit)))) for unit in ("record", PERSON))
    [one], [three] = record.forecasts, person.forecasts
    assert three.sensitivity == pytest.approx(3 * one.sensitivity, rel=0.02)  # the grid is chosen for more noise
    assert three.noise_scale == pytest.approx(3 * one.noise_scale, rel=0.02)
    assert person.protects == ("a person (column id, at most 3 records): any one person, with all records, added or left out")
    assert record.protects == "a record: any one record added or left out"
    assert "records of one person are taken to be as independent" in " ".join(three.warnings)
    assert not one.warnings
    assert "independent" not in " ".join(check(load(write(folder, changed(dataset__unit__max_records=1)))).forecasts[0].warnings)


UNITS = [PERSON, of_kind(max_records=1), of_kind(combine="mean"), of_kind(combine="sum", passes=3)]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
def test_a_run_releases_what_protects_persons_once(folder, unit, neighbours):
    privacy = GOOD["privacy"] if neighbours == "add_remove" else {"neighbours": "replace", "n": 100}
    if unit == PERSON and neighbours == "replace":
        pytest.skip("refused")
    file = write(folder, changed(dataset__unit=unit, privacy=privacy))
    assert dp_dask(folder, "ledger", "init", file, "--epsilon", "6").returncode == 0
    shown = dp_dask(folder, "check", file)
    assert "protects a person (column id, " in shown.stdout, shown.stderr
    told = [json.loads(dp_dask(folder, "run", file, "--json").stdout) for _ in range(2)]
    assert [each["charged"] for each in told] == ["3", "0"]
    publication = read(folder / "out" / told[0]["folder"].rsplit("/")[-1] / "release.json")
    made = publication.measurements["m"].release
    assert made.request.unit.column == "id"
    assert (
        made.sensitivity
        == made.request.sensitivity
        == (3 if unit == PERSON else 1) * made.request.statistic.sensitivity(made.request.neighbours)
    )
    assert parsed(written(made), Release) == made
    report = next((folder / "out").glob("*/report.html")).read_text()
    assert "Every single person is protected, with all records." in report
    assert "single record is" not in report
    again = write(folder, changed(dataset__unit={**unit, "passes": 2}, privacy=privacy))
    assert json.loads(dp_dask(folder, "run", again, "--json").stdout)["charged"] == "0"  # the number of passes changes nothing


def test_another_number_of_persons_than_n_is_refused(folder):
    file = write(folder, changed(dataset__unit__max_records=1, privacy={"neighbours": "replace", "n": 500}))
    assert dp_dask(folder, "ledger", "init", file, "--epsilon", "6").returncode == 0
    done = dp_dask(folder, "run", file)
    assert done.returncode == 4
    assert "another number of records, or of persons where they are protected" in done.stderr


@pytest.mark.parametrize("unit", [of_kind(max_records=1), of_kind(combine="mean")])
def test_a_choice_among_simulations_is_of_persons_too(folder, unit):
    public = {"neighbours": "replace", "n": 100}
    file = write(folder, changed(dataset__unit=unit, measurements={"near": NEAR}, privacy=public))
    assert dp_dask(folder, "ledger", "init", file, "--epsilon", "6").returncode == 0
    done = dp_dask(folder, "run", file, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["charged"] == "4"
    [(_, made)] = read(next((folder / "out").glob("*/release.json"))).selections.items()
    assert made.request.unit.column == "id"
    assert parsed(written(made), Selection) == made


def test_a_choice_of_several_records_of_a_person_needs_a_question_of_as_many():
    moves = DISTANCE.sensitivity(Neighbours.ADD_REMOVE)
    question = replace(sparse(), sensitivity=moves)
    base = make_request(question, neighbours=Neighbours.ADD_REMOVE, n=None)
    unit = UnitOfProtection(kind="person", column="id", type="text", max_records=3)
    with pytest.raises(ValueError, match=f"the question's sensitivity is {moves} steps; that of the distance is {3 * moves}"):
        replace(base, unit=unit)
    made = replace(base, unit=unit, question=replace(base.question, sensitivity=3 * moves))
    by_record = Recordwise(columns=("x",), weights=(1.0,), clip=2.0, n=N)
    assert made.sensitivity == 3 * base.sensitivity
    assert len({canonical(base), canonical(made)}) == 2
    with pytest.raises(ValueError, match="protects a record"):
        replace(make_request(sparse(distance=by_record), distance=by_record), unit=replace(unit, max_records=1))


def test_a_summary_is_planned_for_the_noise_of_a_person(folder):
    mixture = {**MIXTURE, "column": "x", "bounds": [0, 3], "epsilon": 0.9}
    planned = load(write(folder, changed(measurements={"m": mixture}))).measurements[0].request
    third = load(write(folder, changed(measurements={"m": {**mixture, "epsilon": 0.3}}, dataset__unit="record")))
    assert planned.statistic == third.measurements[0].request.statistic


def test_requests_of_records_have_the_digests_that_they_had_and_persons_others(folder):
    record, person, one = (
        load(write(folder, changed(dataset__unit=unit))).requests[0] for unit in ("record", PERSON, of_kind(max_records=1))
    )
    assert record.unit == RECORD
    assert b"unit" not in canonical(record).replace(b'"units"', b"").replace(b'"unit":0', b"")
    assert len({canonical(each) for each in (record, person, one)}) == 3


def test_files_of_different_units_are_not_mixed(folder):
    file = write(folder, GOOD)
    assert dp_dask(folder, "ledger", "init", file, "--epsilon", "9").returncode == 0
    assert dp_dask(folder, "run", file).returncode == 0
    path = next((folder / "out").glob("*/release.json"))
    content = json.loads(path.read_text())
    other = copy.deepcopy(content["measurements"]["m"])
    other["release"]["request"]["unit"]["max_records"] = 1
    other["release"]["sensitivity"] //= 3
    content["measurements"]["n"] = other
    path.write_text(json.dumps(content))
    with pytest.raises(ConfigError, match="protect different units"):
        read(path)
    other["release"]["request"]["unit"]["max_records"] = 3  # and a sensitivity less than that of three records
    path.write_text(json.dumps(content))
    with pytest.raises(ConfigError, match="scale or sensitivity is less"):
        read(path)


def test_the_schema_knows_persons():
    unit = schema()["properties"]["dataset"]["properties"]["unit"]["oneOf"]
    assert unit[0] == {"const": "record"}
    assert set(unit[1]["properties"]) == {"column", "type", "max_records", "combine", "passes"}
    assert unit[1]["required"] == ["column", "type"]


def test_a_program_gets_the_same_as_the_command(folder):
    """Two programs that run the same file share a release, and draw the same."""
    file = write(folder, GOOD)
    assert dp_dask(folder, "ledger", "init", file, "--epsilon", "3").returncode == 0
    one, two = (run(load(file)) for _ in range(2))
    assert one.cost == Decimal(3)
    assert two.cost == 0
