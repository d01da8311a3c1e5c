"""Fine cells of the plane: a coarse one is cut along the sides on which its midpoint tells too little of it."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from dp_dask.errors import InferenceError
from dp_dask.public.modes import Box, LogDensity, evaluate
from dp_dask.public.plane_grow import CUT, NOTABLE, Lattice

__all__ = ["Leaves", "refine"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]
MOST_LEAVES, DEEPEST = 20_000, 12
FIRST = 1e-4  # of the mass, in a coarse cell that is cut unseen
HEAVIEST, DOUBTFUL = 0.02, 1e-4  # of the mass in a leaf, and of what its size may hide
OPEN = 3e-3  # of the mean leaf's mass, in a leaf whose neighbours must be known, and at most three times as long
ODD = 0.1  # of a leaf's mass, below which a larger neighbour cannot have less without changing inside
RESOLVED, POSSIBLE = 1.2, 1e-2  # nats of bend along a side; of the mean leaf's mass, where a leaf or one beside it has more
SURPRISE = 2.0  # nats that a point may lie above the midpoint of its leaf
BENT = 0.3  # of the worse side's bend, from which a side is cut too
STEEPEST = 6.0  # nats across a leaf
MOST_FACTOR = 1.5  # of the mean over a leaf to its midpoint, along one side
HALF, SPAN = 2**30, 2**31
FACES = np.array([(1, 0), (-1, 0), (0, 1), (0, -1)])


@dataclass(frozen=True, slots=True)
class Leaves:
    """Disjoint parallelograms and the log density at their centres.

    A leaf of lattice l has the centre origin_l + sides_l @ (index / 3^level) and the sides sides_l / 3^level.
    """

    lattice: Integers  # [k]
    level: Integers  # [k, 2]
    index: Integers  # [k, 2]
    value: Floats  # [k]
    slope: Floats  # [k, 2]: nats along each side
    bend: Floats  # [k, 2]: second difference over one side, nats
    peak: Floats  # [k, 2]: the largest value among the leaf and those cut with it along each side
    doubt: Floats  # [k]: share of the mass that the leaf's size may hide; inf where nothing is known

    def __len__(self) -> int:
        return len(self.value)

    def take(self, rows: Mask | Integers) -> Leaves:
        """Keep some."""
        return Leaves(*[getattr(self, field.name)[rows] for field in fields(self)])

    def join(self, other: Leaves) -> Leaves:
        """Add others."""
        return Leaves(*[np.concatenate([getattr(self, f.name), getattr(other, f.name)]) for f in fields(self)])

    @property
    def place(self) -> Floats:
        """The centres in units of each one's lattice, [k, 2]."""
        return np.asarray(self.index / 3.0**self.level, dtype=np.float64)


def geometry(leaves: Leaves, lattices: list[Lattice]) -> tuple[Floats, Floats]:
    """Return centres [k, 2] and sides [k, 2, 2], a side a column."""
    origin = np.array([lattice.origin for lattice in lattices])[leaves.lattice]
    sides = np.array([lattice.sides for lattice in lattices])[leaves.lattice]
    return origin + (sides @ leaves.place[..., None])[..., 0], sides / (3.0**leaves.level)[:, None, :]


def weights(leaves: Leaves, lattices: list[Lattice]) -> Floats:
    """Return the mass of each leaf, summing to 1: its midpoint's times 1 + (slope^2 + bend) / 24 a side."""
    area = np.array([abs(np.linalg.det(lattice.sides)) for lattice in lattices])[leaves.lattice]
    factor = np.clip(1 + (leaves.slope**2 + leaves.bend) / 24, 1 / MOST_FACTOR, MOST_FACTOR).prod(axis=1)
    mass = np.exp(leaves.value - leaves.value.max()) * area / 3.0 ** leaves.level.sum(axis=1) * factor
    return np.asarray(mass / mass.sum(), dtype=np.float64)


def refine(log_density: LogDensity, box: Box, lattices: list[Lattice], seen: Floats, values: Floats) -> Leaves:
    """Cut each cell that is heavy, whose size may hide mass, that a point seen exceeds, or that is coarse beside a fine one.

    What size hides is estimated from a parent's mass against the sum over its children, of whose error the midpoint rule leaves
    a ninth. Raises InferenceError where 20,000 leaves do not suffice.
    """
    leaves = _coarse(lattices)
    new = np.ones(len(leaves), dtype=bool)
    notable = values >= values.max() - NOTABLE
    seen, values = seen[notable], values[notable]
    while True:
        table = _Table(leaves)
        leaves.value[_is_owned(leaves, table, lattices)] = -np.inf
        mass = weights(leaves, lattices)
        missing, coarse, probing = _open_faces(leaves, table, lattices, np.flatnonzero(new & (mass > OPEN / len(leaves))), mass)
        is_cut = np.zeros((len(leaves), 2), dtype=bool)
        is_doubtful = (mass > HEAVIEST) | (leaves.doubt > DOUBTFUL)
        for number, lattice in enumerate(lattices):
            i = table.find(number, lattice.place(seen))
            is_doubtful[i[(i >= 0) & (leaves.value[i] < values - SURPRISE)]] = True
        is_doubtful &= np.isfinite(leaves.value)
        bent = np.abs(leaves.bend) + leaves.slope**2
        is_cut[is_doubtful] = (bent >= BENT * bent.max(axis=1, keepdims=True))[is_doubtful]
        with np.errstate(invalid="ignore"):
            possible = mass[:, None] * np.exp(np.minimum(leaves.peak - leaves.value[:, None], 700)) > POSSIBLE / len(leaves)
        is_cut |= (np.abs(leaves.bend) > RESOLVED) & possible & np.isfinite(leaves.value)[:, None]
        is_cut |= coarse
        grown = _grown(log_density, box, lattices, leaves, missing)
        if not is_cut.any() and len(grown) == 0:
            return leaves
        if len(leaves) + len(grown) + 2 * is_cut.sum() > MOST_LEAVES or (leaves.level.max() > DEEPEST):
            msg = "the posterior did not settle on a grid; look at the bounds, n and the prior"
            raise InferenceError(msg)
        is_old = np.logical_not(is_cut.any(axis=1))
        old = leaves.take(is_old)
        children = [_cut(log_density, lattices, leaves, is_cut, sides) for sides in ((True, True), (True, False), (False, True))]
        added = grown
        for part in children:
            added = added.join(part)
        new = np.concatenate([probing[is_old], np.ones(len(added), dtype=bool)])
        leaves = old.join(added)


class _Table:
    """Finds leaves by position."""

    def __init__(self, leaves: Leaves) -> None:
        kind = (leaves.lattice * 64 + leaves.level[:, 0]) * 64 + leaves.level[:, 1]
        key = (leaves.index[:, 0] + HALF) * SPAN + leaves.index[:, 1] + HALF
        self.parts: list[tuple[int, int, int, Integers, Integers]] = []
        for value in np.unique(kind):
            rows = np.flatnonzero(kind == value)
            rows = rows[np.argsort(key[rows])]
            self.parts.append((int(value) // 4096, int(value) // 64 % 64, int(value) % 64, key[rows], rows))

    def find(self, lattice: int, place: Floats) -> Integers:
        """Return the leaf of a lattice that holds each place [m, 2], -1 where there is none."""
        out = np.full(len(place), -1, dtype=np.int64)
        for of, a, b, keys, rows in self.parts:
            if of == lattice:
                ij = np.rint(np.clip(place * [3.0**a, 3.0**b], 1 - HALF, HALF - 1)).astype(np.int64)
                wanted = (ij[:, 0] + HALF) * SPAN + ij[:, 1] + HALF
                i = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
                out = np.where(keys[i] == wanted, rows[i], out)
        return out


def _is_owned(leaves: Leaves, table: _Table, lattices: list[Lattice]) -> Mask:
    """Mark the leaves whose centre an earlier lattice holds in a leaf that tells of the density there."""
    out = np.zeros(len(leaves), dtype=bool)
    for number in range(1, len(lattices)):
        rows = np.flatnonzero((leaves.lattice == number) & np.isfinite(leaves.value))
        centre = geometry(leaves.take(rows), lattices)[0]
        for earlier in range(number):
            i = table.find(earlier, lattices[earlier].place(centre))
            out[rows] |= (i >= 0) & (leaves.value[i] >= leaves.value[rows] - SURPRISE)
    return out


def _coarse(lattices: list[Lattice]) -> Leaves:
    parts = []
    for number, lattice in enumerate(lattices):
        keys = lattice.keys
        index = np.stack([keys // SPAN - HALF, keys % SPAN - HALF], axis=1)
        parts.append(_unknown(number, index, lattice.values))
    leaves = parts[0]
    for part in parts[1:]:
        leaves = leaves.join(part)
    mass = weights(leaves, lattices)
    leaves.doubt[mass > FIRST] = np.inf
    return leaves


def _unknown(number: int, index: Integers, values: Floats) -> Leaves:
    """Make uncut cells, of which only the midpoint is known."""
    k = len(index)
    zeros = np.zeros((k, 2))
    return Leaves(
        np.full(k, number, dtype=np.int64),
        np.zeros((k, 2), dtype=np.int64),
        index,
        values,
        zeros,
        zeros.copy(),
        np.stack([values, values], axis=1),
        np.zeros(k),
    )


def _open_faces(
    leaves: Leaves, table: _Table, lattices: list[Lattice], rows: Integers, mass: Floats
) -> tuple[list[tuple[int, Integers]], Mask, Mask]:
    """Look beyond each face of the given leaves.

    Returns the coarse cells missing there, by lattice; the sides [k, 2] to cut of coarser neighbours: those more than three times
    as long, or with so low a midpoint that they must change inside; and which leaves [k] have to look again.
    """
    coarse, again = np.zeros((len(leaves), 2), dtype=bool), np.zeros(len(leaves), dtype=bool)
    missing = []
    for number in range(len(lattices)):
        of = np.repeat(rows[leaves.lattice[rows] == number], len(FACES))
        place = (leaves.index[of] + np.tile(FACES, (len(of) // len(FACES), 1))) / 3.0 ** leaves.level[of]
        i = table.find(number, place)
        known = i >= 0
        if (~known).any():
            missing.append((number, np.unique(np.rint(place[~known]).astype(np.int64), axis=0)))
            again[of[~known]] = True
        i, of = i[known], of[known]
        behind = leaves.level[of] - leaves.level[i]
        is_odd = mass[i] < ODD * mass[of]
        is_coarse = ((behind > 1) | ((behind > 0) & is_odd[:, None])) & np.isfinite(leaves.value[i])[:, None]
        np.logical_or.at(coarse, i, is_coarse)
        again[of[is_coarse.any(axis=1)]] = True
    return missing, coarse, again


def _grown(
    log_density: LogDensity, box: Box, lattices: list[Lattice], leaves: Leaves, missing: list[tuple[int, Integers]]
) -> Leaves:
    """Add missing coarse cells: those outside the box, or in what another lattice grew from, with no density."""
    grown = leaves.take(np.zeros(len(leaves), dtype=bool))
    for number, index in missing:
        lattice = lattices[number]
        v = lattice.origin + index @ lattice.sides.T
        counts = box.contains(v)
        for other in lattices:
            if other is not lattice:
                counts &= ~other.holds(v, CUT)
        values = np.full(len(v), -np.inf)
        values[counts] = evaluate(log_density, v[counts])
        grown = grown.join(_unknown(number, index, values))
    return grown


def _cut(log_density: LogDensity, lattices: list[Lattice], leaves: Leaves, is_cut: Mask, sides: tuple[bool, bool]) -> Leaves:
    """Cut in three, along the given sides, the leaves so marked."""
    rows = np.flatnonzero((is_cut == sides).all(axis=1) & np.isfinite(leaves.value))
    parents = leaves.take(rows)
    shape = tuple(3 if side else 1 for side in sides)
    offset = np.stack(np.meshgrid(*[np.arange(n) - n // 2 for n in shape], indexing="ij"), axis=-1).reshape(-1, 2)
    k, pieces = len(rows), len(offset)
    children = Leaves(
        np.repeat(parents.lattice, pieces),
        np.repeat(parents.level + np.array(sides, dtype=np.int64), pieces, axis=0),
        (parents.index[:, None] * np.array(shape) + offset).reshape(-1, 2),
        np.repeat(parents.value, pieces),
        np.repeat(parents.slope / np.array(shape), pieces, axis=0),
        np.repeat(parents.bend / np.array(shape) ** 2, pieces, axis=0),
        np.repeat(np.stack([parents.value, parents.value], axis=1), pieces, axis=0),
        np.zeros(k * pieces),
    )
    is_new = np.tile((offset != 0).any(axis=1), k)
    children.value[is_new] = evaluate(log_density, geometry(children.take(is_new), lattices)[0])
    # What lies 100 nats below the best sibling counts for nothing, whatever its slope.
    grid = children.value.reshape(k, *shape)
    children.peak[:] = np.stack([np.broadcast_to(grid.max(axis=j, keepdims=True), grid.shape).ravel() for j in (1, 2)], axis=1)
    grid = np.maximum(grid, grid.max(axis=(1, 2), keepdims=True) - 100)
    for axis in np.flatnonzero(sides):
        slope, bend = np.gradient(grid, axis=axis + 1), np.diff(grid, 2, axis=axis + 1)
        children.slope[:, axis] = np.clip(slope, -STEEPEST, STEEPEST).ravel()
        children.bend[:, axis] = np.broadcast_to(bend, grid.shape).ravel()
    return _doubt(lattices, leaves, parents, children, pieces)


def _doubt(lattices: list[Lattice], leaves: Leaves, parents: Leaves, children: Leaves, pieces: int) -> Leaves:
    """Share out a ninth of the change of each parent's mass among its children, by their mass."""
    if len(children) == 0:
        return children
    top = max(float(leaves.value.max()), float(children.value.max()))

    def mass(of: Leaves) -> Floats:
        area = np.array([abs(np.linalg.det(lattice.sides)) for lattice in lattices])[of.lattice]
        return np.asarray(np.exp(of.value - top) * area / 3.0 ** of.level.sum(axis=1), dtype=np.float64)

    own = mass(children).reshape(-1, pieces)
    after, before = own.sum(axis=1), mass(parents)
    total = mass(leaves).sum() + (after - before).sum()
    share = own / np.maximum(after, 1e-300)[:, None]
    children.doubt[:] = (np.abs(after - before)[:, None] / 9 * share / total).ravel()
    return children
