"""Journal: the ledger's tables, its append-only entries and the chain of digests that ties them together."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from dp_dask.core.privacy import EXACT, Neighbours, Unit
from dp_dask.errors import LedgerError

__all__ = [
    "MEND",
    "Balance",
    "about",
    "append",
    "balance",
    "check_digest",
    "digest",
    "entries",
    "metadata",
    "moment",
    "read_amount",
    "written_amount",
    "written_time",
]

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
    sa.Column("kind", sa.Text, nullable=False),  # open, grant, revoke, charge, limit or refused
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
    sa.Column(
        "terms", sa.Text, nullable=True
    ),  # of a limit, as JSON; empty in other entries; NULL in those of before there were any
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

    def with_revoked(self, amount: Decimal) -> Balance:
        """The balance after some of it is taken back."""
        return replace(self, granted=EXACT.subtract(self.granted, amount))

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


def written_amount(unit: Unit, amount: Decimal) -> str:
    """Return an amount as entries hold it."""
    return str(amount) if unit is Unit.EPSILON else f"{RHO}{amount}"


def written_time(at: datetime) -> str:
    """Return a time as entries hold it: of one length and zone, so that its order is that of texts."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds")


def moment(connection: sa.Connection, now: datetime) -> datetime:
    """Return the time of the next entry: a clock that was put back gives no period's budget a second time."""
    last = _last(connection)
    return now if last is None else max(now, datetime.fromisoformat(last["at"]))


def check_digest(row: Any) -> None:
    """Raise LedgerError where an entry is not as it was written."""
    if row["digest"] != digest(row):
        msg = f"entry {row['seq']} was edited; {MEND}"
        raise LedgerError(msg)


def append(
    connection: sa.Connection,
    after: Balance,
    kind: str,
    amount: Decimal,
    *,
    at: datetime,
    who: str,
    why: str,
    request: str | None = None,
    release: str | None = None,
    terms: str = "",
) -> None:
    """Write one entry at the end of the journal; ``after`` is the data set's balance with it, ``at`` comes from ``moment``."""
    last = _last(connection)
    row = {
        "seq": 1 if last is None else last["seq"] + 1,
        "at": written_time(at),
        "dataset": after.dataset,
        "kind": kind,
        "neighbours": str(after.neighbours),
        "epsilon": written_amount(after.unit, amount),
        "granted": written_amount(after.unit, after.granted),
        "spent": written_amount(after.unit, after.spent),
        "who": who,
        "why": why,
        "request": request,
        "release": release,
        "previous": "" if last is None else last["digest"],
        "terms": terms,
    }
    connection.execute(entries.insert().values(**row, digest=digest(row)))


def _last(connection: sa.Connection) -> Any:
    row = connection.execute(entries.select().order_by(entries.c.seq.desc()).limit(1)).mappings().first()
    if row is not None:
        check_digest(row)
    return row


def digest(row: Any) -> str:
    """Return the digest of an entry's other fields: of ``terms`` only where there are any, so that older entries keep theirs."""
    content = {name: row[name] for name in entries.c.keys() if name != "digest"}  # noqa: SIM118
    if content["terms"] is None:
        del content["terms"]
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=repr).encode()).hexdigest()
