"""Dirichlet draws against beta marginals, tiny concentrations included. Eighteen p-values above 1e-6 at fixed seeds."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from dp_dask.core.dirichlet import dirichlet
from dp_dask.errors import InferenceError


@pytest.mark.parametrize("alpha", [[0.05, 1.5, 0.3], [40.0, 2.0, 900.0], [1e-2, 1e-2, 2e-2]])
def test_each_probability_has_its_beta_law(alpha):
    alpha = np.array(alpha)
    p = dirichlet(np.random.default_rng(1), np.tile(alpha, (20_000, 1)))
    np.testing.assert_allclose(p.sum(axis=1), 1)
    for k in range(3):
        law = stats.beta(alpha[k], alpha.sum() - alpha[k])
        low = p[p[:, k] < 0.999, k]  # much of a sparse law lies within a rounding error of 1
        assert stats.kstest(low, lambda x, law=law: law.cdf(x) / law.cdf(0.999)).pvalue > 1e-6
        assert stats.binomtest(len(low), len(p), law.cdf(0.999)).pvalue > 1e-6


def test_tiny_concentrations_give_one_cell_everything():
    alpha = np.array([1e-300, 3e-300, 1e-300])
    p = dirichlet(np.random.default_rng(2), np.tile(alpha, (10_000, 1)))
    assert (p.max(axis=1) == 1).all()
    share = p[:, 1].mean()
    assert share == pytest.approx(0.6, abs=5 * np.sqrt(0.24 / 10_000))


def test_shapes_and_huge_concentrations():
    p = dirichlet(np.random.default_rng(3), np.full((2, 4, 5), 1e300))
    np.testing.assert_allclose(p, 0.2)
    with pytest.raises(InferenceError, match="finite"):
        dirichlet(np.random.default_rng(3), np.array([1.0, np.nan]))
    with pytest.raises(InferenceError, match="at least"):
        dirichlet(np.random.default_rng(3), np.array([1.0, 0.0]))
