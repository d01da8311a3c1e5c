"""The normal-inverse-Wishart prior: its coordinates against scipy's laws, its refusals."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from dp_dask.core.wishart import NormalInverseWishart

PRIOR = NormalInverseWishart(m0=(0.1, -0.2), k0=2.0, psi0=((0.5, 0.1), (0.1, 0.3)), nu0=6.0)


def log_density(m, v):
    mean = stats.multivariate_normal(np.array(PRIOR.m0), v / PRIOR.k0).logpdf(m)
    return mean + stats.invwishart(PRIOR.nu0, np.array(PRIOR.psi0)).logpdf(v)


@pytest.mark.parametrize("chart", ["phi", "centred"])
def test_the_density_of_the_coordinates_is_scipys(chart):
    """Up to one constant: log p(x) = log p(m, V) + log |d(m, V) / dx|, the Jacobian by differences."""

    def phi_of(x):
        return x if chart == "phi" else PRIOR.uncentred(x)

    def theta(x):
        m, v = PRIOR.parameters(phi_of(x[None]))
        return np.concatenate([m[0], v[0][np.tril_indices(2)]])

    phi = PRIOR.rvs(np.random.default_rng(1), 8)
    points = phi if chart == "phi" else PRIOR.centred(phi)
    gaps = []
    for x, here in zip(points, phi, strict=True):
        jacobian = np.array([(theta(x + h) - theta(x - h)) / 2e-6 for h in 1e-6 * np.eye(5)])
        m, v = PRIOR.parameters(here[None])
        volume = here[2:4].sum() if chart == "centred" else 0.0
        gaps.append(PRIOR.log_density(here[None])[0] + volume - log_density(m[0], v[0]) - np.linalg.slogdet(jacobian)[1])
    assert np.ptp(gaps) < 1e-6


def test_charts_are_inverse_to_each_other():
    phi = PRIOR.rvs(np.random.default_rng(2), 50)
    np.testing.assert_allclose(PRIOR.uncentred(PRIOR.centred(phi)), phi, atol=1e-12)
    np.testing.assert_allclose(PRIOR.centred(PRIOR.uncentred(phi)), phi, atol=1e-12)


def test_draws_have_the_laws_they_should():
    """E[V] = psi0 / (nu0 - c - 1), Cov(m) = E[V] / k0, V_11 inverse gamma; KS of 20,000 at 1e-5 is 0.0175."""
    m, v = PRIOR.parameters(PRIOR.rvs(np.random.default_rng(3), 20_000))
    expected = np.array(PRIOR.psi0) / 3
    np.testing.assert_allclose(v.mean(axis=0), expected, rtol=0.05)
    np.testing.assert_allclose(np.cov(m.T), expected / PRIOR.k0, atol=0.006)
    variance = stats.invgamma((PRIOR.nu0 - 1) / 2, scale=0.25)
    assert stats.kstest(v[:, 0, 0], variance.cdf).statistic < 0.0175


def test_a_prior_by_scales_says_what_it_promises():
    prior = NormalInverseWishart.scaled(3, mean_scale=0.5, sd_scale=0.2, nu0=12)
    m, v = prior.parameters(prior.rvs(np.random.default_rng(4), 50_000))
    np.testing.assert_allclose(v.mean(axis=0), 0.04 * np.eye(3), atol=0.001)
    np.testing.assert_allclose(m.std(axis=0), 0.5, rtol=0.03)


@pytest.mark.filterwarnings("error")
def test_extreme_coordinates_give_finite_parameters():
    phi = np.zeros((4, 5))
    phi[:, 2] = [-800, -20, 20, 800]
    m, root = PRIOR.mean_and_root(phi)
    assert np.isfinite(m).all()
    assert np.isfinite(root).all()
    assert np.isfinite(PRIOR.log_density(phi)).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k0": 0.0}, "k0 is 0.0"),
        ({"nu0": 1.0}, "above 1"),
        ({"m0": (0.0, float("nan"))}, "m0"),
        ({"psi0": ((1.0, 2.0), (2.0, 1.0))}, "positive definite"),
        ({"psi0": ((1.0, 0.5), (0.0, 1.0))}, "symmetric"),
        ({"psi0": ((1.0,),)}, "2 x 2"),
    ],
)
def test_an_improper_prior_is_refused(change, message):
    wanted = {"m0": (0.0, 0.0), "k0": 1.0, "psi0": ((1.0, 0.0), (0.0, 1.0)), "nu0": 3.0} | change
    with pytest.raises(ValueError, match=message):
        NormalInverseWishart(**wanted)


def test_a_covariance_without_a_mean_cannot_be_given_one():
    with pytest.raises(ValueError, match="above 3"):
        NormalInverseWishart.scaled(2, mean_scale=1, sd_scale=1, nu0=3)
