"""Simulators in pipeline files: what is refused, and a run held to the exact posterior of its own release."""

from __future__ import annotations

import json
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from changes import changed_in

from dp_dask.check import check
from dp_dask.config import load
from dp_dask.core.categories import CategoryCounts
from dp_dask.core.dirichlet import Dirichlet
from dp_dask.core.privacy import Neighbours
from dp_dask.errors import ConfigError, InferenceError
from dp_dask.gate.ledger import Ledger
from dp_dask.models.categorical import plugin as Categorical  # noqa: N812
from dp_dask.output import write_report_again, write_run
from dp_dask.pipeline import calibrate, run
from dp_dask.posteriors import infer_from
from dp_dask.public.counts import CountsObservation
from dp_dask.public.infer import infer
from dp_dask.public.publication import read

N = 120
GOOD = {
    "dataset": {"name": "toy", "source": {"kind": "parquet", "path": "data"}, "unit": "record"},
    "privacy": {"neighbours": "replace", "n": N},
    "measurements": {
        "mixture": {
            "simulator": "uniform_mixture",
            "components": 3,
            "column": "amount",
            "rename": {"x": "amount"},
            "bounds": [0, 3],
            "summary": {"kind": "partition", "edges": [1, 2]},
            "prior": {"kind": "dirichlet", "alpha": 1},
            "epsilon": 0.5,
        }
    },
    "inference": {"draws": 4000, "simulations": 40_000},
    "ledger": "sqlite:///ledger.db",
    "output": "out",
}
SIR = {"simulator": "sir", "population": 200, "infected": 2, "weeks": 4, "column": "week", "bounds": [0, 3], "integer": True,
       "epsilon": 1, "prior": {"R0": {"kind": "lognormal", "mu": 0.5, "sigma": 0.4},
                               "infectious_days": {"kind": "lognormal", "mu": 1.5, "sigma": 0.3}}}  # fmt: skip


def changed(path: str, value):
    return changed_in(GOOD, **{path.replace(".", "__"): value})


def file_of(folder, content):
    (folder / "p.yaml").write_text(yaml.safe_dump(content))
    return folder / "p.yaml"


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(5)
    x = rng.permutation(np.repeat([0.0, 1.0, 2.0], [70, 20, 30]) + rng.random(N))
    (tmp_path / "data").mkdir()
    for i, part in enumerate(np.array_split(x, 3)):
        pq.write_table(pa.table({"amount": part}), tmp_path / "data" / f"{i}.parquet")
    return tmp_path


M = "measurements.mixture"
REFUSED = {
    "an unknown simulator": (f"{M}.simulator", "uniform_mixtures", "unknown simulator 'uniform_mixtures'; did you mean"),
    "an unknown key": (f"{M}.component", 3, "component: unknown key; did you mean 'components'?"),
    "no column": (f"{M}.column", None, "column: is missing"),
    "another column": (f"{M}.column", "y", "is 'y'; the simulator makes amount (see rename)"),
    "rename of no column": (f"{M}.rename", {"z": "amount"}, "names 'z'; give SIMULATED: IN_THE_DATA for some of x"),
    "no bounds": (f"{M}.bounds", None, "bounds: is missing"),
    "no epsilon": (f"{M}.epsilon", None, "epsilon: is missing"),
    "a simulator's own fault": (f"{M}.components", 1, "components is 1; a mixture has at least 2"),
    "another prior": (f"{M}.prior", {"p": 1}, "is one of another kind; of p[1], p[2], p[3] give {kind: dirichlet, alpha: 1}"),
    "too many alphas": (f"{M}.prior", {"kind": "dirichlet", "alpha": [1, 1]}, "has 2 numbers; give one for all, or 3"),
    "a policy that is none": (f"{M}.failures", "ignore", "failures: is 'ignore'"),
    "a time-out of no time": (f"{M}.time_out", 0, "time_out is 0.0; give a positive number of seconds"),
    "a summary of no kind": (f"{M}.summary", {"kind": "median"}, "is 'median'; give auto, or {kind: .., ..} with one of auto"),
    "edges outside": (f"{M}.summary", {"kind": "partition", "edges": [1, 4]}, "edges are [1, 4]; give at least one, ascending"),
    "one bin": (f"{M}.summary", {"kind": "bins", "count": 1}, "count is 1; give at least 2 bins"),
    "an engine of models": ("inference.engine", "lattice", "is 'lattice', which does not serve a simulator"),
    "few simulations": ("inference.simulations", 10, "simulations is 10; give a number from 2000"),
    "a private n without a guess": ("privacy", {"neighbours": "add_remove"}, "give a public guess, the mean of its prior"),
    "n of one that decides it": ("measurements", {"m": SIR}, "decides by its own course how many records there are"),
    "no function": (f"{M}.simulator", "nowhere:simulate", "'nowhere:simulate' cannot be imported"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused_in_words(folder, name):
    path, value, message = REFUSED[name]
    with pytest.raises(ConfigError) as refusal:
        load(file_of(folder, changed(path, value)))
    assert any(message in str(problem) for problem in refusal.value.problems), str(refusal.value)


def test_an_engine_of_simulators_serves_no_model(folder):
    model = {"model": "exponential", "column": "amount", "bounds": [0, 3], "epsilon": 1, "prior": {"alpha": 1, "beta": 1}}
    content = changed("measurements", {"m": model}) | {"inference": {"engine": "bank"}}
    with pytest.raises(ConfigError, match="which does not serve a model as of m"):
        load(file_of(folder, content))


def opened(folder, content=GOOD):
    pipeline = load(file_of(folder, content))
    ledger = Ledger(pipeline.ledger)
    ledger.open_dataset("toy", pipeline.neighbours, Decimal(1), who="t", why="t")
    ledger.close()
    return pipeline


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    base = tmp_path_factory.mktemp("run")
    rng = np.random.default_rng(5)
    (base / "data").mkdir()
    pq.write_table(
        pa.table({"amount": rng.permutation(np.repeat([0.0, 1.0, 2.0], [70, 20, 30]) + rng.random(N))}),
        base / "data" / "a.parquet",
    )
    pipeline = opened(base)
    made = run(pipeline)
    target, summaries = write_run(made, pipeline.output, pipeline.cluster)
    return pipeline, made, target, summaries


def test_a_run_gives_the_exact_posterior_of_its_release(finished):
    """In its own bins the mixture is categorical, so that the exact sampler of counts is the oracle.

    Means of some 1,000 effective draws are off by 0.03 sd, their sds by 2.2 %; 5 of these allow less than 1e-5 false alarms. A
    posterior that ignored the noise would be 0.75 times as wide.
    """
    _, made, _, summaries = finished
    release = made.publication.measurements["mixture"].release
    counts = CountsObservation(
        model=Categorical(("a", "b", "c")), statistic=CategoryCounts(column="c", categories=("a", "b", "c")),
        n=N, scale=release.scale, y=release.noisy_sums, expected_n=None,
    )  # fmt: skip
    exact = infer(np.random.default_rng(1), counts, Dirichlet((1.0, 1.0, 1.0)), 40_000, "tree").draws.reshape(-1, 3)
    assert Neighbours.REPLACE is release.request.neighbours
    assert release.sensitivity == 2
    for j, one in enumerate(summaries):
        assert one.engine in {"tempered", "synthetic"}
        assert abs(one.mean - exact[:, j].mean()) < 0.16 * exact[:, j].std()
        assert 0.89 < one.sd / exact[:, j].std() < 1.11
        assert one.prior_p > 0.001
        assert one.posterior_p > 0.001
        assert 0.3 < one.noise_ratio[j] < 6  # 2 (2 / 0.5)^2 = 32 to n p (1 - p) of 13 to 29


def test_a_second_run_is_free_and_the_same(finished):
    pipeline, made, target, summaries = finished
    again = run(pipeline)
    assert again.charged == ()
    assert again.publication == made.publication
    told = json.loads((target / "run.json").read_text())
    assert told["simulations"] == 40_000
    posteriors = infer_from(read(target / "release.json"), 4000, simulations=40_000)
    assert float(posteriors[0].inference.draws[:, :, 0].mean()) == pytest.approx(summaries[0].mean, abs=1e-12)


def test_another_prior_is_free_and_counts(finished):
    """Three more records' worth of the second weight move its mean by about 3 / 125; either mean is off by 0.001 or so."""
    _, _, target, summaries = finished
    priors = {"mixture": {"kind": "dirichlet", "alpha": [1, 4, 1]}}
    [other] = infer_from(read(target / "release.json"), 4000, "tempered", priors, simulations=20_000)
    assert other.inference.draws[:, :, 1].mean() > summaries[1].mean + 0.008


def test_an_engine_that_serves_models_is_refused_for_a_release_of_a_simulator(finished):
    with pytest.raises(InferenceError, match="engine 'lattice' serves no simulator"):
        infer_from(read(finished[2] / "release.json"), 400, "lattice")


def test_the_report_says_what_was_released(finished):
    page = (finished[2] / "report.html").read_text()
    assert "the counts of records in 3 bins, cut at 0.998, 1.998" in page
    assert "uniform_mixture" in page


def test_a_check_predicts_widths_and_names_a_better_summary(folder):
    opened(folder)
    [own] = check(load(file_of(folder, GOOD))).forecasts
    assert len(own.widths) == 3
    assert all(width.ratio > 1 for width in own.widths)
    assert not [warning for warning in own.warnings if "expected to leave" in warning]
    coarse = changed(f"{M}.summary", {"kind": "partition", "edges": [0.1, 2.9]})
    [worse] = check(load(file_of(folder, coarse))).forecasts
    assert any("expected to leave" in warning and "summary: auto takes it" in warning for warning in worse.warnings)


def test_a_planned_summary_is_the_same_every_time(folder):
    requests = {load(file_of(folder, changed(f"{M}.summary", {"kind": "regression"}))).measurements[0].request for _ in range(2)}
    assert len(requests) == 1


def test_a_simulator_is_calibrated_as_its_file_says(folder):
    content = changed("inference", {"engine": "bank", "simulations": 2_000})
    found = calibrate(load(file_of(folder, content)), 20, entropy=3)
    assert set(found) == {"mixture.p[1]", "mixture.p[2]", "mixture.p[3]"}


OWN = """
import numpy as np

def simulate(theta, n, rng):
    return rng.normal(theta[:, :1], 1.0, (len(theta), n))

simulate.parameters = ("mu",)
simulate.columns = ("amount",)
"""


def test_a_simulator_of_the_users_own_is_found_beside_the_file(folder):
    (folder / "own_simulator.py").write_text(OWN)
    entry = {
        "simulator": "own_simulator:simulate", "column": "amount", "bounds": [-2, 4], "summary": {"kind": "bins", "count": 6},
        "prior": {"mu": {"kind": "normal", "mu": 0, "sigma": 3}}, "epsilon": 1,
    }  # fmt: skip
    pipeline = opened(folder, changed("measurements", {"own": entry}) | {"inference": {"engine": "bank", "simulations": 4_000}})
    made = run(pipeline)
    published = made.publication.measurements["own"]
    assert published.is_simulator
    assert published.model == "own_simulator:simulate"


def test_the_report_of_a_run_of_limited_time_rests_on_what_that_run_simulated(folder):
    """As if the time had been over when half of it was simulated: the later half of the files is taken away."""
    limited = {"draws": 400, "engine": "tempered", "simulations": 20_000, "seconds": 3600}
    content = changed("inference", limited) | {"measurements": {"mixture": GOOD["measurements"]["mixture"] | {"epsilon": 8}}}
    pipeline = load(file_of(folder, content))
    ledger = Ledger(pipeline.ledger)
    ledger.open_dataset("toy", pipeline.neighbours, Decimal(10), who="t", why="t")
    ledger.close()
    target, _ = write_run(run(pipeline), pipeline.output, pipeline.cluster)
    whole = (target / "report.html").read_text()
    assert write_report_again(target).read_text() == whole
    kept = sorted((target / "simulations").iterdir(), key=lambda file: file.stat().st_mtime_ns)
    for file in kept[len(kept) // 2 :]:
        file.unlink()
    part = write_report_again(target).read_text()
    assert "stopped early: what the run had no time for is not simulated again" in part
    assert write_report_again(target).read_text() == part
    assert len(list((target / "simulations").iterdir())) == len(kept) // 2
