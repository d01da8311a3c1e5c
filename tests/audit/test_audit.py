"""The audit: it passes on this build, and a build with a broken mechanism fails it by the name of what is broken.

Attacks on OpenDP's noise have no seed. The audit states its own false alarms, 5e-5, and runs once here with all its attacks. To
miss a planted fault or a broken mechanism takes 5 standard errors and more.
"""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from click.testing import CliRunner
from commands import dp_dask

from dp_dask import releasing
from dp_dask.audit import auditing, examples, records, replays
from dp_dask.audit.additive_attacks import additive_attacks
from dp_dask.audit.attack import Attack, Pair
from dp_dask.audit.bounds import epsilon_bound
from dp_dask.audit.results import Audit, Claim, Control
from dp_dask.audit.telling import tell
from dp_dask.cli_audit import audit as command
from dp_dask.core.categories import CategoryCounts
from dp_dask.core.selection import Variant
from dp_dask.core.sensitive import reveal
from dp_dask.core.statistic import BoundedSum
from dp_dask.errors import SourceError
from dp_dask.gate import additive, sparse_vector
from dp_dask.gate.ledger import Ledger
from dp_dask.gate.noise import NoiseScale, OpenDPNoise

RUNS = "10000"


def audited(*words):
    """Run the command in this process, where a mechanism can be broken; return its exit code and its one JSON object."""
    result = CliRunner().invoke(command, ["--json", "--runs", RUNS, *words])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, json.loads(result.stdout)


@pytest.fixture
def small(monkeypatch):
    """Replay three values of a record in text files, attack nothing, and plant no faults."""
    monkeypatch.setattr(replays, "PASSES", (("csv", "few"),))
    monkeypatch.setattr(records, "CSV_LINES", {"text": records.CSV_LINES["text in every column"]})
    for name in ("replay_controls", "noise_controls", "selection_controls"):
        monkeypatch.setattr(auditing, name, lambda *_: iter(()))
    nothing = Pair(lambda _is_second, n: np.zeros(n, dtype=bool), {"never": lambda outcome: outcome})
    monkeypatch.setattr(auditing, "additive_attacks", lambda: [Attack("nothing", 1.0, "epsilon", epsilon_bound(), (nothing,))])
    for name in ("sparse_attacks", "choice_attacks"):
        monkeypatch.setattr(auditing, name, lambda *_: [])
    monkeypatch.setattr(auditing, "FALSE_ALARM", 1e-6)
    return monkeypatch


@pytest.fixture(scope="module")
def whole():
    """The whole audit, with few runs and a few of the records' values."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replays, "PASSES", (("parquet", "choices"), ("csv", "few")))
        patch.setattr(replays, "EXTREMES", ("small", "large", "null"))
        return audited("--seed", "3")


def test_this_build_passes_and_every_planted_fault_is_caught(whole):
    code, told = whole
    assert code == 0, told["failures"]
    assert told["passed"] is True
    assert told["failures"] == []
    assert all(claim["held"] for claim in told["claims"])
    assert all(control["caught"] for control in told["controls"])


def test_the_json_says_what_was_claimed_found_and_how(whole):
    _, told = whole
    assert set(told) == {
        "passed", "failures", "version", "sampler", "runs", "seed", "seconds", "false_alarm", "claims", "controls",
    }  # fmt: skip
    assert (told["runs"], told["seed"], told["false_alarm"]) == (int(RUNS), 3, 5e-5)
    assert told["sampler"].startswith("opendp ")
    numbers = [claim for claim in told["claims"] if claim["claimed"] is not None]
    assert all(0 <= claim["found"] <= claim["claimed"] * (1 + 1e-9) for claim in numbers)
    about = {claim["about"] for claim in told["claims"]}
    assert {"discrete Laplace", "discrete Gaussian, rho 1, delta 0.01", "joint choice, c 3", "Gumbel choice, c 1"} <= about
    for variant in Variant:
        assert {f"answers of sparse vector {variant}", f"sparse vector {variant}, c 1", f"sparse vector {variant}, c 3"} <= about
    for distance in examples.DISTANCES:
        assert f"distance {distance}, replace" in about
    faults = " ".join(control["fault"] for control in told["controls"])
    for fault in ("one draw", "where a record is replaced", "leaves the bounds", "bounds taken", "bandwidth", "drawn once",
                  "floating point", "from a seed", "SVT3", "SVT4", "SVT5", "SVT6", "drawn anew", "wrong sign", "c forgotten",
                  "30 % too little Laplace", "30 % too little Gaussian"):  # fmt: skip
        assert fault in faults


def failing(told):
    return [claim["about"] for claim in told["claims"] if not claim["held"]]


def test_noise_at_070_of_its_scale_fails_the_attack_on_it(small):
    add = OpenDPNoise.add_discrete_laplace
    small.setattr(OpenDPNoise, "add_discrete_laplace", lambda self, values, scale: add(self, values, 0.7 * scale))
    small.setattr(auditing, "additive_attacks", lambda: additive_attacks()[:2])
    code, told = audited()
    assert code == 1
    assert "discrete Laplace" in failing(told)
    assert set(failing(told)) <= {"discrete Laplace", "discrete Laplace, two sums"}
    assert told["failures"][0].startswith("discrete Laplace: more is lost than is claimed; ")


@pytest.mark.parametrize("kind", [BoundedSum, CategoryCounts])
def test_a_sensitivity_that_is_half_fails_the_replay_of_that_kind(small, kind):
    whole = kind.sensitivity
    small.setattr(kind, "sensitivity", lambda self, neighbours: max(whole(self, neighbours) // 2, 1))
    code, told = audited()
    assert code == 1
    assert f"sensitivity of {kind.__name__}, replace" in failing(told)
    assert all("sensitivity of" in about for about in failing(told))


def test_noise_of_another_scale_than_the_release_tells_fails(small):
    made = additive._release_one

    class Weaker:
        def __init__(self, noise):
            self.noise, self.sampler = noise, noise.sampler

        def add_discrete_laplace(self, values, scale):
            return self.noise.add_discrete_laplace(values, 0.7 * scale)

        def add_discrete_gaussian(self, values, scale):
            return self.noise.add_discrete_gaussian(values, 0.7 * scale)

    small.setattr(additive, "_release_one", lambda values, n, draw, noise: made(values, n, draw, Weaker(noise)))
    code, told = audited()
    assert code == 1
    assert {"noise asked for, replace, csv", "noise asked for, add_remove, csv"} <= set(failing(told))


def test_scales_that_are_too_small_fail_by_the_name_of_each_mechanism(small):
    def too_small(sensitivity, epsilon):
        return NoiseScale(0.7 * sensitivity / float(epsilon), 0.9 * float(epsilon))

    small.setattr(sparse_vector, "laplace_scale", too_small)
    code, told = audited()
    assert code == 1
    for variant in Variant:
        assert {f"noise scale, sparse vector {variant}", f"answers of sparse vector {variant}"} <= set(failing(told))


def test_a_message_that_one_record_decides_fails(small):
    reduce = releasing.reduce

    def telling(client, source, statistics, *, progress, **options):
        sealed = reduce(client, source, statistics, progress=progress, **options)
        progress(sum(reveal(sealed).sums) % 1000, 10**6)
        return sealed

    small.setattr(releasing, "reduce", telling)
    code, told = audited()
    assert code == 1
    assert failing(told) == ["control flow, replace, csv", "control flow, add_remove, csv"]
    assert told["failures"][0].startswith("control flow, replace, csv: messages, frozen differ: ")


def test_a_failure_that_one_record_decides_fails(small):
    reduce = releasing.reduce

    def refusing(client, source, *arguments, **options):
        if "abc" in "".join(file.read_text() for file in source.path.iterdir()):
            msg = "a text"
            raise SourceError(msg)
        return reduce(client, source, *arguments, **options)

    small.setattr(releasing, "reduce", refusing)
    code, told = audited()
    assert code == 1
    assert "control flow, replace, csv" in failing(told)
    assert any("exceptions, frozen" in failure for failure in told["failures"])


def test_a_ledger_that_takes_frozen_noise_fails(small):
    small.setattr("dp_dask.gate.ledger.INSECURE", "a word that no sampler has")
    code, told = audited()
    assert code == 1
    assert any("the ledger took frozen noise" in failure for failure in told["failures"])


def test_a_model_or_a_distance_without_an_example_is_named():
    assert examples.missing() == []
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(examples.MODELS, "poisson")
        patch.delitem(examples.DISTANCES, "mmd")
        assert examples.missing() == ["model poisson", "distance mmd"]


def test_a_fault_that_is_not_caught_is_a_failure_too():
    missed = Control(fault="a fault", check="attack", caught=False, told="")
    held = Claim(part="attack", about="a claim", held=True)
    made = Audit(version="1", sampler="s", runs=1, seed=1, seconds=1, false_alarm=0.1, claims=(held,), controls=(missed,))
    assert made.failures == ["not caught: a fault"]
    assert made.plain()["passed"] is False


@pytest.mark.parametrize("words", [("--runs", "999"), ("--runs", "many"), ("--seed", "-1"), ("--fast",), ("file.yaml",)])
def test_options_that_cannot_be_are_refused(tmp_path, words):
    result = dp_dask(tmp_path, "audit", *words)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr


def test_the_users_own_folder_and_ledger_stay_as_they_are(tmp_path, small):
    """Everything happens in a temporary folder, which is gone at the end."""
    made = []
    opened = Ledger.open_dataset
    small.setattr(Ledger, "open_dataset", lambda self, *a, **k: (made.append(self._database.name), opened(self, *a, **k))[1])
    small.chdir(tmp_path)
    small.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    code, _ = audited()
    assert code == 0
    assert made
    assert all(str(tmp_path / "temporary") in name for name in made)
    left = [path.relative_to(tmp_path).parts for path in tmp_path.rglob("*")]
    assert [parts for parts in left if "dask-scratch-space" not in parts] == [("temporary",)]


def test_the_table_names_what_failed(capsys):
    claims = (
        Claim(part="exact", about="a claim", held=False, claimed=1, found=math.e, unit="epsilon", told="broken"),
        Claim(part="exact", about="another", held=True, told="well"),
    )
    tell(Audit(version="1", sampler="s", runs=1, seed=1, seconds=1, false_alarm=0.1, claims=claims, controls=()), as_json=False)
    said = capsys.readouterr().out
    assert "FAILED a claim: broken" in said
    assert "2.718" in said
    assert "held" in said
