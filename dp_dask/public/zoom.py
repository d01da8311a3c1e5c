"""Zoom: find the cells that hold a one-dimensional posterior, by a rough likelihood."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.priors import Prior
from dp_dask.errors import InferenceError
from dp_dask.public.grid import CUT, Cells

__all__ = ["Guide", "find_cells"]

Floats = NDArray[np.float64]
COARSE, MOST_CELLS = 64, 4096
RESOLVED = 0.15  # half a cell moves the mean of y by at most this many of its standard deviations


@dataclass(frozen=True, slots=True)
class Guide:
    """A rough likelihood that is sound however far y lies from its mean.

    ``moments`` gives the mean and variance of S at theta, ``log_density`` log p(y) at such a pair; ``noise`` is the variance
    that y has beside that of S.
    """

    moments: Callable[[Floats], tuple[Floats, Floats]]
    log_density: Callable[[Floats, Floats], Floats]
    noise: float


def find_cells(prior: Prior, guide: Guide) -> Cells:
    """Zoom to the cells that hold the posterior, whatever its modes, from the prior's extreme quantiles down.

    A coarse cell is judged by its average likelihood, not by that of its midpoint: the variance of y is raised by a third of
    the square of what half a cell moves its mean by, so that a mode between two midpoints is not lost. (A zoom that chases
    the best midpoint was measured to fail.)
    """
    low, high = prior.coordinate_range()
    cells = Cells(np.array([low]), np.array([high])).split(COARSE)
    for _ in range(100):
        points = prior.parameter(np.concatenate([cells.left, cells.middle, cells.right]))
        (left, middle, right), (_, variance, _) = (values.reshape(3, -1) for values in guide.moments(points))
        jump = np.abs(right - left) / 2
        density = prior.log_density(cells.middle) + guide.log_density(middle, variance + jump**2 / 3)
        density += np.log(cells.right - cells.left)
        top = density.max()
        if not np.isfinite(top):
            break
        mask = density >= top - CUT
        is_coarse = mask & (jump > RESOLVED * np.sqrt(variance + guide.noise))
        near = cells.near(mask)
        cells, is_coarse = cells.keep(mask), is_coarse[near]
        if len(cells) > MOST_CELLS:
            return cells
        if len(cells) < COARSE // 2:
            cells = cells.split(max(COARSE // len(cells), 2))
        elif is_coarse.any():
            cells = cells.split_some(is_coarse, 2)
        else:
            return cells
    msg = "the likelihood of this release is not finite anywhere under the prior; look at the bounds, n and the prior"
    raise InferenceError(msg)
