"""Coarse cells of the plane: a set that grows around each mode until the density has fallen everywhere."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dp_dask.errors import InferenceError
from dp_dask.public.modes import Box, LogDensity, Mode, evaluate

__all__ = ["CUT", "NOTABLE", "Lattice", "cover"]

Floats = NDArray[np.float64]
Keys = NDArray[np.int64]
SIZE = 0.75  # of a coarse cell, in units of the mode's shape
COARSEN = 3.0
MOST_COARSE = 900
CUT, DEEPER, DEEPEST = 12.0, 4.0, 40.0  # nats below the top at which growth stops, and by how much it goes on
RING = 1e-4  # of the mass, in the cells where growth stopped
FALLEN = 9.0  # nats by which the density must have fallen at the box's border
UNLIKELY = 16.0  # nats of mass below the best mode at which a mode is left out
NOTABLE = 6.0  # nats below the top, down to which a point seen must be covered
MOST_EXTRA = 8
HALF, SPAN = 2**30, 2**31
AROUND = np.array([(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0)], dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Lattice:
    """Cells (i, j) with centres origin + sides @ (i, j), sorted by key, and their values; -inf where not counted here."""

    origin: Floats
    sides: Floats
    keys: Keys
    values: Floats

    def centre(self, keys: Keys) -> Floats:
        """Return the centres of cells."""
        return self.origin + np.stack([keys // SPAN - HALF, keys % SPAN - HALF], axis=1) @ self.sides.T

    def place(self, v: Floats) -> Floats:
        """Return points [k, 2] in units of a cell's sides."""
        return np.asarray(np.linalg.solve(self.sides, (v - self.origin).T).T, dtype=np.float64)

    def key(self, v: Floats) -> Keys:
        """Return the cells that hold points."""
        ij = np.clip(np.rint(self.place(v)), 1 - HALF, HALF - 1).astype(np.int64)
        return np.asarray((ij[:, 0] + HALF) * SPAN + (ij[:, 1] + HALF), dtype=np.int64)

    def at(self, keys: Keys) -> Floats:
        """Return the values of cells, -inf where unknown."""
        if len(self.keys) == 0:
            return np.full(len(keys), -np.inf)
        i = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[i] == keys, self.values[i], -np.inf)

    def holds(self, v: Floats, cut: float = CUT) -> NDArray[np.bool_]:
        """Mark the points in cells from which it has grown."""
        return self.at(self.key(v)) >= self.values.max() - cut

    def with_cells(self, keys: Keys, values: Floats) -> Lattice:
        """Add cells."""
        keys, values = np.concatenate([self.keys, keys]), np.concatenate([self.values, values])
        order = np.argsort(keys)
        return Lattice(self.origin, self.sides, keys[order], values[order])


def cover(log_density: LogDensity, box: Box, modes: list[Mode], seen: Floats, values: Floats) -> list[Lattice]:
    """Cover what lies around the modes, and around every point seen that is nearly as high, with coarse cells.

    Raises InferenceError where the density has not fallen at the box's border, or falls too slowly for a grid.
    """
    mass = np.array([mode.value + np.log(np.abs(np.linalg.det(mode.shape))) for mode in modes])
    lattices: list[Lattice] = []
    for mode, log_mass in zip(modes, mass, strict=True):
        if log_mass >= mass.max() - UNLIKELY and not any(lattice.holds(mode.point[None])[0] for lattice in lattices):
            lattices.append(_around(log_density, box, mode, lattices))
    left = np.flatnonzero(values >= max(mode.value for mode in modes) - NOTABLE)
    for _ in range(MOST_EXTRA):
        for lattice in lattices:
            left = left[~lattice.holds(seen[left])]
        if len(left) == 0:
            break
        best = left[values[left].argmax()]
        lattices.append(_around(log_density, box, Mode(seen[best], float(values[best]), modes[0].shape), lattices))
    return lattices


def _around(log_density: LogDensity, box: Box, mode: Mode, others: list[Lattice]) -> Lattice:
    size, cut = SIZE, CUT
    lattice = empty = _empty(mode, size)
    while size < SIZE * COARSEN**4 and cut <= DEEPEST:
        grown = _grow(log_density, box, lattice, empty.key(mode.point[None]), others, cut)
        if grown is None:
            size, cut = size * COARSEN, CUT
            lattice = empty = _empty(mode, size)
            continue
        lattice = grown
        share = np.exp(lattice.values - lattice.values.max())
        if share[lattice.values < lattice.values.max() - cut].sum() <= RING * share.sum():
            _check_border(box, lattice)
            return lattice
        cut += DEEPER
    msg = "the posterior of two parameters spreads over too many scales for a grid; infer with a narrower prior"
    raise InferenceError(msg)


def _empty(mode: Mode, size: float) -> Lattice:
    return Lattice(mode.point, mode.shape * size, np.empty(0, dtype=np.int64), np.empty(0))


def _grow(log_density: LogDensity, box: Box, lattice: Lattice, seeds: Keys, others: list[Lattice], cut: float) -> Lattice | None:
    """Add neighbours of every cell within ``cut`` of the top until there are none; None where they are too many."""
    new = seeds
    while True:
        new = np.setdiff1d(new, lattice.keys)
        if len(new):
            v = lattice.centre(new)
            counts = box.contains(v)
            for other in others:
                counts &= ~other.holds(v)
            values = np.full(len(new), -np.inf)
            values[counts] = evaluate(log_density, v[counts])
            lattice = lattice.with_cells(new, values)
        high = lattice.keys[lattice.values >= lattice.values.max() - cut]
        if len(lattice.keys) > MOST_COARSE or not np.isfinite(lattice.values.max()):
            return None
        neighbours = _neighbours(high)
        if np.isin(neighbours, lattice.keys).all():
            return lattice
        new = neighbours


def _neighbours(keys: Keys) -> Keys:
    return np.unique(keys[:, None] + AROUND[:, 0] * SPAN + AROUND[:, 1])


def _check_border(box: Box, lattice: Lattice) -> None:
    outside = lattice.keys[~box.contains(lattice.centre(lattice.keys))]
    if len(outside) and (lattice.at(_neighbours(outside)) >= lattice.values.max() - FALLEN).any():
        msg = "the release contradicts the prior: the posterior lies beyond its extreme quantiles; infer with a wider prior"
        raise InferenceError(msg)
