"""Comparisons where an outbreak is a record: sensitivities, distances by brute force, the same result anywhere, and refusals."""

from __future__ import annotations

import csv
import itertools
import json
import subprocess
import sys
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
import yaml

pytest.importorskip("numba")

from dp_dask.core.privacy import Neighbours
from dp_dask.errors import ConfigError, InferenceError
from dp_dask.outbreak_experiment import is_outbreaks, load, run
from dp_dask.outbreak_trials import Study, choices, compared, observed, release, scores
from dp_dask.outbreaks.prior import OutbreakPrior
from dp_dask.outbreaks.summaries import distance
from dp_dask.public.outbreak_comparison import PARAMETERS, Trial, cells_of, files
from dp_dask.public.outbreak_scores import COLUMNS, ScoredOutbreaks, score_sum, summaries_of
from dp_dask.public.simulated import SimulatedObservation
from dp_dask.simulators.tuberculosis import plugin as Tuberculosis  # noqa: N812

SHIPPED = Path(__file__).parent.parent / "pipelines" / "papers" / "park_2021_tuberculosis.yaml"
TRUTH = (192.0, 5.88, 6.74, 0.09)
NAMED = dict(zip(PARAMETERS, TRUTH, strict=True))
STUDY = Study(
    truth=TRUTH, prior=OutbreakPrior(beta_sd=30.0), sizes=(5, 20), epsilon=Decimal(1), c=3, clip=200.0, tolerance=150.0,
    simulations=30, generation=2_000, seed=3,
)  # fmt: skip
SMALL = {"n": [10], "c": 3, "simulations": 30, "generation": 1000, "replicates": 1}


@pytest.fixture(scope="module")
def own():
    return scores(STUDY)


def test_replacing_an_outbreak_moves_the_sums_of_its_scores_by_four_at_most():
    """Over all corners, nulls and what lies outside; 4 is attained."""
    statistic = score_sum()
    corners = np.array(list(itertools.product([0.0, 1.0, -7.0, 9.0, np.nan], repeat=4)))
    made = statistic.contributions(corners)
    moved = np.abs(made[:, None] - made[None]).sum(axis=2).max()
    unit = statistic.units[0]
    assert set(statistic.units) == {unit}
    assert moved == statistic.sensitivity(Neighbours.REPLACE)
    assert 3.99 < moved * unit <= 4


def test_scores_tell_of_their_parameters_and_lie_between_0_and_1(own):
    theta = STUDY.prior.rvs(np.random.default_rng(1), 2_000)
    made = ScoredOutbreaks(own).simulate(theta, 1, np.random.default_rng(2))
    values = np.stack([made.values[name] for name in COLUMNS])
    assert values.min() == 0
    assert values.max() == 1
    for value, parameter, least in zip(values, theta.T, (0.5, 0.4, 0.2, 0.6), strict=True):
        assert np.corrcoef(value, parameter)[0, 1] > least


def test_steps_are_those_of_the_clipped_distance_record_by_record():
    records = np.stack([observed(STUDY, r) for r in range(2)])
    records[1, 3, 4] = 0.0  # no relative error is known of it: at the clip's distance
    steps = compared(STUDY, records, 4, 6)
    rng = np.random.default_rng([STUDY.seed, 1, 1, 4])
    theta = STUDY.prior.rvs(np.random.default_rng([STUDY.seed, 1]), 30)[4:6]
    made = summaries_of(Tuberculosis("outbreak").simulate(theta, 20, rng)).reshape(2, 20, 8)
    for b, (j, n), r in itertools.product(range(2), enumerate((5, 20)), range(2)):
        total = 0
        for i in range(n):
            d = 200.0 if r == 1 and i == 3 else float(distance(made[b, i], records[r, i]))
            total += int(min(d / 200, 1) * 4096)
        assert steps[b, j, r] == total
        of = STUDY.distance(n)
        assert of.sensitivity(Neighbours.REPLACE) * of.step == pytest.approx(200 / n)


def test_without_noise_the_private_choices_are_the_plain_ones():
    steps = np.random.default_rng(5).permutation(np.arange(30)) * 20 * 270  # of 20 outbreaks: 0 to 383, 12 of them within 150
    calm = replace(STUDY, epsilon=Decimal(10**6))
    by = {trial.method: trial for trial in choices(calm, 20, 0, steps)}
    assert by["select"].error == by["nearest"].error
    assert by["published"].accepted == 3
    assert by["abc"].accepted == np.sum(steps * 200 / (4096 * 20) <= 150)
    assert by["prior"].error == tuple(np.abs(STUDY.prior.mean - TRUTH) / STUDY.prior.sd)
    assert by["abc"].error != by["nearest"].error


def test_noise_is_that_of_the_papers_scales():
    """Candidates at the tolerance are accepted half the time; far ones by their noise alone: c of them, early."""
    steps = np.full(30, 199 * 4096 * 20 // 200)
    loud = replace(STUDY, epsilon=Decimal("0.01"))
    assert [t.accepted for t in choices(loud, 20, 0, steps) if t.method == "published"] == [3]
    assert [t.accepted for t in choices(replace(STUDY, epsilon=Decimal(1000)), 20, 0, steps) if t.method == "published"] == [0]


def test_a_release_of_many_outbreaks_is_near_the_truth(own):
    """200 outbreaks: each error was below 0.5 prior sds, and below 4 posterior sds."""
    study = replace(STUDY, sizes=(200,), generation=2_000)
    made = release(study, own, [observed(study, 0)], 200, 0)
    assert not made.refusal
    assert max(made.error) < 0.6
    assert all(error < 4.5 * sd for error, sd in zip(made.error, made.sd, strict=True))
    assert made.simulated < 30_000


def test_the_release_is_for_independent_outbreaks_alone(own):
    like = SimulatedObservation(
        simulator=ScoredOutbreaks(own), statistic=score_sum(), n=20, each=1, scale=4096.0, y=(0,) * 4, count=None, expected_n=None
    )  # fmt: skip
    assert like.factor == 20
    with pytest.raises(InferenceError, match="must divide a public n"):
        replace(like, each=3)


def test_the_same_file_gives_the_same_files_on_one_worker_and_on_two(tmp_path):
    content = yaml.safe_load(SHIPPED.read_text()) | SMALL
    (tmp_path / "e.yaml").write_text(yaml.safe_dump(content))
    clusters = ({"kind": "local", "workers": 1}, {"kind": "local", "workers": 2})
    one, other = (files(run(load(tmp_path / "e.yaml", cluster=cluster))) for cluster in clusters)
    assert one == other
    assert set(one) == {"results.csv", "table.md", "errors.svg"}
    rows = list(csv.DictReader(one["results.csv"].splitlines()))
    assert len(rows) == 6 * 4
    assert {row["method"] for row in rows} == {"prior", "published", "select", "abc", "nearest", "release"}


def test_a_refused_release_is_told():
    texts = files(cells_of([Trial(n=5, method="release", error=(np.nan,) * 4, refusal="no posterior here")]))
    assert "Refused at n = 5: no posterior here." in texts["table.md"]
    assert "no posterior here" in texts["results.csv"]


REFUSED = {
    "a truth outside the prior": (
        {"outbreaks": {"truth": NAMED | {"R1": 30}, "prior": {"beta_sd": 30}}}, "outside the prior's support"
    ),
    "no prior": ({"outbreaks": {"truth": NAMED}}, "outbreaks.prior: is missing"),
    "too many outbreaks": ({"n": [10**5]}, "give whole numbers from 1 to 10000"),
    "a tolerance beyond the clip": ({"tolerance": 300}, "give 0 < tolerance <= clip"),
    "more accepted than simulated": ({"c": 2000}, "c is 2000; give a whole number from 1 to 1000"),
    "an unknown key": ({"clips": 3}, "clips: unknown key"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused_in_words(tmp_path, name):
    changes, message = REFUSED[name]
    (tmp_path / "e.yaml").write_text(yaml.safe_dump(yaml.safe_load(SHIPPED.read_text()) | changes))
    with pytest.raises(ConfigError) as refusal:
        load(tmp_path / "e.yaml")
    assert any(message in str(problem) for problem in refusal.value.problems), str(refusal.value)


def test_the_shipped_file_is_the_papers(tmp_path):
    plan = load(SHIPPED)
    assert is_outbreaks(SHIPPED)
    assert plan.study.truth == TRUTH
    assert (plan.study.sizes, plan.study.simulations, plan.study.c) == ((100, 1000), 1000, 10)
    content = yaml.safe_load(SHIPPED.read_text()) | SMALL | {"output": "out"}
    (tmp_path / "e.yaml").write_text(yaml.safe_dump(content))
    words = [sys.executable, "-m", "dp_dask", "experiment", "e.yaml", "--replicates", "1", "--json"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)["results"]
    assert [row["method"] for row in told] == ["prior", "published", "select", "abc", "nearest", "release"]
    assert (tmp_path / "out" / "errors.svg").read_text().startswith("<?xml")
