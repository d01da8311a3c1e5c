"""The command line's ledger: who may spend how much epsilon on which data set."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import click

from dp_dask.errors import ConfigError

__all__ = ["FILE", "JSON", "ledger"]

FILE = click.argument("file", type=click.Path(path_type=Path))
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")


@click.group()
def ledger() -> None:
    """The budget: who may spend how much epsilon on which data set."""


class _Epsilon(click.ParamType[Decimal]):
    name = "epsilon"

    def convert(self, value: Any, _param: Any, _context: Any) -> Decimal:
        from dp_dask.core.privacy import exact_epsilon  # noqa: PLC0415

        try:
            return exact_epsilon(Decimal(value))
        except InvalidOperation:
            problem = f"is {value!r}; give a decimal number such as 0.5"
        except ValueError as error:
            problem = str(error)
        raise ConfigError.of("--epsilon", problem)


EPSILON = click.option("--epsilon", required=True, type=_Epsilon(), help="The amount, a decimal number.")
WHY = click.option("--why", default="", help="A reason, kept in the ledger.")


@ledger.command("init")
@FILE
@EPSILON
@WHY
def ledger_init(file: Path, epsilon: Decimal, why: str) -> None:
    """Make FILE's ledger and give its data set a first budget; a repeat changes nothing."""
    _with_ledger(file, lambda book, p, who: book.open_dataset(p.dataset, p.neighbours, epsilon, who=who, why=why))


@ledger.command("grant")
@FILE
@EPSILON
@WHY
def ledger_grant(file: Path, epsilon: Decimal, why: str) -> None:
    """Add to the budget of FILE's data set."""
    _with_ledger(file, lambda book, p, who: book.grant(p.dataset, epsilon, who=who, why=why))


@ledger.command("show")
@FILE
@JSON
def ledger_show(file: Path, *, as_json: bool) -> None:
    """Show every data set of FILE's ledger: granted, spent and left."""
    from dp_dask import show  # noqa: PLC0415

    show.balances(_open(file, lambda book, _p, _who: book.balances()), as_json=as_json)


@ledger.command("verify")
@FILE
@JSON
def ledger_verify(file: Path, *, as_json: bool) -> None:
    """Recompute the chain of entries and the sums of FILE's ledger."""
    count = _open(file, lambda book, _p, _who: book.verify())
    click.echo(json.dumps({"entries": count, "sound": True}) if as_json else f"{count} entries, all sound")


def _with_ledger(file: Path, action: Callable[[Any, Any, str], Any]) -> None:
    balance = _open(file, action)
    click.echo(f"{balance.dataset}: {balance.granted} granted, {balance.spent} spent, {balance.left} left ({balance.neighbours})")


def _open(file: Path, action: Callable[[Any, Any, str], Any]) -> Any:
    from dp_dask.config import load  # noqa: PLC0415
    from dp_dask.gate.ledger import Ledger  # noqa: PLC0415
    from dp_dask.pipeline import who  # noqa: PLC0415

    pipeline = load(file)
    book = Ledger(pipeline.ledger)
    try:
        return action(book, pipeline, who())
    finally:
        book.close()
