"""Self-check: simulation-based calibration of a posterior through a simulator, with the simulations that it already has.

Pseudo-truths, simulated releases of them, and the ranks of the truths in the posteriors that the same particles, emulator or bank
give (Talts et al. 2018). Truths and posteriors share one prior: that of the analysis for a bank, which covers it, and for the
others a normal law as wide as the posterior, around which alone their simulations lie. So it costs a simulation for each truth.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dp_dask.public.engines.bank import Bank, nearest
from dp_dask.public.engines.synthetic import Fitted
from dp_dask.public.proposals import Normal, Weighted
from dp_dask.public.randomness import RANK_DRAWS, rank_among
from dp_dask.public.synthetic_likelihood import sample
from dp_dask.public.tempering import Cloud
from dp_dask.public.uniformity import LEVEL, uniformity

__all__ = ["check_ranks", "is_too_narrow", "told_check"]

Floats = NDArray[np.float64]
EACH, EFFECTIVE = 2_000, 500.0  # draws of a synthetic likelihood's fit
UNIFORM = 0.25  # mean distance of uniform ranks from a half


def check_ranks(rng: np.random.Generator, made: Cloud | Fitted | Bank, n: int) -> Floats:
    """Return the ranks [n or fewer, q] of pseudo-truths' coordinates; fewer where the simulator fails."""
    if isinstance(made, Bank):
        return _of_bank(rng, made, n)
    cloud = made.cloud if isinstance(made, Fitted) else made
    prior = Normal.of(*(made.posterior.moments() if isinstance(made, Fitted) else cloud.moments()))
    problem = cloud.problem
    truths = problem.whole.at(rng, prior.draw(rng, n))
    kept = truths.is_whole & np.isfinite(problem.unknowns.log_density(truths.w))
    sums = truths.sums[kept]
    noise = problem.observation.noise
    releases = (sums + noise.draw(rng, sums.size).reshape(sums.shape)).astype(np.float64)
    if isinstance(made, Cloud):
        base = made.log_ratio(prior.log_density(made.made.w))
    u = np.empty((len(sums), truths.w.shape[1]))
    for i, (truth, released) in enumerate(zip(truths.w[kept], releases, strict=True)):
        if isinstance(made, Fitted):
            posterior = sample(rng, made.emulator, released, noise, prior, EFFECTIVE, EACH)
        else:
            posterior = Weighted(cloud.made.w, base + cloud.log_fit(released, cloud.multiple))
        u[i] = rank_among(rng, posterior.draw(rng, RANK_DRAWS), truth)
    return u


def is_too_narrow(u: Floats) -> bool:
    """Whether ranks [n, q] fail, and not because the posterior is wider than it should be."""
    return _p_value(u) < LEVEL and not _is_wide(u)


def told_check(u: Floats) -> str:
    """Return whether all coordinates' ranks [n, q] are uniform, at 1 % by Bonferroni's correction, and if not why."""
    smallest = _p_value(u)
    verdict = "passed"
    if smallest < LEVEL:
        verdict = "FAILED: it is wider than it should be" if _is_wide(u) else "FAILED: it is too narrow or off the truth"
    return f"self-check on {len(u)} simulated releases {verdict} (p = {smallest:.2g})"


def _p_value(u: Floats) -> float:
    return min(min(uniformity(column).p_value for column in u.T) * u.shape[1], 1.0)


def _is_wide(u: Floats) -> bool:
    failing = [column for column in u.T if uniformity(column).p_value * u.shape[1] < LEVEL]
    return all(np.abs(column - 0.5).mean() < UNIFORM for column in failing)


def _of_bank(rng: np.random.Generator, made: Bank, n: int) -> Floats:
    chosen = rng.choice(len(made.made.w), min(n, len(made.made.w)), replace=False)
    sums, noise = made.made.sums[chosen], made.problem.observation.noise
    releases = (sums + noise.draw(rng, sums.size).reshape(sums.shape)).astype(np.float64)
    u = np.empty((len(chosen), made.made.w.shape[1]))
    for i, (row, released) in enumerate(zip(chosen, releases, strict=True)):
        u[i] = rank_among(rng, nearest(made, released, row).draw(rng, RANK_DRAWS), made.made.w[row])
    return u
