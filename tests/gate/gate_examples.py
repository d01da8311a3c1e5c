"""Examples: requests and releases made by hand, and ledgers looked at and changed behind their backs."""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from dp_dask.core.bounds import Bounds, Outside
from dp_dask.core.grid import Grid
from dp_dask.core.privacy import Loss, Neighbours, Unit
from dp_dask.core.release import Release, Request
from dp_dask.core.statistic import BoundedSum
from dp_dask.gate import journal
from dp_dask.gate.ledger import Balance, Ledger

NOISY_SUM = 7_042_117_042  # to look for in texts that should not hold it


def make_statistic(*, column: str = "visits", lower: float = 0.0, upper: float = 30.0, count_weight: int = 0) -> BoundedSum:
    grid = Grid(unit=1.0, lower=round(lower), upper=round(upper), origin=0)
    bounds = Bounds(lower, upper)
    return BoundedSum(column=column, bounds=bounds, outside=Outside.CLAMP, grid=grid, count_weight=count_weight)


def make_request(
    epsilon: str = "0.1",
    *,
    dataset: str = "people",
    neighbours: Neighbours = Neighbours.REPLACE,
    n: int | None = 50,
    statistic: BoundedSum | None = None,
) -> Request:
    return Request(dataset=dataset, statistic=statistic or make_statistic(), neighbours=neighbours, n=n, epsilon=Decimal(epsilon))


def make_rho_request(rho: str = "0.1", **facts: Any) -> Request:
    return replace(make_request(**facts), epsilon=None, rho=Decimal(rho))


def loss(amount: str, unit: Unit = Unit.EPSILON) -> Loss:
    return Loss(unit, Decimal(amount))


def make_release(request: Request, *, sampler: str = "opendp 0", noisy_sum: int = NOISY_SUM) -> Release:
    is_gaussian = request.loss.unit is Unit.RHO
    statistic, amount = request.statistic, float(request.loss.amount)
    sensitivity = (statistic.squared_sensitivity if is_gaussian else statistic.sensitivity)(request.neighbours)
    return Release(
        id=uuid.uuid4().hex,
        created="2026-01-01T00:00:00+00:00",
        request=request,
        sampler=sampler,
        sensitivity=sensitivity,
        mechanism="discrete_gaussian" if is_gaussian else "discrete_laplace",
        scale=1.5 * (math.sqrt(sensitivity / (2 * amount)) if is_gaussian else sensitivity / amount),
        privacy_loss=amount / (2.25 if is_gaussian else 1.5),
        noisy_sums=(noisy_sum,),
        noisy_count=None if request.n is not None else 17,
    )


def charge(ledger: Ledger, digest: str, epsilon: str = "0.1", **request: Any) -> Release:
    """Commit one release and return what the ledger says may be shown."""
    return ledger.commit([(digest, make_release(make_request(epsilon, **request)))], who="analyst", why="test")[0]


def balances(ledger: Ledger) -> list[Balance]:
    """The budgets of all data sets, by name."""
    return [account.balance for account, _ in ledger.accounts()]


def is_sqlite(url: str) -> bool:
    return url.startswith("sqlite")


def execute(url: str, *statements: str) -> None:
    """Run SQL behind the ledger's back."""
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


def rows(url: str) -> list[dict[str, Any]]:
    """Read every entry behind the ledger's back."""
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.connect() as connection:
        return [dict(row) for row in connection.execute(journal.entries.select().order_by(journal.entries.c.seq)).mappings()]


def effective(url: str) -> list[dict[str, Any]]:
    """Read the entries that changed a total: all but refusals."""
    return [row for row in rows(url) if row["kind"] != "refused"]


def forge(url: str, seq: int, fields: dict[str, str]) -> None:
    """Change an entry and make all digests true again."""
    entries = rows(url)
    entries[seq - 1].update(fields)
    previous = ""
    statements = ["DELETE FROM dp_dask_entries"]
    for row in entries:
        row["previous"] = previous
        row["digest"] = previous = journal.digest(row)
        texts = ("NULL" if value is None else f"'{value}'" for value in row.values())
        statements.append(f"INSERT INTO dp_dask_entries ({', '.join(row)}) VALUES ({', '.join(texts)})")
    execute(url, *statements)


@contextmanager
def lock_held(url: str) -> Iterator[None]:
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.connect() as connection:
        if is_sqlite(url):
            connection.connection.dbapi_connection.isolation_level = None
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        else:
            connection.exec_driver_sql("LOCK TABLE dp_dask_entries")
        yield
        connection.rollback()


def impatient(url: str) -> str:
    """The same ledger, waiting for a lock one second and not ten."""
    return url + ("?timeout=1" if is_sqlite(url) else "?options=-c%20lock_timeout%3D1s")


def everything_said(error: BaseException) -> str:
    """All that a log, a notebook or a crash reporter could show of an error: its texts and those of its whole chain."""
    said: list[str] = []
    chain: list[BaseException | None] = [error]
    while chain:
        link = chain.pop()
        if link is not None:
            said += [str(link), repr(link)]
            chain += [link.__cause__, link.__context__]
    return "\n".join(said)
