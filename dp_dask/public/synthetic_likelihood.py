"""Synthetic likelihood: a normal law of emulated sums plus the release's noise, exactly (Wood 2010; Price et al. 2018).

Laplace noise of scale b is a normal law whose variance omega is exponential with mean 2 b^2, so that omega is drawn beside the
unknowns and y is normal given both; Gaussian noise adds its variance.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dp_dask.errors import InferenceError
from dp_dask.public.emulator import Emulator
from dp_dask.public.noise_law import Gaussian, NoiseLaw
from dp_dask.public.proposals import Normal, StudentT, Weighted, effective_size, moments, normalised
from dp_dask.public.unknowns import Unknowns

__all__ = ["sample"]

Floats = NDArray[np.float64]
REFITS = 3
EACH, MOST = 20_000, 200_000  # draws of a fit, and at most of the last
LEAST = 500.0  # effective draws
JITTER = 1e-10  # of the variances: sums of a partition of a public n add up to it, and their covariance is singular


def sample(
    rng: np.random.Generator,
    emulator: Emulator,
    released: Floats,
    noise: NoiseLaw,
    prior: Unknowns | Normal,
    wanted: float,
    each: int = EACH,
) -> Weighted:
    """Draw from the posterior by importance sampling, from t laws fitted to it three times.

    ``prior`` is any density of the unknowns, ``each`` the draws of each of these.
    Raises InferenceError where too few effective draws are left.
    """
    proposal = StudentT(emulator.around.centre, emulator.around.root)
    for _ in range(REFITS):
        made = _weigh(rng, emulator, released, noise, prior, proposal, each)
        log_weight = _softened(made.log_weight, 20.0 * len(made.w[0]))
        mean, covariance = moments(made.w, normalised(log_weight))
        proposal = StudentT(mean, Normal.of(mean, covariance).root)
    made = _weigh(rng, emulator, released, noise, prior, proposal, each)
    while made.size < wanted and len(made.w) < MOST:
        more = _weigh(rng, emulator, released, noise, prior, proposal, each)
        made = Weighted(np.concatenate([made.w, more.w]), np.concatenate([made.log_weight, more.log_weight]))
    if made.size < LEAST:
        msg = f"the synthetic likelihood leaves {made.size:.0f} effective of {len(made.w)} draws; use engine tempered or bank"
        raise InferenceError(msg)
    return made


def _softened(log_weight: Floats, wanted: float) -> Floats:
    """Return the log weights, halved until the effective number of draws is the one wanted."""
    if not np.isfinite(log_weight).any():
        raise InferenceError("the emulated sums lie nowhere near the release; use engine bank")
    log_weight = np.where(np.isfinite(log_weight), log_weight - log_weight.max(), -np.inf)
    while effective_size(log_weight) < min(wanted, np.isfinite(log_weight).sum() / 2):
        log_weight = log_weight / 2
    return log_weight


def _weigh(
    rng: np.random.Generator,
    emulator: Emulator,
    released: Floats,
    noise: NoiseLaw,
    prior: Unknowns | Normal,
    proposal: StudentT,
    size: int,
) -> Weighted:
    w = proposal.draw(rng, size)
    log_prior = prior.log_density(w)
    covariance = emulator.covariance(w)
    d = np.arange(len(released))
    if isinstance(noise, Gaussian):
        covariance[:, d, d] += noise.scale**2
    else:
        covariance[:, d, d] += rng.exponential(2 * noise.scale**2, (size, len(released)))
    covariance[:, d, d] += JITTER * covariance[:, d, d].max(axis=1, keepdims=True)
    root = np.linalg.cholesky(covariance)
    gap = released - emulator.mean(w)
    z = np.linalg.solve(root, gap[:, :, None])[:, :, 0]
    log_likelihood = -0.5 * (z**2).sum(axis=1) - np.log(root[:, d, d]).sum(axis=1) - 0.5 * len(d) * math.log(2 * math.pi)
    log_weight = log_prior + log_likelihood - proposal.log_density(w)
    return Weighted(w, np.where(emulator.is_near(w) & np.isfinite(log_weight), log_weight, -np.inf))
