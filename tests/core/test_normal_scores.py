"""Normal scores: every kind of prior is standard normal in them, against scipy's quantiles."""

from __future__ import annotations

import numpy as np
import pytest
from prior_examples import EXAMPLES, IDS
from scipy import special

from dp_dask.core.normal_scores import FURTHEST, NormalScores
from dp_dask.core.prior_kinds import make

Z = np.linspace(-5, 5, 101)


@pytest.mark.parametrize(("kind", "numbers", "truth"), EXAMPLES, ids=IDS)
def test_parameters_are_scipys_quantiles_and_densities_normal(kind, numbers, truth):
    scores = NormalScores(make(kind, **numbers))
    theta = scores.parameter(Z)
    found = np.where(Z < 0, special.ndtri(truth.cdf(theta)), -special.ndtri(truth.sf(theta)))
    np.testing.assert_allclose(found, Z, atol=0.005)
    np.testing.assert_allclose(scores.log_density(Z), -0.5 * Z**2 - 0.5 * np.log(2 * np.pi), atol=0.02)
    inner = np.abs(Z) < 4
    np.testing.assert_allclose(scores.scores(theta[inner]), Z[inner], atol=1e-3)


@pytest.mark.parametrize(("kind", "numbers", "truth"), EXAMPLES, ids=IDS)
def test_the_density_of_the_scores_integrates_to_one(kind, numbers, truth):  # noqa: ARG001
    z = np.linspace(-FURTHEST, FURTHEST, 20_001)
    density = np.exp(NormalScores(make(kind, **numbers)).log_density(z))
    assert np.trapezoid(density, z) == pytest.approx(1, abs=1e-6)


def test_what_lies_beyond_the_support_is_furthest_out():
    scores = NormalScores(make("uniform", lower=1, upper=2))
    np.testing.assert_allclose(scores.scores(np.array([-3.0, 1.5, 9.0])), [-FURTHEST, 0, FURTHEST], atol=0.01)
    assert np.all(np.isfinite(scores.log_density(np.array([-FURTHEST, FURTHEST]))))
    assert scores.parameter(np.array([-99.0, 99.0])) == pytest.approx([1, 2])
