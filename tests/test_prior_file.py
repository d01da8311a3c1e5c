"""Priors in a pipeline file and a release: every form is read, every fault is told, and what is written is read back."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from cases import BY_NAME
from prior_examples import EXAMPLES, IDS

from dp_dask.core import plugins
from dp_dask.core.joint_priors import Independent, NormalInverseGamma
from dp_dask.core.pooled import Pooled
from dp_dask.core.prior_kinds import make
from dp_dask.core.priors import Beta, Gamma, Normal
from dp_dask.entries.build import Faults
from dp_dask.entries.prior import make_prior, plain_prior
from dp_dask.entries.strict_yaml import parse

EXPONENTIAL, BERNOULLI, NORMAL = (BY_NAME[name].model for name in ("exponential", "bernoulli", "normal"))
SHAPE_RATE = SimpleNamespace(parameters=("shape", "rate"), domains=("positive", "positive"), prior_type=Independent)
MU_SIGMA = SimpleNamespace(parameters=("mu", "sigma"), domains=("real", "positive"), prior_type=NormalInverseGamma)
INDEPENDENT = Independent((make("normal", mu=0, sigma=10), make("half_cauchy", beta=2)))


def read(model, text):
    faults = Faults(Path())
    return make_prior(model, parse(text, "p"), "prior", faults), [str(problem) for problem in faults.problems]


@pytest.mark.parametrize(
    ("model", "text", "wanted"),
    [
        (EXPONENTIAL, "{alpha: 1, beta: 0.25}", Gamma(1, 0.25)),
        (EXPONENTIAL, "{kind: gamma, alpha: 1, beta: 0.25}", Gamma(1, 0.25)),
        (EXPONENTIAL, "{kind: lognormal, mu: 0, sigma: 1}", make("lognormal", mu=0, sigma=1)),
        (EXPONENTIAL, "{kind: truncated_normal, mu: 1, sigma: 2, lower: 0}", make("truncated_normal", mu=1, sigma=2, lower=0)),
        (EXPONENTIAL, "{kind: beta, alpha: 1, beta: 2}", Beta(1, 2)),
        (EXPONENTIAL, "{kind: scipy, name: invgauss, mu: 0.5}", make("scipy", name="invgauss", mu=0.5)),
        (BERNOULLI, "{alpha: 1, beta: 1}", Beta(1, 1)),
        (BERNOULLI, "{kind: uniform, lower: 0.2, upper: 0.4}", make("uniform", lower=0.2, upper=0.4)),
        (NORMAL, "{mu: 0, sigma: 1}", Normal(0, 1)),
        (NORMAL, "{kind: student_t, nu: 2, mu: 0, sigma: 1}", make("student_t", nu=2, mu=0, sigma=1)),
        (MU_SIGMA, "{mu: 0, kappa: 1, alpha: 2, beta: 3}", NormalInverseGamma(0, 1, 2, 3)),
        (MU_SIGMA, "{mu: {kind: normal, mu: 0, sigma: 10}, sigma: {kind: half_cauchy, beta: 2}}", INDEPENDENT),
        (MU_SIGMA, "{sigma: {kind: half_cauchy, beta: 2}, mu: {kind: normal, mu: 0, sigma: 10}}", INDEPENDENT),
    ],
)
def test_every_form_is_read_and_written_back(model, text, wanted):
    prior, faults = read(model, text)
    assert faults == []
    assert prior == wanted
    told = json.loads(json.dumps(plain_prior(model, prior), allow_nan=False))
    again = Faults(Path())
    assert make_prior(model, told, "prior", again) == wanted
    assert again.problems == []


POOLED = "{kind: pooled, mean: {kind: normal, mu: 1, sigma: 2}, sd: {kind: half_normal, sigma: 0.5}}"


@pytest.mark.parametrize(("model", "domain"), [(EXPONENTIAL, "positive"), (BERNOULLI, "probability"), (NORMAL, "real")])
def test_a_prior_that_groups_share_is_read_and_written_back(model, domain):
    faults = Faults(Path())
    prior = make_prior(model, parse(POOLED, "p"), "prior", faults, is_grouped=True)
    assert prior == Pooled(domain, Normal(1, 2), make("half_normal", sigma=0.5))
    assert str(prior) == "pooled(mean=Normal(mu=1.0, sigma=2.0), sd=half_normal(sigma=0.5))"
    told = json.loads(json.dumps(plain_prior(model, prior), allow_nan=False))
    assert make_prior(model, told, "prior", faults, is_grouped=True) == prior
    assert faults.problems == []


POOLED_FAULTS = [
    ("{kind: pooled, mean: {kind: normal, mu: 0, sigma: 1}}", "prior.sd: is missing; it has no default, write it down"),
    ("{kind: pooled, sd: {kind: half_normal, sigma: 1}}", "prior.mean: is missing; it has no default, write it down"),
    (POOLED.replace("sd:", "spread:"), "prior.spread: unknown key; known keys: kind, mean, sd"),
    (
        POOLED.replace("half_normal", "half_normol"),
        "prior.sd.kind: unknown kind of prior 'half_normol'; did you mean 'half_normal'?",
    ),
    (POOLED.replace("sigma: 0.5", "scale: 0.5"), "prior.sd.scale: half_normal takes sigma"),
    (POOLED.replace("sigma: 0.5", "sigma: 0"), "prior.sd: sigma is 0.0; it must be a positive finite number"),
    (
        POOLED.replace("half_normal,", "normal, mu: 0,"),
        "prior.sd: prior outside the support: sd lies in (0, inf), Normal(mu=0.0, sigma=0.5) in (-inf, inf)",
    ),
    (POOLED.replace("half_normal, sigma", "half_cauchy, beta"), "give mean and sd priors with lighter tails"),
    ("{kind: pooled, mean: 0, sd: 1}", "prior.mean: is empty; give {kind: .., ..}"),
]


@pytest.mark.parametrize(("text", "message"), POOLED_FAULTS, ids=[text for text, _ in POOLED_FAULTS])
def test_every_fault_of_a_shared_prior_is_told_once(text, message):
    faults = Faults(Path())
    assert make_prior(EXPONENTIAL, parse(text, "p"), "prior", faults, is_grouped=True) is None
    told = [str(fault) for fault in faults.problems if message in str(fault)]
    assert len(told) == 1, faults


def test_a_prior_that_groups_share_takes_groups_and_one_parameter():
    prior, faults = read(EXPONENTIAL, POOLED)
    assert prior is None
    assert faults == [
        "prior: kind: pooled is a prior that groups share, and this measurement has none: give group_by or another prior"
    ]
    again = Faults(Path())
    assert make_prior(MU_SIGMA, parse(POOLED, "p"), "prior", again, is_grouped=True) is None
    assert [str(fault) for fault in again.problems] == ["prior: kind: pooled serves models of one parameter"]


@pytest.mark.parametrize(("kind", "numbers", "truth"), EXAMPLES, ids=IDS)
def test_every_kind_is_read_back_from_what_is_written(kind, numbers, truth):  # noqa: ARG001
    prior = make(kind, **numbers)
    model = SimpleNamespace(parameters=("theta",), domains=("real",), prior_type=Beta)
    joint = SimpleNamespace(parameters=("a", "b"), domains=("real", "real"), prior_type=Independent)
    for one, made in ((model, prior), (joint, Independent((prior, Normal(0, 1))))):
        told = json.loads(json.dumps(plain_prior(one, made), allow_nan=False))
        faults = Faults(Path())
        assert make_prior(one, told, "prior", faults) == made
        assert faults.problems == []


FAULTS = [
    (
        EXPONENTIAL,
        "{kind: lognormall, mu: 0, sigma: 1}",
        "prior.kind: unknown kind of prior 'lognormall'; did you mean 'lognormal'?",
    ),
    (EXPONENTIAL, "{kind: 3}", "prior.kind: is 3; give {kind: .., ..} with one of beta, cauchy"),
    (EXPONENTIAL, "{kind: lognormal, mu: 0}", "prior.sigma: is missing; it has no default, write it down"),
    (EXPONENTIAL, "{kind: lognormal, mu: 0, sigma: 1, nu: 3}", "prior.nu: unknown key; known keys: kind, mu, sigma"),
    (EXPONENTIAL, "{kind: lognormal, mu: zero, sigma: 1}", "prior.mu: is 'zero'; give a number"),
    (EXPONENTIAL, "{kind: uniform, lower: 0, upper: .inf}", "prior: upper is inf; it must be a finite number (an improper prior"),
    (EXPONENTIAL, "{kind: scipy, name: poisson}", "prior: 'poisson' is no continuous distribution of scipy.stats"),
    (EXPONENTIAL, "{kind: scipy, name: lognorm, s: wide}", "prior.s: is 'wide'; give a number"),
    (EXPONENTIAL, "5", "prior: is 5; give a mapping with the keys kind, alpha, beta"),
    (EXPONENTIAL, "{mu: 0, sigma: 1}", "prior.mu: unknown key; known keys: kind, alpha, beta"),
    (
        EXPONENTIAL,
        "{alpha: 1, scale: 4}",
        "prior.scale: gamma takes beta, the rate = 1 / scale: 0.25; beta 4 gives mean 0.25 and sd 0.25, beta 0.25 gives mean 4",
    ),
    (EXPONENTIAL, "{kind: exponential, mean: 4}", "prior.mean: exponential takes lam, the rate = 1 / mean: 0.25"),
    (NORMAL, "{mu: 0, tau: 4}", "prior.tau: normal takes sigma, the standard deviation = 1 / sqrt(tau): 0.5"),
    (NORMAL, "{mu: 0, sd: 4}", "prior.sd: normal takes sigma, the standard deviation; write sigma: 4"),
    (
        EXPONENTIAL,
        "{kind: normal, mu: 5, sigma: 1}",
        "prior: prior outside the support: rate lies in (0, inf), Normal(mu=5.0, sigma=1.0) in (-inf, inf), with mean 5 and sd 1",
    ),
    (
        BERNOULLI,
        "{kind: gamma, alpha: 1, beta: 9}",
        "prior: prior outside the support: p lies in (0, 1), Gamma(alpha=1.0, beta=9.0)",
    ),
    (SHAPE_RATE, "{alpha: 1, beta: 1}", "give a prior for each parameter, {shape: {kind: .., ..}, rate: {kind: .., ..}}"),
    (SHAPE_RATE, "{}", "give a prior for each parameter, {shape: {kind: .., ..}, rate: {kind: .., ..}}"),
    (SHAPE_RATE, "wide", "give a prior for each parameter, {shape: {kind: .., ..}, rate: {kind: .., ..}}"),
    (SHAPE_RATE, "{shape: {kind: gamma, alpha: 1, beta: 1}}", "prior.rate: is missing"),
    (
        SHAPE_RATE,
        "{shape: {kind: gamma, alpha: 1, beta: 1}, rate: {alpha: 1, beta: 1}}",
        "prior.rate.kind: is empty; give {kind: .., ..}",
    ),
    (
        SHAPE_RATE,
        "{shape: {kind: gamma, alpha: 1, beta: 1}, rate: {kind: cauchy, alpha: 0, beta: 1}}",
        (
            "prior.rate: prior outside the support: rate lies in (0, inf), cauchy(alpha=0.0, beta=1.0) in (-inf, inf), "
            "with no mean and infinite sd"
        ),
    ),
    (
        SHAPE_RATE,
        "{shape: {kind: gamma, alpha: 1, scale: 1}, rate: {kind: gamma, alpha: 1, beta: 1}}",
        "prior.shape.scale: gamma takes beta",
    ),
    (
        MU_SIGMA,
        "{mu: {kind: normal, mu: 0, sigma: 1}, kappa: 1, alpha: 1, beta: 1}",
        (
            "give a prior for each parameter, {mu: {kind: .., ..}, sigma: {kind: .., ..}}, "
            "or the numbers of NormalInverseGamma, mu, kappa, alpha, beta, not both"
        ),
    ),
    (MU_SIGMA, "{mu: 0, kappa: 1, alpha: 1}", "prior.beta: is missing"),
]


@pytest.mark.parametrize(("model", "text", "message"), FAULTS, ids=[text for _, text, _ in FAULTS])
def test_every_fault_is_told_once(model, text, message):
    prior, faults = read(model, text)
    assert prior is None
    told = [fault for fault in faults if message in fault]
    assert len(told) == 1, faults


def test_every_model_of_numbers_declares_where_its_parameters_lie():
    for name in plugins.names("dp_dask.models"):
        cls = plugins.load("dp_dask.models", name)
        if hasattr(cls, "spacing"):
            assert len(cls.domains) == len(cls.parameters), name
            assert set(cls.domains) <= {"real", "positive", "probability"}, name


def test_every_form_of_the_file_fits_the_schema():
    from dp_dask.schema import schema

    made = schema()
    forms = made["properties"]["measurements"]["additionalProperties"]["oneOf"]
    models = {m["properties"]["model"]["const"]: m for m in forms if "model" in m["properties"]}
    forms = models["exponential"]["properties"]["prior"]["oneOf"]
    assert forms[0]["required"] == ["alpha", "beta"]
    assert forms[1] == {"$ref": "#/$defs/prior"}
    assert forms[2]["required"] == ["kind", "mean", "sd"]
    kinds = {form["properties"]["kind"]["const"]: form for form in made["$defs"]["prior"]["oneOf"]}
    for kind, numbers, _ in EXAMPLES:
        form = kinds[kind]
        assert set(form["required"]) <= {"kind", *numbers}
        assert kind == "scipy" or set(numbers) <= set(form["properties"])
    assert json.loads(json.dumps(made, allow_nan=False)) == made


def test_independent_priors_are_in_the_order_of_the_parameters():
    prior, _ = read(MU_SIGMA, "{sigma: {kind: uniform, lower: 1, upper: 2}, mu: {kind: uniform, lower: -2, upper: -1}}")
    draws = prior.rvs(np.random.default_rng(1), 50)
    assert np.all(draws[:, 0] < 0)
    assert np.all(draws[:, 1] > 0)
    np.testing.assert_allclose(prior.mean, [-1.5, 1.5])
