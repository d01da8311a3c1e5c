"""Distances: one a file; a file's name is its name in the pipeline file.

A distance compares data sets in whole steps, and knows how many steps one record can move it. Most are functions of sums
(``core.of_sums``), so that the sensitive records are reduced once and simulations never meet them; ``recordwise`` compares
records one by one, beside them. To add one is to add a file whose ``plugin`` is a frozen dataclass with ``Options``'s method.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from dp_dask.core.bounds import Bounds
from dp_dask.core.privacy import Neighbours

__all__ = ["ChooseBandwidth", "Distance", "Options", "bounds_of"]

ChooseBandwidth = Callable[[tuple[str, ...]], float]  # of columns: a bandwidth that no sensitive record has a part in


class Distance(Protocol):
    """A distance of data sets from the sensitive one."""

    @property
    def step(self) -> float:
        """What one step is worth."""
        ...

    def sensitivity(self, neighbours: Neighbours) -> int:
        """Return the most steps that neighbouring data sets can differ by in their distance from any one data set."""
        ...


class Options(Protocol):
    """What a pipeline file says of a distance: its fields are the entries."""

    def make(self, n: int, choose: ChooseBandwidth, /) -> Distance:
        """Make the distance of data sets of n records, a public number; raises ValueError for what cannot be."""
        ...


def bounds_of(columns: Mapping[str, tuple[float, float]]) -> dict[str, Bounds]:
    """Return columns' bounds, in the order of their names: the same question in another order is the same request.

    Raises ValueError for ends that are none.
    """
    return {name: Bounds(*ends) for name, ends in sorted(columns.items())}
