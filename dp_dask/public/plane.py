"""Posteriors of two parameters on a plane of cells: found, tabulated where they lie, drawn from independently.

Around each mode lies a lattice of parallelograms along its own axes. Cells are added at the edge of the set until the
density has fallen everywhere, whatever the shape, and a cell is cut into nine where its midpoint tells too little.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dp_dask.errors import InferenceError
from dp_dask.public.modes import Box, LogDensity, find_modes
from dp_dask.public.plane_cells import geometry, refine, weights
from dp_dask.public.plane_grow import cover

__all__ = ["PlanePosterior", "tabulate"]

Floats = NDArray[np.float64]
ROUNDS = 8
RULE = np.stack([np.arange(34) / 34, 21 * np.arange(34) / 34 % 1], axis=1)  # the Fibonacci lattice
PLASTIC = np.array([0.7548776662466927, 0.5698402909980532])  # whose multiples fill the square evenly (Roberts 2018)
HIGHER = 0.5  # nats above a mode at which a cell shows that the mode was missed


@dataclass(frozen=True, slots=True)
class PlanePosterior:
    """A posterior of v = (v_1, v_2) whose density is log-linear on each parallelogram centre + sides @ [-1/2, 1/2]^2."""

    centre: Floats  # [cells, 2]
    sides: Floats  # [cells, 2, 2], a side a column
    slope: Floats  # [cells, 2]: nats along each side
    weights: Floats  # [cells], summing to 1
    error: float  # estimate of the total variation that the cells' size leaves
    evaluations: int

    def draw(self, rng: np.random.Generator, size: int) -> Floats:
        """Draw v [size, 2] independently: a cell by its weight, then a point inside it."""
        i = rng.choice(len(self.weights), size, p=self.weights)
        u, slope = rng.random((size, 2)), self.slope[i]
        safe = np.where(slope == 0, 1.0, slope)
        inside = np.where(np.abs(slope) < 1e-6, u, np.log1p(u * np.expm1(safe)) / safe) - 0.5  # noqa: PLR2004
        return self.centre[i] + (self.sides[i] @ inside[..., None])[..., 0]

    def nodes(self) -> tuple[Floats, Floats]:
        """Return 34 points v a cell [k, 2] and their weights [k]: a lattice rule, shifted from cell to cell."""
        shift = np.arange(len(self.weights))[:, None] * PLASTIC
        u = (RULE + shift[:, None]) % 1 - 0.5
        share = np.exp((self.slope[:, None] * u).sum(axis=2))
        share /= share.sum(axis=1, keepdims=True)
        v = self.centre[:, None] + u @ self.sides.transpose(0, 2, 1)
        return v.reshape(-1, 2), (self.weights[:, None] * share).ravel()

    def probability(self, event: Callable[[Floats], NDArray[np.bool_]]) -> float:
        """Return P(event(v)), event mapping [k, 2] to [k]: the rank of a quantity q(v) at v0 is that of q(v) <= q(v0)."""
        v, weights = self.nodes()
        return min(float(weights @ event(v)), 1.0)  # the weights sum to 1 within rounding

    def cdf(self, value: float, axis: int) -> float:
        """Return P(v_axis <= value)."""
        return self.probability(lambda v: v[:, axis] <= value)

    @property
    def mean(self) -> Floats:
        """The posterior mean of v, [2]."""
        v, weights = self.nodes()
        return np.asarray(weights @ v, dtype=np.float64)

    @property
    def covariance(self) -> Floats:
        """The posterior covariance of v, [2, 2]."""
        v, weights = self.nodes()
        d = v - weights @ v
        return np.einsum("k,ki,kj->ij", weights, d, d)


def tabulate(log_density: LogDensity, box: Box, starts: Floats) -> PlanePosterior:
    """Tabulate the density of v on cells that hold all of it but about 1e-4.

    ``log_density`` maps v [k, 2] to [k], up to a constant, in coordinates without bounds; ``box`` is where the prior lies, to
    quantiles that leave out 1e-9 or less; ``starts`` [s, 2] are guesses of where the posterior is, some in each mode that it
    may have (moment estimates, prior draws, cells of a rough zoom). Raises InferenceError where the posterior reaches the
    box's border, is not a number or zero at every start, or does not settle on 20,000 cells.
    """
    evaluations = 0

    def counted(v: Floats) -> Floats:
        nonlocal evaluations
        evaluations += len(v)
        return log_density(v)

    for _ in range(ROUNDS):
        modes, seen, values = find_modes(counted, box, starts)
        lattices = cover(counted, box, modes, seen, values)
        leaves = refine(counted, box, lattices, seen, values)
        leaves = leaves.take(np.isfinite(leaves.value))
        centre, sides = geometry(leaves, lattices)
        top = int(leaves.value.argmax())
        if leaves.value[top] <= modes[0].value + HIGHER:
            doubt = float(leaves.doubt[np.isfinite(leaves.doubt)].sum())
            return PlanePosterior(centre, sides, leaves.slope, weights(leaves, lattices), doubt, evaluations)
        starts = np.concatenate([centre[[top]], [mode.point for mode in modes]])
    msg = "the posterior did not settle on a grid; look at the bounds, n and the prior"
    raise InferenceError(msg)
