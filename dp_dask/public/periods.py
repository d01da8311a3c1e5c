"""Periods: what the files of one scheduled slot say, and no more."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from pydantic import FiniteFloat, TypeAdapter

from dp_dask.core.privacy import Unit
from dp_dask.core.slots import Slot, read_slot
from dp_dask.errors import ConfigError
from dp_dask.public.publication import Publication, read

__all__ = ["Period", "Told", "read_period"]

AGAIN = "run the slot again, which is free"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldParameter:
    """A parameter's posterior as run.json tells it; null where a moment is not finite."""

    mean: FiniteFloat | None
    sd: FiniteFloat | None
    lower: FiniteFloat | None
    upper: FiniteFloat | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldMeasurement:
    """A measurement's posterior as run.json tells it."""

    parameters: dict[str, ToldParameter]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a series takes from run.json."""

    slot: str
    dataset: str
    unit: Unit
    spent: Decimal
    granted: Decimal
    left: Decimal
    missed: tuple[str, ...] | None  # None where no schedule tells what was due
    measurements: dict[str, ToldMeasurement]


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """A slot with its release, and what its run told, or why that is not there."""

    slot: Slot
    publication: Publication
    told: Told | None
    missed: tuple[Slot, ...] = ()
    problem: str = ""

    @property
    def is_scheduled(self) -> bool:
        """Whether it is known what was due."""
        return self.told is not None and self.told.missed is not None


_told = TypeAdapter(Told)


def read_period(path: Path) -> Period:
    """Read a slot's folder; raises ConfigError for one of no slot, or of another's run, and for a release that cannot be read.

    A run.json that is missing or cannot be used leaves the release without a posterior, and says so.
    """
    slot = Slot.of_folder(path.name)
    if slot is None:
        raise ConfigError.of(path.name, "is not the folder of a slot")
    publication = read(path / "release.json")
    problem = ""
    try:
        told = _told.validate_json((path / "run.json").read_bytes())
        missed = tuple(each for each in map(read_slot, told.missed or ()) if isinstance(each, Slot))
    except OSError:
        problem = f"has no run.json; {AGAIN}"
    except ValueError:  # pydantic's too
        problem = f"has a run.json that cannot be used; {AGAIN}"
    if problem:
        return Period(slot=slot, publication=publication, told=None, problem=problem)
    if told.slot != str(slot):
        raise ConfigError.of(path.name, f"holds the run of another slot, {told.slot}")
    if told.dataset != publication.dataset or set(told.measurements) != set(publication.measurements):
        problem = f"has a run.json of other measurements than its release.json; {AGAIN}"
        return Period(slot=slot, publication=publication, told=None, problem=problem)
    return Period(slot=slot, publication=publication, told=told, missed=missed)
