"""How many records lie inside the bounds, given the noisy counts: the weights with which a sum over that number is taken."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dp_dask.public.joint import JointObservation
from dp_dask.public.noise_law import Gaussian

__all__ = ["inside_counts", "log_weights", "private_counts"]

Floats = NDArray[np.float64]


def inside_counts(observation: JointObservation) -> Floats:
    """Return the numbers m of records inside that the noisy counts leave possible, consecutive."""
    weight, noise = observation.statistic.inside_weight, observation.noise
    largest = observation.n if observation.n is not None else int(private_counts(observation)[0][-1])
    return _window(observation.y[-1] / weight, noise.reach / weight, largest)


def private_counts(observation: JointObservation) -> tuple[Floats, Floats]:
    """Return the n that the noisy count of all leaves possible, consecutive, and the log of prior times noise density of each."""
    weight, count, noise = observation.statistic.count_weight, observation.count or 0, observation.noise
    log_g = 0.0 if observation.expected_n is None else -math.log1p(1 / observation.expected_n)
    centre = count / weight
    if isinstance(noise, Gaussian):  # its product with the geometric prior is normal about another mean
        centre += (noise.scale / weight) ** 2 * log_g
    elif -log_g * noise.scale >= weight:  # the prior falls faster than the noise rises: 0 is likeliest
        centre = 0.0
    n = _window(centre, noise.reach / weight, math.inf)
    return n, n * log_g + noise.decay(count - weight * n)


def log_weights(observation: JointObservation, m: Floats, inside: Floats, outside: Floats) -> Floats:
    """Return log of P(m records inside) times the density of the noisy counts [theta, m], up to a constant.

    With ``inside`` and ``outside`` [theta] the probabilities of a record, P(m) is binomial; where n is private it is summed
    over n with its prior and the density of its own noisy count.
    """
    noise = observation.noise.decay(observation.y[-1] - observation.statistic.inside_weight * m)
    of_inside = noise + special.xlogy(m, inside[:, None])
    if observation.n is not None:
        return of_inside + _log_choose(float(observation.n), m) + special.xlogy(observation.n - m, outside[:, None])
    n, log_prior = private_counts(observation)
    rest = n[:, None] - m
    choose = np.where(rest >= 0, log_prior[:, None] + _log_choose(n[:, None], m), -np.inf)
    of_outside = [special.logsumexp(choose + special.xlogy(np.maximum(rest, 0), q), axis=0) for q in outside]
    return of_inside + np.array(of_outside)


def _log_choose(n: Floats | float, m: Floats) -> Floats:
    return np.asarray(special.gammaln(n + 1) - special.gammaln(m + 1) - special.gammaln(np.maximum(n - m, 0) + 1))


def _window(centre: float, reach: float, largest: float) -> Floats:
    """Return the whole numbers from 0 to ``largest`` that are near the centre, or near the end that is nearest to it."""
    nearest = min(max(centre, 0.0), largest)
    return np.arange(max(math.floor(nearest - reach), 0), min(math.ceil(nearest + reach), largest) + 1, dtype=np.float64)
