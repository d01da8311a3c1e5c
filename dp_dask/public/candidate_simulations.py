"""Candidate simulations: draws of the prior, each with a data set, that are numbered once and for all by a public seed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.candidates import CandidateBatch
from dp_dask.core.of_sums import OfSums
from dp_dask.core.selected import AnyDistance, SelectionRequest
from dp_dask.errors import InferenceError
from dp_dask.public.guarded import Call, call_here, guarded
from dp_dask.public.spread import stream
from dp_dask.simulators import Simulator

__all__ = ["Candidates", "batch_size_of", "draws_digest", "numbers_of"]

Floats = NDArray[np.float64]
BATCH = 1_000  # data sets
RECORDS = 2**21  # simulated together, some tens of megabytes
HELD = 2**20  # numbers that a batch sends on


def batch_size_of(distance: AnyDistance) -> int:
    """Return how many candidates fit into one batch, a function of public numbers alone."""
    return max(min(BATCH, RECORDS // distance.n, HELD // numbers_of(distance)), 1)


def numbers_of(distance: AnyDistance) -> int:
    """Return how many numbers of a candidate are compared."""
    return len(distance.statistic.units) if isinstance(distance, OfSums) else distance.n * len(distance.columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """All candidates of a request: number t is row t mod ``batch_size`` of batch t div ``batch_size``.

    A batch is a function of the seed and its own number, wherever and whenever it is simulated, and sees no record.
    ``call`` is that of ``guarded``.
    """

    simulator: Simulator
    prior: Any
    distance: AnyDistance
    n: int | None
    seed: int
    n_simulations: int
    batch_size: int
    policy: Literal["reject", "retry"] = "reject"
    call: Call = call_here

    def __post_init__(self) -> None:
        wanted = self.distance.statistic.columns if isinstance(self.distance, OfSums) else self.distance.columns
        missing = [column for column in wanted if column not in self.simulator.columns]
        if missing:
            made = ", ".join(self.simulator.columns)
            msg = f"the distance compares column {missing[0]!r}; the simulator makes {made}"
            raise InferenceError(msg)
        if self.simulator.decides_n and self.n is not None:
            msg = "the simulator decides how many records there are; use neighbours: add_remove"
            raise InferenceError(msg)
        if not self.simulator.decides_n and self.n is None:
            msg = "n is private and the simulator needs it; use neighbours: replace with a public n, or release a summary instead"
            raise InferenceError(msg)

    @classmethod
    def of(cls, request: SelectionRequest, simulator: Simulator, prior: Any, call: Call = call_here) -> Candidates:
        """Make them with the simulator and the prior that the request names."""
        return cls(
            simulator=simulator,
            prior=prior,
            distance=request.distance,
            n=request.n,
            seed=request.seed,
            n_simulations=request.n_simulations,
            batch_size=request.batch_size,
            policy=request.policy,
            call=call,
        )

    @property
    def n_batches(self) -> int:
        """The number of batches."""
        return -(-self.n_simulations // self.batch_size)

    def batch(self, number: int) -> CandidateBatch:
        """Simulate one batch; InferenceError where the simulator cannot be made ready."""
        first = number * self.batch_size
        theta = self._thetas(number)[: self.n_simulations - first]
        rng = np.random.default_rng(_seeds(self.seed, number)[1])
        made = guarded(self.simulator, theta, self.n, rng, policy=self.policy, call=self.call)
        if isinstance(self.distance, OfSums):
            data: NDArray[Any] = self.distance.statistic.totals_of(made.simulated)
        else:
            data = np.zeros((len(theta), self.distance.n, len(self.distance.columns)))
            whole = [made.simulated.values[name].reshape(-1, self.distance.n) for name in self.distance.columns]
            data[made.is_whole] = np.stack(whole, axis=2)
        return CandidateBatch(first, data, made.failures)

    def batches(self) -> Iterator[CandidateBatch]:
        """Simulate all, in order, no further ahead than where they are spread to; close it to stop."""
        return stream(self.batch, range(self.n_batches))

    def thetas(self, indices: Sequence[int]) -> Floats:
        """Return the parameters [k, p] of candidates, without simulating any; raises ValueError for an index that is none."""
        if any(not 0 <= index < self.n_simulations for index in indices):
            msg = f"there are {self.n_simulations} candidates, numbered from 0; an index is outside"
            raise ValueError(msg)
        drawn = {number: self._thetas(number) for number in sorted({index // self.batch_size for index in indices})}
        found = [drawn[index // self.batch_size][index % self.batch_size] for index in indices]
        return np.array(found, dtype=np.float64).reshape(len(indices), len(self.simulator.parameters))

    def _thetas(self, number: int) -> Floats:
        """Draw a whole batch, the last one too: what is drawn depends on nothing but the seed and the number."""
        return _drawn(self.prior, self.seed, number, self.batch_size)


def draws_digest(prior: Any, seed: int, batch_size: int) -> str:
    """Digest the parameters of the first batch, to six figures: as every machine draws them, until a library draws otherwise."""
    drawn = _drawn(prior, seed, 0, batch_size)
    return hashlib.sha256(" ".join(f"{value:.5e}" for value in drawn.ravel()).encode()).hexdigest()[:32]


def _drawn(prior: Any, seed: int, number: int, batch_size: int) -> Floats:
    """Return a batch's parameters [row, p]."""
    rng = np.random.default_rng(_seeds(seed, number)[0])
    return np.asarray(prior.rvs(rng, batch_size), dtype=np.float64).reshape(batch_size, -1)


def _seeds(seed: int, number: int) -> list[np.random.SeedSequence]:
    return np.random.SeedSequence(seed, spawn_key=(number,)).spawn(2)
