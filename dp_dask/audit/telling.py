"""Telling: an audit on a terminal, as tables, or as one JSON object."""

from __future__ import annotations

import json

from rich.console import Console

from dp_dask.audit.results import Audit
from dp_dask.terminal import make_console, make_table, number

__all__ = ["tell"]


def tell(made: Audit, *, as_json: bool) -> None:
    """Print every claim and every planted fault, and in one line what the audit says."""
    if as_json:
        print(json.dumps(made.plain()))  # noqa: T201
        return
    console = make_console()
    _claims(console, made)
    _controls(console, made)
    console.print()
    console.print(
        f"dp-dask {made.version}, {made.sampler}: {made.runs} runs on each of two neighbours, seed {made.seed}, "
        f"{made.seconds:.0f} s; a right build fails with probability {made.false_alarm:g} at most",
        soft_wrap=True,
    )
    for failure in made.failures:
        console.print(f"FAILED {failure}", soft_wrap=True)
    if not made.failures:
        console.print(f"all {len(made.claims)} claims held, all {len(made.controls)} planted faults were caught")


def _claims(console: Console, made: Audit) -> None:
    table = make_table("", "claim", "claimed", "found", "unit", "how")
    for claim in made.claims:
        limits = [number(value) if value is not None else "" for value in (claim.claimed, claim.found)]
        table.add_row("held" if claim.held else "FAILED", claim.about, *limits, claim.unit, claim.told)
    console.print(table)


def _controls(console: Console, made: Audit) -> None:
    table = make_table("", "planted fault", "check", "what it said")
    for control in made.controls:
        table.add_row("caught" if control.caught else "MISSED", control.fault, control.check, control.told)
    console.print()
    console.print(table)
