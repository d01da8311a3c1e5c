"""Distances: one a file; a file's name is its name in the pipeline file.

A distance compares data sets in whole steps, and knows how many steps one record can move it. Most are functions of sums
(``core.of_sums``), so that the sensitive records are reduced once and simulations never meet them; a file's ``plugin`` makes one
from public facts. ``recordwise`` compares records one by one, beside them.
"""

from __future__ import annotations

from typing import Protocol

from dp_dask.core.privacy import Neighbours

__all__ = ["Distance"]


class Distance(Protocol):
    """A distance of data sets from the sensitive one."""

    @property
    def step(self) -> float:
        """What one step is worth."""
        ...

    def sensitivity(self, neighbours: Neighbours) -> int:
        """Return the most steps that neighbouring data sets can differ by in their distance from any one data set."""
        ...
