"""Processes: what child processes of the tests run, with few imports, as each of them makes its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from decimal import Decimal
from typing import Any

from commands import PROCESSES
from gate.gate_examples import make_release, make_request

from dp_dask.core.privacy import Neighbours
from dp_dask.core.release import Release
from dp_dask.errors import BudgetError, DpDaskError, LedgerError
from dp_dask.gate.ledger import Ledger

_barrier: Any = None  # it reaches child processes when they start


def meet(barrier: Any) -> None:
    global _barrier  # noqa: PLW0603
    _barrier = barrier


def all_at_once(function: Callable[..., Any], arguments: list[tuple[Any, ...]]) -> list[Any]:
    """Call the function in as many processes, which start together."""
    barrier = PROCESSES.Barrier(len(arguments))
    with ProcessPoolExecutor(len(arguments), mp_context=PROCESSES, initializer=meet, initargs=(barrier,)) as pool:
        return [future.result(120) for future in [pool.submit(function, *each) for each in arguments]]


def compete(url: str, digest: str, release: Release) -> tuple[str, str]:
    """Commit at the same moment as the others; return what came of it, and the release shown or the error's text."""
    ledger = Ledger(url)
    ledger.balance(release.request.dataset)  # connected and warm
    _barrier.wait(60)
    try:
        return "shown", ledger.commit([(digest, release)], who="racer", why="test")[0].id
    except DpDaskError as error:
        return type(error).__name__, str(error)
    finally:
        ledger.close()


def open_together(url: str) -> str:
    ledger = Ledger(url)
    _barrier.wait(60)
    try:
        return str(ledger.open_dataset("people", Neighbours.REPLACE, Decimal(1), who="racer", why="test").granted)
    except DpDaskError as error:
        return str(error)
    finally:
        ledger.close()


def verify_together(url: str) -> str:
    ledger = Ledger(url)
    _barrier.wait(60)
    try:
        return str(ledger.verify())
    except DpDaskError as error:
        return str(error)
    finally:
        ledger.close()


PAIR = Decimal("0.000002")  # what the pair of a crashing process costs


def commit_pair(ledger: Ledger, i: int) -> list[str]:
    """Reserve and commit two releases, as a run does, and return which ones may be shown."""
    halves = [f"{i}-{half}" for half in ("a", "b")]
    request = make_request(str(PAIR / 2))
    with ledger.reserved("people", Neighbours.REPLACE, dict.fromkeys(halves, request.loss), who="crasher", why="test"):
        shown = ledger.commit([(half, make_release(request)) for half in halves], who="crasher", why="test")
    return [release.id for release in shown]


def commit_pairs_until_killed(url: str, first: int, acknowledge: Any) -> None:
    """Commit pair after pair, telling what of each the ledger says may be shown, or that the budget does not cover it.

    Where the database fails, ask again until it is back, with other noise each time.
    """
    ledger = Ledger(url)
    ledger.balance("people")
    acknowledge.send(None)
    i = first
    while True:
        try:
            acknowledge.send((i, commit_pair(ledger, i)))
        except BudgetError:
            acknowledge.send((i, None))
        except LedgerError:
            time.sleep(0.02)
            continue
        i += 1
