"""CategoryCounts: how many records are in each of a public list of categories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dp_dask.core.privacy import Neighbours

__all__ = ["MOST_CATEGORIES", "CategoryCounts"]

MOST_CATEGORIES = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoryCounts:
    """One count for each category; a null, or a value that is not listed, is counted nowhere.

    Categories are texts or whole numbers, not both, and compare by value. Where n is private no count of all records is
    released: the counts hold it already.
    """

    column: str
    categories: tuple[str, ...] | tuple[int, ...]  # texts first: pydantic would read "1" as a number

    count_weight: ClassVar[int] = 0
    largest: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if not 2 <= len(self.categories) <= MOST_CATEGORIES:  # noqa: PLR2004
            msg = f"{len(self.categories)} categories; give from 2 to {MOST_CATEGORIES}"
            raise ValueError(msg)
        if len({type(category) for category in self.categories}) > 1:
            msg = "categories mix whole numbers and texts; quote all of them or none"
            raise ValueError(msg)
        if len(set(self.categories)) < len(self.categories):
            msg = "a category is listed twice"
            raise ValueError(msg)

    @property
    def is_text(self) -> bool:
        """Whether the categories are texts."""
        return isinstance(self.categories[0], str)

    @property
    def columns(self) -> tuple[str, ...]:
        """The one column."""
        return (self.column,)

    @property
    def units(self) -> tuple[float, ...]:
        """Counts are whole numbers."""
        return (1.0,) * len(self.categories)

    def sensitivity(self, neighbours: Neighbours) -> int:
        """Return the largest L1 change of the counts: 2 where a record is replaced, 1 where one is added or removed.

        Proof: a record is counted in one cell at most, so replacing it lowers one count and raises another.
        """
        return 2 if neighbours is Neighbours.REPLACE else 1

    def squared_sensitivity(self, neighbours: Neighbours) -> int:
        """Return the square of the largest L2 change of the counts: 2 where a record is replaced, 1 where one comes or goes.

        Proof: one count changes by 1, or one by 1 and another by -1.
        """
        return 2 if neighbours is Neighbours.REPLACE else 1
