"""Cells of pooled groups: likelihoods of one group each on common nodes, integrated against normal densities in closed form.

Between two nodes a likelihood is linear, beyond the outermost ones constant, so that its integral against Normal(mu, tau^2)
is a sum of normal probabilities and densities whatever tau is: wider than all cells, or narrower than one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import interpolate, special

from dp_dask.core.pooled import Pooled
from dp_dask.public.grid import GridPosterior

__all__ = ["Block", "Known", "blocks", "integrals", "known"]

Floats = NDArray[np.float64]
LOWEST = -100.0  # nats: no likelihood is further below its group's largest
THIN = 2.0  # cells of a group's own grid to a common one
GROUPS = 64  # that share nodes: those of like width near each other


@dataclass(frozen=True, slots=True)
class Known:
    """What a group's own release says of v: log likelihoods on disjoint cells, with the posterior's mean and sd."""

    left: Floats
    right: Floats
    middle: Floats
    log_likelihood: Floats
    mean: float
    sd: float

    def holds(self, v: Floats) -> NDArray[np.bool_]:
        """Mark the points that lie in a cell."""
        i = np.maximum(np.searchsorted(self.left, v, side="right") - 1, 0)
        return np.asarray((v >= self.left[i]) & (v <= self.right[i]))

    def at(self, v: Floats) -> Floats:
        """Return the likelihood: by a spline of its log in the cells, beside them no less than it is known to be at most."""
        spline = interpolate.CubicSpline(self.middle, self.log_likelihood)
        beside = np.interp(v, self.middle, self.log_likelihood)
        found = np.where(self.holds(v), spline(np.clip(v, self.middle[0], self.middle[-1])), beside)
        return np.exp(np.clip(found, LOWEST, 1))  # the largest may lie between cells


@dataclass(frozen=True, slots=True)
class Block:
    """Groups that are alike, and their likelihoods [group, node] on nodes [node] that resolve them all."""

    members: tuple[int, ...]
    nodes: Floats
    likelihood: Floats

    def log_evidence(self, mu: Floats, tau: Floats) -> Floats:
        """Return sum_g log integral L_g(v) Normal(v; mu, tau^2) dv [k] at mu and tau [k]."""
        weights = np.zeros((len(mu), len(self.nodes)))
        to_left, to_right, below, above = integrals(self.nodes, mu, tau)
        weights[:, :-1] += to_left
        weights[:, 1:] += to_right
        weights[:, 0] += below
        weights[:, -1] += above
        return np.asarray(np.log(weights @ self.likelihood.T).sum(axis=1))


def known(grid: GridPosterior, prior: Pooled) -> Known:
    """Return the likelihood that made a posterior under ``prior``, by Bayes' theorem read backwards."""
    cells = grid.cells
    log_prior = prior.log_density(cells.middle) + np.log(cells.right - cells.left)
    with np.errstate(divide="ignore"):
        log_likelihood = np.maximum(np.log(grid.weights) - log_prior, -1e300)
    middle = prior.unconstrained(cells.middle)
    mean = float(grid.weights @ middle)
    return Known(
        left=prior.unconstrained(cells.left),
        right=prior.unconstrained(cells.right),
        middle=middle,
        log_likelihood=np.maximum(log_likelihood - log_likelihood.max(), LOWEST),
        mean=mean,
        sd=math.sqrt(float(grid.weights @ (middle - mean) ** 2)),
    )


def blocks(groups: Sequence[Known]) -> list[Block]:
    """Put the groups into blocks of 64, in the order of their posterior means, those within a factor 4 in sd together."""
    order = np.lexsort(([group.mean for group in groups], [math.floor(math.log2(group.sd) / 2) for group in groups]))
    made = []
    for start in range(0, len(order), GROUPS):
        members = tuple(int(i) for i in order[start : start + GROUPS])
        nodes = _common([groups[i] for i in members])
        made.append(Block(members, nodes, np.stack([groups[i].at(nodes) for i in members])))
    return made


def _common(groups: Sequence[Known]) -> Floats:
    """Return nodes that are everywhere as dense as the densest of the groups' own cells, thinned by two."""
    edges = np.unique(np.concatenate([part for group in groups for part in (group.left, group.right)]))
    middles, density = (edges[:-1] + edges[1:]) / 2, np.zeros(len(edges) - 1)
    for group in groups:
        i = np.maximum(np.searchsorted(group.left, middles, side="right") - 1, 0)
        inside = (middles >= group.left[i]) & (middles <= group.right[i])
        np.maximum(density, np.where(inside, 1 / (group.right[i] - group.left[i]), 0), out=density)
    count = np.concatenate([[0.0], np.cumsum(density * np.diff(edges))]) / THIN
    nodes = np.interp(np.linspace(0, count[-1], math.ceil(count[-1]) + 1), count, edges)
    return np.unique(nodes)


def integrals(nodes: Floats, mu: Floats, tau: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Integrate against Normal(mu, tau^2), mu and tau [k], the hats between neighbouring nodes and what lies beyond them.

    Returns the integrals [k, interval] of the function that falls from 1 to 0 over each interval, and of that which rises
    there; then the probabilities [k] below the first node and above the last.
    """
    with np.errstate(over="ignore"):
        z = (nodes - mu[:, None]) / tau[:, None]
        fall = -np.diff(np.exp(-0.5 * z * z), axis=1) / math.sqrt(2 * math.pi)
    below, above = special.ndtr(z), special.ndtr(-z)
    # Differences in the tail where both terms are small.
    p = np.maximum(np.where(z[:, :-1] > 0, above[:, :-1] - above[:, 1:], below[:, 1:] - below[:, :-1]), 0)
    rising = ((mu[:, None] - nodes[:-1]) * p + tau[:, None] * fall) / np.diff(nodes)
    rising = np.clip(rising, 0, p)
    return p - rising, rising, below[:, 0], above[:, -1]
