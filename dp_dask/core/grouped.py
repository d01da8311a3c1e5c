"""GroupedSum: one bounded sum, and the number of records, for each of a public list of groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dp_dask.core.categories import CategoryCounts
from dp_dask.core.privacy import Neighbours
from dp_dask.core.statistic import BoundedSum
from dp_dask.core.table_sum import TableSum

__all__ = ["GroupedSum"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedSum:
    """For each group in turn, its sum and its weighted count; a record in none of the groups contributes nothing.

    ``within`` is the statistic inside a group, of one coordinate, and its ``count_weight`` that of the group's size: a size is
    always private, also under replace, because a record may change its group.
    """

    within: BoundedSum | TableSum
    by: CategoryCounts

    count_weight: ClassVar[int] = 0  # the groups' own counts are coordinates of the sum

    def __post_init__(self) -> None:
        if len(self.within.units) != 1 or self.within.count_weight < 1:
            msg = "the statistic within a group must have one coordinate and give the group's size a weight"
            raise ValueError(msg)

    @property
    def columns(self) -> tuple[str, ...]:
        """The measured column and that of the groups."""
        return (self.within.column, self.by.column)

    @property
    def units(self) -> tuple[float, ...]:
        """A sum's unit and a count's, group by group."""
        return (self.within.units[0], 1 / self.within.count_weight) * len(self.by.categories)

    @property
    def largest(self) -> int:
        """The largest magnitude of one coordinate of a contribution."""
        return max(self.within.largest, self.within.count_weight)

    def sensitivity(self, neighbours: Neighbours) -> int:
        """Return the largest L1 change of all groups' sums and counts between neighbours, in grid units.

        Theorem: it is d where a record is added or removed and 2 d where one is replaced, with d the sensitivity of one group's
        (count, sum) to an added record. Proof: a record is in one group at most, so the change of the vector is that of one
        group's part when it is added (parallel composition); replacing it removes it from one group and adds it to another.
        """
        of_one = self.within.sensitivity(Neighbours.ADD_REMOVE)
        return of_one if neighbours is Neighbours.ADD_REMOVE else 2 * of_one

    def squared_sensitivity(self, neighbours: Neighbours) -> int:
        """Return the square of the largest L2 change of all groups' sums and counts between neighbours, in grid units.

        Theorem: with d the squared sensitivity of one group's (count, sum) to an added record and r that of its sum to a
        replaced one, it is d where a record is added or removed and max(2 d, r) where one is replaced. Proof: an added record is
        in one group at most. Replacing it changes the parts of two groups, each by d at most and on coordinates of its own, so
        that the squares add up; or it stays in its group, whose count then does not change and whose sum moves as
        that of a replaced record. r exceeds 2 d where contributions have both signs and the count weighs little.
        """
        of_one = self.within.squared_sensitivity(Neighbours.ADD_REMOVE)
        if neighbours is Neighbours.ADD_REMOVE:
            return of_one
        return max(2 * of_one, self.within.squared_sensitivity(Neighbours.REPLACE))
