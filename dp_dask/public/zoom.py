"""Zoom: find the cells that hold a one-dimensional posterior, by a rough likelihood, in a prior that may be far wider."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.priors import Prior
from dp_dask.errors import InferenceError
from dp_dask.public.grid import CUT, NARROWEST, Cells, check_width

__all__ = ["Guide", "find_cells"]

Floats = NDArray[np.float64]
COARSE = 64
WIDTH, MOST_COARSE = 0.5, 2800  # of a cell of the first pass, and their number: over a log of 1,400 units
RESOLVED = 0.15  # half a cell moves the mean of y by at most this many of its standard deviations
MOST_CELLS = 4096


@dataclass(frozen=True, slots=True)
class Guide:
    """A rough likelihood that is sound however far y lies from its mean.

    ``moments`` gives the mean and variance of S at theta, ``log_density`` log p(y) at such a pair; ``noise`` is the variance
    that y has beside that of S. ``landmarks`` are parameters around which the law of S changes, in places far narrower perhaps
    than the prior.
    """

    moments: Callable[[Floats], tuple[Floats, Floats]]
    log_density: Callable[[Floats, Floats], Floats]
    noise: float
    y: float
    landmarks: Floats


def find_cells(prior: Prior, guide: Guide) -> Cells:
    """Zoom to the cells that hold the posterior, whatever its modes, from the prior's extreme quantiles down.

    A coarse cell is dropped where the most that it can hold, with the mean of y anywhere between its values at the cell's ends
    and middle or a quarter of their range beyond, is 18 nats below what another one holds. (A zoom that chases the best
    midpoint was measured to fail, and so was one that widens y's variance by the cell's: steep cells then beat the flat top
    of a mean that never reaches y.)
    """
    cells = _first_cells(prior, guide)
    for _ in range(100):
        edges = np.concatenate([cells.left, cells.middle, cells.right])
        mean, variance = (values.reshape(3, -1) for values in guide.moments(prior.parameter(edges)))
        log_prior = prior.log_density(edges).reshape(3, -1)
        low, high = mean.min(axis=0), mean.max(axis=0)
        jump, width = (high - low) / 2, np.log(cells.right - cells.left)
        nearest = np.clip(guide.y, low - jump / 2, high + jump / 2)
        most = np.max([guide.log_density(nearest, each) for each in variance], axis=0) + log_prior.max(axis=0) + width
        spread = np.sqrt(variance[1] + guide.noise)
        held = guide.log_density(mean[1], variance[1]) + log_prior[1] + width - np.log1p(jump / spread)
        top = np.max(held, where=np.isfinite(held), initial=-np.inf)
        if not np.isfinite(top):
            break
        mask = most >= top - CUT
        is_coarse = (mask & (jump > RESOLVED * spread))[cells.near(mask)]
        cells = cells.keep(mask)
        if (not is_coarse.any() and len(cells) >= COARSE // 2) or len(cells) > MOST_CELLS:
            return cells
        check_width(cells)
        cells = cells.split(max(COARSE // len(cells), 2)) if len(cells) < COARSE // 2 else cells.split_some(is_coarse, 4)
    msg = "the likelihood of this release is not finite anywhere under the prior; look at the bounds, n and the prior"
    raise InferenceError(msg)


def _first_cells(prior: Prior, guide: Guide) -> Cells:
    """Cover the prior's range: at least 64 cells, half a unit wide of a log or logit, and an edge at each landmark."""
    low, high = prior.coordinate_range()
    edges = np.linspace(low, high, int(np.clip((high - low) / WIDTH, COARSE, MOST_COARSE)) + 1)
    at = prior.coordinate(guide.landmarks)
    edges = np.unique(np.concatenate([edges, at[(at > low) & (at < high)]]))
    is_apart = np.append(np.diff(edges) > 4 * NARROWEST * np.maximum(np.abs(edges[1:]), 1), [True])
    edges = edges[is_apart]
    return Cells(edges[:-1], edges[1:])
