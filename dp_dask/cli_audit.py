"""The command line's audit: what an installation claims, tried on made-up records."""

from __future__ import annotations

import sys

import click

from dp_dask.cli_ledger import JSON

__all__ = ["audit"]

FEWEST, MOST = 1_000, 10**7


@click.command()
@click.option("--runs", default=100_000, show_default=True, type=click.IntRange(FEWEST, MOST), help="Of each mechanism, a side.")
@click.option("--seed", default=1, show_default=True, type=click.IntRange(0, 2**62), help="Of records and of seeded noise.")
@JSON
def audit(runs: int, seed: int, *, as_json: bool) -> None:
    """Try what this installation claims, and whether planted faults are caught; exit 1 if not. No records, no budget."""
    from dp_dask import show  # noqa: PLC0415
    from dp_dask.audit import audit as make_audit  # noqa: PLC0415
    from dp_dask.audit.telling import tell  # noqa: PLC0415

    with show.progress() as progress:
        made = make_audit(runs, seed, progress=progress)
    tell(made, as_json=as_json)
    if made.failures:
        sys.exit(1)
