"""Choices among simulations in pipeline files: what is refused, and a run beside a release, in one scan and one charge each."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import traceback
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from decimal import Decimal
from functools import partial
from types import SimpleNamespace

import dask
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from changes import changed_in
from commands import dp_dask

from dp_dask import releasing
from dp_dask.check import check
from dp_dask.config import load
from dp_dask.core.privacy import Neighbours
from dp_dask.core.selection import SparseVector, TopC, Variant
from dp_dask.errors import BudgetError, ClusterError, ConfigError, SourceError
from dp_dask.gate.ledger import Ledger
from dp_dask.output import write_run
from dp_dask.pipeline import run
from dp_dask.posteriors import chosen_from
from dp_dask.public.publication import read
from dp_dask.public.selection_plan import flips
from dp_dask.selection_picture import draw_flips

N = 400
DISTANCE = {"kind": "histogram", "column": "x", "bounds": [0, 3], "edges": [1, 2]}
SIMULATOR = {"simulator": "uniform_mixture", "components": 3, "prior": {"kind": "dirichlet", "alpha": 1}}
GOOD = {
    "dataset": {"name": "toy", "source": {"kind": "parquet", "path": "data"}, "unit": "record"},
    "privacy": {"neighbours": "replace", "n": N},
    "measurements": {
        "near": {**SIMULATOR, "method": "svt", "distance": DISTANCE, "c": 5, "tolerance": 0.1, "epsilon": 4, "simulations": 800},
        "best": {**SIMULATOR, "method": "select", "distance": DISTANCE, "c": 5, "epsilon": 4, "simulations": 800},
        "sums": {**SIMULATOR, "column": "x", "bounds": [0, 3], "summary": {"kind": "partition", "edges": [1, 2]}, "epsilon": 1},
    },
    "inference": {"engine": "bank", "simulations": 4_000},
    "cluster": {"kind": "local", "workers": 2},
    "ledger": "sqlite:///ledger.db",
    "output": "out",
}  # fmt: skip


changed = partial(changed_in, GOOD)


def file_of(folder, content):
    (folder / "p.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    return folder / "p.yaml"


def write_records(folder, x):
    (folder / "data").mkdir()
    for i, part in enumerate(np.array_split(x, 3)):
        pq.write_table(pa.table({"x": part}), folder / "data" / f"{i}.parquet")


def records():
    rng = np.random.default_rng(5)
    return rng.permutation(np.repeat([0.0, 1.0, 2.0], [240, 40, 120]) + rng.random(N))


REFUSED = {
    "an unknown method": ({"near__method": "sparse"}, "method: is 'sparse'; give release (the default), svt or select"),
    "no distance": ({"near__distance": None}, "distance: is missing"),
    "an unknown distance": ({"near__distance": {"kind": "euclid"}}, "is 'euclid'; give {kind: .., ..} with one of histogram"),
    "a distance of another column": (
        {"near__distance": {**DISTANCE, "column": "y"}}, "the distance compares column 'y'; the simulator makes x"),
    "no tolerance": ({"near__tolerance": None}, "tolerance: is missing"),
    "a tolerance below 0": ({"near__tolerance": -1}, "tolerance is -1.0; it must be a finite number, 0 or more"),
    "a tolerance for select": ({"best__tolerance": 0.1}, "tolerance: unknown key"),
    "c of 0": ({"near__c": 0}, "c is 0; it must be at least 1"),
    "no simulations": ({"near__simulations": 0}, "simulations is 0; it must be at least 1"),
    "more than there are": ({"best__c": 801}, "c is 801 of 800 simulations; it must be no more than there are"),
    "no time": ({"near__seconds": 0}, "seconds is 0.0; give a positive number"),
    "more than can be held until the time is over": (
        {"near__distance": {"kind": "recordwise", "weights": {"x": 1}, "clip": 3}, "near__simulations": 400_000,
         "near__seconds": 60}, "would hold 160000000 simulated numbers until the time is over, 134217728 at most"),
    "a bandwidth of 0": (
        {"near__distance": {"kind": "mmd", "column": "x", "bounds": [0, 3], "bandwidth": 0}}, "bandwidth is 0; give at least"),
    "columns with a bandwidth of 0": (
        {"near__distance": {"kind": "mmd_product", "columns": {"x": [0, 3]}, "bandwidth": 0}}, "with a bandwidth of 0; give"),
    "random features of a bandwidth of 0": (
        {"near__distance": {"kind": "mmd_random", "columns": {"x": [0, 3]}, "bandwidth": 0}}, "bandwidth 0, 100 features; give"),
    "bounds beyond all numbers": (
        {"near__distance": {**DISTANCE, "bounds": [-1e308, 1e308]}}, "has bounds or weights beyond what floating point holds"),
    "a variant that is none": ({"near__variant": "fast"}, "variant: is 'fast'"),
    "a policy that ends the run": ({"near__failures": "raise"}, "a simulation that fails is far from any records here"),
    "rho for sparse vector": ({"near__rho": 1, "near__epsilon": None}, "rho: unknown key"),
    "a seed that is none": ({"near__seed": -1}, "seed is -1; it must be a whole number from 0 to 2^128 - 1"),
    "record by record without places": (
        {"near__distance": {"kind": "recordwise", "weights": {"x": 1}, "clip": 0}}, "clip is 0 and weights [1.0]"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused_in_words(tmp_path, name):
    changes, message = REFUSED[name]
    content = changed(**{f"measurements__{path}": value for path, value in changes.items()})
    with pytest.raises(ConfigError) as refusal:
        load(file_of(tmp_path, content))
    assert any(message in str(problem) for problem in refusal.value.problems), str(refusal.value)


def test_a_private_n_needs_a_public_scale(tmp_path):
    with pytest.raises(ConfigError, match="a distance is scaled by a public number of records"):
        load(file_of(tmp_path, changed(privacy={"neighbours": "add_remove"})))


def test_what_is_asked_is_what_the_file_says(tmp_path):
    pipeline = load(file_of(tmp_path, GOOD))
    near, best = pipeline.selections
    assert isinstance(near.request.question, SparseVector)
    assert near.request.question.variant is Variant.SPLIT
    # One record moves two shares by 1 / 400 each, half their sum is 1 / 400: a step is half of that.
    assert near.request.distance.sensitivity(Neighbours.REPLACE) * near.request.distance.step == pytest.approx(1 / N)
    lowered = 0.1 - np.log(2) * near.request.question.nominal_scales[1] * near.request.distance.step
    assert near.request.question.threshold * near.request.distance.step == pytest.approx(lowered, abs=2 / N)
    assert isinstance(best.request.question, TopC)
    assert [str(loss.amount) for loss in pipeline.losses] == ["1", "4", "4"]


def test_the_c_of_a_choice_is_not_that_of_the_simulator(tmp_path):
    prior = {name: {"kind": "uniform", "lower": 0.1, "upper": 1} for name in "abgk"}
    own = {"simulator": "g_and_k", "prior": prior, "components": None}
    content = changed(**{f"measurements__near__{key}": value for key, value in own.items()})
    near = load(file_of(tmp_path, content)).selections[0]
    assert (near.request.question.c, near.model.simulator.c, near.request.known) == (5, 0.8, {})


def opened(folder, content, epsilon=20):
    pipeline = load(file_of(folder, content))
    ledger = Ledger(pipeline.ledger)
    ledger.open_dataset("toy", pipeline.neighbours, Decimal(epsilon), who="t", why="t")
    ledger.close()
    return pipeline


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    write_records(folder, records())
    pipeline = opened(folder, GOOD)
    told = []
    made = run(pipeline, progress=lambda stage, done, of: told.append((stage, done, of)))
    target, _ = write_run(made, pipeline.output, pipeline.cluster)
    return pipeline, made, target, told


def test_all_are_released_in_one_scan_and_charged_once(finished):
    pipeline, made, _, told = finished
    assert made.charged == ("sums", "near", "best")
    assert made.cost == Decimal(9)
    assert made.balance.spent == Decimal(9)
    assert sum(stage == "splits read" and done == of for stage, done, of in told) == 1
    again = run(pipeline)
    assert again.charged == ()
    assert again.publication == made.publication
    assert again.balance.spent == Decimal(9)


def test_progress_tells_simulations_and_no_acceptance(finished):
    stages = {stage for stage, _, _ in finished[3]}
    assert stages == {"splits read", "near: simulated", "best: simulated"}


def test_the_accepted_are_near_the_records(finished):
    """At epsilon 4 noise is 0.025 of distance: five draws of the prior within 0.1 or so of shares (.6, .1, .3), not about 1/3."""
    near, best = chosen_from(read(finished[2] / "release.json"))
    for one in (near, best):
        assert one.theta.shape == (5, 3)
        assert np.abs(one.theta.mean(axis=0) - [0.6, 0.1, 0.3]).max() < 0.12
    assert near.selection.n_answered == near.selection.accepted[-1] + 1
    assert best.selection.n_answered == 800


def test_files_hold_what_was_accepted_and_the_report_says_what_it_is(finished):
    _, made, target, _ = finished
    [header, *rows] = csv.reader((target / "best.accepted.csv").read_text().splitlines())
    assert header == ["simulation", "p[1]", "p[2]", "p[3]"]
    assert [int(row[0]) for row in rows] == list(made.publication.selections["best"].accepted)
    told = json.loads((target / "run.json").read_text())["selections"]["best"]
    assert told["accepted"] == 5
    assert told["parameters"]["p[1]"]["mean"] == pytest.approx(np.mean([float(row[1]) for row in rows]))
    page = (target / "report.html").read_text()
    assert "no interval that holds the truth at a known rate" in page
    assert "the 5 nearest of 800 simulations, by one exponential mechanism over sets of scale" in page
    assert "Of sums that is true up to an approximation by simulations" in page  # engine bank


def test_a_run_of_choices_alone_has_no_posterior_file(tmp_path):
    write_records(tmp_path, records())
    content = changed(measurements__sums=None, measurements__best=None, inference=None)
    pipeline = opened(tmp_path, content)
    target, summaries = write_run(run(pipeline), pipeline.output, pipeline.cluster)
    assert not summaries
    assert sorted(path.name for path in target.iterdir()) == ["near.accepted.csv", "release.json", "report.html", "run.json"]
    page = (target / "report.html").read_text()
    assert dp_dask(tmp_path, "report", target).returncode == 0
    assert (target / "report.html").read_text() == page
    release = target / "release.json"
    assert dp_dask(tmp_path, "infer", release, "--output", tmp_path / "again").returncode == 0
    assert (tmp_path / "again" / "near.accepted.csv").read_text() == (target / "near.accepted.csv").read_text()
    for words, told in {
        ("--prior", "{alpha: 1}"): "the release holds choices among simulations alone",
        ("--measurement", "near"): "the release holds: choices among simulations alone, of which there is no posterior",
        ("--ask", "P(near.p > 1)"): "unknown name 'near.p'",
    }.items():
        refused = dp_dask(tmp_path, "infer", release, *words)
        assert (refused.returncode, told in refused.stderr) == (2, True), refused.stderr


OWN = """
import numpy as np

def simulate(theta, n, rng):
    return rng.uniform(0, 3, (len(theta), n))

simulate.parameters, simulate.columns = ("mu",), ("x",)
"""


def test_an_edited_simulator_is_another_question(tmp_path):
    """In processes of their own, as a module is imported once in each."""
    (tmp_path / "own.py").write_text(OWN)
    own = {"simulator": "own:simulate", "prior": {"mu": {"kind": "normal", "mu": 0, "sigma": 1}}, "components": None}
    near = {key: value for key, value in (GOOD["measurements"]["near"] | own).items() if value is not None}
    file = file_of(tmp_path, changed(measurements={"near": near}, inference=None))
    ask = (
        "import sys, pathlib; from dp_dask.config import load; r = load(pathlib.Path(sys.argv[1])).selections[0].request; "
        "print(r.code, r.draws)"
    )

    def asked():
        [told] = subprocess.run([sys.executable, "-c", ask, file], check=True, capture_output=True, text=True).stdout.splitlines()
        return told.split()

    code, draws = asked()
    assert asked() == [code, draws]
    (tmp_path / "own.py").write_text(OWN.replace("(0, 3,", "(1, 3,"))
    other, same = asked()
    assert other != code
    assert same == draws


def test_parameters_that_are_drawn_otherwise_are_refused(finished):
    """A version of numpy whose generators give other numbers asks for other candidates, and does not redraw those of before."""
    publication = finished[1].publication
    near = publication.selections["near"]
    assert replace(near.request, draws="0" * 32) != near.request
    moved = replace(near, request=replace(near.request, draws="0" * 32))
    with pytest.raises(ConfigError, match="draws other parameters from its seed than were compared"):
        chosen_from(replace(publication, selections={"near": moved}))


class Failing:
    """A source that is found changed at the end."""

    def __init__(self, source):
        self.source, self.asked = source, 0

    def version(self):
        self.asked += 1
        return f"version {self.asked}"

    def pinned(self, look=None):  # noqa: ARG002
        return nullcontext(self)

    def __getattr__(self, name):
        return getattr(self.source, name)

    def __reduce__(self):
        return self.source.__reduce__()


def test_what_fails_before_the_commit_leaves_no_choice_in_any_frame(tmp_path):
    write_records(tmp_path, records())
    pipeline = opened(tmp_path, GOOD)
    told = []
    with pytest.raises(SourceError, match="the data changed while they were read; nothing was released or charged") as caught:
        run(replace(pipeline, source=Failing(pipeline.source)), progress=lambda stage, *_: told.append(stage))
    assert {"near: simulated", "best: simulated"} < set(told)
    frames = [frame.f_locals for frame, _ in traceback.walk_tb(caught.value.__traceback__)]
    assert any("chosen" in each for each in frames)
    assert "accepted=(" not in repr(frames)


@pytest.mark.parametrize("last", ["sums", "noise"])
def test_a_choice_that_is_made_is_in_no_frame_of_a_later_failure(tmp_path, monkeypatch, last):
    write_records(tmp_path, records())
    pipeline = opened(tmp_path, GOOD)
    made = []

    def choose(pipeline, opened, choice, *rest, **options):
        if made and last == "sums":
            msg = "the cluster lost simulations"
            raise ClusterError(msg)
        made.append(choice.name)
        return choose_one(pipeline, opened, choice, *rest, **options)

    choose_one = releasing._choose
    monkeypatch.setattr(releasing, "_choose", choose)
    if last == "noise":
        monkeypatch.setattr(releasing.additive, "release", lambda *_: 1 / 0)
    with pytest.raises((ClusterError, ZeroDivisionError)) as caught:
        run(pipeline)
    frames = [frame.f_locals for frame, _ in traceback.walk_tb(caught.value.__traceback__)]
    assert made
    assert any("chosen" in each for each in frames)
    assert "accepted=(" not in repr(frames)


def test_record_by_record_beside_the_data(tmp_path):
    write_records(tmp_path, records())
    by_record = {"kind": "recordwise", "weights": {"x": 1}, "clip": 3}
    content = changed(measurements__near__distance=by_record, measurements__near__tolerance=3, measurements__best=None,
                      measurements__sums=None, inference=None, measurements__near__simulations=50)  # fmt: skip
    made = run(opened(tmp_path, content))
    assert len(made.publication.selections["near"].accepted) == 5  # all are within the clip


def test_a_choice_that_noise_would_drown_is_refused_before_it_is_paid_for(tmp_path):
    write_records(tmp_path, records())
    pipeline = opened(tmp_path, changed(measurements__best__epsilon=0.01))
    with pytest.raises(ConfigError, match=r"the noise of choosing 5 at epsilon 0\.01 is too large"):
        run(pipeline)
    ledger = Ledger(pipeline.ledger)
    assert ledger.balance("toy").spent == 0
    ledger.close()


def test_a_budget_that_does_not_cover_it_is_refused_before_a_record_is_read(tmp_path):
    (tmp_path / "data").mkdir()
    pq.write_table(pa.table({"x": [1.0]}), tmp_path / "data" / "a.parquet")
    with pytest.raises(BudgetError):
        run(opened(tmp_path, GOOD, epsilon=8))


def test_another_number_of_records_is_told_by_neither_number(tmp_path):
    write_records(tmp_path, records()[:-7])
    content = changed(measurements__sums=None, measurements__best=None, inference=None)
    with pytest.raises(SourceError, match=r"privacy\.n is 400, but the data have another number of records") as refusal:
        run(opened(tmp_path, content))
    assert "393" not in str(refusal.value)


def test_a_check_says_what_to_expect(tmp_path):
    write_records(tmp_path, records())
    opened(tmp_path, GOOD)
    near, best = check(load(file_of(tmp_path, GOOD))).selections
    assert near.plan.accepted > 4
    assert near.plan.false_accepts < 2
    assert best.plan.hits > 3
    assert not near.warnings
    assert not best.warnings
    smallest = {"measurements__near__epsilon": 1e-12, "measurements__near__tolerance": 1e15}
    assert len(check(load(file_of(tmp_path, changed(**smallest)))).selections[0].others) == 12  # half and twice cannot be
    strict = check(load(file_of(tmp_path, changed(measurements__near__epsilon=0.05)))).selections[0]
    assert any("would be false, by noise alone" in warning for warning in strict.warnings)


@pytest.mark.parametrize("variant", ["published", "split", "one_sided"])
def test_flips_are_those_of_simulated_noise(variant):
    """40,000 draws: a probability is off by 0.0025 at most, five of these are below 1e-6."""
    spec = SparseVector(variant=Variant(variant), c=3, sensitivity=2, threshold=50, epsilon=Decimal(1), n_queries=100)
    rng = np.random.default_rng(3)
    s, r = spec.nominal_scales
    draw = (lambda scale: -rng.exponential(scale, 40_000)) if spec.is_one_sided else (lambda scale: rng.laplace(0, scale, 40_000))
    m, v = draw(s), draw(r)
    for a in (0.0, 5.0, 20.0):
        accepted, rejected = flips(spec, np.array(a))
        assert abs(accepted - np.mean(a + v <= m)) < 0.0125
        assert abs(rejected - np.mean(-a + v > m)) < 0.0125


def test_flips_are_drawn(tmp_path):
    write_records(tmp_path, records())
    opened(tmp_path, GOOD)
    found = check(load(file_of(tmp_path, GOOD)))
    assert "is the tightest that fills its c" in found.selections[0].advice
    assert len(found.selections[0].others) == 27
    picture = draw_flips(found.selections)
    assert picture.count("<svg") == 1
    with pytest.raises(ValueError, match="no measurement is of method svt"):
        draw_flips(found.selections[1:])


def watched(cluster, keys):
    """The cluster, whose tasks' keys are noted."""

    @contextmanager
    def client():
        with cluster.client() as client:
            send = client._graph_to_futures

            def note(expr, named, *arguments, **options):
                keys.extend(map(str, named))
                return send(expr, named, *arguments, **options)

            client._graph_to_futures = note
            yield client

    return SimpleNamespace(client=client, stall_timeout=cluster.stall_timeout, driver_sees_records=True)


def test_records_are_on_one_cluster_and_simulations_on_another(tmp_path):
    """The same candidates are accepted as on one cluster: a batch's number is its seed; the noise is what it is."""
    write_records(tmp_path, records())
    pipeline = opened(tmp_path, changed(simulation_cluster={"kind": "local", "workers": 1}))
    assert pipeline.simulates_on is pipeline.simulation_cluster
    beside, away = [], []
    both = replace(
        pipeline, cluster=watched(pipeline.cluster, beside), simulation_cluster=watched(pipeline.simulation_cluster, away)
    )
    asks = dask.config.get("scheduler", None)
    made = run(both)
    assert dask.config.get("scheduler", None) == asks  # each cluster gave back what it had set
    assert set(made.publication.selections) == {"near", "best"}
    assert beside
    assert all(key.startswith("dp-reduce") for key in beside)
    assert away
    assert not any(key.startswith(("dp-reduce", "dp-compare")) for key in away)
