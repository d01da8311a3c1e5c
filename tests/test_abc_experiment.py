"""Comparisons of choices among simulations: the same on any cluster, noise of the right scale, held to exact posteriors."""

from __future__ import annotations

import csv
import io
import json
import math
import subprocess
import sys
from decimal import Decimal

import numpy as np
import pytest
import yaml
from gate.selection_laws import Below, TwoSided

from dp_dask.abc_experiment import files, run
from dp_dask.abc_file import is_abc, load
from dp_dask.abc_trials import METHODS, SPARSE, accepted_by, choices, releases, sparse_vector, top_c
from dp_dask.core.distances import FAILED
from dp_dask.core.privacy import Loss, Neighbours, Unit
from dp_dask.core.selection import SparseVector, TopC, Variant
from dp_dask.errors import ConfigError
from dp_dask.gate.sparse_vector import answer
from dp_dask.public.abc_comparison import Place

GOOD = {
    "simulation": {"simulator": "uniform_mixture", "components": 3, "prior": {"kind": "dirichlet", "alpha": 1}},
    "truth": [0.5, 0.1, 0.4],
    "n": 300,
    "distance": {"kind": "mmd", "column": "x", "bounds": [0, 3], "bandwidth": 0.6},
    "c": [3, 20],
    "tolerance": [0.1, 0.3],
    "epsilon": [1, 20],
    "simulations": 400,
    "replicates": 2,
    "seed": 5,
    "release": {
        "column": "x",
        "bounds": [0, 3],
        "summary": {"kind": "partition", "edges": [1, 2]},
        "epsilon": [1],
        "is_categorical": True,
        "draws": 400,
        "simulations": 2000,
    },
    "targets": [{"of": "release", "to": "nearest", "epsilon": 1, "c": 3, "at_most": 10}],
    "output": "out",
}
TREND = {
    "simulation": {
        "simulator": "cubic_trend",
        "prior": {f"a{i}": {"kind": "normal", "mu": 0, "sigma": 1} for i in range(4)},
    },
    "observed": {"day": [0, 1, 2, 3], "y": [0, 1, 5, 12]},
    "n": 4,
    "curve": ["day", "y"],
    "distance": {"kind": "mmd", "column": "y", "bounds": [-50, 50]},
    "c": [2],
    "tolerance": [0.2],
    "epsilon": [20],
    "simulations": 300,
    "replicates": 2,
    "output": "out",
}


def write(folder, content=GOOD, **changes):
    path = folder / "e.yaml"
    new = {key: value for key, value in (content | changes).items() if value is not None}
    path.write_text(yaml.safe_dump(new))
    return path


def rows(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_the_same_file_gives_the_same_files_on_one_worker_and_on_two(tmp_path):
    one = load(write(tmp_path, cluster={"kind": "local", "workers": 1}))
    other = load(write(tmp_path, cluster={"kind": "local", "processes": True, "workers": 2}))
    first, second = (files(run(each), each) for each in (one, other))
    assert first == second
    assert set(first) == {"results.csv", "table.md", "errors.svg"}


def test_a_method_s_results_do_not_depend_on_what_else_the_file_lists(tmp_path):
    everything = {trial.place: trial.error for trial in choices(load(write(tmp_path)).study, 5, 1)}
    part = load(write(tmp_path, methods=["split"], c=[20], tolerance=[0.3], epsilon=[20], release=None, targets=[])).study
    for trial in choices(part, 5, 1):
        assert everything[trial.place] == trial.error
    assert len(everything) == 2 * (1 + 2 + 2 * (5 * 2 + 1))


def test_candidates_records_and_noise_are_other_ones_with_another_seed_and_replicate(tmp_path):
    study = load(write(tmp_path)).study
    found = [[trial.distance for trial in choices(study, seed, i)] for seed, i in ((5, 0), (5, 1), (6, 0))]
    assert all(a != b for a, b in zip(found[0], found[1], strict=True))
    assert all(a != b for a, b in zip(found[0], found[2], strict=True))


def test_what_knows_no_noise_is_as_defined(tmp_path):
    study = load(write(tmp_path, simulations=2000)).study
    by = {trial.place: trial for trial in choices(study, 5, 0)}
    for c in (3, 20):
        nearest = by[Place("nearest", c=c)]
        assert nearest.accepted == c
        assert all(nearest.distance <= trial.distance for place, trial in by.items() if place.c == c and trial.accepted == c)
        for tolerance in (0.1, 0.3):
            assert by[Place("abc", c=c, tolerance=tolerance)].accepted == c
            assert by[Place("abc", c=c, tolerance=tolerance)].distance <= tolerance
    assert by[Place("nearest", c=3)].error < 0.05  # a third of the prior mean's


# The scales as the papers have them, at sensitivity 5, epsilon 0.5 and c = 2: threshold, distance.
D, EPSILON, C = 5, 0.5, 2
RATIO = (2 * C) ** (2 / 3)
SCALES = {
    Variant.PUBLISHED: ((C + 1) * D / EPSILON, 2 * (C + 1) * D / EPSILON),
    Variant.RESAMPLED: (2 * C * D / EPSILON, 4 * C * D / EPSILON),
    Variant.SPLIT: (D * (1 + RATIO) / EPSILON, 2 * C * D * (1 + RATIO) / RATIO / EPSILON),
    Variant.ONE_SIDED: (D * (1 + RATIO) / EPSILON, 2 * C * D * (1 + RATIO) / RATIO / EPSILON),
}
RUNS = 8000


def accepts(variant, excess, factor=1.0):
    """P(V <= M - excess) by summing over M; the laws are the gate tests' own."""
    law = Below if variant is Variant.ONE_SIDED else TwoSided
    of_threshold, of_distance = (law(factor * scale) for scale in SCALES[variant])
    m = np.arange(-4000, 4001)
    return float(np.exp(of_threshold.log_pmf(m) + of_distance.log_cdf(m - excess)).sum())


@pytest.mark.parametrize("variant", list(SCALES))
def test_pseudo_noise_has_the_scale_of_its_paper(variant):
    """4.5 sd of 8,000 runs allow 1e-5 false alarms each; noise 0.7 and 1.3 times as wide is far outside."""
    excess = 60
    spec = SparseVector(variant=variant, c=C, sensitivity=D, threshold=0, epsilon=Decimal(str(EPSILON)), n_queries=2)
    rngs = [np.random.default_rng([1, i]) for i in range(RUNS)]
    rate = sparse_vector(rngs, [spec] * RUNS, np.array([excess, FAILED]))[:, 0].mean()
    wanted = accepts(variant, excess)
    margin = 4.5 * math.sqrt(wanted * (1 - wanted) / RUNS)
    assert abs(rate - wanted) < margin
    assert all(abs(accepts(variant, excess, factor) - wanted) > 1.5 * margin for factor in (0.7, 1.3))


def test_a_choice_of_one_has_the_odds_of_the_exponential_mechanism():
    gap, scale = 30, (2 * D + 2) / EPSILON
    spec = TopC(c=1, sensitivity=D, loss=Loss(Unit.EPSILON, Decimal(str(EPSILON))))
    distances = np.array([0, gap, FAILED])
    chosen = [int(top_c(np.random.default_rng([2, i]), spec, distances)[0]) for i in range(RUNS)]
    wanted, narrow, wide = (1 / (1 + math.exp(gap / each)) for each in (scale, 0.7 * scale, 1.3 * scale))
    margin = 4.5 * math.sqrt(wanted * (1 - wanted) / RUNS)
    assert abs(np.mean(chosen) - wanted) < margin
    assert min(wanted - narrow, wide - wanted) > 1.5 * margin


def test_answers_in_blocks_are_the_gate_s():
    rng = np.random.default_rng(3)
    noisy, levels = rng.integers(0, 1000, (6, 700)), rng.integers(0, 150, (6, 40))
    assert np.array_equal(accepted_by(noisy, levels), answer(noisy, levels, np.zeros(6, dtype=np.int64)))


def test_the_published_methods_have_the_published_sensitivity_and_ours_have_less(tmp_path):
    study = load(write(tmp_path)).study
    steps = {name: study.question(name, Decimal(1), 3, 0.3).sensitivity for name in SPARSE}
    own = study.distance.sensitivity(Neighbours.REPLACE)
    assert steps["tight"] == steps["split"] == steps["one_sided"] == own
    assert steps["published"] == steps["resampled"] == math.ceil(2 / (300 * study.distance.step))
    assert steps["published"] / own == pytest.approx(math.sqrt(2), rel=0.02)
    assert study.question("select", Decimal(1), 3, None).sensitivity == own


def test_a_release_is_held_to_the_exact_posterior_of_the_same_release(tmp_path):
    """Its sd within 8 %: the emulator's and the draws' error are 2 % together; one 15 % too small, or without noise, fails."""
    release = GOOD["release"] | {"epsilon": [0.5, 0.1], "draws": 4000, "simulations": 4000}
    study = load(write(tmp_path, n=1000, release=release, targets=[])).study
    by = {trial.place: trial for epsilon in ("0.5", "0.1") for trial in releases(study, 5, 0, Decimal(epsilon))}
    assert len(by) == 5
    for epsilon in ("0.5", "0.1"):
        release, exact = (by[Place(name, Decimal(epsilon))] for name in ("release", "exact"))
        assert abs(release.sd / exact.sd - 1) < 0.08
    _, records = study.records(5, 0)
    counts = np.bincount(np.floor(records.values["x"]).astype(int), minlength=3)
    draws = np.random.default_rng(1).dirichlet(1 + counts, 100_000)
    assert by[Place("non_private")].sd == pytest.approx(np.sqrt(draws.var(axis=0).mean()), rel=0.02)
    assert by[Place("exact", Decimal("0.1"))].sd > 1.15 * by[Place("non_private")].sd


def test_few_acceptances_are_measured_as_the_prior(tmp_path):
    study = load(write(tmp_path, tolerance=[0.0], methods=["tight"], release=None, targets=[])).study
    by = {trial.place: trial for trial in choices(study, 5, 0)}
    empty = by[Place("abc", c=3, tolerance=0.0)]
    assert (empty.accepted, empty.answered) == (0, 400)
    assert empty.error == pytest.approx(np.abs(1 / 3 - np.array([0.5, 0.1, 0.4])).mean(), abs=0.05)


def test_the_command_writes_tables_and_a_picture_and_checks_the_targets(tmp_path):
    write(tmp_path, replicates=9)
    words = [sys.executable, "-m", "dp_dask", "experiment", "e.yaml", "--replicates", "1"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["errors.svg", "results.csv", "table.md"]
    text = (tmp_path / "out" / "table.md").read_text()
    assert text in done.stdout
    assert "| error of release / nearest | epsilon 1, c 3 | at most 10 |" in text
    done = subprocess.run([*words, "--json"], cwd=tmp_path, capture_output=True, text=True, check=False)
    told = json.loads(done.stdout)
    assert len(told["results"]) == 50 + 3
    assert told["targets"][0]["holds"] is True


def test_observed_records_have_distances_and_curves_and_no_error(tmp_path):
    plan = load(write(tmp_path, TREND, note="A day is protected."))
    result = run(plan)
    texts = files(result, plan)
    assert set(texts) == {"results.csv", "table.md", "curves.svg"}
    assert all(row["error"] == "" and float(row["distance"]) > 0 for row in rows(texts["results.csv"]))
    assert result.curves.simulated[Place("nearest", c=2)].shape == (2, 4)
    assert texts["table.md"].startswith("A day is protected.\n\nMean distance")


def test_the_two_kinds_of_experiment_are_told_apart_by_their_keys(tmp_path):
    assert is_abc(write(tmp_path))
    assert not is_abc(write(tmp_path, {"models": {}, "n": [1]}))


@pytest.mark.parametrize(
    ("content", "changes", "path", "told"),
    [
        (GOOD, {"simulation": {"simulator": "uniform"}}, "simulation.simulator", "unknown"),
        (GOOD, {"simulation": {"simulator": "sir"}}, "simulation.prior", "is missing"),
        (GOOD, {"truth": [0.5, 0.5]}, "truth", "theta has shape"),
        (GOOD, {"truth": [0.5, 0.5, 0.5]}, "truth", "must add up to 1"),
        (GOOD, {"truth": None}, "truth", "give either truth"),
        (GOOD, {"observed": {"x": [1]}}, "truth", "give either truth"),
        (TREND, {"observed": {"y": [0, 1, 5, 12]}}, "observed", "must be 4 numbers for each of day, y"),
        (TREND, {"curve": ["day", "z"]}, "curve", "give two columns of observed records"),
        (TREND, {"release": GOOD["release"]}, "release", "and a truth"),
        (GOOD, {"n": None}, "n", "is missing"),
        (GOOD, {"n": 0}, "size", "from 1 to 1000000"),
        (GOOD, {"c": [500]}, "c", "no more than the queries"),
        (GOOD, {"tolerance": [-1]}, "tolerance", "0 or more"),
        (GOOD, {"epsilon": [0]}, "epsilon", "above 0"),
        (GOOD, {"methods": ["svt"]}, "methods", f"known: {', '.join(METHODS)}"),
        (GOOD, {"distance": {"kind": "histogram", "column": "x", "bounds": [0, 3], "edges": [1]}}, "distance.kind", "give mmd"),
        (GOOD, {"distance": GOOD["distance"] | {"bandwidth": 1e-9}}, "distance", "give at least"),
        (
            GOOD,
            {"release": GOOD["release"] | {"summary": {"kind": "bins", "count": 5}}},
            "release.is_categorical",
            "a bin for each",
        ),
        (GOOD, {"release": GOOD["release"] | {"colum": 1}}, "release.colum", "did you mean 'column'"),
        (GOOD, {"targets": [{"of": "release", "to": "nearest", "c": 4, "at_most": 1}]}, "targets[0]", "no one result is"),
        (GOOD, {"targets": [{"of": "release", "at_most": 1}]}, "targets[0].to", "is missing"),
        (GOOD, {"ledger": "sqlite:///l.db"}, "ledger", "unknown key"),
    ],
)
def test_each_fault_is_told_with_its_place(tmp_path, content, changes, path, told):
    with pytest.raises(ConfigError) as caught:
        load(write(tmp_path, content, **changes))
    assert any(problem.path == path and told in problem.message for problem in caught.value.problems), caught.value.problems


def test_a_simulator_that_decides_n_is_refused(tmp_path):
    simulation = {"simulator": "sir", "population": 100, "infected": 1, "weeks": 3,
                  "prior": {"R0": {"kind": "lognormal", "mu": 0, "sigma": 1},
                            "infectious_days": {"kind": "lognormal", "mu": 1, "sigma": 1}}}  # fmt: skip
    with pytest.raises(ConfigError, match="decides by its own course"):
        load(write(tmp_path, simulation=simulation))
