"""Automatic differentiation of a user's exponential family: closed forms, quadrature, what it is held against, refusals."""

from __future__ import annotations

import importlib.util
import math
import sys
from dataclasses import replace
from pathlib import Path

import autograd.numpy as anp
import autograd.scipy.special as asp
import autograd.scipy.stats.norm as anorm
import numpy as np
import pytest
from cases import BY_NAME
from scipy import integrate, special, stats

from dp_dask.core.bounds import Bounds, Outside
from dp_dask.core.priors import Gamma, Normal
from dp_dask.core.privacy import Neighbours
from dp_dask.entries.build import Faults
from dp_dask.entries.measurement import Privacy, make_statistic
from dp_dask.entries.model import make_model
from dp_dask.public.infer import infer
from dp_dask.public.observation import Observation
from dp_dask.public.verify import verify
from dp_dask.user_family import wrap

THETA = np.array([0.3, 1.0, 2.5])


class Exponential:
    parameters, domains, support = ("rate",), ("positive",), (0, np.inf)

    def cdf(self, x, rate):
        return -anp.expm1(-rate * anp.maximum(x, 0))

    def statistic(self, x):
        return x

    def natural_parameter(self, rate):
        return -rate

    def log_partition(self, eta):
        return -anp.log(-eta)

    def log_base_density(self, x):
        return np.zeros_like(x)


class GammaThree(Exponential):
    def cdf(self, x, rate):
        return asp.gammainc(3.0, rate * anp.maximum(x, 0))

    def log_partition(self, eta):
        return -3 * anp.log(-eta)

    def log_base_density(self, x):
        return 2 * np.log(x) - math.log(2)


class NormalMean(Exponential):
    parameters, domains, support = ("mu",), ("real",), (-np.inf, np.inf)

    def cdf(self, x, mu):
        return anorm.cdf(x - mu)

    def natural_parameter(self, mu):
        return mu

    def log_partition(self, eta):
        return eta**2 / 2

    def log_base_density(self, x):
        return -(x**2) / 2 - math.log(2 * math.pi) / 2


class Poisson(Exponential):
    is_integer = True

    def cdf(self, x, rate):
        return anp.where(x < 0, 0.0, asp.gammaincc(anp.floor(anp.maximum(x, 0)) + 1, rate))

    def natural_parameter(self, rate):
        return anp.log(rate)

    def log_partition(self, eta):
        return anp.exp(eta)

    def log_base_density(self, x):
        return -special.gammaln(x + 1)


def lindley():
    """The class of the pipelines' folder, in numpy alone."""
    spec = importlib.util.spec_from_file_location("lindley", Path(__file__).parent.parent / "pipelines" / "lindley.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ByLogPartition


Lindley = lindley()
DENSITIES = {
    Exponential: lambda x, t: stats.expon.pdf(x, scale=1 / t),
    GammaThree: lambda x, t: stats.gamma.pdf(x, 3, scale=1 / t),
    NormalMean: stats.norm.pdf,
    Poisson: stats.poisson.pmf,
    Lindley: lambda x, t: t**2 / (1 + t) * (1 + x) * np.exp(-t * x),
}
MOMENTS = {  # mean and variance of t over all records
    Exponential: lambda t: (1 / t, 1 / t**2),
    GammaThree: lambda t: (3 / t, 3 / t**2),
    NormalMean: lambda t: (t, np.ones_like(t)),
    Poisson: lambda t: (t, t),
    Lindley: lambda t: ((t + 2) / (t * (t + 1)), (t**2 + 4 * t + 2) / (t * (t + 1)) ** 2),
}
every_family = pytest.mark.parametrize("family", list(DENSITIES), ids=lambda family: family.__name__)


def wrapped(family):
    return wrap(f"here:{family.__name__}", Path(), family())


def like_of(made, bounds=(0.0, 3.0), outside=Outside.CLAMP):
    return make_statistic(made, "x", Bounds(*bounds), outside, Privacy(Neighbours.REPLACE, 200), 1.0)


@every_family
def test_moments_over_all_records_are_the_closed_ones(family):
    p, first, second = wrapped(family).partial_moments(THETA, -math.inf, math.inf, 0.5)
    mean, variance = MOMENTS[family](THETA)
    np.testing.assert_allclose(p, 1, rtol=1e-12)
    np.testing.assert_allclose(first, mean - 0.5, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(second - first**2, variance, rtol=1e-10)


@every_family
@pytest.mark.parametrize("bounds", [(0.0, 3.0), (1.0, 2.0), (0.0, 8.0)])
def test_truncated_moments_are_those_of_quadrature(family, bounds):
    """To 1e-8, up to the fourth; the sums that they replace are off by more than that."""
    made, density = wrapped(family), DENSITIES[family]
    found = made.partial_moments(THETA, *bounds, 0.7, 4)
    rough = made.by_sums(THETA, *bounds, 0.7, 4)
    for i, t in enumerate(THETA):
        for k in range(5):
            if family is Poisson:
                x = np.arange(bounds[0], bounds[1] + 1)
                wanted = float(density(x, t) @ (x - 0.7) ** k)
            else:
                wanted = integrate.quad(lambda x, t=t, k=k: (x - 0.7) ** k * density(x, t), *bounds, epsabs=1e-12)[0]
            assert found[k][i] == pytest.approx(wanted, rel=1e-8, abs=1e-8)
    if family is not Poisson:
        assert np.abs(np.array(found) - np.array(rough)).max() > 1e-7


def test_a_mean_far_beyond_the_bounds_is_left_to_sums():
    """Derivatives would cancel there: a rate of 1e-7 has its mean 1e7 above bounds of width 1."""
    found = wrapped(Exponential).partial_moments(np.array([1e-7, 1.0]), 0.0, 1.0, 0.0, 4)
    for k in range(5):
        assert found[k][0] == pytest.approx(1e-7 / (k + 1), rel=1e-4)


def test_the_posterior_is_that_of_the_family_that_ships():
    case = BY_NAME["exponential"]
    made = wrapped(Exponential)
    own = like_of(made, (0.0063, 0.9222), Outside.TRUNCATE)
    scale = float(own.sensitivity(Neighbours.REPLACE))
    like = Observation(model=made, statistic=own, n=200, scale=scale, y=0, count=None, expected_n=None)
    seen = replace(like, y=round(200 * like.moments(np.array([1.5])).mean[0]))
    one, other = (infer(np.random.default_rng(1), replace(seen, model=m), case.prior, 400).grid for m in (made, case.model))
    assert one.mean == pytest.approx(other.mean, rel=1e-3)
    assert one.sd == pytest.approx(other.sd, rel=1e-3)


@every_family
def test_a_right_family_passes(family):
    made = wrapped(family)
    bounds = (-2.0, 3.0) if family is NormalMean else (0.0, 5.0)
    prior = Normal(0, 1) if family is NormalMean else Gamma(3, 3)
    assert verify(np.random.default_rng(1), made, like_of(made, bounds), prior) == []


def wrong(part):
    class Wrong(Exponential):
        pass

    setattr(Wrong, *part)
    return Wrong


@pytest.mark.parametrize(
    ("part", "messages"),
    [
        (
            ("log_partition", lambda _, eta: -1.1 * anp.log(-eta)),
            ("log_partition or natural_parameter contradicts cdf", "integrate"),
        ),
        (("natural_parameter", lambda _, rate: -2 * rate), ("log_partition or natural_parameter contradicts cdf", "integrate")),
        (("log_partition", lambda _, eta: 0.3 - anp.log(-eta)), ("log_base_density + eta t - log_partition does not integrate",)),
        (("log_partition", lambda _, eta: -anp.log(eta)), ("log_partition does not give one finite number",)),
        (("log_base_density", lambda _, x: 0.3 + 0 * x), ("log_base_density + eta t - log_partition does not integrate",)),
    ],
)
def test_a_part_that_contradicts_the_others_is_named(part, messages):
    made = wrapped(wrong(part))
    found = verify(np.random.default_rng(1), made, like_of(made), Gamma(3, 2))
    for message in messages:
        assert any(message in fault and "rate = " in fault for fault in found), found


def test_a_wrong_cdf_is_named():
    """Records come from a simulator of their own, which the log-partition agrees with."""

    class Wrong(Exponential):
        def cdf(self, x, rate):
            return -anp.expm1(-1.2 * rate * anp.maximum(x, 0))

        def simulate(self, theta, size, rng):
            return rng.exponential(1 / theta[0], size)

    made = wrapped(Wrong)
    found = verify(np.random.default_rng(1), made, like_of(made), Gamma(3, 2))
    assert any("contradict" in fault and "by automatic differentiation" in fault for fault in found), found
    assert any("simulate does not draw from the cdf" in fault for fault in found)


def refusal(tmp_path, monkeypatch, text, name):
    monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / f"{name}.py").write_text(text)
    faults = Faults(tmp_path)
    assert make_model(f"{name}:Family", {}, "m", faults) is None
    return faults.problems[0].message


PLAIN = """
import numpy as np
from scipy import special
class Family:
    parameters, domains, support = ("rate",), ("positive",), (0, np.inf)
    def cdf(self, x, rate):
        return -np.expm1(-rate * np.maximum(x, 0))
    def statistic(self, x):
        return x
    def natural_parameter(self, rate):
        return -rate
"""
UNTRACED = "-np.expm1(-rate * np.maximum(x, 0))", "2 * special.ndtr(rate * x) - 1"
WHOLE = PLAIN + "    def log_partition(self, eta):\n        return -np.log(-eta)\n"


def test_what_cannot_be_differentiated_is_refused_and_not_replaced(tmp_path, monkeypatch):
    assert "missing: log_partition" in refusal(tmp_path, monkeypatch, PLAIN, "half_family")
    message = refusal(tmp_path, monkeypatch, WHOLE.replace(*UNTRACED), "plain_family")
    assert "autograd cannot differentiate cdf (TypeError" in message
    assert "leave log_partition out" in message
    several = WHOLE.replace('("rate",), ("positive",)', '("rate", "other"), ("positive", "real")')
    assert "one parameter and one sum" in refusal(tmp_path, monkeypatch, several, "several_family")


def test_where_autograd_is_missing_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "autograd", None)
    monkeypatch.setitem(sys.modules, "autograd.numpy", None)
    assert "pip install 'dp-dask[autodiff]'" in refusal(tmp_path, monkeypatch, WHOLE, "lonely_family")
