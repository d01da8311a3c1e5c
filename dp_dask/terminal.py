"""Terminal: how tables and numbers look there."""

from __future__ import annotations

import json
import sys
from typing import Any

from rich.console import Console
from rich.table import Table

__all__ = ["MOST_ROWS", "make_console", "make_table", "number", "print_json"]

MOST_ROWS = 40  # of a table on a terminal; files and --json hold all


def number(value: float | None) -> str:
    """Show four significant figures, or that there is none."""
    return "none" if value is None else f"{value:.4g}"


def make_console() -> Console:
    """Make a console of the terminal's width, or of 120 columns where the output goes elsewhere."""
    return Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 120)


def make_table(*columns: str) -> Table:
    """Make a table without lines."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column)
    return table


def print_json(value: Any) -> None:
    """Print one JSON object as a line."""
    sys.stdout.write(json.dumps(value, allow_nan=False) + "\n")
