"""Noise laws: each member against its sum over whole numbers or its integral, draws against the law."""

from __future__ import annotations

import math

import numpy as np
import pytest
from histograms import chi_square_p
from scipy import integrate, stats

from dp_dask.public.noise_law import Gaussian, Laplace

SCALES = [0.05, 0.3, 0.39, 0.41, 0.7, 1.0, 4.9, 5.1, 37.5]
LAWS = pytest.mark.parametrize("law", [Laplace, Gaussian])
ALPHA = 1e-6  # of each of 2 x 4 chi-square tests: below 1e-5 a run


def exact_pmf(law, scale):
    """Whole numbers and their probabilities, by the definition, summed without rounding."""
    reach = math.ceil(120 * scale) + 12
    k = np.arange(-reach, reach + 1)
    p = [math.exp(-abs(j) / scale) if law is Laplace else math.exp(-((j / scale) ** 2) / 2) for j in k.tolist()]
    return k, np.array(p) / math.fsum(p)


@LAWS
@pytest.mark.parametrize("scale", SCALES)
def test_pmf_variance_and_characteristic_function_are_those_of_the_sums(law, scale):
    noise = law(scale)
    k, p = exact_pmf(law, scale)
    likely = p > 1e-250
    np.testing.assert_allclose(np.exp(noise.log_pmf(k.astype(float)))[likely], p[likely], rtol=1e-11)
    assert noise.variance == pytest.approx(math.fsum(k**2 * p), rel=1e-12, abs=1e-30)
    w = np.array([0.0, 1e-3, 0.3, 1.7, 3.1, math.pi, 4.0, -2.5])
    wanted = [math.fsum(p * np.cos(k * x)) for x in w]
    np.testing.assert_allclose(noise.characteristic(w), wanted, rtol=1e-12, atol=1e-14)


@LAWS
@pytest.mark.parametrize("scale", SCALES)
def test_the_tilted_transform_is_that_of_the_sum(law, scale):
    noise = law(scale)
    t = np.array([-0.8, 0.0, 0.5]) / scale if law is Laplace else np.array([-9.0, 0.0, 0.7, 30.0]) / scale
    w = np.array([0.0, 0.4, 2.0, 3.1])
    log_scale, ratio = noise.transform(t, w)
    reach = math.ceil(400 * scale) + 12
    k = np.arange(-reach, reach + 1)
    log_p = noise.log_pmf(k.astype(float))
    for i, tilt in enumerate(t):
        weights = np.exp(log_p + tilt * k - log_scale[i])
        wanted = (weights[:, None] * np.exp(1j * k[:, None] * w)).sum(axis=0)
        np.testing.assert_allclose(ratio[i], wanted, rtol=1e-9, atol=1e-10 * abs(wanted[0]))


@LAWS
def test_decay_keeps_its_digits_far_out(law):
    noise = law(3.0)
    far = 1e9
    slope = -1 / 3 if law is Laplace else -(2 * far + 1) / 18
    assert float(noise.decay(far + 1, far)) == pytest.approx(slope, rel=1e-12)
    assert math.exp(noise.decay(noise.reach)) == pytest.approx(math.exp(-40))


@LAWS
@pytest.mark.parametrize("sd", [0.2, 5.0, 300.0])
def test_density_and_cdf_with_a_normal_part_are_those_of_the_convolution(law, sd):
    noise = law(7.0)
    density = stats.laplace(scale=7.0).pdf if law is Laplace else stats.norm(scale=7.0).pdf
    for z in (-30.0, 0.0, 4.0):
        reach = 12 * min(sd, 7.0 * 5)
        centre = 0.0 if sd < 7 else z
        wanted = integrate.quad(
            lambda x, z=z: stats.norm.pdf(z - x, scale=sd) * density(x),
            -400,
            400,
            points=sorted({z, 0.0, centre - reach}),
            limit=900,
        )[0]
        assert math.exp(noise.log_density(np.array(z), np.array(sd))) == pytest.approx(wanted, rel=1e-6)
        slope = (noise.cdf(np.array(z + 1e-4), np.array(sd)) - noise.cdf(np.array(z - 1e-4), np.array(sd))) / 2e-4
        assert float(slope) == pytest.approx(wanted, rel=1e-5)


@LAWS
@pytest.mark.parametrize("scale", [0.3, 1.0, 6.5, 1000.0])
def test_draws_have_the_law_and_those_of_another_scale_do_not(law, scale):
    rng = np.random.default_rng(1)
    reach = math.ceil((40 if law is Laplace else 9) * scale) + 3
    k = np.arange(-reach, reach + 1)
    p = np.exp(law(scale).log_pmf(k.astype(float)))

    def p_value(draws):
        return chi_square_p(np.bincount(np.clip(draws, -reach, reach) + reach, minlength=len(k)), p / p.sum())

    assert p_value(law(scale).draw(rng, 60_000)) > ALPHA
    assert p_value(law(0.7 * scale).draw(rng, 60_000)) < ALPHA
    assert p_value(law(1.3 * scale).draw(rng, 60_000)) < ALPHA
    assert np.ndim(law(scale).draw(rng)) == 0
