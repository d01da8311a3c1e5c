"""Rho from the file to the report: what is refused and how, what a run writes and charges, and what it says that it means."""

from __future__ import annotations

import json
import re
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xarray
import yaml
from click.testing import CliRunner
from distributed import Client

from dp_dask.check import check
from dp_dask.cli import cli
from dp_dask.config import load
from dp_dask.core.privacy import Loss, Unit, rounded_up
from dp_dask.errors import BudgetError, ConfigError
from dp_dask.explore import explore
from dp_dask.gate.ledger import Ledger
from dp_dask.gate.noise import gaussian_scale, meaning
from dp_dask.output import write_inference, write_report_again, write_run
from dp_dask.pipeline import calibrate, run, select
from dp_dask.posteriors import infer_from
from dp_dask.public.publication import read

RHO = {"model": "exponential", "column": "x", "bounds": [0, 8], "rho": 0.1, "prior": {"alpha": 1, "beta": 1}}
EPSILON = {**{key: value for key, value in RHO.items() if key != "rho"}, "epsilon": 0.2}
FILE = {
    "dataset": {"name": "d", "source": {"kind": "parquet", "path": "data"}, "unit": "record"},
    "privacy": {"neighbours": "replace", "n": 100, "delta": 1e-6},
    "measurements": {"gaussian": RHO, "laplace": EPSILON},
    "inference": {"draws": 400},
    "ledger": "sqlite:///ledger.db",
    "output": "out",
}


def changed(**top):
    return {**FILE, **top}


def write(folder, content=FILE):
    (folder / "p.yaml").write_text(yaml.safe_dump(content))
    return folder / "p.yaml"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "data").mkdir()
    pq.write_table(pa.table({"x": [i / 20 for i in range(100)]}), tmp_path / "data" / "a.parquet")
    return tmp_path


def dp_dask(*words):
    done = CliRunner().invoke(cli, list(map(str, words)))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.output


def problems(folder, content):
    with pytest.raises(ConfigError) as caught:
        load(write(folder, content))
    return {problem.path: problem.message for problem in caught.value.problems}


NO_DELTA = {"neighbours": "replace", "n": 100}
FAULTS = {
    "both": (
        {**RHO, "epsilon": 1},
        FILE["privacy"],
        "measurements.m.rho",
        "stands beside epsilon; give epsilon .* or rho .*, not both",
    ),
    "neither": ({k: v for k, v in RHO.items() if k != "rho"}, FILE["privacy"], "measurements.m.epsilon", "is missing.*or rho"),
    "zero": ({**RHO, "rho": 0}, FILE["privacy"], "measurements.m.rho", "rho is 0; it must be above 0"),
    "negative": ({**RHO, "rho": -0.1}, FILE["privacy"], "measurements.m.rho", "rho is -0.1; it must be above 0"),
    "too fine": ({**RHO, "rho": 1e-13}, FILE["privacy"], "measurements.m.rho", "at most 12 decimals"),
    "text": ({**RHO, "rho": "much"}, FILE["privacy"], "measurements.m.rho", "give a number"),
    "no delta": (RHO, NO_DELTA, "privacy.delta", "is missing; rho is told as"),
    "delta of one": (RHO, {**NO_DELTA, "delta": 1}, "privacy", "delta is 1; it must lie between 0 and 1"),
    "delta of zero": (RHO, {**NO_DELTA, "delta": 0}, "privacy", "delta is 0; it must lie between 0 and 1"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_rho_is_refused_with_its_path_and_what_to_do(folder, fault):
    measurement, privacy, path, message = FAULTS[fault]
    found = problems(folder, changed(measurements={"m": measurement}, privacy=privacy))
    assert list(found) == [path]
    assert re.search(message, found[path])


def test_a_delta_that_is_missing_is_told_once(folder):
    assert list(problems(folder, changed(measurements={"a": RHO, "b": RHO}, privacy=NO_DELTA))) == ["privacy.delta"]


def test_a_file_in_epsilon_needs_no_delta(folder):
    pipeline = load(write(folder, changed(measurements={"m": EPSILON}, privacy=NO_DELTA)))
    assert (pipeline.unit, pipeline.losses) == (Unit.EPSILON, [Loss(Unit.EPSILON, Decimal("0.2"))])


def test_the_grid_is_as_fine_as_for_an_epsilon_of_the_same_noise(folder):
    wide = changed(privacy={"neighbours": "replace", "n": 10_000, "delta": 1e-6})
    made = load(write(folder, {**wide, "measurements": {"r": {**RHO, "rho": 0.0625}, "e": {**EPSILON, "epsilon": 0.5}}}))
    assert made.measurements[0].request.statistic == made.measurements[1].request.statistic


def test_a_budget_of_epsilon_refuses_before_any_record_is_read(folder):
    file = write(folder)
    dp_dask("ledger", "init", file, "--epsilon", "10")
    (folder / "data" / "a.parquet").unlink()
    pq.write_table(pa.table({"x": [1.0]}), folder / "data" / "a.parquet")  # not n records: reading would be refused, too
    with pytest.raises(
        BudgetError, match=r"asks for rho 0\.1, and the budget is in epsilon.*give epsilon in place of rho"
    ) as caught:
        run(load(file))
    assert caught.value.exit_code == 3
    plan = check(load(file))
    assert "the budget is in epsilon" in plan.refusal
    assert (plan.cost.unit, plan.cost.amount) == (Unit.RHO, Decimal("0.12"))


def test_a_noise_scale_beyond_what_is_proven_is_refused_before_any_record_is_read(folder):
    columns = {f"c{i}": [0, 1] for i in range(7)}
    prior = {"mean_scale": 1, "sd_scale": 0.5, "nu0": 20}
    model = {"model": "linear_regression", "response": {"x": [0, 1]}, "columns": columns, "prior": prior, "epsilon": 1e-12}
    file = write(folder, changed(measurements={"m": model}))
    dp_dask("ledger", "init", file, "--epsilon", "1")
    (folder / "data" / "a.parquet").write_bytes(b"not to be read")
    with pytest.raises(ConfigError, match=r"needs a noise scale outside \(0, 2\^57\) grid units; raise epsilon"):
        run(load(file))


@pytest.mark.parametrize("words", [[], ["--epsilon", "1", "--rho", "1"]])
def test_a_budget_is_declared_in_one_unit(folder, words):
    with pytest.raises(ConfigError, match="give --epsilon, or --rho for a budget that Gaussian noise can be charged to"):
        dp_dask("ledger", "init", write(folder), *words)
    with pytest.raises(ConfigError, match="rho is 0"):
        dp_dask("ledger", "init", write(folder), "--rho", "0")


@pytest.fixture
def opened(folder):
    write(folder)
    dp_dask("ledger", "init", folder / "p.yaml", "--rho", "0.5")
    return folder


def test_a_run_in_rho_end_to_end(opened):
    pipeline = load(opened / "p.yaml")
    plan = check(pipeline)
    assert plan.refusal is None
    cost = meaning(Unit.RHO, Decimal("0.12"), Decimal("0.000001"))  # 0.1 + 0.2^2 / 2
    assert plan.cost == cost
    gaussian, laplace = plan.forecasts
    assert str(gaussian.loss) == "rho 0.1"
    assert gaussian.noise_scale == pytest.approx(8 / 0.2**0.5, rel=0.01)
    assert laplace.noise_scale == pytest.approx(8 / 0.2, rel=0.01)
    assert gaussian.widths[0].private < laplace.widths[0].private

    result = run(pipeline)
    assert result.charged == ("gaussian", "laplace")
    assert (result.cost, result.balance.spent, result.balance.unit) == (Decimal("0.12"), Decimal("0.12"), Unit.RHO)
    made = result.publication.measurements["gaussian"].release
    statistic = made.request.statistic
    assert (made.mechanism, made.sensitivity) == ("discrete_gaussian", (statistic.grid.high - statistic.grid.low) ** 2)
    assert made.scale == gaussian_scale(made.sensitivity, Decimal("0.1")).scale
    assert result.publication.total == cost

    folder, summaries = write_run(result, pipeline.output)
    told = json.loads((folder / "run.json").read_text())
    assert (told["unit"], told["charged"], told["spent"], told["left"]) == ("rho", "0.12", "0.12", "0.38")
    assert (told["delta"], told["spent_epsilon_at_delta"]) == ("0.000001", cost.epsilon)
    released = json.loads((folder / "release.json").read_text())
    assert released["total"] == {"unit": "rho", "amount": "0.12", "epsilon": cost.epsilon, "delta": "0.000001"}
    assert {s.measurement: s.engine for s in summaries}.keys() == {"gaussian", "laplace"}
    assert all(s.lower < s.mean < s.upper for s in summaries)

    again = run(pipeline)
    assert again.charged == ()
    assert again.balance == result.balance
    assert again.publication == result.publication

    page = (folder / "report.html").read_text()
    for text in (
        "discrete Gaussian of scale",
        "L2 sensitivity",
        "rho = 0.12",
        f"epsilon = {rounded_up(cost.epsilon)} and delta = 0.000001",
        "This run charged rho 0.12",
        "0.38 is left",
        "k<sup>2</sup> times the rho",
        "discrete Laplace of scale",
    ):
        assert text in page, text
    (folder / "report.html").unlink()
    assert "rho = 0.12" in write_report_again(folder).read_text()

    publication = read(folder / "release.json")
    assert publication == result.publication
    only = select(publication, "laplace")
    assert str(only.total) == "epsilon 0.2"
    one = select(publication, "gaussian")
    assert one.total == meaning(Unit.RHO, Decimal("0.1"), Decimal("0.000001"))
    write_inference(one, infer_from(one, 400), opened)
    assert "rho = 0.1" in (opened / "report.html").read_text()


def test_results_are_written_whatever_client_of_dask_there_is(opened):
    with Client(processes=False, n_workers=1, dashboard_address=None):  # the one that Dask's own functions then use
        folder, _ = write_run(run(load(opened / "p.yaml")), opened / "out")
    assert xarray.open_datatree(folder / "posterior.nc").children


def test_a_report_tells_what_the_releases_lose_and_not_what_a_file_claims(opened):
    result = run(load(opened / "p.yaml"))
    folder, _ = write_run(result, opened / "out")
    told = json.loads((folder / "release.json").read_text())
    for claimed in ({"unit": "rho", "amount": "0.01", "epsilon": 0.3, "delta": "0.000001"}, {"unit": "epsilon", "amount": "0.1"}):
        (folder / "release.json").write_text(json.dumps({**told, "total": claimed}))
        page = write_report_again(folder).read_text()
        assert "with rho = 0.12, in all, for this report" in page
        dp_dask("infer", folder / "release.json", "--output", opened / "asked", "--draws", "400")
        assert "with rho = 0.12, in all, for this report" in (opened / "asked" / "report.html").read_text()
    (folder / "release.json").write_text(json.dumps({**told, "total": {**told["total"], "delta": "2"}}))
    with pytest.raises(ConfigError, match="delta is 2"):
        read(folder / "release.json")


@pytest.mark.parametrize("scale", [1e200, 0.999, -1.0])
def test_a_release_file_whose_scale_was_edited_is_refused(opened, scale):
    result = run(load(opened / "p.yaml"))
    folder, _ = write_run(result, opened / "out")
    told = json.loads((folder / "release.json").read_text())
    release = told["measurements"]["gaussian"]["release"]
    release["scale"] *= scale
    (folder / "release.json").write_text(json.dumps(told))
    with pytest.raises(ConfigError, match="scale"):
        read(folder / "release.json")


def test_a_release_file_under_two_relations_is_refused(opened):
    result = run(load(opened / "p.yaml"))
    folder, _ = write_run(result, opened / "out")
    told = json.loads((folder / "release.json").read_text())
    laplace = told["measurements"]["laplace"]["release"]
    statistic = {**laplace["request"]["statistic"], "count_weight": 1}
    laplace["request"] |= {"neighbours": "add_remove", "n": None, "statistic": statistic}
    laplace |= {"noisy_count": 100, "sensitivity": statistic["grid"]["upper"] - statistic["grid"]["origin"] + 1}
    laplace["scale"] = laplace["sensitivity"] / 0.2
    (folder / "release.json").write_text(json.dumps(told))
    with pytest.raises(ConfigError, match="under both replace and add_remove"):
        read(folder / "release.json")


def test_the_command_line_names_the_unit_and_what_it_means(opened):
    file = opened / "p.yaml"
    assert "d: 0.5 rho granted, 0 spent, 0.5 left" in dp_dask("ledger", "init", file, "--rho", "0.5")
    assert "cost rho 0.12, that is epsilon" in dp_dask("check", file)
    told = dp_dask("run", file)
    assert "budget of d in rho: 0.12 of 0.5 spent, 0.38 left (what is spent means epsilon" in told
    shown = json.loads(dp_dask("ledger", "show", file, "--json"))["d"]
    assert (shown["unit"], shown["granted"], shown["spent"], shown["left"], shown["delta"]) == (
        "rho",
        "0.5",
        "0.12",
        "0.38",
        "0.000001",
    )
    assert 2 < shown["spent_epsilon_at_delta"] < 3
    assert "at delta 0.000001" in dp_dask("ledger", "show", file)
    plan = json.loads(dp_dask("check", file, "--json"))
    assert (plan["cost"], plan["unit"], plan["measurements"]["gaussian"]["rho"]) == ("0.12", "rho", "0.1")
    with pytest.raises(BudgetError, match="grant with --rho"):
        dp_dask("ledger", "grant", file, "--epsilon", "1")
    assert "0.75 rho granted" in dp_dask("ledger", "grant", file, "--rho", "0.25")


def test_a_file_in_epsilon_can_be_run_in_a_budget_of_rho(opened):
    file = write(opened, changed(measurements={"laplace": EPSILON}, privacy=NO_DELTA))
    result = run(load(file))
    assert (result.cost, result.balance.left) == (Decimal("0.02"), Decimal("0.48"))
    assert str(result.publication.total) == "epsilon 0.2"
    folder, _ = write_run(result, opened / "out")
    page = (folder / "report.html").read_text()
    assert "epsilon-differential privacy with epsilon = 0.2" in page
    assert "This run charged rho 0.02" in page


def test_over_budget_is_refused_and_charges_nothing(opened):
    file = write(opened, changed(measurements={"m": {**RHO, "rho": 0.500000000001}}))
    with pytest.raises(BudgetError, match=r"asks for rho 0\.500000000001, 0\.5 is left"):
        run(load(file))
    book = Ledger(load(file).ledger)
    assert book.balance("d").spent == 0
    book.close()


def test_warnings_of_a_rho_and_a_delta_that_protect_little(opened):
    file = write(
        opened, changed(measurements={"m": {**RHO, "model": "rayleigh", "rho": 60}}, privacy={**NO_DELTA, "delta": 0.01})
    )
    warned = check(load(file)).forecasts[0].warnings
    assert any("rho 60 protects little; 0.005 to 0.5 is usual" in w for w in warned)
    assert any("delta 0.01 is not below one over n" in w for w in warned)


def test_explore_says_that_it_compares_laplace_designs(folder):
    with pytest.raises(ConfigError, match=r"measurements\.gaussian\.rho: is not explored.*2 sqrt\(rho\)"):
        explore(load(write(folder)))


def test_calibrate_simulates_gaussian_noise(folder):
    found = calibrate(load(write(folder, changed(measurements={"gaussian": RHO}))), 60, entropy=1)
    assert found["gaussian.rate"].p_value > 1e-4


def test_a_release_file_from_before_there_was_rho_is_read(opened):
    result = run(load(write(opened, changed(measurements={"laplace": EPSILON}, privacy=NO_DELTA))))
    folder, _ = write_run(result, opened / "out")
    old = json.loads((folder / "release.json").read_text())
    del old["total"]
    for published in old["measurements"].values():
        del published["release"]["request"]["rho"]
    (folder / "release.json").write_text(json.dumps(old))
    publication = read(folder / "release.json")
    assert publication.measurements == result.publication.measurements
    write_inference(publication, infer_from(publication, 400), opened)
    assert "epsilon = 0.2, in all" in (opened / "report.html").read_text()
    (folder / "run.json").write_text(
        json.dumps({"charged": "0.2", "spent": "0.2", "granted": "1", "draws": 400, "engine": "auto"})
    )
    assert "This run charged epsilon 0.2" in write_report_again(folder).read_text()
