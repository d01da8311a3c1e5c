"""How many records a total may be of, and totals of several requests cut apart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise

from dp_dask.core.grid import MAX_PRIVATE_RECORDS
from dp_dask.core.public_n import wrong_n
from dp_dask.core.sensitive import Sensitive, reveal
from dp_dask.core.statistic import Total

__all__ = ["cut", "refusal"]


def refusal(n_records: int, wanted: Iterable[int | None]) -> str:
    """Say why a total of so many records cannot be released for requests of these n, None for a private one; empty if it can.

    A text and no exception, whose frames would hold the number.
    """
    for n in wanted:
        if n is not None and n_records != n:
            return wrong_n(n)
    if n_records > MAX_PRIVATE_RECORDS:
        return f"more than {MAX_PRIVATE_RECORDS} records: beyond what the integer sums are proven for"
    return ""


def cut(sealed: Sensitive[Total], sizes: Sequence[int]) -> list[Sensitive[Total]]:
    """Cut sums into parts of these sizes, each with the number of records."""
    ends = accumulate(sizes, initial=0)
    return [Sensitive(Total(reveal(sealed).sums[start:end], reveal(sealed).n_records)) for start, end in pairwise(ends)]
