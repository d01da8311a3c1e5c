"""The command line: exit codes, messages, bad input of every kind, and an interrupt; nothing charged by any of them."""

from __future__ import annotations

import contextlib
import gzip
import json
import math
import signal
import sqlite3
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xarray
import yaml
from changes import changed_in
from commands import dp_dask

GOOD = {
    "dataset": {"name": "d", "source": {"kind": "parquet", "path": "data"}, "unit": "record"},
    "privacy": {"neighbours": "replace", "n": 100},
    "measurements": {
        "m": {"model": "exponential", "column": "x", "bounds": [0, 5], "epsilon": 0.5, "prior": {"alpha": 1, "beta": 1}}
    },
    "ledger": "sqlite:///ledger.db?timeout=1",
    "output": "out",
}


changed = partial(changed_in, GOOD)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "data").mkdir()
    table = pa.table({"x": [i / 10 for i in range(100)], "text": ["a"] * 100})
    pq.write_table(table, tmp_path / "data" / "a.parquet")
    return tmp_path


def write(folder, content):
    (folder / "p.yaml").write_text(content if isinstance(content, str) else yaml.safe_dump(content))


def opened(folder, content=GOOD):
    write(folder, GOOD)
    assert dp_dask(folder, "ledger", "init", "p.yaml", "--epsilon", "1").returncode == 0
    write(folder, content)


def spent(folder):
    with sqlite3.connect(folder / "ledger.db") as connection:
        return connection.execute("select spent from dp_dask_entries order by seq desc").fetchone()[0]


CONFIG = {
    "unknown key": (changed(measurements__m__epsilom=1), "measurements.m.epsilom: unknown key; did you mean 'epsilon'?"),
    "epsilon missing": (changed(measurements__m__epsilon=None), "measurements.m.epsilon: is missing; it has no default"),
    "bounds missing": (changed(measurements__m__bounds=None), "measurements.m.bounds: is missing; it has no default"),
    "neighbours missing": (changed(privacy__neighbours=None), "privacy.neighbours: is missing; it has no default"),
    "epsilon 0": (changed(measurements__m__epsilon=0), "measurements.m.epsilon: epsilon is 0; it must be above 0"),
    "epsilon below 0": (changed(measurements__m__epsilon=-1), "epsilon is -1; it must be above 0"),
    "epsilon text": (changed(measurements__m__epsilon="much"), "measurements.m.epsilon: is 'much'; give a number"),
    "reversed bounds": (changed(measurements__m__bounds=[5, 0]), "the first must be below the second"),
    "infinite bounds": (changed(measurements__m__bounds=[0, float("inf")]), "must be finite numbers"),
    "NaN bounds": (changed(measurements__m__bounds=[0, float("nan")]), "must be finite numbers"),
    "bounds beyond the support": (changed(measurements__m__bounds=[-1, 5]), "reaches beyond what the model can produce"),
    "prior outside the parameter space": (
        changed(measurements__m__prior={"alpha": -1, "beta": 1}),
        "alpha is -1.0; it must be a positive",
    ),
    "prior of another family": (changed(measurements__m__prior={"mu": 0, "sigma": 1}), "measurements.m.prior.mu: unknown key"),
    "unknown model": (changed(measurements__m__model="exponental"), "unknown model 'exponental'; did you mean 'exponential'?"),
    "unknown source": (changed(dataset__source__kind="parket"), "unknown source 'parket'; did you mean 'parquet'?"),
    "unknown cluster": (
        {**GOOD, "cluster": "slrum"},
        "cluster: is 'slrum'; give a kind, address, gateway, kubernetes, local, pbs, scheduler-file, slurm, slurm-runner",
    ),
    "unknown engine": (
        {**GOOD, "inference": {"engine": "mcmc"}},
        "unknown engine 'mcmc'; known: auto, augment, bank, clt_chain, clt_grid, edgeworth, factorised, gibbs, kernel_is",
    ),
    "n missing": (changed(privacy__n=None), "privacy: neighbours: replace needs n"),
    "n private": (changed(privacy__neighbours="add_remove"), "n is private under add_remove"),
    "unit": (changed(dataset__unit="person"), "dataset.unit: is 'person'; give record, or a person as {column: .., type:"),
    "sigma missing": (changed(measurements__m__model="normal"), "measurements.m.sigma: is missing"),
    "no measurement": ({**GOOD, "measurements": {}}, "measurements: is {}; give at least one"),
    "ledger in memory": ({**GOOD, "ledger": "sqlite://"}, "ledger: a ledger must outlive the run"),
    "ledger of another kind": ({**GOOD, "ledger": "mysql://h/d"}, "use sqlite:///FILE or postgresql"),
    "inside_count with clamp": (
        changed(measurements__m__inside_count=True),
        "measurements.m.inside_count: goes with outside: truncate, models of one parameter and one sum, and no groups",
    ),
    "inside_count with groups": (
        changed(
            measurements__m__outside="truncate",
            measurements__m__inside_count=0.5,
            measurements__m__group_by={"column": "g", "groups": ["a", "b"]},
        ),
        "measurements.m.inside_count: goes with outside: truncate",
    ),
    "inside_count of two parameters": (
        changed(
            measurements__m__outside="truncate",
            measurements__m__inside_count=True,
            measurements__m__model="lognormal",
            measurements__m__bounds=[1, 2],
            measurements__m__prior={"mu": 0, "kappa": 1, "alpha": 1, "beta": 1},
        ),
        "measurements.m.inside_count: goes with outside: truncate",
    ),
    "inside_count of categories": (
        changed(
            measurements__m__model="categorical",
            measurements__m__categories=["a", "b"],
            measurements__m__inside_count=True,
        ),
        "measurements.m.inside_count: unknown key",
    ),
    "inside_count of all of epsilon": (
        changed(measurements__m__outside="truncate", measurements__m__inside_count=1),
        "measurements.m.inside_count: is 1; give true, false, or its share of epsilon: above 0 and below 1",
    ),
    "inside_count of none of it": (
        changed(measurements__m__outside="truncate", measurements__m__inside_count=0.0),
        "measurements.m.inside_count: is 0.0; give true, false, or its share of epsilon",
    ),
    "inside_count in words": (
        changed(measurements__m__outside="truncate", measurements__m__inside_count="half"),
        "measurements.m.inside_count: is 'half'; give true, false, or its share of epsilon",
    ),
    "truncate far from zero": (
        changed(measurements__m__outside="truncate", measurements__m__bounds=[1_000_000, 1_000_001]),
        "the sensitivity is the distance to zero; use outside: clamp",
    ),
    "too few draws": ({**GOOD, "inference": {"draws": 1}}, "draws is 1; give a number from 100"),
    "unknown home": ({**GOOD, "output": "~no-such-user/x"}, "the home folder that it begins with is not known"),
    "fractional bounds of counts": (
        changed(measurements__m__model="poisson", measurements__m__bounds=[0, 2.5]),
        "give whole bounds",
    ),
}


@pytest.mark.parametrize("fault", CONFIG, ids=str)
def test_a_faulty_file_is_refused_with_its_path_and_what_to_do(folder, fault):
    content, message = CONFIG[fault]
    opened(folder, content)
    done = dp_dask(folder, "run", "p.yaml")
    assert message in done.stderr
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert spent(folder) == "0"


YAML = {
    "a key twice": ("dataset: {name: a, name: b}", "the key 'name' is given twice"),
    "a tab": ("dataset:\n\tname: x", "line 2"),
    "not a mapping": ("- 1", "give a mapping with the keys dataset"),
    "octal-looking n": (yaml.safe_dump(GOOD).replace("n: 100", "n: 010"), "privacy.n: is '010'"),
    "sexagesimal": (yaml.safe_dump(GOOD).replace("n: 100", "n: 1:30"), "privacy.n: is '1:30'"),
    "underscores": (yaml.safe_dump(GOOD).replace("epsilon: 0.5", "epsilon: .5e"), "measurements.m.epsilon: is '.5e'"),
    "yes for a number": (yaml.safe_dump(GOOD).replace("n: 100", "n: yes"), "privacy.n: is 'yes'"),
    "true for a number": (yaml.safe_dump(GOOD).replace("n: 100", "n: true"), "privacy.n: is true; give a number"),
    "a huge exponent": (yaml.safe_dump(GOOD).replace("n: 100", "n: 1e999999999"), "between 1e-300 and 1e300"),
    "a tag": ("a: !!int abc", "holds characters, tags or nesting"),
    "deep nesting": ("[" * 3000, "holds characters, tags or nesting"),
    "many aliases": ("a: &a [1]\nb: [" + "*a," * 101 + "]", "more than 100 aliases"),
    "a number as a key": ("1: 2", "the key 1 is not text"),
}


@pytest.mark.parametrize("fault", YAML, ids=str)
def test_a_number_is_what_is_written_or_refused(folder, fault):
    content, message = YAML[fault]
    write(folder, content)
    done = dp_dask(folder, "check", "p.yaml")
    assert message in done.stderr
    assert done.returncode == 2


def test_every_fault_is_told_at_once_and_as_json(folder):
    write(folder, changed(measurements__m__epsilon=0, measurements__m__bounds=[5, 0], dataset__unit="person", privacy__n=-1))
    told = json.loads(dp_dask(folder, "check", "p.yaml", "--json").stdout)
    assert told["exit_code"] == 2
    assert {problem["path"] for problem in told["problems"]} == {
        "measurements.m.epsilon", "measurements.m.bounds", "dataset.unit", "privacy",
    }  # fmt: skip


def test_epsilon_is_the_decimal_that_is_written(folder):
    content = yaml.safe_dump(changed(measurements__m__epsilon=0.5)).replace("epsilon: 0.5", "epsilon: 1e-1")
    opened(folder, content)
    assert dp_dask(folder, "run", "p.yaml").returncode == 0
    assert spent(folder) == "0.1"


SOURCE = {
    "missing folder": (changed(dataset__source__path="nowhere"), "no such file or folder"),
    "missing column": (changed(measurements__m__column="y"), "no column 'y'; the file has: x, text"),
    "text column": (changed(measurements__m__column="text"), "column 'text' is of type string"),
    "wrong n": (changed(privacy__n=99), "the data have another number of records"),
    "not declared": (
        changed(dataset__source={"kind": "csv", "path": "data", "columns": {}}),
        "column 'x' is not declared; declare it, source.columns: {x: number}",
    ),
}


@pytest.mark.parametrize("fault", SOURCE, ids=str)
def test_records_that_cannot_be_read_as_declared_are_refused(folder, fault):
    content, message = SOURCE[fault]
    opened(folder, content)
    done = dp_dask(folder, "run", "p.yaml")
    assert message in done.stderr
    assert done.returncode == 4
    assert spent(folder) == "0"
    assert not list((folder / "out").glob("*"))


def test_a_run_beyond_the_budget_is_refused_with_code_3(folder):
    opened(folder, changed(measurements__m__epsilon=1.5))
    done = dp_dask(folder, "run", "p.yaml")
    assert done.returncode == 3
    assert "this run asks for epsilon 1.5, 1 is left" in done.stderr


def test_a_data_set_without_a_budget_is_refused_with_code_3(folder):
    write(folder, GOOD)
    done = dp_dask(folder, "run", "p.yaml")
    assert done.returncode == 3
    assert "dp-dask ledger init" in done.stderr
    assert dp_dask(folder, "check", "p.yaml").returncode == 0


def test_an_unwritable_output_is_refused_before_anything_is_charged(folder):
    opened(folder, {**GOOD, "output": "file/out"})
    (folder / "file").write_text("")
    done = dp_dask(folder, "run", "p.yaml")
    assert "cannot be made" in done.stderr
    assert done.returncode == 2
    assert spent(folder) == "0"


def test_a_locked_ledger_is_an_error_in_bounded_time(folder):
    opened(folder)
    lock = sqlite3.connect(folder / "ledger.db", isolation_level=None)
    lock.execute("BEGIN EXCLUSIVE")
    start = time.monotonic()
    done = dp_dask(folder, "run", "p.yaml")
    lock.rollback()
    assert done.returncode == 1
    assert "locked by another run" in done.stderr
    assert time.monotonic() - start < 30
    assert spent(folder) == "0"


def has_open(pid, path):
    for opened_file in Path(f"/proc/{pid}/fd").glob("*"):
        with contextlib.suppress(OSError):
            if opened_file.readlink() == path:
                return True
    return False


def test_an_interrupt_ends_with_130_and_charges_nothing(folder):
    """Ctrl-C in the middle of a scan that takes minutes: half a gigabyte of text in a small archive."""
    opened(folder, changed(dataset__source={"kind": "csv", "path": "long.csv.gz", "columns": {"x": "number"}}))
    member = gzip.compress(b"0.5\n" * 2_000_000)
    (folder / "long.csv.gz").write_bytes(gzip.compress(b"x\n") + member * 64)
    running = subprocess.Popen([sys.executable, "-m", "dp_dask", "run", "p.yaml"], cwd=folder, stderr=subprocess.PIPE, text=True)
    while not has_open(running.pid, folder / "long.csv.gz"):
        assert running.poll() is None
        time.sleep(0.05)
    time.sleep(1)
    assert running.poll() is None
    running.send_signal(signal.SIGINT)
    try:
        _, told = running.communicate(timeout=60)
    finally:
        running.kill()
    assert running.returncode == 130, told
    assert told.strip() == "interrupted; what was not committed by then is not charged"
    assert spent(folder) == "0"


@pytest.mark.parametrize(
    ("amount", "message"), [("-1", "it must be above 0"), ("much", "give a decimal number"), ("1e-20", "at most 12")]
)
def test_a_budget_that_is_no_positive_decimal_is_refused(folder, amount, message):
    write(folder, GOOD)
    done = dp_dask(folder, "ledger", "init", "p.yaml", "--epsilon", amount)
    assert message in done.stderr
    assert done.returncode == 2
    assert not (folder / "ledger.db").exists()


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("scale", 0),
        ("scale", 1e400),
        ("noisy_sums", [10**400]),
        ("noisy_sums", [1, 2]),
        ("noisy_count", 3),
        ("id", "zz"),
        ("sensitivity", -1),
    ],
)
def test_a_release_file_that_was_tampered_with_is_refused(folder, place, value):
    opened(folder)
    run = json.loads(dp_dask(folder, "run", "p.yaml", "--json").stdout)
    file = Path(run["folder"]) / "release.json"
    told = json.loads(file.read_text())
    told["measurements"]["m"]["release"][place] = value
    file.write_text(json.dumps(told))
    done = dp_dask(folder, "infer", str(file))
    assert done.returncode == 2, done.stderr
    assert "is not a release of this version" in done.stderr
    assert "Traceback" not in done.stderr


def test_calibrate_with_a_private_n_asks_for_a_public_guess_of_it(folder):
    write(folder, changed(privacy__neighbours="add_remove", privacy__n=None))
    done = dp_dask(folder, "calibrate", "p.yaml", "--replicates", "20")
    assert "privacy.expected_records: is missing" in done.stderr
    assert done.returncode == 2
    write(folder, changed(privacy={"neighbours": "add_remove", "expected_records": 30}))
    done = dp_dask(folder, "calibrate", "p.yaml", "--replicates", "20", "--json")
    assert json.loads(done.stdout)["m.rate"]["passes"]


def test_a_private_n_is_released_inferred_and_reported(folder):
    opened(folder, changed(privacy={"neighbours": "replace", "n": 100}))
    write(folder, changed(privacy={"neighbours": "add_remove"}, dataset__name="other"))
    assert dp_dask(folder, "ledger", "init", "p.yaml", "--epsilon", "1").returncode == 0
    told = json.loads(dp_dask(folder, "run", "p.yaml", "--json").stdout)
    page = (Path(told["folder"]) / "report.html").read_text()
    assert "any one record added or left out" in page
    assert "noisy count" in page
    assert "public" not in page.split("Not protected:")[1].split("what was asked")[0]
    assert 0.05 < told["measurements"]["m"]["parameters"]["rate"]["mean"] < 2


def test_an_inference_is_written_with_its_release_and_never_over_a_run(folder):
    opened(folder)
    run = json.loads(dp_dask(folder, "run", "p.yaml", "--json").stdout)
    release = run["folder"] + "/release.json"
    assert dp_dask(folder, "infer", release, "--output", "free", "--prior", "{alpha: 3, beta: 3}").returncode == 0
    assert sorted(path.name for path in (folder / "free").iterdir()) == ["posterior.nc", "release.json", "report.html"]
    for output, message in {run["folder"]: "holds a run", "p.yaml": "cannot be made"}.items():
        done = dp_dask(folder, "infer", release, "--output", output)
        assert message in done.stderr
        assert done.returncode == 2


def test_infer_takes_another_prior_and_refuses_a_wrong_one(folder):
    opened(folder)
    run = json.loads(dp_dask(folder, "run", "p.yaml", "--json").stdout)
    release = run["folder"] + "/release.json"
    tight = json.loads(dp_dask(folder, "infer", release, "--prior", "{alpha: 500, beta: 1000}", "--json").stdout)
    one, other = tight["measurements"]["m"]["parameters"]["rate"], run["measurements"]["m"]["parameters"]["rate"]
    assert one["mean"] == pytest.approx(0.5, abs=0.1)
    assert one["sd"] < other["sd"]
    for words, message in {
        ("--prior", "{alpha: 0, beta: 1}"): "alpha is 0.0",
        ("--prior", "{mu: 0}"): "unknown key",
        ("--prior", "{kind: pooled, mean: {kind: normal, mu: 0, sigma: 1}, sd: {kind: exponential, lam: 1}}"): "give group_by",
        ("--measurement", "other"): "the release holds: m",
        ("--engine", "none"): "unknown engine 'none'",
    }.items():
        done = dp_dask(folder, "infer", release, *words)
        assert message in done.stderr
        assert done.returncode == 2
    done = dp_dask(folder, "infer", "p.yaml")
    assert "is not a release of this version" in done.stderr
    gibbs = dp_dask(folder, "infer", release, "--engine", "gibbs")
    assert gibbs.returncode == 1
    assert "serves truncated statistics only" in gibbs.stderr


def test_a_prior_of_infinite_variance_goes_through_every_command(folder):
    opened(folder, changed(measurements__m__prior={"kind": "half_cauchy", "beta": 1}))
    plan = dp_dask(folder, "check", "p.yaml")
    assert "m: the prior of rate has infinite mean and infinite sd" in plan.stdout
    assert "m: a prior without a finite sd leaves the posterior without one" in plan.stdout
    told = json.loads(dp_dask(folder, "check", "p.yaml", "--json").stdout)["measurements"]["m"]
    assert (told["prior"], told["prior_mean"], told["prior_sd"]) == ("half_cauchy(beta=1.0)", [None], [None])
    run = json.loads(dp_dask(folder, "run", "p.yaml", "--json").stdout)
    found = run["measurements"]["m"]["parameters"]["rate"]
    assert found["prior_sd"] is None
    release = Path(run["folder"]) / "release.json"
    assert json.loads(release.read_text())["measurements"]["m"]["prior"] == {"kind": "half_cauchy", "beta": 1.0}
    again = json.loads(dp_dask(folder, "infer", str(release), "--json").stdout)["measurements"]["m"]["parameters"]["rate"]
    assert again == found
    assert "half_cauchy(beta=1.0)" in (release.parent / "report.html").read_text()
    other = dp_dask(folder, "infer", str(release), "--prior", "{alpha: 1, scale: 4}")
    assert "gamma takes beta, the rate = 1 / scale: 0.25; beta 4 gives mean 0.25 and sd 0.25" in other.stderr
    assert other.returncode == 2


@pytest.fixture(scope="module")
def releases(tmp_path_factory):
    """A run of two measurements, and one of another data set."""
    folder = tmp_path_factory.mktemp("releases")
    (folder / "data").mkdir()
    pq.write_table(pa.table({"x": [i / 10 for i in range(100)]}), folder / "data" / "a.parquet")
    other = {**GOOD["measurements"]["m"], "bounds": [0, 6]}
    both = changed(measurements={"m": GOOD["measurements"]["m"], "m-2": other}, dataset__version="1")
    made = {}
    for name, content in {"first": both, "second": changed(dataset__name="e")}.items():
        write(folder, content)
        assert dp_dask(folder, "ledger", "init", "p.yaml", "--epsilon", "1").returncode == 0
        made[name] = Path(json.loads(dp_dask(folder, "run", "p.yaml", "--json").stdout)["folder"]) / "release.json"
    return folder, made["first"], made["second"]


def test_questions_are_answered_and_records_predicted_from_a_release_alone(releases):
    folder, first, second = releases
    questions = ["P(m.rate > 0)", 'log("m-2".rate)', "m.rate - then.m.rate"]
    asking = [word for question in questions for word in ("--ask", question)]
    done = dp_dask(folder, "infer", first, *asking, "--with", f"then={second}", "--predict", "--output", "asked", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    event, logarithm, contrast = told["answers"]
    assert event["probability"] == 1
    assert 0 < event["error"] < 1e-3
    rates = {name: told["measurements"][name]["parameters"]["rate"] for name in ("m", "m-2")}
    assert logarithm["lower"] == pytest.approx(math.log(rates["m-2"]["lower"]), abs=0.01)
    assert contrast["note"] == ""
    assert contrast["sd"] > rates["m"]["sd"]
    record = told["measurements"]["m"]["prediction"]
    assert record["mean"] == pytest.approx(1 / rates["m"]["mean"], rel=0.4)
    assert record["lower"] < record["median"] < record["mean"] < record["upper"]
    tree = xarray.open_datatree(folder / "asked" / "posterior.nc", engine="h5netcdf")
    assert float(tree["posterior_predictive"]["m.record"].mean()) == pytest.approx(record["mean"])
    page = (folder / "asked" / "report.html").read_text()
    for text in ("P(m.rate &gt; 0)", "probability 1", "a new record", "noise ratio"):
        assert text in page
    # The answers rest on the other file's release too, whose loss is not in the total.
    assert ", in all, for the releases of this file" in page
    assert "a record of data set e by what is said above: the answers rest on the releases called then too" in page
    assert "which lose epsilon 0.5 besides" in page
    shown = dp_dask(folder, "infer", first, "--ask", 'm.rate - "m-2".rate', "--predict").stdout
    assert "Monte Carlo error" in shown
    assert "a new record of" in shown
    assert "note: m, m-2 are of one data set, d" in shown


def test_questions_that_cannot_be_answered_are_refused(releases):
    folder, first, second = releases
    for words, message in {
        ("--ask", "rate > 1"): "question 'rate > 1': 'rate' may be m.rate, m-2.rate; say which",
        ("--ask", "m-2.rate"): "goes into quotes",
        ("--ask", "__import__('os').system('touch hacked')"): "is not allowed",
        ("--ask", "m.rate / (m.rate - m.rate)"): "divides by zero in 4000 of 4000 draws",
        ("--with", f"a={second}"): "--with: is for --ask: give a question",
        ("--ask", "m.rate", "--with", "a b=release.json"): "give NAME=RELEASE.json, the name of letters, digits",
        ("--ask", "m.rate", "--with", "a=nowhere.json"): "cannot be read",
        ("--ask", "m.rate", "--with", f"a={second}", "--with", f"a={first}"): "gives a name twice",
        ("--ask", "m.rate - a.m.rate", "--with", f"a={first}"): "m and a.m are one release",
    }.items():
        done = dp_dask(folder, "infer", first, *words)
        assert message in done.stderr
        assert done.returncode == 2
        assert "Traceback" not in done.stderr
    assert not (folder / "hacked").exists()


def test_a_release_that_contradicts_its_model_comes_with_a_warning_everywhere(folder):
    """Records of 0 to 9.9 with bounds [0, 5], a prior that expects 100 times less."""
    opened(folder, changed(measurements__m__prior={"alpha": 30, "beta": 1}, measurements__m__epsilon=1))
    run = json.loads(dp_dask(folder, "run", "p.yaml", "--json").stdout)
    told = run["measurements"]["m"]
    assert told["prior_p"] < 1e-3
    assert "the model exponential, the bounds [0, 5] or the prior Gamma(alpha=30.0, beta=1.0) is wrong" in told["warnings"][0]
    assert told["noise_ratio"][0] > 0
    assert 0 <= told["parameters"]["rate"]["noise_share"] <= 1
    assert "Warning, m:" in (Path(run["folder"]) / "report.html").read_text()
    assert "warning: m: the release lies far outside" in dp_dask(folder, "run", "p.yaml").stdout


def test_help_needs_no_heavy_library():
    probe = """
import sys
sys.argv = ["dp-dask", "--help"]
from dp_dask.cli import main
try:
    main()
except SystemExit:
    pass
heavy = {"numpy", "pyarrow", "scipy", "distributed", "opendp", "sqlalchemy", "pydantic"} & set(sys.modules)
assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_schema_accepts_what_the_loader_accepts(folder):
    made = json.loads(dp_dask(folder, "schema").stdout)
    assert made["required"] == ["dataset", "privacy", "measurements", "ledger"]
    forms = made["properties"]["measurements"]["additionalProperties"]["oneOf"]
    models = [form for form in forms if "model" in form["properties"]]
    assert {model["properties"]["model"]["const"] for model in models} >= {"bernoulli", "normal"}
    normal = next(model for model in models if model["properties"]["model"]["const"] == "normal")
    assert "sigma" in normal["required"]
    of_sir = [form for form in forms if form["properties"].get("simulator") == {"const": "sir"}]
    assert next(form["properties"]["method"] for form in of_sir) == {"const": "release"}
    assert all({"population", "weeks"} <= set(form["required"]) for form in of_sir)
