"""How many records lie inside the bounds, given the noisy counts: the weights with which a sum over that number is taken."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dp_dask.public.joint import JointObservation
from dp_dask.public.private_n import private_counts, window

__all__ = ["inside_counts", "log_weights"]

Floats = NDArray[np.float64]


def inside_counts(observation: JointObservation) -> Floats:
    """Return the numbers m of records inside that the noisy counts leave possible, consecutive."""
    weight, noise = observation.statistic.inside_weight, observation.noise
    largest = observation.n if observation.n is not None else int(private_counts(observation)[0][-1])
    return window(observation.y[-1] / weight, noise.reach / weight, largest)


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
