"""A simulator of one's own: patients reported day by day, their cumulative number about a cubic of the day."""

import numpy as np

from dp_dask.core.simulated import Simulated

DAYS = 18
SHAPE = 12  # days differ beyond chance, by weekends and tests: a relative sd of 1 / sqrt(SHAPE)


def simulate(theta, n, rng):
    """Draw epidemics for theta [B, 4]; each decides how many patients there are, so that n is None."""
    del n
    t = np.arange(DAYS)
    cumulative = theta @ t ** np.arange(4)[:, None]
    expected = np.maximum(np.diff(cumulative, axis=1, prepend=0), 0)
    cases = rng.poisson(expected * rng.gamma(SHAPE, 1 / SHAPE, expected.shape))
    day = np.repeat(np.tile(t.astype(float), len(theta)), cases.reshape(-1))
    return Simulated(cases.sum(axis=1), {"day": day})


simulate.parameters = ("a0", "a1", "a2", "a3")
simulate.columns = ("day",)
simulate.decides_n = True
