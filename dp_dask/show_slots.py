"""Show slots: what is there of a scheduled run, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["of_slot"]


def of_slot(told: Mapping[str, Any]) -> str:
    """Say which releases of a slot the ledger has, where their files go, and which slots before it are missing."""
    there = [name for name, is_there in told["released"].items() if is_there]
    new = [name for name in told["released"] if name not in there]
    if not new:
        state = "released already; a run charges nothing"
    elif there:
        state = f"released already: {', '.join(there)}; a run charges for {', '.join(new)}"
    else:
        state = "not released yet"
    files = "files" if told["written"] else "files of a run will be"
    lost = f"\nmissing before it: {', '.join(told['missed'])}" if told["missed"] else ""
    return f"slot {told['slot']}: {state}\n{files} in: {told['folder']}{lost}"
