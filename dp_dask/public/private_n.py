"""A private number of records: the values that prior and noisy count leave any weight."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dp_dask.public.noise_law import Gaussian
from dp_dask.public.observation import Counted

__all__ = ["private_counts", "window"]

Floats = NDArray[np.float64]


def private_counts(observation: Counted) -> tuple[Floats, Floats]:
    """Return the n that are left any weight, consecutive, and the log of prior times noise density of each, up to a constant."""
    weight, count, noise = observation.statistic.count_weight, observation.count or 0, observation.noise
    log_g = 0.0 if observation.expected_n is None else -math.log1p(1 / observation.expected_n)
    centre = count / weight
    if isinstance(noise, Gaussian):  # its product with the geometric prior is normal about another mean
        centre += (noise.scale / weight) ** 2 * log_g
    elif -log_g * noise.scale >= weight:  # the prior falls faster than the noise rises: 0 is likeliest
        centre = 0.0
    n = window(centre, noise.reach / weight, math.inf)
    return n, noise.decay(count - weight * n, count - weight * n[0]) + (n - n[0]) * log_g


def window(centre: float, reach: float, largest: float) -> Floats:
    """Return the whole numbers from 0 to ``largest`` that are near the centre, or near the end that is nearest to it."""
    nearest = min(max(centre, 0.0), largest)
    return np.arange(max(math.floor(nearest - reach), 0), min(math.ceil(nearest + reach), largest) + 1, dtype=np.float64)
