"""kernel_is: importance sampling with simulated records, exact as the number of particles grows.

theta is proposed, n records are simulated, clamped and summed, and the particle is weighed by the noise's probability of what is
left to the release: an unbiased likelihood, so that neither a normal approximation nor a closed form enters (kernel ABC with the
mechanism's own density: Gong 2022). Particles are independent: they may be split over any number of workers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dp_dask.errors import InferenceError
from dp_dask.public.engines import CHAINS, Inference
from dp_dask.public.joint import JointObservation
from dp_dask.public.private_n import private_counts
from dp_dask.public.proposals import effective_size
from dp_dask.public.spread import spread

__all__ = ["Batch", "Particles", "Proposal", "plugin", "propose", "weigh", "weigh_batch"]

Floats = NDArray[np.float64]
FROM_PRIOR = 0.2  # of the particles: no part of the posterior can be missed by the proposal's shape
CENTRES = 200
DEGREES = 5.0  # of the proposal's t kernels
FIRST, PER_DRAW, LEAST = 4_000, 10, 1_000
STAGES = 5  # of so many particles: from the prior, three towards the posterior, and one that is kept
MOST_RECORDS, MOST_PARTICLES = 1e8, 4e6  # simulated for one posterior, some seconds
BATCH, BATCH_RECORDS = 2**13, 2**21  # particles and records of one batch at most: some tens of megabytes, a tenth of a second
AT_ONCE = 50_000  # particles, whose distances to all centres lie in memory
FARTHEST = 8.0  # noise scales from its count, the farthest of some thousand draws


@dataclass(frozen=True, slots=True)
class Particles:
    """Coordinates [k, p] and their log weights [k]."""

    v: Floats
    log_weight: Floats

    def __add__(self, other: Particles) -> Particles:
        return Particles(np.concatenate([self.v, other.v]), np.concatenate([self.log_weight, other.log_weight]))


@dataclass(frozen=True, slots=True)
class Proposal:
    """A mixture: t kernels around centres [c, p] with one scale matrix, and the prior."""

    centres: Floats
    root: Floats  # [p, p], lower triangular

    def draw(self, rng: np.random.Generator, prior: Any, size: int) -> Floats:
        """Draw coordinates [size, p]."""
        n_parameters = self.centres.shape[1]
        normal = rng.standard_normal((size, n_parameters)) @ self.root.T
        t = normal / np.sqrt(rng.chisquare(DEGREES, size) / DEGREES)[:, None]
        v = self.centres[rng.integers(len(self.centres), size=size)] + t
        of_prior = rng.random(size) < FROM_PRIOR
        v[of_prior] = _coordinates(prior, int(of_prior.sum()), rng)
        return v

    def log_density(self, prior: Any, v: Floats) -> Floats:
        """Return the mixture's log density [k], with the prior's."""
        p = self.centres.shape[1]
        inverse = np.linalg.inv(self.root)
        z, centres = v @ inverse.T, self.centres @ inverse.T
        squares = ((z[:, None] - centres) ** 2).sum(axis=2)
        norm = special.gammaln((DEGREES + p) / 2) - special.gammaln(DEGREES / 2) - 0.5 * p * math.log(DEGREES * math.pi)
        kernels = norm - np.log(np.diag(self.root)).sum() - (DEGREES + p) / 2 * np.log1p(squares / DEGREES)
        of_kernels = special.logsumexp(kernels, axis=1) - math.log(len(self.centres) / (1 - FROM_PRIOR))
        return np.logaddexp(of_kernels, math.log(FROM_PRIOR) + _log_density(prior, v))


@dataclass(frozen=True, slots=True)
class Batch:
    """All that some particles are made of: a noisy release and its model, a prior, where to propose, and a seed."""

    observation: JointObservation
    prior: Any
    proposal: Proposal
    seed: np.random.SeedSequence
    size: int


def kernel_is(rng: np.random.Generator, observation: JointObservation, prior: Any, n_draws: int) -> Inference:
    """Draw from the exact posterior; raises InferenceError where the particles that it takes are too many to simulate."""
    size = CHAINS * -(-n_draws // CHAINS)
    _check_affordable(observation)
    wanted = max(LEAST, PER_DRAW * size)
    if max(STAGES * FIRST, wanted) * observation.n_guess > MOST_RECORDS:
        raise InferenceError(_too_long(size))
    particles = weigh(rng, observation, prior, first_proposal(rng, prior), FIRST)
    for _ in range(STAGES - 2):  # towards the posterior; each proposal is drawn from the particles before it
        particles = weigh(rng, observation, prior, propose(rng, particles), FIRST)
    proposal = propose(rng, particles)
    particles = weigh(rng, observation, prior, proposal, FIRST)
    made = grow(rng, observation, prior, proposal, particles, wanted)
    if made is None:
        found = effective_size(particles.log_weight)
        raise InferenceError(_too_long(size, f" ({found:.0f} effective of {FIRST} particles)"))
    return resample(rng, prior, made, size, reason="asked for")


def _too_long(size: int, found: str = "") -> str:
    most = f"{MOST_RECORDS:.0e} records, or {MOST_PARTICLES:.0e} particles,"
    return (
        f"engine kernel_is would have to simulate more than {most} for {size} draws{found}; use clt_grid, or auto, or fewer draws"
    )


def _check_affordable(observation: JointObservation) -> None:
    """Raise InferenceError where even the first particles are too many records, or a private n has too wide a range."""
    n = observation.n_guess
    if observation.n is None:
        n += FARTHEST * observation.scale / observation.statistic.count_weight
    if 2 * FIRST * n > MOST_RECORDS:
        msg = (
            f"engine kernel_is would simulate {n:.3g} records for each of {FIRST} particles, {MOST_RECORDS:.0e} records at most; "
            "use clt_grid, or auto"
        )
        raise InferenceError(msg)


def grow(
    rng: np.random.Generator, observation: JointObservation, prior: Any, proposal: Proposal, particles: Particles, wanted: int
) -> Particles | None:
    """Add particles until their effective number is ``wanted``; None where that takes more records than are affordable."""
    while (found := effective_size(particles.log_weight)) < wanted:
        held = len(particles.v)
        needed = math.ceil(1.1 * held * wanted / max(found, 1.0))
        if needed > MOST_PARTICLES or needed * observation.n_guess > MOST_RECORDS:
            return None
        particles += weigh(rng, observation, prior, proposal, min(needed - held, 4 * held, AT_ONCE))
    return particles


def resample(rng: np.random.Generator, prior: Any, particles: Particles, size: int, *, reason: str) -> Inference:
    """Draw ``size`` particles by their weights."""
    weight = np.exp(particles.log_weight - particles.log_weight.max())
    chosen = particles.v[rng.choice(len(weight), size, p=weight / weight.sum())]
    theta = chosen[:, 0] if chosen.shape[1] == 1 else chosen
    draws = np.asarray(prior.parameter(theta)).reshape(CHAINS, -1, chosen.shape[1])
    found = effective_size(particles.log_weight)
    told = f"{reason}; {len(weight)} particles, {found:.0f} effective"
    return Inference(engine="kernel_is", reason=told, draws=draws, error=0.0)


def first_proposal(rng: np.random.Generator, prior: Any) -> Proposal:
    """Propose around prior draws, where nothing is known yet."""
    v = _coordinates(prior, CENTRES, rng)
    return Proposal(v, _root(v, np.full(len(v), 1 / len(v))))


def propose(rng: np.random.Generator, particles: Particles) -> Proposal:
    """Place kernels at particles drawn by their weights to the power 0.6, as wide as those of a kernel density estimate."""
    tempered = 0.6 * particles.log_weight
    # Weights so uneven that a handful holds them all are tempered further, so that the next proposal is not lost on a point.
    while effective_size(tempered) < CENTRES / 10 and np.isfinite(tempered).any():
        tempered = tempered / 2
    weight = np.exp(tempered - tempered.max())
    weight /= weight.sum()
    centres = particles.v[rng.choice(len(weight), CENTRES, p=weight)]
    return Proposal(centres, _root(particles.v, weight))


def _root(v: Floats, weight: Floats) -> Floats:
    d = v - weight @ v
    covariance = (weight[:, None] * d).T @ d
    covariance += 1e-9 * np.diag(np.maximum(np.diag(covariance), 1e-300))
    bandwidth = CENTRES ** (-1 / (v.shape[1] + 4))
    return np.linalg.cholesky(covariance) * bandwidth


def weigh(rng: np.random.Generator, observation: JointObservation, prior: Any, proposal: Proposal, size: int) -> Particles:
    """Propose ``size`` particles, simulate their records and weigh them, in batches that may run anywhere.

    How many there are, and their seeds, follows from ``rng``, n and ``size`` alone: the same particles however they are spread.
    """
    each = max(min(BATCH_RECORDS // max(round(observation.n_guess), 1), BATCH), 1)
    sizes = [min(each, size - start) for start in range(0, size, each)]
    seeds = np.random.SeedSequence(rng.integers(2**32, size=4).tolist()).spawn(len(sizes))
    batches = [Batch(observation, prior, proposal, *pair) for pair in zip(seeds, sizes, strict=True)]
    made = spread(weigh_batch, batches)
    v = np.ascontiguousarray(np.concatenate([part.v for part in made]))  # in C order, however they came
    return Particles(v, np.concatenate([part.log_weight for part in made]))


def weigh_batch(batch: Batch) -> Particles:
    """Weigh one batch of particles; a function of its argument alone."""
    rng, prior, observation, size = np.random.default_rng(batch.seed), batch.prior, batch.observation, batch.size
    v = batch.proposal.draw(rng, prior, size)
    log_prior = _log_density(prior, v)
    theta = np.asarray(prior.parameter(v[:, 0] if v.shape[1] == 1 else v)).reshape(size, -1)
    n = _draw_n(rng, observation, size)
    with np.errstate(all="ignore"):
        sums = observation.sums(rng, theta, n)
    log_noise = observation.noise.decay(np.array(observation.y) - sums).sum(axis=1)
    log_weight = log_prior - batch.proposal.log_density(prior, v) + log_noise
    return Particles(v, np.where(np.isfinite(log_weight), log_weight, -np.inf))


def _draw_n(rng: np.random.Generator, observation: JointObservation, size: int) -> NDArray[np.int64]:
    """Return n for each particle, where it is private drawn from its law given the noisy count, so that it needs no weight."""
    if observation.n is not None:
        return np.full(size, observation.n, dtype=np.int64)
    n, log_p = private_counts(observation)
    p = np.exp(log_p - log_p.max())
    return rng.choice(n.astype(np.int64), size, p=p / p.sum())


def _coordinates(prior: Any, size: int, rng: np.random.Generator) -> Floats:
    return np.asarray(prior.coordinate(prior.rvs(rng, size))).reshape(size, -1)


def _log_density(prior: Any, v: Floats) -> Floats:
    return np.asarray(prior.log_density(v[:, 0] if v.shape[1] == 1 else v))


plugin = kernel_is
