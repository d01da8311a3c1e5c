"""Simulations: generations of simulated sums, in batches that may run anywhere and in any order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.simulated import Failure
from dp_dask.public.engines import Predicted
from dp_dask.public.failures import Failures
from dp_dask.public.proposals import StudentT
from dp_dask.public.simulated import TOLD, SimulatedObservation
from dp_dask.public.spread import spread
from dp_dask.public.unknowns import Unknowns

__all__ = ["FROM_PRIOR", "PREDICTED", "Problem", "Simulations"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
FROM_PRIOR = 0.1  # of a generation that has a proposal
BATCH = 250  # data sets: twenty batches of a usual generation, for as many workers, and little to lose in a crash
PREDICTED = 100  # data sets that a posterior is compared with its release by, twice


@dataclass(frozen=True, slots=True)
class Simulations:
    """Coordinates [k, q], their sums [k, d], which were simulated [k], and why the first few of the others were not."""

    w: Floats
    sums: Ints
    is_whole: NDArray[np.bool_]
    first_failures: tuple[Failure, ...] = ()

    @classmethod
    def join(cls, parts: Sequence[Simulations]) -> Simulations:
        """Put parts one after the other."""
        # In C order whatever the parts' is, which storing or sending them may change: a sum over them depends on it.
        starts = np.cumsum([0, *(len(part.w) for part in parts)]).tolist()
        failures = [
            replace(failure, row=start + failure.row)
            for start, part in zip(starts, parts, strict=False)
            for failure in part.first_failures
        ]
        return cls(
            np.ascontiguousarray(np.concatenate([part.w for part in parts])),
            np.ascontiguousarray(np.concatenate([part.sums for part in parts])),
            np.concatenate([part.is_whole for part in parts]),
            tuple(failures[:TOLD]),
        )

    @property
    def failures(self) -> Failures:
        """How many failed, and the first few."""
        return Failures(len(self.is_whole), int((~self.is_whole).sum()), self.first_failures)


@dataclass(frozen=True, slots=True)
class Batch:
    """All that some simulations are made of; without a proposal they are of prior draws."""

    observation: SimulatedObservation
    unknowns: Unknowns
    proposal: StudentT | None
    seed: np.random.SeedSequence
    size: int


@dataclass(frozen=True, slots=True)
class Problem:
    """What is to be inferred from which release, and the seed [words] of all simulations for it."""

    observation: SimulatedObservation
    unknowns: Unknowns
    seed: tuple[int, ...]

    @classmethod
    def of(cls, rng: np.random.Generator, observation: SimulatedObservation, unknowns: Unknowns) -> Problem:
        """Draw the seed."""
        return cls(observation, unknowns, tuple(rng.integers(2**32, size=4).tolist()))

    def generation(self, index: int, size: int, proposal: StudentT | None = None) -> Simulations:
        """Simulate ``size`` data sets: the same ones wherever their batches run, for the seed, the index and the size.

        With a proposal a tenth of them is of the prior all the same, so that no part of the posterior can be missed.
        """
        sizes = [min(BATCH, size - start) for start in range(0, size, BATCH)]
        seeds = np.random.SeedSequence(self.seed, spawn_key=(index,)).spawn(len(sizes))
        batches = [
            Batch(self.observation, self.unknowns, proposal, seed, of_batch) for seed, of_batch in zip(seeds, sizes, strict=True)
        ]
        return Simulations.join(spread(simulate_batch, batches))

    @property
    def whole(self) -> Problem:
        """The same, with all records simulated."""
        return replace(self, observation=self.observation.whole)

    def predicted(self, rng: np.random.Generator, prior: Ints, w: Floats) -> Predicted:
        """Simulate here at some posterior draws w [k, q] and at their mean; ``prior`` are sums of prior draws."""
        wanted = (w[rng.choice(len(w), PREDICTED)], np.repeat(w.mean(axis=0)[None], PREDICTED, axis=0))
        made = [self.whole.at(rng, each) for each in wanted]
        at_posterior, at_mean = (each.sums[each.is_whole].astype(np.float64) for each in made)
        return Predicted(prior.astype(np.float64), at_posterior, at_mean)

    def at(self, rng: np.random.Generator, w: Floats) -> Simulations:
        """Simulate a data set for each of the coordinates w [k, q]; what has no prior density is not simulated."""
        return _simulate(self.observation, self.unknowns, rng, w)


def simulate_batch(batch: Batch) -> Simulations:
    """Simulate one batch; a function of its argument alone."""
    rng = np.random.default_rng(batch.seed)
    w = batch.unknowns.rvs(rng, batch.size)
    if batch.proposal is not None:
        proposed = batch.proposal.draw(rng, batch.size)
        w = np.where(rng.random(batch.size)[:, None] < FROM_PRIOR, w, proposed)
    return _simulate(batch.observation, batch.unknowns, rng, w)


def _simulate(observation: SimulatedObservation, unknowns: Unknowns, rng: np.random.Generator, w: Floats) -> Simulations:
    theta, n = unknowns.theta(w), unknowns.n(w)
    possible = np.isfinite(unknowns.log_density(w)) & np.isfinite(theta).all(axis=1)
    sums = np.zeros((len(w), len(observation.released)), dtype=np.int64)
    # What has no prior density has no weight either, so it is not a failure of the simulator's.
    is_whole = np.ones(len(w), dtype=np.bool_)
    if not possible.any():
        return Simulations(w, sums, is_whole)
    made = observation.sums(rng, theta[possible], None if n is None else n[possible])
    sums[possible], is_whole[possible] = made.values, made.is_whole
    rows = np.flatnonzero(possible)
    return Simulations(w, sums, is_whole, tuple(replace(each, row=int(rows[each.row])) for each in made.failures))
