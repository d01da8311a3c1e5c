"""Series: what public files of slots say together, and what must not be put on one line."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from decimal import Decimal
from types import SimpleNamespace

import pytest
from gate.gate_examples import make_statistic
from slot_files import digest, night, published, write_slot

from dp_dask.core.bounds import Bounds, Outside
from dp_dask.core.cells import choose_cells
from dp_dask.core.grid import Grid
from dp_dask.core.partition import make_partition
from dp_dask.core.privacy import Neighbours
from dp_dask.core.unit import UnitOfProtection
from dp_dask.core.where import Between, OneOf, Where
from dp_dask.errors import ConfigError
from dp_dask.public.comparable import question
from dp_dask.public.series import read_series
from dp_dask.public.series_page import render_series, series_json


def means(line):
    return [point.mean for point in line.points]


def test_points_are_what_each_run_told_in_order_of_time(tmp_path):
    for i in (2, 0, 1):
        write_slot(tmp_path, night(i), 0.1 * (i + 1), missed=[])
    (line,) = read_series(tmp_path).lines
    assert (line.measurement, line.parameter, means(line)) == ("visits", "p", [0.1, 0.2, pytest.approx(0.3)])
    assert next((p.slot, p.lower, p.upper, p.sd) for p in line.points) == (night(0), 0.1 - 0.2, 0.1 + 0.2, 0.1)
    assert [p.follows for p in line.points] == [False, True, True]


def test_a_gap_breaks_the_line_and_a_slot_that_was_filled_in_later_mends_it(tmp_path):
    for i, missed in ((0, []), (1, []), (4, [night(2), night(3)]), (5, [])):
        write_slot(tmp_path, night(i), missed=missed)
    series = read_series(tmp_path)
    assert series.missed == (night(2), night(3))
    assert [p.follows for p in series.lines[0].points] == [False, True, False, True]
    write_slot(tmp_path, night(2), missed=[])
    write_slot(tmp_path, night(3), missed=[])
    series = read_series(tmp_path)
    assert (series.missed, [p.follows for p in series.lines[0].points]) == ((), [False, True, True, True, True, True])


def test_without_a_schedule_nothing_is_joined_or_said_to_be_missed(tmp_path):
    for i in (0, 1):
        write_slot(tmp_path, night(i))
    series = read_series(tmp_path)
    assert ([p.follows for p in series.lines[0].points], series.missed) == ([False, False], ())
    assert series_json(series)["is_missed_known"] is False
    assert "Whether slots were missed is not known" in render_series(series)


@pytest.mark.parametrize("spoil", ["no run.json", "not JSON", "not finite", "other measurements", "no slot key", "bad missed"])
def test_a_release_without_a_run_that_can_be_used_is_a_gap_that_is_paid_for(tmp_path, spoil):
    for i in range(3):
        write_slot(tmp_path, night(i), missed=[])
    file = tmp_path / night(1).folder / "run.json"
    told = json.loads(file.read_text())
    if spoil == "no run.json":
        file.unlink()
    elif spoil == "not JSON":
        file.write_text("{")
    else:
        told["measurements"]["visits"]["parameters"]["p"] |= {"mean": "NaN"} if spoil == "not finite" else {}
        told["measurements"] |= {"ill": told["measurements"]["visits"]} if spoil == "other measurements" else {}
        told |= {"missed": ["tonight"]} if spoil == "bad missed" else {}
        file.write_text(json.dumps({key: value for key, value in told.items() if key != "slot" or spoil != "no slot key"}))
    series = read_series(tmp_path)
    (line,) = series.lines
    assert [(p.slot, p.follows) for p in line.points] == [(night(0), False), (night(2), False)]
    assert [str(cost.total) for cost in series.costs] == ["0.1", "0.2", "0.3"]
    problem = series_json(series)["slots"][1]["problem"]
    assert "run the slot again, which is free" in problem
    assert problem in render_series(series)


def test_a_moment_that_is_not_finite_is_no_point(tmp_path):
    write_slot(tmp_path, night(0), missed=[])
    folder = write_slot(tmp_path, night(1), missed=[])
    told = json.loads((folder / "run.json").read_text())
    told["measurements"]["visits"]["parameters"]["p"]["mean"] = None
    (folder / "run.json").write_text(json.dumps(told))
    series = read_series(tmp_path)
    assert [len(line.points) for line in series.lines] == [1]
    assert len(series.costs) == 2


# What costs what.


def test_losses_add_up_exactly_and_a_release_that_is_there_twice_counts_once(tmp_path):
    both = {"visits": published("0.1"), "ill": published("0.2")}
    write_slot(tmp_path, night(0), measurements=both)
    write_slot(tmp_path, night(1), measurements={**both, "more": published("0.7")})
    write_slot(tmp_path, night(2), measurements={"visits": both["visits"], "again": both["visits"]})
    series = read_series(tmp_path)
    assert [(cost.loss, cost.total) for cost in series.costs] == [
        (Decimal("0.3"), Decimal("0.3")), (Decimal("0.7"), Decimal("1.0")), (Decimal(0), Decimal("1.0")),
    ]  # fmt: skip
    assert series_json(series)["total"] == "1.0"


def test_one_rho_makes_the_total_one_in_rho(tmp_path):
    write_slot(tmp_path, night(0), measurements={"visits": published("0.2")}, unit="rho")
    write_slot(tmp_path, night(1), measurements={"visits": published(rho="0.1")}, unit="rho")
    series = read_series(tmp_path)
    assert (series.unit, series.costs[-1].total) == ("rho", Decimal("0.12"))  # 0.2^2 / 2 + 0.1
    assert len(series.lines) == 1  # which noise is added is not what is asked


def test_what_is_left_is_told_by_the_run_that_was_written_last(tmp_path):
    """A slot that was run again, or filled in, after others knows more than those."""
    write_slot(tmp_path, night(0), spent="0.4")
    write_slot(tmp_path, night(1), spent="0.2")
    series = read_series(tmp_path)
    assert series_json(series)["ledger"] == {
        "slot": str(night(0)), "unit": "epsilon", "spent": "0.4", "granted": "5", "left": "4.6",
    }  # fmt: skip
    page = render_series(series)
    assert "<strong>4.6 left</strong>" in page
    assert "That is 0.2 more than the releases of this page: the data set was asked other questions too." in page


def test_less_spent_than_released_is_told_too(tmp_path):
    write_slot(tmp_path, night(0), measurements={"visits": published("0.5")}, spent="0.4")
    assert "That is 0.1 less than the releases of this page" in render_series(read_series(tmp_path))
    write_slot(tmp_path, night(1), spent="0.6")
    assert "than the releases of this page" not in render_series(read_series(tmp_path))


# What must not be put together.

FINER = Grid(unit=0.5, lower=0, upper=60, origin=0)


def test_another_data_set_is_left_out_by_name_and_in_no_total(tmp_path):
    write_slot(tmp_path, night(0), measurements={"visits": published(dataset="others")}, missed=[])
    write_slot(tmp_path, night(1), missed=[])
    write_slot(tmp_path, night(2), measurements={"visits": published(dataset="others")}, missed=[])
    write_slot(tmp_path, night(3), missed=[])
    series = read_series(tmp_path)
    assert series.dataset == "people"
    assert series.left_out == ((night(0).folder, "is of data set others"), (night(2).folder, "is of data set others"))
    assert [(p.slot, p.follows) for p in series.lines[0].points] == [(night(1), False), (night(3), False)]
    assert series.costs[-1].total == Decimal("0.2")
    assert f"<code>{night(0).folder}</code> is of data set others" in render_series(series)


def test_another_relation_is_left_out_as_its_losses_do_not_add_up(tmp_path):
    write_slot(tmp_path, night(0))
    private = published(neighbours=Neighbours.ADD_REMOVE, n=None, statistic=make_statistic(count_weight=15))
    write_slot(tmp_path, night(1), measurements={"visits": private})
    series = read_series(tmp_path)
    assert series.left_out == ((night(0).folder, "is under replace, whose losses do not add up with those under add_remove"),)
    assert series.costs[-1].total == Decimal("0.1")


def test_another_unit_of_protection_is_left_out_as_its_losses_do_not_add_up(tmp_path):
    record = published()
    person = UnitOfProtection(kind="person", column="id", type="text", max_records=1)
    of_person = replace(record, release=replace(record.release, request=replace(record.release.request, unit=person)))
    write_slot(tmp_path, night(0))
    write_slot(tmp_path, night(1), measurements={"visits": of_person})
    series = read_series(tmp_path)
    assert series.left_out == ((night(0).folder, f"protects a record, and not {person}: losses of the two do not add up"),)
    assert "what a person loses that was in the data at every slot" in render_series(series)


def test_folders_that_are_no_slot_s_or_another_slot_s_are_left_out_by_name(tmp_path):
    write_slot(tmp_path, night(0))
    shutil.copytree(tmp_path / night(0).folder, tmp_path / night(1).folder)
    shutil.copytree(tmp_path / night(0).folder, tmp_path / "20240101T000000Z-0f0f0f0f")
    (write_slot(tmp_path, night(2)) / "release.json").write_text("{}")
    (tmp_path / "simulations").mkdir()
    assert dict(read_series(tmp_path).left_out).keys() == {night(1).folder, "20240101T000000Z-0f0f0f0f", night(2).folder}
    assert dict(read_series(tmp_path).left_out)[night(1).folder] == f"holds the run of another slot, {night(0)}"


@pytest.mark.parametrize(
    "other",
    [
        {"prior": {"alpha": 2, "beta": 1}},
        {"model": "poisson"},
        {"statistic": make_statistic(column="days")},
        {"statistic": make_statistic(upper=31)},
    ],
    ids=["prior", "model", "column", "bounds"],
)
def test_another_question_is_another_line_that_says_so(tmp_path, other):
    for i, more in enumerate(({}, other, {})):
        write_slot(tmp_path, night(i), 0.1 * (i + 1), {"visits": published(**more)}, missed=[])
    series = read_series(tmp_path)
    assert [means(line) for line in series.lines] == [[0.1, pytest.approx(0.3)], [0.2]]
    assert [p.follows for line in series.lines for p in line.points] == [False, False, False]
    assert render_series(series).count("One of several questions under this name") == 2
    assert series.costs[-1].total == Decimal("0.3")


def test_n_the_loss_and_fineness_are_not_what_is_asked():
    statistic = make_statistic()
    finer = type(statistic)(column=statistic.column, bounds=statistic.bounds, outside=statistic.outside, grid=FINER)
    first = question(published())
    assert question(published("0.7")) == question(published(n=77)) == question(published(rho="0.1")) == first
    assert question(published(statistic=finer)) == first


def test_conditions_are_what_is_asked_to_the_last_digit():
    plain = published(neighbours=Neighbours.ADD_REMOVE, n=None, statistic=make_statistic(count_weight=15))
    conditions = [OneOf("site", ("a",)), OneOf("site", ("b",)), Between("age", 1.0, 2.0), Between("age", 1.0, 2.0 + 1e-15)]
    asked = {question(plain), question(published())}
    for condition in conditions:
        request = replace(plain.release.request, where=Where((condition,)))
        asked.add(question(replace(plain, release=replace(plain.release, request=request))))
    assert len(asked) == 2 + len(conditions)


def test_a_simulator_s_sums_are_what_is_asked():
    def binned(*edges):
        cells = choose_cells(Bounds(0, 8), "even", is_integer=False, wanted=64)
        made = make_partition("x", Bounds(0, 8), Outside.CLAMP, cells, edges)
        release = SimpleNamespace(request=SimpleNamespace(statistic=made, neighbours=Neighbours.REPLACE, where=None))
        return question(replace(published(simulates=True), release=release))

    assert binned(2, 4) == binned(2, 4)
    assert len({binned(2, 4), binned(2, 5), binned(2)}) == 3


# The page.


def test_the_page_is_self_contained_and_escapes_names(tmp_path):
    folder = write_slot(tmp_path, night(0), missed=[], warnings=("<b>far</b>",))
    told = json.loads((folder / "run.json").read_text())
    of = told["measurements"]["visits"]["parameters"]
    of['<script>"$x$'] = of["p"]
    (folder / "run.json").write_text(json.dumps(told))
    page = render_series(read_series(tmp_path))
    assert "<script" not in page
    assert "&lt;b&gt;far&lt;/b&gt;" in page
    assert page.count("<svg") == 2
    assert not re.findall(r"""(?:src|href)=["'](?!data:|#)[^"']+""", page)


def test_reading_changes_nothing_and_the_same_files_give_the_same_page(tmp_path):
    for i in range(3):
        write_slot(tmp_path, night(i), missed=[])
    before = digest(tmp_path)
    assert render_series(read_series(tmp_path)) == render_series(read_series(tmp_path))
    assert digest(tmp_path) == before


def test_many_lines_are_counted_and_not_drawn(tmp_path):
    write_slot(tmp_path, night(0), measurements={f"m{i}": published() for i in range(26)})
    page = render_series(read_series(tmp_path))
    assert (page.count("<svg"), "2 more lines are not drawn" in page) == (24, True)


def test_a_folder_without_slots_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="holds no slot's folder with a release"):
        read_series(tmp_path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_series(tmp_path / "nowhere")
    (write_slot(tmp_path, night(0)) / "release.json").write_text("")
    with pytest.raises(ConfigError, match=f"{night(0).folder} is not a release of this version"):
        read_series(tmp_path)
