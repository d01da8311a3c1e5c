"""The posterior from the records themselves, for comparison in simulations, under any prior of one parameter."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.priors import FAR, Beta, Gamma, Normal, Prior
from dp_dask.public.grid import FINE, Cells, GridPosterior, tabulate

__all__ = ["non_private"]

Floats = NDArray[np.float64]
FLAT: dict[type, Prior] = {
    Beta: Beta(1, 1),
    Gamma: Gamma(1, 1e-300),
    Normal: Normal(0, 1e150),
}  # so flat that no digits are lost to them
LARGEST_LOGIT = 53 * math.log(2)  # of a float64 below 1


def non_private(prior: Prior, model: Any, n: int, total: float) -> GridPosterior:
    """Tabulate the posterior given n records with sum of t ``total``.

    Bayes' theorem read backwards gives the likelihood without another formula: up to a constant it is the conjugate posterior
    over the conjugate prior that it comes from.
    """
    flat = FLAT[model.prior_type]
    updated = model.prior_type(*map(float, model.update(flat, n, total)))

    def log_likelihood(theta: Floats) -> Floats:
        with np.errstate(divide="ignore"):
            v = flat.coordinate(theta)
        if not isinstance(flat, Normal):
            # A probability may be rounded to 1: a jump there from its largest logit to infinity would lead cubics astray.
            v = np.clip(v, -FAR, LARGEST_LOGIT if isinstance(flat, Beta) else FAR)
        return updated.log_density(v) - flat.log_density(v)

    low, high = prior.coordinate_range()
    return tabulate(prior, log_likelihood, Cells(np.array([low]), np.array([high])).split(4 * FINE))
