"""The export to pyABC: its model, prior and kernel are ours, and ABC-SMC with them finds the exact posterior."""

from __future__ import annotations

from dataclasses import replace

import cloudpickle
import numpy as np
import pytest
from scipy import integrate, stats
from toy import PRIOR, Broken, Visits, one_hot, release

from dp_dask.core.continuous import Continuous
from dp_dask.core.joint_priors import Independent
from dp_dask.core.plugins import load
from dp_dask.core.priors import Beta, Gamma, Normal
from dp_dask.errors import InferenceError
from dp_dask.public.noise_law import Gaussian, Laplace
from dp_dask.public.simulated import SimulatedObservation
from dp_dask.public.simulated_infer import infer_simulated
from dp_dask.public.tempering import Effort
from dp_dask.public.unknowns import unknowns

pyabc = pytest.importorskip("pyabc", reason="pyabc is not installed: pip install 'dp-dask[pyabc]'")

from dp_dask.pyabc_export import Coordinates, export  # noqa: E402  (needs pyabc)

GAMMA = Gamma(2.0, 0.01)


def visits(law=Laplace, scale=25.0, y=(120, 100)):
    facts = {"n": None, "count": None, "expected_n": None}
    return SimulatedObservation(simulator=Visits(), statistic=one_hot(2), scale=scale, y=y, law=law, **facts)


def exact(like):
    """Mean, sd and kurtosis of the rate, of which each sum is Poisson with half, by summing over the sums and a grid."""
    rate, s = np.linspace(1e-3, 1200, 2400), np.arange(900)
    density = stats.gamma(GAMMA.alpha, scale=1 / GAMMA.beta).pdf(rate)
    for y in like.y:
        density *= stats.poisson(rate[:, None] / 2).pmf(s) @ np.exp(like.noise.log_pmf(s - y))
    density /= density.sum()
    mean = density @ rate
    variance = density @ (rate - mean) ** 2
    return mean, np.sqrt(variance), density @ (rate - mean) ** 4 / variance**2


def errors(weight, rate, reference):
    """The errors of mean and sd in standard errors of so many weighted draws."""
    mean, sd, kurtosis = reference
    drawn = weight @ rate
    size = 1 / (weight**2).sum()
    spread = np.sqrt(weight @ (rate - drawn) ** 2)
    return np.array([(drawn - mean) / sd, (spread / sd - 1) * 2 / np.sqrt(kurtosis - 1)]) * np.sqrt(size)


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("law", [Laplace, Gaussian])
def test_abc_smc_finds_the_exact_posterior_and_ours(law, tmp_path):
    """At 4.5 standard errors each of the eight comparisons fails once in 1.5e5; a noise 0.7 or 1.3 times as wide is seen."""
    like = visits(law)
    exported = export(like, GAMMA)
    np.random.seed(1)  # noqa: NPY002  (pyABC's stream)
    abc = exported.abcsmc(1000, sampler=pyabc.SingleCoreSampler())
    abc.new(pyabc.create_sqlite_db_id(str(tmp_path)), exported.observed)
    found = exported.posterior(abc.run(max_nr_populations=2))
    rate, weight = found["rate"].to_numpy(), found["w"].to_numpy()
    assert np.abs(errors(weight, rate, exact(like))).max() < 4.5
    for factor in (0.7, 1.3):
        assert np.abs(errors(weight, rate, exact(replace(like, scale=factor * like.scale)))).max() > 4.5
    ours = infer_simulated(np.random.default_rng(1), like, GAMMA, 4000, "tempered", effort=Effort(per_generation=3000))
    draws = ours.draws.ravel()
    assert np.abs(errors(np.full(1000, 1 / 1000), draws[:: len(draws) // 1000][:1000], exact(like))).max() < 4.5


@pytest.mark.parametrize("law", [Laplace, Gaussian])
def test_the_kernel_is_the_law_of_the_noise(law):
    like = visits(law)
    exported = export(like, GAMMA)
    kernel = exported.distance_function
    kernel.initialize(0, None, exported.observed, 0)
    for sums in ([120.0, 100.0], [0.0, 40.0], [119.0, 113.0]):
        expected = like.noise.decay(np.array(like.y) - np.array(sums)).sum()
        assert kernel({"sums": np.array(sums)}, exported.observed) - kernel.pdf_max == pytest.approx(expected, abs=1e-12)


def test_the_model_is_the_simulator_and_travels():
    like = release(np.random.default_rng(1), n=50, scale=2.0)
    exported = cloudpickle.loads(cloudpickle.dumps(export(like, PRIOR)))
    np.random.seed(1)  # noqa: NPY002
    particle = exported.parameter_priors.rvs()
    sums = [exported.models(particle)["sums"] for _ in range(400)]
    assert all(each.sum() == 50 for each in sums)
    p = exported.models.theta(np.array([list(particle.values())]))[0][0]
    assert np.abs(np.mean(sums, axis=0) - 50 * p).max() < 5 * np.sqrt(50 / 4 / 400)
    assert len({tuple(each) for each in sums}) > 1
    failing = export(replace(like, simulator=Broken("raise")), PRIOR)
    bad = dict(zip(failing.models.names, PRIOR.coordinate(np.array([[0.6, 0.1, 0.1, 0.1, 0.1]]))[0], strict=True))
    assert np.isinf(failing.models(bad)["sums"]).all()
    failing.distance_function.initialize(0, None, failing.observed, 0)
    assert failing.distance_function(failing.models(bad), failing.observed) == -np.inf


@pytest.mark.parametrize("prior", [Beta(2.0, 3.0), GAMMA, Normal(1.0, 2.0), Continuous(stats.lognorm(0.5, scale=2.0))])
def test_a_prior_keeps_its_density(prior):
    """The density of the parameter is that of the coordinate times its slope."""
    like = replace(visits(), simulator=Visits())
    marginal = export(like, prior).parameter_priors
    assert isinstance(marginal, pyabc.Distribution)
    for v in (-0.6, 0.3):
        step = 1e-5
        low, middle, high = (float(prior.parameter(np.array([v + d]))[0]) for d in (-step, 0, step))
        expected = float(np.exp(prior.log_density(np.array([v])))[0]) * 2 * step / (high - low)
        assert marginal.pdf({"rate": middle}) == pytest.approx(expected, rel=1e-6)


def test_independent_priors_are_named_by_parameter():
    two = SimulatedObservation(
        simulator=load("dp_dask.simulators", "sir")(200, 3, 6), statistic=replace(one_hot(), column="week"), n=None, scale=2.0,
        y=(0,) * 5, count=None, expected_n=None,
    )  # fmt: skip
    made = export(two, Independent((Gamma(2.0, 1.0), Gamma(3.0, 0.5)))).parameter_priors
    assert tuple(made) == two.simulator.parameters
    assert made[two.simulator.parameters[1]].mean() == pytest.approx(6.0)


def test_joint_priors_and_a_private_n_become_coordinates():
    like = release(np.random.default_rng(1), n=25, scale=3.0, truth=np.array([0.3, 0.7]))
    like = replace(like, n=None, count=51, expected_n=40.0, statistic=one_hot(2, count_weight=2))
    prior = replace(PRIOR, alpha=(1.0, 2.0))
    made = export(like, prior)
    assert isinstance(made.parameter_priors, Coordinates)
    assert made.models.names == ("v[1]", "v[2]")
    density = unknowns(like, prior).log_density(np.array([[0.4, 26.5]]))[0]
    assert made.parameter_priors.pdf({"v[1]": 0.4, "v[2]": 26.5}) == pytest.approx(np.exp(density))
    theta, n = made.models.theta(np.array([[0.0, 26.5]]))
    assert n.tolist() == [26]
    assert theta.tolist() == [[0.5, 0.5]]
    assert made.models({"v[1]": 0.4, "v[2]": 26.5})["sums"].sum() == 26
    total, _ = integrate.quad(lambda v: made.parameter_priors.pdf({"v[1]": v, "v[2]": 26.5}), -30, 30)
    window = unknowns(like, prior).law_of_n
    assert total == pytest.approx(float(np.exp(window.log_density(np.array([26.5]))[0])), rel=1e-6)


def test_a_distribution_of_the_users_own_is_not_taken_for_scipys():
    class Mine(stats.rv_continuous):
        def _pdf(self, x):
            return 2 * x

    prior = Continuous(Mine(a=0, b=1, name="norm")())
    assert isinstance(export(visits(), prior).parameter_priors, Coordinates)


def test_an_impossible_release_is_refused():
    like = release(np.random.default_rng(1), n=50, scale=2.0)
    with pytest.raises(InferenceError):
        export(replace(like, y=(10_000,) * 5), PRIOR)
