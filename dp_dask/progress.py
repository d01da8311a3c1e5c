"""Progress: what a long step tells of itself."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Progress", "silent"]

Progress = Callable[[str, int, int], None]  # stage, done, of


def silent(_stage: str, _done: int, _of: int) -> None:
    """Show no progress."""
