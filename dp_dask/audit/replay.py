"""Replay: one data set after the other through the whole release path, and all that can be seen of each run.

``released`` is what frozen noise made of the records, beneath the commit; ``seen`` is the control flow, of that run and of one
with OpenDP's noise that ends in a ledger of the audit's own.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from dp_dask.audit.examples import few
from dp_dask.audit.frozen import Counted, Frozen, Refused, Unwritten
from dp_dask.config import Pipeline
from dp_dask.core.privacy import Unit
from dp_dask.core.release import Release
from dp_dask.errors import DpDaskError
from dp_dask.gate import journal
from dp_dask.gate.ledger import Ledger
from dp_dask.gate.noise import Noise, OpenDPNoise
from dp_dask.releasing import release_new

__all__ = ["Trace", "replay"]

WHO = "the audit"
_ENOUGH = Decimal(10**6)
ROWS = ("seq", "kind", "neighbours", "epsilon", "granted", "spent", "who", "why")  # of an entry, but for digests and noisy values


@dataclass(frozen=True, slots=True)
class Trace:
    """What one data set gave: ``released`` by measurement, each choice's scores, and whatever can be seen from outside."""

    released: dict[str, tuple[int, ...]]
    claimed: dict[str, int]  # each release's sensitivity, squared for a rho
    scales: dict[str, tuple[str, int, float]]  # the law, how many numbers and the scale that each release tells of
    asked: frozenset[tuple[str, int, float]]  # the same, as the noise was asked
    compared: tuple[tuple[int, ...], ...]
    seen: dict[str, Any]
    is_refused: bool  # did the ledger refuse frozen noise?

    @property
    def is_failed(self) -> bool:
        """Whether a run ended before its commit."""
        return not self.is_refused or any(self.seen[key] for key in self.seen if key.startswith("exceptions"))


def replay(pipeline: Pipeline, client: Any, folder: Path) -> Trace:
    """Run a pipeline of made-up records with frozen noise, a few of its measurements with OpenDP's, and return what there was."""
    frozen = Frozen()
    made, first = _run(pipeline, client, folder / "frozen", frozen, Unwritten)
    _, second = _run(few(pipeline), client, folder / "real", OpenDPNoise(), Ledger)
    sums = {each.request: each for each in made or () if isinstance(each, Release)}  # equal requests share one
    by_name = {m.name: sums[m.request] for m in pipeline.measurements if m.request in sums}
    seen = {f"{key}, frozen": value for key, value in first.items()} | {
        f"{key}, with noise": value for key, value in second.items()
    }
    seen["noise asked for"] = tuple(frozen.asked)
    seen["what was asked of the records"] = tuple(each.request for each in made or ())
    return Trace(
        released={name: _numbers(each) for name, each in by_name.items()},
        claimed={name: each.sensitivity for name, each in by_name.items()},
        scales={name: _told(each) for name, each in by_name.items()},
        asked=frozenset(frozen.asked),
        compared=tuple(frozen.compared),
        seen=seen,
        is_refused=made is not None,
    )


def _numbers(made: Release) -> tuple[int, ...]:
    return made.noisy_sums if made.noisy_count is None else (*made.noisy_sums, made.noisy_count)


def _told(made: Release) -> tuple[str, int, float]:
    return made.mechanism.removeprefix("discrete_"), len(_numbers(made)), made.scale


def _run(
    pipeline: Pipeline, client: Any, folder: Path, noise: Noise, kind: Callable[[str], Ledger]
) -> tuple[list[Any] | None, dict[str, Any]]:
    """Release once, with a ledger and an output folder of its own; return what was refused and all that could be seen."""
    folder.mkdir(parents=True)
    counted = Counted(client)
    own: Any = replace(pipeline, cluster=counted, ledger=f"sqlite:///{folder / 'ledger.db'}", output=folder / "out")
    ledger = kind(own.ledger)
    ledger.open_dataset(own.dataset, own.neighbours, _ENOUGH, unit=Unit.RHO, who=WHO, why="made-up records")
    told: dict[tuple[str, int], int] = {}  # the last of each stage: how often it is told in between is up to the clock

    def progress(stage: str, done: int, of: int) -> None:
        told[stage, of] = done

    refused, failure = None, ""
    try:
        release_new(own, ledger, noise, progress)
    except Refused as error:
        refused = list(error.made)
    except DpDaskError as error:
        failure = f"{type(error).__name__}: {error}".replace(str(folder), "")
    except Exception as error:  # noqa: BLE001  (whatever it is, it must be the same for every record)
        failure = type(error).__name__
    finally:
        ledger.close()
    return refused, {
        "messages": tuple(sorted(told.items())),
        "exceptions": failure,
        "Dask tasks": counted.tasks,
        "files": tuple(sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())),
        "ledger rows": _rows(folder / "ledger.db"),
    }


def _rows(file: Path) -> tuple[tuple[Any, ...], ...]:
    connection = sqlite3.connect(file)
    try:
        return tuple(connection.execute(f"SELECT {', '.join(ROWS)} FROM {journal.entries.name} ORDER BY seq"))  # noqa: S608
    finally:
        connection.close()
