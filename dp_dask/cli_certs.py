"""The command line's certificates: who may talk to a cluster."""

from __future__ import annotations

from pathlib import Path

import click

__all__ = ["certs"]


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--days", type=click.IntRange(1, 3650), default=90, show_default=True, help="How long they are valid.")
def certs(folder: Path, days: int) -> None:
    """Make a certificate authority for one cluster, and the certificate that its parts and you share, in FOLDER."""
    from dp_dask.hardened.certs import make_certs  # noqa: PLC0415

    for path in make_certs(folder, days):
        click.echo(path)
