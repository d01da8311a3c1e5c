"""Scheduled: a run that is idempotent by the time that it was scheduled for, and what of it is there already."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dp_dask.config import Pipeline
from dp_dask.core.schedule import Schedule, missed, slot_at
from dp_dask.core.slots import Slot, read_slot
from dp_dask.errors import BudgetError, ConfigError
from dp_dask.gate.ledger import Ledger
from dp_dask.private.databases import OfDatabase
from dp_dask.private.filtered import Filtered
from dp_dask.public.publication import read
from dp_dask.releasing import released_as

__all__ = ["VARIABLE", "Scheduled", "schedule", "state"]

VARIABLE = "DP_DASK_SLOT"
MOST_TOLD = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduled:
    """A slot of a pipeline: where its files go, and which slots before it are missing in the same place."""

    slot: Slot
    folder: Path
    schedule: Schedule | None
    missed: tuple[Slot, ...]  # none where there is no schedule, which alone tells what was due

    @property
    def told(self) -> dict[str, Any]:
        """What run.json says of the slot; what was missed is null where no schedule tells it."""
        facts = self.schedule
        due = None if facts is None else {"every": str(facts.every), "timezone": facts.timezone, "at": facts.at}
        return {"slot": str(self.slot), "schedule": due, "missed": None if due is None else [str(each) for each in self.missed]}

    @property
    def warning(self) -> str:
        """Say which slots are missing; empty where none are."""
        if not self.missed:
            return ""
        names = [str(each) for each in self.missed]
        listed = ", ".join(names if len(names) <= MOST_TOLD else [*names[: MOST_TOLD - 1], "..", names[-1]])
        count, have, them = ("a slot", "has", "it") if len(names) == 1 else (f"{len(names)} slots", "have", "them")
        where = f"{have} no release in the output folder: {listed}"
        return f"{count} of the schedule before {self.slot} {where}; nothing is charged for {them}"


def schedule(pipeline: Pipeline, given: str | None, *, now: datetime | None = None) -> tuple[Pipeline, Scheduled | None]:
    """Return a pipeline whose data version is the slot that is given, or that DP_DASK_SLOT names, and what is known of the slot.

    The pipeline itself and None come back where neither is given. Reads no record and opens no ledger. Raises ConfigError for
    what is no time, is to come or is not on the pipeline's schedule, and where the slot's folder holds another question's files.
    """
    name = "--slot"
    if given is None and VARIABLE in os.environ:  # empty is a scheduler's fault, and no run without a slot
        given, name = os.environ[VARIABLE], VARIABLE
    if given is None:
        return pipeline, None
    problem = ""
    now = now or datetime.now(UTC)
    try:
        slot = slot_at(pipeline.schedule, read_slot(given))
        if slot.time > now:
            problem = (
                f"is {given!r}, that is {slot}, which is to come: it is {now:%Y-%m-%dT%H:%M:%SZ}; a slot's data are read after it"
            )
    except ValueError as error:
        problem = str(error)
    if problem:
        raise ConfigError.of(name, problem)
    source = pipeline.source.source if isinstance(pipeline.source, Filtered) else pipeline.source
    asked = f"\n{source.asked}" if isinstance(source, OfDatabase) else ""  # another table is another question of the same slot
    pipeline = replace(pipeline, version=slot.version + asked)
    folder = pipeline.output / slot.folder
    _check_folder(folder, pipeline)
    lost = () if pipeline.schedule is None else missed(pipeline.schedule, _slots_in(pipeline.output), slot)
    return pipeline, Scheduled(slot=slot, folder=folder, schedule=pipeline.schedule, missed=lost)


def _slots_in(output: Path) -> list[Slot]:
    """Return the slots that have a release in a folder."""
    try:
        named = [(path, Slot.of_folder(path.name)) for path in output.iterdir()]
    except OSError:
        return []
    return [slot for path, slot in named if slot is not None and (path / "release.json").is_file()]


def _check_folder(folder: Path, pipeline: Pipeline) -> None:
    """Raise ConfigError where a release is in the slot's folder that the pipeline does not ask for: it would be lost there."""
    problem = ""
    if folder.exists() and not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
        problem = "is no folder that may be written to; choose another output"
    elif (folder / "release.json").exists():
        held = read(folder / "release.json").released.values()
        asked: Sequence[Any] = pipeline.requests
        if not all(each.request in asked for each in held):
            problem = "holds what this file does not ask for, released for the same slot; choose another output, or move it away"
    if problem:
        raise ConfigError.of("output", f"{folder} {problem}")


def state(pipeline: Pipeline, scheduled: Scheduled) -> dict[str, Any]:
    """Return what is told of a slot before it is run: which of its releases the ledger has. Opens it, and charges nothing."""
    names = [*(m.name for m in pipeline.measurements), *(s.name for s in pipeline.selections)]
    found = dict.fromkeys(names, False)
    ledger = Ledger(pipeline.ledger)
    try:
        ledger.balance(pipeline.dataset)
        for name, request in zip(names, pipeline.requests, strict=True):
            found[name] = ledger.find(ledger.digest(request, pipeline.version or ""), released_as(request)) is not None
    except BudgetError:  # no ledger, or no budget: nothing was ever released
        pass
    finally:
        ledger.close()
    is_written = (scheduled.folder / "release.json").is_file()
    return {**scheduled.told, "released": found, "folder": str(scheduled.folder), "written": is_written}
