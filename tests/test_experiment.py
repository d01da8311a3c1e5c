"""The experiment command: one file to tables and pictures, the same on any cluster; every fault of a file at once."""

from __future__ import annotations

import csv
import io
import json
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
import yaml
from commands import dp_dask

from dp_dask.config import Inference
from dp_dask.errors import ConfigError
from dp_dask.experiment import load, run
from dp_dask.posteriors import infer_from
from dp_dask.public.comparison import Cell, calibrations, files, utilities
from dp_dask.public.publication import Publication
from dp_dask.public.trials import Outcome, join

GOOD = {
    "models": {
        "coin": {"model": "bernoulli", "prior": {"alpha": 1, "beta": 1}},
        "die": {"model": "categorical", "categories": ["a", "b", "c"], "prior": {"alpha": 1}},
        "wait": {"model": "exponential", "bounds": [0, 2], "outside": "clamp", "prior": {"alpha": 8, "beta": 2}},
    },
    "n": [5, 20],
    "epsilon": [0.5],
    "methods": ["non_private", "exact", "augment", "gibbs", "naive", "ops"],
    "replicates": 20,
    "draws": 15,
    "seed": 3,
    "output": "out",
}
TWO = {
    "model": "normal_mu_sigma",
    "bounds": [-5, 5],
    "prior": {"mu": 0, "kappa": 1, "alpha": 3, "beta": 2},
}


def write(folder, **changes):
    path = folder / "e.yaml"
    path.write_text(yaml.safe_dump(GOOD | changes))
    return path


def rows(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_the_same_file_gives_the_same_tables_on_threads_and_on_processes(tmp_path):
    small = {"n": [8], "draws": 7}
    one = load(write(tmp_path, cluster={"kind": "local", "workers": 2}, **small))
    other = load(write(tmp_path, cluster={"kind": "local", "processes": True, "workers": 2}, **small))
    first, second = (files(run(each), 7) for each in (one, other))
    assert first == second
    third = files(run(load(write(tmp_path, seed=4, methods=["naive"], **small))), 7)
    assert not set(third["calibration.csv"].split()[1:]) & set(first["calibration.csv"].split())


def test_a_method_s_results_do_not_depend_on_what_else_the_file_lists(tmp_path):
    everything = rows(files(run(load(write(tmp_path))), 15)["utility.csv"])
    alone = load(write(tmp_path, methods=["exact"], n=[20], models={"coin": GOOD["models"]["coin"]}))
    [found] = rows(files(run(alone), 15)["utility.csv"])
    [wanted] = [row for row in everything if (row["model"], row["n"], row["method"]) == ("coin", "20", "exact")]
    assert found == wanted


def test_the_command_writes_tables_and_pictures_and_says_where_a_method_does_not_serve(tmp_path):
    write(tmp_path, draws=7, n=[5])
    done = dp_dask(tmp_path, "experiment", "e.yaml")
    assert done.returncode == 0, done.stderr
    out = tmp_path / "out"
    assert sorted(path.name for path in out.iterdir()) == ["calibration.csv", "mmd.svg", "qq.svg", "table.md", "utility.csv"]
    assert (out / "table.md").read_text() in done.stdout
    tests, distances = rows((out / "calibration.csv").read_text()), rows((out / "utility.csv").read_text())
    assert len(distances) == 3 * 6
    refused = {(row["model"], row["method"]) for row in distances if row["refusal"]}
    assert refused == {("wait", "gibbs")}
    assert len(tests) == 6 + 6 * 3 + 5
    assert all(0 <= float(row["p_value"]) <= 1 and 0 < float(row["ks"]) < 1 for row in tests)
    assert "| wait | 5 | 0.5 |" in (out / "table.md").read_text()
    for name in ("qq.svg", "mmd.svg"):
        picture = ET.parse(out / name).getroot()  # noqa: S314
        assert picture.tag.endswith("svg")
        assert b"exact" in (out / name).read_bytes()
    told = json.loads(dp_dask(tmp_path, "experiment", "e.yaml", "--json", "--output", "other").stdout)
    assert len(told["calibration"]) == len(tests)
    assert len(told["refused"]) == 1
    assert (tmp_path / "other" / "table.md").read_text() == (out / "table.md").read_text()


@pytest.mark.parametrize(
    ("changes", "path", "told"),
    [
        ({"n": []}, "n", "at least one entry"),
        ({"n": [0]}, "n", "whole numbers from 1 to 10000"),
        ({"n": [5, 5]}, "n", "twice"),
        ({"n": [True]}, "n[0]", "give a number"),
        ({"epsilon": [0]}, "epsilon", "above 0"),
        ({"epsilon": 1}, "epsilon", "give a list"),
        ({"methods": ["exakt"]}, "methods", "unknown method 'exakt'"),
        ({"replicates": 3}, "size", "from 20 to 20000"),
        ({"replicates": "many"}, "replicates", "give a number"),
        ({"draws": 1}, "size", "from 7 to 1023"),
        ({"seed": -1}, "size", "seed is -1"),
        ({"ledger": "sqlite:///l.db"}, "ledger", "unknown key"),
        ({"dataset": {"name": "d"}}, "dataset", "unknown key"),
        ({"cluster": "cloud"}, "cluster", "give a kind, address, "),
        ({"models": {}}, "models", "at least one"),
        ({"models": {"a b": GOOD["models"]["coin"]}}, "models.a b", "the name may hold"),
        ({"models": {"coin": 3}}, "models.coin.model", "known models"),
        ({"models": {"coin": GOOD["models"]["coin"] | {"column": "x"}}}, "models.coin.column", "records are simulated"),
        ({"models": {"coin": GOOD["models"]["coin"] | {"epsilon": 1}}}, "models.coin.epsilon", "listed once"),
        ({"models": {"coin": {"model": "bernoulli"}}}, "models.coin.prior", "is missing"),
        ({"models": {"wait": GOOD["models"]["wait"] | {"bounds": [2, 1]}}}, "models.wait.bounds", "must be below"),
        ({"models": {"die": {"model": "categorical", "prior": {"alpha": 1}}}}, "models.die.categories", "is missing"),
        ({"models": {"die": GOOD["models"]["die"] | {"categories": [1]}}}, "models.die.categories", "from 2"),
        ({"models": {"die": GOOD["models"]["die"] | {"prior": {"alpha": 0}}}}, "models.die.prior", "positive"),
        (
            {"models": {"wait": GOOD["models"]["wait"] | {"prior": {"kind": "half_cauchy", "beta": 1}}}},
            "models.wait.prior",
            "no finite sd",
        ),
        ({"models": {"two": TWO}}, "models.two.model", "several sums"),
    ],
)
def test_each_fault_is_told_with_its_place(tmp_path, changes, path, told):
    with pytest.raises(ConfigError) as caught:
        load(write(tmp_path, **changes))
    assert any(problem.path == path and told in problem.message for problem in caught.value.problems), caught.value.problems
    assert len(set(caught.value.problems)) == len(caught.value.problems)


def test_several_faults_are_told_at_once(tmp_path):
    with pytest.raises(ConfigError) as caught:
        load(write(tmp_path, n=[0], methods=["exakt"], replicates=3))
    assert len(caught.value.problems) == 3


@pytest.mark.parametrize("name", ["naive", "non_private", "ops"])
def test_a_pipeline_that_asks_for_a_baseline_is_told_why_not(tmp_path, name):
    with pytest.raises(ValueError, match="baseline for simulated data"):
        Inference(engine=name)
    with pytest.raises(ConfigError, match="exact"):
        infer_from(Publication(written_by="", dataset="d", measurements={}), 100, name)
    file = Path(__file__).parent.parent / "pipelines" / "rand_hie.yaml"
    text = file.read_text().replace("data/rand_hie", str(file.parent / "data" / "rand_hie"))
    (tmp_path / "p.yaml").write_text(text + f"\ninference: {{engine: {name}}}\n")
    done = dp_dask(tmp_path, "check", "p.yaml")
    assert done.returncode == 2
    assert "dp-dask experiment" in done.stderr


def cell(method, ranks, squares=(0.1, 0.3), n=10):
    made = Outcome(np.asarray(ranks, dtype=float)[:, None], np.array(squares))
    return Cell(model="m", n=n, epsilon="1", method=method, parameters=("p",), outcome=made)


def test_holm_holds_a_method_s_tests_together():
    """Two uniform sets and one that is not: it alone fails, and other methods do not count."""
    rng = np.random.default_rng(1)
    cells = [cell("exact", rng.random(200), n=n) for n in (1, 2)]
    cells += [cell("exact", 0.2 * rng.random(200), n=3), cell("naive", 0.1 * rng.random(200))]
    assert [row.passes for row in calibrations(cells)] == [True, True, False, False]


def test_a_borderline_p_value_passes_among_many_and_fails_alone():
    rng = np.random.default_rng(2)
    tilted = next(
        u for u in (rng.random(200) ** 1.15 for _ in range(1000)) if 0.002 < calibrations([cell("a", u)])[0].p_value < 0.008
    )
    many = [cell("a", tilted), *(cell("a", rng.random(200), n=n) for n in range(11, 21))]
    assert not calibrations([cell("a", tilted)])[0].passes
    assert calibrations(many)[0].passes


def test_utility_is_the_average_with_its_standard_error():
    [row] = utilities([cell("exact", [0.5, 0.2])])
    assert row.squared_mmd == pytest.approx(0.2)
    assert row.standard_error == pytest.approx(0.1)
    assert row.mmd == pytest.approx(0.2**0.5)


def test_batches_are_joined_and_one_refusal_refuses_all():
    one, other = (Outcome(np.full((size, 2), 0.5), np.zeros(size)) for size in (2, 4))
    assert join([one, other]).ranks.shape == (6, 2)
    assert join([one, other]).squared_mmd.shape == (6,)
    assert join([one, "no"]) == "no"
