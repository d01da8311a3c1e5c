"""Fourier features: the kernel they stand for, and the discrepancy over all pairs of records as their oracle."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dp_dask.core.fourier import exact_mmd, lattice, lattice_features, lattice_tail, median_bandwidth
from dp_dask.core.simulated import Simulated


@pytest.mark.parametrize(("width", "bandwidth"), [(5.0, 0.6), (5.0, 5.0), (1.0, 0.01), (3e6, 1e5), (1e-6, 1e-6)])
@pytest.mark.parametrize("tolerance", [1e-6, 1e-12])
def test_the_lattice_is_the_gaussian_kernel_and_no_less_than_minus_its_tail(width, bandwidth, tolerance):
    r = np.linspace(-width, width, 4001)
    h, weights = lattice(width, bandwidth, tolerance)
    kernel = weights @ np.cos(np.arange(len(weights))[:, None] * h * r)
    np.testing.assert_allclose(kernel, np.exp(-((r / bandwidth) ** 2) / 2), atol=1.1 * tolerance)
    assert kernel.min() >= -lattice_tail(width, bandwidth, tolerance) - 1e-15
    left_out = np.arange(len(weights), len(weights) + 2000)
    tail = 2 * h * bandwidth / math.sqrt(2 * math.pi) * np.exp(-((left_out * h * bandwidth) ** 2) / 2).sum()
    assert tail <= lattice_tail(width, bandwidth, tolerance) <= 1.5 * tail


@pytest.mark.parametrize("bandwidth", [0.1, 0.6, 3.0])
def test_the_distance_of_mean_features_is_the_discrepancy_over_all_pairs(bandwidth):
    rng = np.random.default_rng(3)
    x, y = rng.uniform(2, 7, 1100), 2 + 5 * rng.beta(2, 3, 700)
    moved = np.subtract(*(lattice_features(each, 2, 5, bandwidth, 1e-13).mean(axis=1) for each in (x, y)))
    exact = exact_mmd(x[:, None], y[:, None], bandwidth)
    assert abs(np.linalg.norm(moved) - exact) <= 1e-10
    assert exact > 0.01
    assert abs(np.linalg.norm(moved[1:]) - exact) <= 1e-10  # j = 0 is the same for all
    assert abs(np.linalg.norm(moved[2:]) - exact) > 1e-4


def test_the_oracle_against_plain_loops():
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=(7, 2)), rng.normal(size=(5, 2))

    def mean_kernel(a, b):
        return np.mean([[math.exp(-sum((p - q) ** 2) / (2 * 0.7**2)) for q in b] for p in a])

    square = mean_kernel(x, x) + mean_kernel(y, y) - 2 * mean_kernel(x, y)
    assert exact_mmd(x, y, 0.7) == pytest.approx(math.sqrt(square), rel=1e-12)


def test_a_bandwidth_is_the_median_distance_between_simulated_records():
    x = np.random.default_rng(5).uniform(0, 1, 600)
    made = median_bandwidth(np.random.default_rng(1), Simulated.of_dense({"x": x.reshape(3, 200)}), ("x",))
    assert made == pytest.approx(np.median([abs(a - b) for i, a in enumerate(x) for b in x[:i]]), rel=1e-12)
    many = Simulated.of_dense({"x": np.random.default_rng(6).uniform(0, 1, (30, 1000))})
    assert median_bandwidth(np.random.default_rng(1), many, ("x",)) == pytest.approx(1 - math.sqrt(0.5), abs=0.03)
    with pytest.raises(ValueError, match="median distance between simulated records is 0; give a bandwidth above 0"):
        median_bandwidth(np.random.default_rng(1), Simulated.of_dense({"x": np.zeros((2, 5))}), ("x",))
