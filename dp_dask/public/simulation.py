"""The release, simulated: pseudo-data and pseudo-noise from a seed, for calibration and planning only.

Nothing here protects anybody: privacy noise comes from ``gate.noise`` alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dp_dask.core.priors import Prior
from dp_dask.public.infer import infer
from dp_dask.public.observation import Observation

__all__ = ["Pseudo", "Width", "expected_widths", "simulate"]

MOST_RECORDS = 10**6  # above, counts in the grid's cells are drawn in place of records: the same law of the sum


@dataclass(frozen=True, slots=True)
class Pseudo:
    """A simulated release, and what nobody sees of it: the number of records and the sum of their statistic."""

    observation: Observation
    n: int
    total: float


@dataclass(frozen=True, slots=True)
class Width:
    """Average posterior sd over the prior predictive, with this release and with the records themselves."""

    private: float
    non_private: float

    @property
    def ratio(self) -> float:
        """How much wider privacy and bounds make the posterior."""
        return self.private / self.non_private


def simulate(rng: np.random.Generator, like: Observation, theta: float) -> Pseudo:
    """Draw records from the model, reduce them as the statistic does, and add noise of the same scale.

    A private n is drawn from its geometric prior; raises ValueError where that is flat.
    """
    n = like.n
    if n is None:
        if like.expected_n is None:
            msg = "a private n can be simulated only with privacy.expected_records"
            raise ValueError(msg)
        n = int(rng.geometric(1 / (like.expected_n + 1))) - 1
    if n <= MOST_RECORDS:
        records = like.model.simulate(theta, n, rng)
        exact, total = int(like.statistic.contributions(records).sum()), float(like.model.statistic(records).sum())
    else:
        cells, pmf = like.pmf(np.array([theta]))
        exact = int(rng.multinomial(n, pmf[0] / pmf[0].sum()) @ cells.astype(np.int64))
        everything = (np.array([theta]), -math.inf, math.inf)
        mean = like.model.partial_moments(*everything, 0.0).first[0]
        variance = like.model.partial_moments(*everything, float(mean)).second[0]
        low, high = like.model.support if like.model.spacing is None else (0.0, math.inf)
        total = float(np.clip(rng.normal(n * mean, math.sqrt(n * variance)), n * low, n * high))
    y = exact + _noise(rng, like.scale)
    count = None if like.n is not None else like.statistic.count_weight * n + _noise(rng, like.scale)
    return Pseudo(replace(like, y=y, count=count), n, total)


def _noise(rng: np.random.Generator, scale: float) -> int:
    """Draw discrete Laplace noise as the difference of two geometric variables."""
    p = -math.expm1(-1 / scale)
    return int(rng.geometric(p)) - int(rng.geometric(p))


def expected_widths(rng: np.random.Generator, like: Observation, prior: Prior, replicates: int) -> tuple[Width, ...]:
    """Average each parameter's posterior sd over truths and releases drawn from the prior."""
    private, exact = np.empty(replicates), np.empty(replicates)
    for i in range(replicates):
        pseudo = simulate(rng, like, float(prior.rvs(rng, 1)[0]))
        inference = infer(rng, pseudo.observation, prior, 4)
        private[i] = inference.grid.sd if inference.grid is not None else inference.draws.std()
        exact[i] = type(prior)(*map(float, like.model.update(prior, pseudo.n, pseudo.total))).sd
    return (Width(float(private.mean()), float(exact.mean())),)
