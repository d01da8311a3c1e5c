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
    def __init__(self, name: str, *, or_nothing: bool = False) -> None:
        self.name = name
        self._or_nothing = or_nothing

    def convert(self, value: Any, _param: Any, _context: Any) -> Decimal:
        from dp_dask.core.privacy import Unit, exact_amount  # noqa: PLC0415

        try:
            amount = Decimal(value)
            return Decimal(0) if self._or_nothing and amount == 0 else exact_amount(amount, Unit(self.name))
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


@ledger.command("revoke")
@FILE
@EPSILON
@RHO
@WHY
def ledger_revoke(file: Path, epsilon: Decimal | None, rho: Decimal | None, why: str) -> None:
    """Take back some of the budget of FILE's data set: at most what is left."""
    amount = _amount(epsilon, rho)
    _with_ledger(file, lambda book, p, who: book.revoke(p.dataset, **amount, who=who, why=why))


@ledger.command("limit")
@FILE
@click.option("--epsilon", type=_Amount("epsilon", or_nothing=True), help="At most this much; 0 allows nothing.")
@click.option("--rho", type=_Amount("rho", or_nothing=True), help="The same, of a budget in rho.")
@click.option(
    "--per", type=click.Choice(["day", "week", "month"]), help="Of each, from local midnight (Monday's, the first's) on."
)
@click.option("--zone", default="UTC", show_default=True, help="The time zone of --per, by its IANA name.")
@click.option("--who", "requester", help="Of all that this requester may ever spend, as the ledger knows them.")
@click.option("--lift", is_flag=True, help="In place of an amount: the limit is no longer one.")
@WHY
def ledger_limit(
    file: Path,
    epsilon: Decimal | None,
    rho: Decimal | None,
    per: str | None,
    zone: str,
    requester: str | None,
    why: str,
    *,
    lift: bool,
) -> None:
    """Limit what of the budget of FILE's data set is spent per day, week or month, or by one requester."""
    from dp_dask.gate.limits import Limit  # noqa: PLC0415
    from dp_dask.gate.periods import Per, check_zone  # noqa: PLC0415

    if (per is None) is (not requester):
        raise ConfigError.of("--per", "or --who is needed, one of the two: what is it a limit of?")
    if lift and (epsilon, rho) != (None, None):
        raise ConfigError.of("--lift", "stands in place of an amount; give one of the two")
    amount: dict[str, Any] = {"amount": None} if lift else _amount(epsilon, rho)
    try:
        check_zone(zone)
    except ValueError as error:
        raise ConfigError.of("--zone", str(error)) from None
    limit = Limit(amount.pop("amount"), per=None if per is None else Per(per), zone=zone, who=requester)
    _open(file, lambda book, p, who: book.limit(p.dataset, limit, **amount, who=who, why=why))
    what = "lifted" if limit.amount is None else str(limit.amount)
    click.echo(f"limit {limit}: {what}")


@ledger.command("show")
@FILE
@JSON
def ledger_show(file: Path, *, as_json: bool) -> None:
    """Show every data set of FILE's ledger: granted, spent, reserved, left, limits; of rho also what it means at FILE's delta."""
    from dp_dask.gate.noise import meaning  # noqa: PLC0415
    from dp_dask.show_ledger import accounts  # noqa: PLC0415

    found = _open(file, lambda book, p, _who: [(*found, p.delta) for found in book.accounts()])
    told = [(account, n, meaning(account.balance.unit, account.balance.spent, delta)) for account, n, delta in found]
    accounts(told, as_json=as_json)


@ledger.command("verify")
@FILE
@JSON
def ledger_verify(file: Path, *, as_json: bool) -> None:
    """Recompute the chain of entries and the sums of FILE's ledger."""
    count = _open(file, lambda book, _p, _who: book.verify())
    click.echo(json.dumps({"entries": count, "sound": True}) if as_json else f"{count} entries, all sound")


@ledger.command("export")
@FILE
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="Write into this file, in place of an older one.")
@JSON
def ledger_export(file: Path, output: Path | None, *, as_json: bool) -> None:
    """Write every entry of FILE's ledger, in order: one JSON object a line, or with --json one for all."""
    entries = _open(file, lambda book, _p, _who: book.entries())
    lines = "".join(json.dumps(entry) + "\n" for entry in entries)
    if output is not None:
        from dp_dask.whole_files import write_files  # noqa: PLC0415

        write_files({output.name: lines}, output.absolute().parent)
        told = {"entries": len(entries), "file": str(output)}
        click.echo(json.dumps(told) if as_json else f"{len(entries)} entries: {output}")
    else:
        click.echo(json.dumps({"entries": entries}) if as_json else lines, nl=as_json)


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
