"""Names of data sets and measurements: safe in a file name, a variable name and a log."""

from __future__ import annotations

__all__ = ["NAME", "is_name"]

NAME = "letters, digits, '.', '_' and '-'"


def is_name(text: str) -> bool:
    """Tell whether a name is of those characters alone."""
    return bool(text) and all(c.isascii() and (c.isalnum() or c in "._-") for c in text)
