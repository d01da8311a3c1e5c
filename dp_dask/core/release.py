"""Request and Release: what is asked of the records, and what may leave them."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from dp_dask.core.privacy import Neighbours
from dp_dask.core.statistic import BoundedSum

__all__ = ["INSECURE", "Release", "Request"]

INSECURE = "insecure"  # the sampler's name where noise came from a seed


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One noisy sum, in full: equal requests on the same data version share one release and one charge."""

    dataset: str
    statistic: BoundedSum
    neighbours: Neighbours
    n: int | None  # the public number of records under replace, None where it is private
    epsilon: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A noisy sum with all that inference needs; safe to print, store and publish.

    ``noisy_sum`` (and ``noisy_count``, where n is private) are in grid units, each with independent discrete
    Laplace noise, P(k) proportional to exp(-|k| / scale). In the units of the statistic a noise of one
    grid unit is ``statistic.grid.unit``. ``privacy_loss`` is what OpenDP's privacy map gives for ``scale`` and
    ``sensitivity``, rounded outwards; it never exceeds ``request.epsilon``.
    """

    id: str
    created: str  # UTC, with offset
    request: Request
    mechanism: Literal["discrete_laplace"] = "discrete_laplace"
    sampler: str
    sensitivity: int
    scale: float
    privacy_loss: float
    noisy_sum: int
    noisy_count: int | None
