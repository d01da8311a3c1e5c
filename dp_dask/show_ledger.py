"""Show ledger: budgets, what is spent and reserved of them, and their limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dp_dask.core.privacy import Spent, rounded_up
from dp_dask.gate.accounts import Account
from dp_dask.gate.journal import Balance
from dp_dask.gate.limits import Standing
from dp_dask.terminal import make_console, make_table, print_json

__all__ = ["accounts", "balance_json", "spent_json"]


def accounts(found: Sequence[tuple[Account, int, Spent]], *, as_json: bool) -> None:
    """Show the budgets of a ledger with the number of requests that each refused, what is spent of each, and its limits."""
    if as_json:
        print_json({account.balance.dataset: _account(account, refused, spent) for account, refused, spent in found})
        return
    table = make_table("data set", "neighbours", "unit", "granted", "spent", "left", "reserved of it", "refused", "spent means")
    for account, refused, s in found:
        b = account.balance
        means = "" if s.epsilon is None else f"epsilon {rounded_up(s.epsilon)} at delta {s.delta}"
        amounts = map(str, (b.granted, b.spent, b.left, account.reserved, refused))
        table.add_row(b.dataset, str(b.neighbours), str(b.unit), *amounts, means)
    console = make_console()
    console.print(table)
    if any(account.standings for account, *_ in found):
        table = make_table("data set", "limit", "amount", "spent", "left", "reserved of it", "renews")
        for account, *_ in found:
            for each in account.standings:
                amounts = map(str, (each.amount, each.spent, each.left, each.reserved))
                table.add_row(account.balance.dataset, str(each.limit), *amounts, _renews(each) or "never")
        console.print()
        console.print(table)


def balance_json(b: Balance) -> dict[str, str]:
    """Return a balance as it stands in JSON: amounts are decimals, and so text."""
    amounts = {"granted": str(b.granted), "spent": str(b.spent), "left": str(b.left)}
    return {"neighbours": str(b.neighbours), "unit": str(b.unit), **amounts}


def spent_json(name: str, s: Spent) -> dict[str, Any]:
    """Return an amount as it stands in JSON under a name, with what it means where it is in rho."""
    means = {} if s.epsilon is None else {f"{name}_epsilon_at_delta": s.epsilon, "delta": str(s.delta)}
    return {name: str(s.amount), "unit": str(s.unit), **means}


def _account(account: Account, refused: int, spent: Spent) -> dict[str, Any]:
    means = {} if spent.epsilon is None else spent_json("spent", spent)
    more = {"reserved": str(account.reserved), "refused": refused, "limits": [_standing(each) for each in account.standings]}
    return balance_json(account.balance) | means | more


def _standing(each: Standing) -> dict[str, Any]:
    limit = each.limit
    of = {"who": limit.who} if limit.per is None else {"per": str(limit.per), "zone": limit.zone, "renews": _renews(each)}
    amounts = {"amount": each.amount, "spent": each.spent, "left": each.left, "reserved": each.reserved}
    return of | {name: str(amount) for name, amount in amounts.items()}


def _renews(each: Standing) -> str | None:
    return None if each.renews is None else each.renews.isoformat(timespec="minutes")
