"""Show what a run would read."""

from __future__ import annotations

from rich.console import Console

from dp_dask.source_plan import SourcePlan
from dp_dask.terminal import MOST_ROWS, make_table

__all__ = ["source_plan"]


def source_plan(console: Console, plan: SourcePlan) -> None:
    """Print the columns' types, how many tasks would read the records and what the first ones take."""
    table = make_table("column", "type")
    for name, kind in list(plan.columns.items())[:MOST_ROWS]:
        table.add_row(name, kind)
    console.print(table)
    rest = "" if plan.splits == len(plan.first) else "; .."
    tasks = "1 task" if plan.splits == 1 else f"{plan.splits} tasks"
    console.print(f"{tasks} would read: {'; '.join(plan.first)}{rest}", soft_wrap=True)
