"""Simulated diagnostics: how a release compares with simulated sums of the prior and of the posterior."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dp_dask.public.engines import SMALLEST_VARIANCE, Predicted
from dp_dask.public.simulated import SimulatedObservation

__all__ = ["simulated_noise_ratio", "simulated_tail"]

Floats = NDArray[np.float64]
FEWEST = 20  # simulations that tell anything
KERNEL = 0.9  # Silverman's rule: sd of a kernel about each simulation, times their own sd and their number to -1/5


def simulated_noise_ratio(observation: SimulatedObservation, predicted: Predicted) -> tuple[float, ...]:
    """Return Var(noise) / Var(S) for each coordinate at the posterior mean; infinite where the sum does not vary."""
    if len(predicted.at_mean) < FEWEST:
        return ()
    noise = observation.noise.variance
    return tuple(float(noise / v) if v > 0 else math.inf for v in predicted.at_mean.var(axis=0, ddof=1))


def simulated_tail(observation: SimulatedObservation, sums: Floats) -> float | None:
    """Return the two-sided probability of a release as far out as this one, given simulated sums [k, d].

    Their law is a mixture of normal kernels about them, plus noise. Of several coordinates the least probability counts, times
    their number. None where too few were simulated.
    """
    if len(sums) < FEWEST:
        return None
    released, smallest = observation.released, 1.0
    width = KERNEL * len(sums) ** -0.2
    for j, y in enumerate(released):
        own = np.sqrt((width * sums[:, j].std()) ** 2 + SMALLEST_VARIANCE * observation.scale**2)
        z, sd = y - sums[:, j], np.full(len(sums), own)
        below = float(observation.noise.cdf(z + 0.5, sd).mean())
        above = float(observation.noise.cdf(0.5 - z, sd).mean())
        smallest = min(smallest, 2 * below, 2 * above)
    return min(len(released) * smallest, 1.0)
