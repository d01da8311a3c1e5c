"""The command line's ledger: who may spend how much epsilon, or rho, on which data set."""

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
    """The budget: who may spend how much epsilon, or rho, on which data set."""


class _Amount(click.ParamType[Decimal]):
    def __init__(self, name: str) -> None:
        self.name = name

    def convert(self, value: Any, _param: Any, _context: Any) -> Decimal:
        from dp_dask.core.privacy import Unit, exact_amount  # noqa: PLC0415

        try:
            return exact_amount(Decimal(value), Unit(self.name))
        except InvalidOperation:
            problem = f"is {value!r}; give a decimal number such as 0.5"
        except ValueError as error:
            problem = str(error)
        raise ConfigError.of("--" + self.name, problem)


EPSILON = click.option("--epsilon", type=_Amount("epsilon"), help="The amount, a decimal number: pure differential privacy.")
RHO = click.option(
    "--rho", type=_Amount("rho"), help="The amount in place of epsilon: zero-concentrated, for Gaussian noise too."
)
WHY = click.option("--why", default="", help="A reason, kept in the ledger.")


@ledger.command("init")
@FILE
@EPSILON
@RHO
@WHY
def ledger_init(file: Path, epsilon: Decimal | None, rho: Decimal | None, why: str) -> None:
    """Make FILE's ledger and give its data set a first budget; a repeat changes nothing."""
    amount = _amount(epsilon, rho)
    _with_ledger(file, lambda book, p, who: book.open_dataset(p.dataset, p.neighbours, **amount, who=who, why=why))


@ledger.command("grant")
@FILE
@EPSILON
@RHO
@WHY
def ledger_grant(file: Path, epsilon: Decimal | None, rho: Decimal | None, why: str) -> None:
    """Add to the budget of FILE's data set."""
    amount = _amount(epsilon, rho)
    _with_ledger(file, lambda book, p, who: book.grant(p.dataset, **amount, who=who, why=why))


@ledger.command("show")
@FILE
@JSON
def ledger_show(file: Path, *, as_json: bool) -> None:
    """Show every data set of FILE's ledger: granted, spent and left; of rho also what it means at FILE's delta."""
    from dp_dask import show  # noqa: PLC0415
    from dp_dask.gate.noise import meaning  # noqa: PLC0415

    found = _open(file, lambda book, p, _who: [(b, meaning(b.unit, b.spent, p.delta)) for b in book.balances()])
    show.balances(found, as_json=as_json)


@ledger.command("verify")
@FILE
@JSON
def ledger_verify(file: Path, *, as_json: bool) -> None:
    """Recompute the chain of entries and the sums of FILE's ledger."""
    count = _open(file, lambda book, _p, _who: book.verify())
    click.echo(json.dumps({"entries": count, "sound": True}) if as_json else f"{count} entries, all sound")


def _amount(epsilon: Decimal | None, rho: Decimal | None) -> dict[str, Any]:
    """Return the one amount that is given, with its unit."""
    from dp_dask.core.privacy import Unit  # noqa: PLC0415

    if (epsilon is None) is (rho is None):
        problem = "is missing" if epsilon is None else "stands beside --rho"
        what = "give --epsilon, or --rho for a budget that Gaussian noise can be charged to, one of the two"
        raise ConfigError.of("--epsilon", f"{problem}; {what}")
    return {"amount": rho, "unit": Unit.RHO} if epsilon is None else {"amount": epsilon, "unit": Unit.EPSILON}


def _with_ledger(file: Path, action: Callable[[Any, Any, str], Any]) -> None:
    balance = _open(file, action)
    of = "" if balance.unit == "epsilon" else f" {balance.unit}"
    told = f"{balance.granted}{of} granted, {balance.spent} spent, {balance.left} left ({balance.neighbours})"
    click.echo(f"{balance.dataset}: {told}")


def _open(file: Path, action: Callable[[Any, Any, str], Any]) -> Any:
    from dp_dask.config import load  # noqa: PLC0415
    from dp_dask.gate.ledger import Ledger  # noqa: PLC0415
    from dp_dask.releasing import who  # noqa: PLC0415

    pipeline = load(file)
    book = Ledger(pipeline.ledger)
    try:
        return action(book, pipeline, who())
    finally:
        book.close()
