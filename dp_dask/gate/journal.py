"""Journal: the ledger's tables, its append-only entries and the chain of digests that ties them together."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import sqlalchemy as sa

from dp_dask.core.privacy import EXACT, Neighbours, Unit
from dp_dask.errors import LedgerError

__all__ = ["MEND", "Balance", "about", "append", "balance", "check_digest", "entries", "first_fault", "metadata", "read_amount"]

MEND = "restore a backup, enter what the release.json files since it have cost, and only then release again"
RHO = "rho "  # before an amount; an epsilon stands alone, as it always has
metadata = sa.MetaData()
about = sa.Table(
    "dp_dask_ledger",
    metadata,
    sa.Column("schema_version", sa.Integer, primary_key=True),
    sa.Column("salt", sa.Text, nullable=False),
)
entries = sa.Table(
    "dp_dask_entries",
    metadata,
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("at", sa.Text, nullable=False),
    sa.Column("dataset", sa.Text, nullable=False, index=True),
    sa.Column("kind", sa.Text, nullable=False),  # open, grant or charge
    sa.Column("neighbours", sa.Text, nullable=False),
    sa.Column("epsilon", sa.Text, nullable=False),  # of this entry: decimal text, after "rho " where the budget is in rho
    sa.Column("granted", sa.Text, nullable=False),  # of the data set, this entry included, written alike
    sa.Column("spent", sa.Text, nullable=False),
    sa.Column("who", sa.Text, nullable=False),
    sa.Column("why", sa.Text, nullable=False),
    sa.Column("request", sa.Text, nullable=True, unique=True),  # salted digest: exactly one charge a request
    sa.Column("release", sa.Text, nullable=True),
    sa.Column("previous", sa.Text, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
)


@dataclass(frozen=True, slots=True)
class Balance:
    """A data set's budget; all that is known of it in exact decimals."""

    dataset: str
    neighbours: Neighbours
    granted: Decimal
    spent: Decimal
    unit: Unit = Unit.EPSILON

    @property
    def left(self) -> Decimal:
        """What can still be spent."""
        return EXACT.subtract(self.granted, self.spent)

    def with_granted(self, amount: Decimal) -> Balance:
        """The balance after a grant."""
        return replace(self, granted=EXACT.add(self.granted, amount))

    def with_spent(self, amount: Decimal) -> Balance:
        """The balance after a charge."""
        return replace(self, spent=EXACT.add(self.spent, amount))


def balance(connection: sa.Connection, dataset: str) -> Balance | None:
    """Read a data set's balance from its last entry; None where it has none."""
    query = entries.select().where(entries.c.dataset == dataset).order_by(entries.c.seq.desc()).limit(1)
    row = connection.execute(query).mappings().first()
    if row is None:
        return None
    check_digest(row)
    unit, granted = read_amount(row["granted"])
    return Balance(dataset, Neighbours(row["neighbours"]), granted, read_amount(row["spent"])[1], unit)


def read_amount(text: str) -> tuple[Unit, Decimal]:
    """Return the unit and the number of an amount; raises InvalidOperation for a text that is none."""
    number = text.removeprefix(RHO)
    return Unit.EPSILON if number == text else Unit.RHO, Decimal(number)


def _written(unit: Unit, amount: Decimal) -> str:
    return str(amount) if unit is Unit.EPSILON else f"{RHO}{amount}"


def check_digest(row: Any) -> None:
    """Raise LedgerError where an entry is not as it was written."""
    if row["digest"] != _digest(row):
        msg = f"entry {row['seq']} was edited; {MEND}"
        raise LedgerError(msg)


def append(
    connection: sa.Connection,
    after: Balance,
    kind: str,
    amount: Decimal,
    *,
    who: str,
    why: str,
    request: str | None = None,
    release: str | None = None,
) -> None:
    """Write one entry at the end of the journal; ``after`` is the data set's balance with it."""
    last = connection.execute(sa.select(entries.c.seq, entries.c.digest).order_by(entries.c.seq.desc()).limit(1)).first()
    row = {
        "seq": 1 if last is None else last.seq + 1,
        "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "dataset": after.dataset,
        "kind": kind,
        "neighbours": str(after.neighbours),
        "epsilon": _written(after.unit, amount),
        "granted": _written(after.unit, after.granted),
        "spent": _written(after.unit, after.spent),
        "who": who,
        "why": why,
        "request": request,
        "release": release,
        "previous": "" if last is None else last.digest,
    }
    connection.execute(entries.insert().values(**row, digest=_digest(row)))


def _digest(row: Any) -> str:
    content = {name: row[name] for name in entries.c.keys() if name != "digest"}  # noqa: SIM118
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=repr).encode()).hexdigest()


def first_fault(rows: Iterable[Mapping[str, Any]]) -> int | None:
    """Return the number of the first entry that does not follow from those before it, or None."""
    previous = ""
    totals: dict[str, tuple[Unit, Decimal, Decimal]] = {}
    for seq, row in enumerate(rows, start=1):
        # The digest comes first: an edited entry may not even hold numbers.
        if row["seq"] != seq or row["previous"] != previous or row["digest"] != _digest(row):
            return seq
        try:
            (unit, amount), *told = (read_amount(row[name]) for name in ("epsilon", "granted", "spent"))
        except InvalidOperation:
            return seq
        known, granted, spent = totals.get(row["dataset"], (unit, Decimal(0), Decimal(0)))
        if not (amount.is_finite() and amount > 0):
            return seq
        if row["kind"] == "charge":
            spent = EXACT.add(spent, amount)
        else:
            granted = EXACT.add(granted, amount)
        if unit is not known or told != [(unit, granted), (unit, spent)] or spent > granted:
            return seq
        previous = row["digest"]
        totals[row["dataset"]] = (unit, granted, spent)
    return None
