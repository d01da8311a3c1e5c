"""SimulatedObservation: a release seen through a simulator, whose law of the sums can be drawn from and not computed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.cluster_bands import ClusterBands
from dp_dask.core.simulated import Failure, Size
from dp_dask.core.stacked_sum import StackedSum
from dp_dask.core.table_sum import TableSum
from dp_dask.errors import InferenceError
from dp_dask.public.guarded import Call, Policy, call_here, guarded
from dp_dask.public.noise_law import Gaussian, Laplace, Noisy
from dp_dask.public.randomness import draw_n
from dp_dask.simulators import Simulator

__all__ = ["TOLD", "SimulatedObservation", "SimulatedSums"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
RECORDS = 2**19  # simulated together at most, some megabytes: more would only leave the cache
TOLD = 10  # failures of a batch, and of all simulations


class SimulatedSums(NamedTuple):
    """Sums [B, d], 0 where the simulator failed; which are of a data set that was simulated [B]; the first few failures."""

    values: Ints
    is_whole: NDArray[np.bool_]
    failures: tuple[Failure, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedObservation(Noisy):
    """y = S + noise, with S [d] the statistic's sums over a simulated data set; all in grid units.

    The members are those of ``Observation``, with ``simulator`` in place of the model. Where the simulator's own course decides
    how many records there are, n is None and the noisy count, if one was released, is one more noisy sum: it tells of theta.
    Where n is private and the simulator needs it, its prior is geometric with mean ``expected_n``, or flat where that is None
    and a count was released. ``policy`` and ``call`` are those of ``guarded``.

    ``each`` is for records that are independent given theta: a data set is then simulated with so many of the public n, and its
    sums taken ``factor`` = n / each times. With f and C the mean and the covariance of one record's contribution, n of them have
    sum S of mean n f and covariance n C; those of ``each``, times the factor, have mean n f too, and covariance
    factor^2 each C = factor n C. So the mean is unbiased and the covariance is to be divided by the factor, which engine
    synthetic does; the law of S itself is not to be had from fewer records, so that the other engines refuse.
    """

    simulator: Simulator
    statistic: TableSum | StackedSum | ClusterBands
    n: int | None
    scale: float
    y: tuple[int, ...]
    count: int | None
    expected_n: float | None
    law: type[Laplace | Gaussian] = Laplace
    policy: Policy = "reject"
    call: Call = call_here
    each: int | None = None

    def __post_init__(self) -> None:
        if self.each is not None and (self.n is None or self.each < 1 or self.n % self.each):
            msg = f"each is {self.each} of n = {self.n} records; it must divide a public n"
            raise InferenceError(msg)
        for column in self.statistic.columns:
            if column not in self.simulator.columns:
                msg = f"the release is of column {column!r}; the simulator makes {', '.join(self.simulator.columns)}"
                raise InferenceError(msg)
        if self.simulator.decides_n and self.n is not None:
            raise InferenceError("the simulator decides how many records there are; release with neighbours: add_remove")
        if not self.simulator.decides_n and self.n is None and self.count is None and self.expected_n is None:
            raise InferenceError("n is private and no count was released; give expected_records, the mean of n's prior")

    @property
    def n_guess(self) -> float:
        """The number of records, or a rough estimate where it is private; 0 where nothing tells of it."""
        if self.n is not None:
            return self.n
        if self.count is not None and self.statistic.count_weight:
            return max(self.count / self.statistic.count_weight, 0.0)
        return self.expected_n or 0.0

    @property
    def draws_n(self) -> bool:
        """Whether n is private and the simulator needs it, so that it is inferred beside theta."""
        return self.n is None and not self.simulator.decides_n

    @property
    def has_count(self) -> bool:
        """Whether the noisy count is one of the sums that ``released`` and ``sums`` hold."""
        return self.simulator.decides_n and self.count is not None

    @property
    def factor(self) -> int:
        """How many times as many records the released data set has as a simulated one."""
        return 1 if self.each is None else (self.n or 0) // self.each

    @property
    def whole(self) -> SimulatedObservation:
        """The same, with all records simulated."""
        return replace(self, each=None)

    def check_whole(self, engine: str) -> None:
        """Raise InferenceError where not all records are simulated."""
        if self.each is not None:
            msg = (
                f"engine {engine} needs all {self.n} records simulated, not {self.each} of them; leave each out, or use synthetic"
            )
            raise InferenceError(msg)

    @property
    def released(self) -> Floats:
        """The noisy sums [d], with the noisy count where it tells of theta."""
        count = (self.count or 0,) if self.has_count else ()
        return np.array((*self.y, *count), dtype=np.float64)

    def sums(self, rng: np.random.Generator, theta: Floats, n: Size = None) -> SimulatedSums:
        """Simulate a data set for each row of theta [B, p], of the public n or of n [B] records, and reduce each.

        Of the public n ``each`` are simulated, where that is given, and the sums taken ``factor`` times.
        InferenceError where the simulator cannot be made ready, or fails under the policy ``raise``.
        """
        size = (self.each or self.n) if n is None else n
        factor = self.factor if n is None else 1
        step = max(round(RECORDS / (1 + np.max(size, initial=0))), 1) if size is not None else len(theta)
        values = np.zeros((len(theta), len(self.released)), dtype=np.int64)
        is_whole = np.ones(len(theta), dtype=np.bool_)
        failures: list[Failure] = []
        for start in range(0, len(theta), step):
            part = slice(start, start + step)
            of_part = size[part] if isinstance(size, np.ndarray) else size
            made = guarded(self.simulator, theta[part], of_part, rng, policy=self.policy, call=self.call)
            found = self.statistic.totals_of(made.simulated)
            if self.has_count:
                found = np.append(found, self.statistic.count_weight * made.simulated.counts[:, None], axis=1)
            values[part], is_whole[part] = factor * found, made.is_whole
            failures.extend(replace(failure, row=start + failure.row) for failure in made.failures[: TOLD - len(failures)])
        return SimulatedSums(values, is_whole, tuple(failures))

    def pseudo(self, rng: np.random.Generator, theta: Floats, n: int | None = None) -> SimulatedObservation | None:
        """Simulate one data set of theta [p] and a release of it; None where the simulator fails."""
        if self.draws_n and n is None:
            n = draw_n(rng, None, self.expected_n)
        made = self.whole.sums(rng, theta[None], n)
        if not made.is_whole[0]:
            return None
        noisy = made.values[0] + self.noise.draw(rng, made.values.shape[1])
        return self.with_released(rng, noisy, n)

    def with_released(self, rng: np.random.Generator, noisy: Ints, n: int | None) -> SimulatedObservation:
        """Return the same observation of other noisy sums [d]; a count beside them is of n records with noise of its own."""
        y = tuple(int(value) for value in noisy)
        if self.has_count:
            return replace(self, y=y[:-1], count=y[-1])
        if self.count is None or not self.draws_n or n is None:
            return replace(self, y=y)
        return replace(self, y=y, count=self.statistic.count_weight * n + int(self.noise.draw(rng)))
