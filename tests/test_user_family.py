"""A family of the user's own: found, held against itself, inferred like one that ships, refused in words."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cases import BY_NAME
from commands import dp_dask
from scipy import stats

from dp_dask.core.bounds import Bounds, Outside
from dp_dask.core.privacy import Neighbours
from dp_dask.entries.build import Faults
from dp_dask.entries.measurement import Privacy, make_statistic
from dp_dask.entries.model import make_model, plain_model
from dp_dask.public.infer import infer
from dp_dask.public.joint import JointObservation
from dp_dask.public.observation import Observation
from dp_dask.public.verify import verify

PIPELINES = Path(__file__).parent.parent / "pipelines"
FAMILIES = """
from dataclasses import dataclass
import numpy as np
from scipy import special

class Exponential:
    parameters, domains, support = ("rate",), ("positive",), (0, np.inf)
    def cdf(self, x, rate):
        return -np.expm1(-rate * np.maximum(x, 0))
    def statistic(self, x):
        return x

class NormalTwo:
    parameters, domains, support = ("mu", "sigma"), ("real", "positive"), (-np.inf, np.inf)
    def cdf(self, x, mu, sigma):
        return special.ndtr((x - mu) / sigma)
    def statistic(self, x):
        return x, x * x

@dataclass(frozen=True)
class Shifted:
    start: float
    parameters, domains = ("rate",), ("positive",)
    @property
    def support(self):
        return (self.start, np.inf)
    def cdf(self, x, rate):
        return -np.expm1(-rate * np.maximum(x - self.start, 0))
    def statistic(self, x):
        return x - self.start

class Falling(Exponential):
    def cdf(self, x, rate):
        return np.exp(-rate * np.maximum(x, 0))

class WrongDensity(Exponential):
    def log_density(self, x, rate):
        return -rate * x

class WrongRecords(Exponential):
    def simulate(self, theta, size, rng):
        return rng.exponential(1.1 / theta[0], size)

class Half:
    parameters = ("a",)

class Raises(Exponential):
    def statistic(self, x):
        raise KeyError("no")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("families")
    (made / "own_families.py").write_text(FAMILIES)
    return made


def model(folder, name, known=None):
    faults = Faults(folder)
    made = make_model(f"own_families:{name}", known or {}, "m", faults)
    assert not faults.problems, faults.problems
    return made


def statistic(made, bounds, outside=Outside.CLAMP):
    return make_statistic(made, "x", Bounds(*bounds), outside, Privacy(Neighbours.REPLACE, 200), 1.0)


def test_a_scalar_family_gives_the_posterior_of_the_one_that_ships(folder):
    case = BY_NAME["exponential"]
    made = model(folder, "Exponential")
    own = statistic(made, (0.0063, 0.9222))
    like = Observation(
        model=made, statistic=own, n=200, scale=own.sensitivity(Neighbours.REPLACE) / 1.0, y=0, count=None, expected_n=None
    )
    theta = np.array([1.5])
    seen = replace(like, y=round(200 * like.moments(theta).mean[0]))
    theirs = replace(seen, model=case.model)
    one, other = (infer(np.random.default_rng(1), each, case.prior, 400).grid for each in (seen, theirs))
    assert one.mean == pytest.approx(other.mean, rel=2e-3)
    assert one.sd == pytest.approx(other.sd, rel=5e-3)


def test_a_family_of_two_parameters_gives_the_posterior_of_the_one_that_ships(folder):
    case = BY_NAME["normal_mu_sigma"]
    made = model(folder, "NormalTwo")
    own = statistic(made, (-9, 9))
    facts = {"n": 200, "scale": float(own.sensitivity(Neighbours.REPLACE)), "count": None, "expected_n": None}
    like = JointObservation(model=made, statistic=own, y=(0, 0), **facts)
    y = tuple(round(200 * value) for value in like.moments(np.array([[0.5, 2.0]])).mean[0])
    draws = [
        infer(np.random.default_rng(1), replace(like, model=each, y=y), case.prior, 8000).draws.reshape(-1, 2)
        for each in (made, case.model)
    ]
    np.testing.assert_allclose(draws[0].mean(axis=0), draws[1].mean(axis=0), atol=0.03)
    np.testing.assert_allclose(draws[0].std(axis=0), draws[1].std(axis=0), rtol=0.05)


def test_records_are_drawn_from_the_cdf(folder):
    rng = np.random.default_rng(1)
    x = model(folder, "Exponential").simulate(0.01, 5000, rng)
    assert stats.kstest(x, "expon", args=(0, 100)).pvalue > 1e-6
    y = model(folder, "NormalTwo").simulate((np.array(3.0), np.array(0.1)), (5000,), rng)
    assert stats.kstest(y, "norm", args=(3, 0.1)).pvalue > 1e-6


def test_known_parameters_go_into_the_release_and_back(folder):
    made = model(folder, "Shifted", {"start": 2.0})
    assert plain_model(made) == {"start": 2.0}
    assert made.support == (2.0, np.inf)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Falling", "cdf falls somewhere"),
        ("WrongDensity", "log_density does not integrate to the cdf's difference"),
        ("WrongRecords", "simulate does not draw from the cdf"),
    ],
)
def test_a_family_that_contradicts_itself_is_found_out(folder, name, message):
    prior = BY_NAME["exponential"].prior
    made = model(folder, name)
    found = verify(np.random.default_rng(1), made, statistic(made, (0.0, 3.0)), prior)
    assert any(message in fault and "rate = " in fault for fault in found)
    right = model(folder, "Exponential")
    assert verify(np.random.default_rng(1), right, statistic(right, (0.0, 3.0)), prior) == []


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("own_families:Nobody", "missing: parameters, support, cdf, statistic"),
        ("own_families:Half", "missing: support, cdf, statistic"),
        ("nowhere.at_all:Family", "cannot be imported"),
        ("own_families:Raises", "its statistic fails inside the support"),
    ],
)
def test_what_is_no_family_is_refused(folder, reference, message):
    faults = Faults(folder)
    assert make_model(reference, {}, "m", faults) is None
    assert message in faults.problems[0].message


def test_a_pipeline_with_a_broken_family_spends_nothing(tmp_path):
    shutil.copytree(PIPELINES, tmp_path / "pipelines")
    file = tmp_path / "pipelines" / "own_family.yaml"
    source = (tmp_path / "pipelines" / "lindley.py").read_text()
    (tmp_path / "pipelines" / "lindley.py").write_text(source.replace("1 - (1 + theta", "1 - 0.9 * (1 + theta"))

    assert dp_dask(tmp_path, "ledger", "init", str(file), "--epsilon", "1").returncode == 0
    done = dp_dask(tmp_path, "run", str(file), "--json")
    assert done.returncode == 2
    assert "cdf is not 0 at the support's start" in json.loads(done.stdout)["problems"][0]["message"]
    assert json.loads(dp_dask(tmp_path, "ledger", "show", str(file), "--json").stdout)["rand-hie-own-family"]["spent"] == "0"
