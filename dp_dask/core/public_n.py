"""A public n: what is said where the data have another number of records."""

from __future__ import annotations

__all__ = ["wrong_n"]


def wrong_n(n: int) -> str:
    """Refuse without telling the right number."""
    return (
        f"privacy.n is {n}, but the data have another number of records, or of persons where they are protected; "
        "under replace n is public and must be exact: correct it, or use add_remove"
    )
