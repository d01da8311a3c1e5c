"""How many records a total may be of."""

from __future__ import annotations

from collections.abc import Iterable

from dp_dask.core.grid import MAX_PRIVATE_RECORDS
from dp_dask.core.public_n import wrong_n

__all__ = ["refusal"]


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
