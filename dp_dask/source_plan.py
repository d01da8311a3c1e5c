"""Source plan: what a run would read, from names and schemas alone; of the records' values and number it tells nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from dp_dask.private.filtered import Filtered
from dp_dask.private.sources import Look, Source, Split, here

__all__ = ["SourcePlan", "source_plan"]

MOST_SPLITS = 3
MOST_PARTS = 3


@dataclass(frozen=True, slots=True)
class SourcePlan:
    """The columns that are used with their types, and the splits: how many there are, and what the first of them read."""

    columns: dict[str, str]
    splits: int
    first: tuple[str, ...]


def source_plan(source: Source, measured: Iterable[str], look: Look = here) -> SourcePlan:
    """Plan a run over the measured columns and those of conditions; raises SourceError where there is nothing to read."""
    with source.pinned(look) as pinned:
        schema, splits = look(pinned.schema), look(pinned.plan)
    conditions = source.where.columns if isinstance(source, Filtered) else []
    used = sorted({*measured, *conditions})
    types = {name: str(schema.field(name).type) if name in schema.names else "not in the first file" for name in used}
    pieces = Counter(part.path for split in splits for part in split.parts)
    seen: Counter[str] = Counter()
    return SourcePlan(types, len(splits), tuple(_told(split, pieces, seen) for split in splits[:MOST_SPLITS]))


def _told(split: Split, pieces: Counter[str], seen: Counter[str]) -> str:
    """Name what a split reads, without sizes: they would tell of the number of records."""
    names = []
    for part in split.parts:
        seen[part.path] += 1
        whole = pieces[part.path] == 1
        names.append(part.path if whole else f"{part.path} (piece {seen[part.path]} of {pieces[part.path]})")
    more = len(names) - MOST_PARTS
    return (", ".join(names[:MOST_PARTS]) or "nothing") + (f" and {more} more" if more > 0 else "")
