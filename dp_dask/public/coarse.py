"""Coarse: one contribution on a lattice as wide as the noise allows, so that exact inference costs little.

A contribution between two nodes is split over the two nodes on each side of it by cubic interpolation, which leaves its mean,
variance and third moment as they are, however many records are added up; no power of the split law's characteristic function
grows (|phi| <= 1, as for every centred Lagrange interpolation of odd degree). Noise of scale b makes p(y | S) smooth but at y
itself. Neighbouring cells of the grid within half a step are taken together; what that moves of the three moments is put back
from their closed forms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dp_dask.public.moments import closed
from dp_dask.public.noise_law import Gaussian
from dp_dask.public.observation import Observation, cell_table, probabilities

__all__ = ["CoarseLaw", "coarsened"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
PER_SCALE = 16.0  # steps in a noise scale
PER_RANGE = 16.0  # steps in the range of a contribution
PER_SD = 4.0  # steps in the sd of the sum
MOST_PER_SCALE = 100.0  # steps in a noise scale, where it is far wider than a contribution
SURELY = 12.0  # noise scales of the count below the guess that n is taken to reach
MERGED = 0.5  # of a step, over which cells are taken together
WORTH = 2.0  # times fewer cells, or merging is not worth it
CLOSE = 3e-4  # of a power of the sd of y, by which n closed-form cumulants may differ from those over the cells
PROBES = 5


@dataclass(frozen=True, slots=True)
class CoarseLaw:
    """One record's contribution on the nodes ``first`` .. ``last``, in steps of ``step`` grid units around 0.

    ``starts`` are the cells that begin a group of cells, ``split`` [group, node] their weights.
    """

    observation: Observation
    step: int
    first: int
    last: int
    starts: Ints
    split: Floats
    unmerged: CoarseLaw | None  # the same with every cell for itself; None where it is so already

    @property
    def nodes(self) -> Floats:
        """The nodes, in steps."""
        return np.arange(self.first, self.last + 1, dtype=np.float64)

    def pmf(self, theta: Floats) -> Floats:
        """Return the nodes' signed weights [theta, node], which sum to 1."""
        observation = self.observation
        indices, edges, _ = cell_table(observation.statistic)
        kept = self.starts[1:] - 1
        column = np.asarray(theta, dtype=np.float64)[:, None]
        inside, tails = probabilities(observation.model, observation.statistic, indices[kept], edges[kept], column)
        weights: Floats = inside @ self.split
        weights[:, -self.first] += tails
        return self._corrected(theta, weights) if self.unmerged else weights

    def _corrected(self, theta: Floats, weights: Floats) -> Floats:
        """Move what little mass it takes, around the node nearest to the mean, to give the weights the cells' three moments."""
        nodes = self.nodes
        mean, *_ = (wanted := _moments(self.observation, theta, self.step))
        at = np.clip(np.floor(mean), self.first + 1, self.last - 2)
        d1, d2, d3 = (moment - weights @ nodes**k for k, moment in enumerate(wanted, start=1))
        d2, d3 = d2 - 2 * at * d1, d3 - 3 * at * d2 + 3 * at**2 * d1  # about that node
        third = (d3 - d1) / 6
        above, below = (d2 + d1) / 2 - 3 * third, (d2 - d1) / 2 - third
        rows, places = np.arange(len(theta)), (at - self.first).astype(np.int64)
        for offset, moved in ((-1, below), (0, -below - above - third), (1, above), (2, third)):
            weights[rows, places + offset] += moved
        return weights


def coarsened(observation: Observation, theta: Floats) -> CoarseLaw | None:
    """Choose the steps for an observation and parameters like these; None where the grid is as coarse already.

    None too under Gaussian noise, whose own fall at high frequencies leaves a Fourier sum few terms on any grid.

    The nodes are 0 and multiples of the step. It is a sixteenth of the noise scale; and, so that y's kink is smoothed out, a
    sixteenth of the range of a contribution or a quarter of the sd of the sum of as many records as there are for sure.
    """
    if observation.law is Gaussian:
        return None
    statistic = observation.statistic
    surely = observation.n_guess
    if observation.n is None:
        surely = max(surely - SURELY * observation.scale / statistic.count_weight, 0.0)
    _, variance = observation.quick_moments(theta)
    sd = math.sqrt(surely * float(np.nan_to_num(variance).min()))
    finest = max((observation.high - observation.low) / PER_RANGE, sd / PER_SD, observation.scale / MOST_PER_SCALE)
    step = math.floor(min(observation.scale / PER_SCALE, finest))
    if step <= WORTH or observation.n == 0:
        return None
    _, _, contributions = cell_table(statistic)
    first, last = observation.low // step - 1, observation.high // step + 2
    whole = np.arange(len(contributions))
    split = _cubics(contributions / step, first, last)
    law = CoarseLaw(observation, step, first, last, whole, split, None)
    bucket = np.floor(contributions / (MERGED * step))
    is_start = np.concatenate([[True], bucket[1:] != bucket[:-1]])
    is_start[1:2] = is_start[-1:] = True  # the ends hold what was clamped
    starts = np.flatnonzero(is_start)
    if WORTH * len(starts) > len(whole) or not _is_close(observation, theta):
        return law
    sizes = np.diff(np.append(starts, len(whole)))
    return replace(law, starts=starts, split=np.add.reduceat(split, starts) / sizes[:, None], unmerged=law)


def _cubics(places: Floats, first: int, last: int) -> Floats:
    """Return the weights [place, node] of the four nodes around each place, in steps (Lagrange)."""
    below = np.floor(places)
    f = places - below
    split = np.zeros((len(places), last - first + 1))
    rows, node = np.arange(len(places)), (below - first).astype(np.int64)
    split[rows, node - 1] = -f * (f - 1) * (f - 2) / 6
    split[rows, node] = (f + 1) * (f - 1) * (f - 2) / 2
    split[rows, node + 1] = -(f + 1) * f * (f - 2) / 2
    split[rows, node + 2] = (f + 1) * f * (f - 1) / 6
    return split


def _moments(observation: Observation, theta: Floats, step: int) -> list[Floats]:
    """Return the closed forms of E[c^k], k = 1, 2, 3, in steps."""
    return [
        moment / float(step) ** k for k, moment in enumerate(closed(observation.model, observation.statistic, theta, 3), start=1)
    ]


def _is_close(observation: Observation, theta: Floats) -> bool:
    """Whether the closed-form cumulants are those of the cells, at some of the parameters."""
    probes = theta[np.linspace(0, len(theta) - 1, PROBES).astype(int)]
    exact = observation.moments(probes)
    n = observation.n_guess
    with np.errstate(invalid="ignore", over="ignore"):
        mean, second, third = _moments(observation, probes, 1)
        found = (mean, second - mean**2, third - 3 * mean * second + 2 * mean**3)
        sd = np.sqrt(n * exact.variance + 2 * observation.scale**2)
        pairs = enumerate(zip(found, exact[:3], strict=True), start=1)
        return all(bool((n * np.abs(one - other) <= CLOSE * sd**k).all()) for k, (one, other) in pairs)
