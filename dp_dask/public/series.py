"""Series: the posteriors of a scheduled question over time, from the public files of its slots alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from dp_dask.core.privacy import EXACT, Unit, price
from dp_dask.core.release import Release
from dp_dask.core.selected import Selection
from dp_dask.core.slots import Slot
from dp_dask.errors import ConfigError
from dp_dask.public.comparable import question
from dp_dask.public.periods import Period, read_period
from dp_dask.public.publication import Publication, Published

__all__ = ["Cost", "Line", "Point", "Series", "read_series"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A parameter's posterior of one slot: mean, sd and the equal-tailed 90 % interval."""

    slot: Slot
    mean: float
    sd: float | None
    lower: float
    upper: float
    n: int | None
    warnings: tuple[str, ...]
    follows: bool  # directly on the point before it: none was due between, for all that the schedule tells


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One parameter under one question: another model, prior, statistic or condition is another line."""

    measurement: str
    parameter: str
    published: Published  # the latest
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a slot's releases lose, and all up to it; a release that is there twice counts once."""

    slot: Slot
    loss: Decimal
    total: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The slots of one data set in order; ``left_out`` are folders with the reasons why they are not of it."""

    dataset: str
    unit: Unit
    periods: tuple[Period, ...]
    costs: tuple[Cost, ...]
    lines: tuple[Line, ...]
    missed: tuple[Slot, ...]
    left_out: tuple[tuple[str, str], ...]

    @property
    def latest_told(self) -> Period | None:
        """The period whose run.json was written last, as spending only grows."""
        told = [(period.told.spent, period.slot, period) for period in self.periods if period.told is not None]
        return max(told, key=lambda each: each[:2])[2] if told else None

    @property
    def released(self) -> Iterator[Release | Selection]:
        """All releases."""
        return (each for period in self.periods for each in period.publication.released.values())


def read_series(folder: Path) -> Series:
    """Read release.json and run.json of each slot's folder; the data set and relation of the newest slot are the series'.

    Reads no record and no ledger. Raises ConfigError where there is no slot with a release that can be read.
    """
    found: list[Period] = []
    left_out: list[tuple[str, str]] = []
    try:
        inside = sorted(path for path in folder.iterdir() if (path / "release.json").exists())
    except OSError as error:
        raise ConfigError.of(
            str(folder), f"cannot be read ({error.strerror}); give the output folder of scheduled runs"
        ) from None
    for path in inside:
        try:
            found.append(read_period(path))
        except ConfigError as error:
            left_out.append((path.name, error.problems[0].message))
    if not found:
        told = "; ".join(f"{name} {why}" for name, why in left_out[:3])
        problem = f"holds no slot's folder with a release; give the output folder of runs with --slot{told and f' ({told})'}"
        raise ConfigError.of(str(folder), problem)
    newest = found[-1].publication
    periods: list[Period] = []
    for period in found:
        other = _other(period.publication, newest)
        if other:
            left_out.append((period.slot.folder, other))
        else:
            periods.append(period)
    present = {slot for path in inside if (slot := Slot.of_folder(path.name)) is not None}
    missed = sorted({slot for period in periods for slot in period.missed} - present)
    breaks = {*missed, *present} - {period.slot for period in periods}
    unit, costs = _costs(periods)
    return Series(
        dataset=newest.dataset,
        unit=unit,
        periods=tuple(periods),
        costs=costs,
        lines=tuple(_lines(periods, sorted(breaks))),
        missed=tuple(missed),
        left_out=tuple(sorted(left_out)),
    )


def _other(publication: Publication, newest: Publication) -> str:
    """Say in what a publication is not of the series, if in anything."""
    if publication.dataset != newest.dataset:
        return f"is of data set {publication.dataset}"
    if publication.unit != newest.unit:
        return f"protects {publication.unit}, and not {newest.unit}: losses of the two do not add up"
    relations = [next(iter(each.released.values())).request.neighbours for each in (publication, newest)]
    if relations[0] is not relations[1]:
        return f"is under {relations[0]}, whose losses do not add up with those under {relations[1]}"
    return ""


def _costs(periods: Sequence[Period]) -> tuple[Unit, tuple[Cost, ...]]:
    everything = [each.request.loss for period in periods for each in period.publication.released.values()]
    unit = Unit.RHO if any(loss.unit is Unit.RHO for loss in everything) else Unit.EPSILON
    seen: set[str] = set()
    costs: list[Cost] = []
    total = Decimal(0)
    for period in periods:
        new = {each.id: each.request.loss for each in period.publication.released.values() if each.id not in seen}
        seen |= set(new)
        loss = price(new.values(), unit)
        total = EXACT.add(total, loss)
        costs.append(Cost(slot=period.slot, loss=loss, total=total))
    return unit, tuple(costs)


def _lines(periods: Sequence[Period], breaks: Sequence[Slot]) -> Iterator[Line]:
    """Yield each parameter's points, question by question, in order of first appearance."""
    lines: dict[tuple[str, str, str], tuple[Published, list[Point]]] = {}
    before: Slot | None = None
    for period in periods:
        told = period.told
        is_broken = before is None or any(before < slot < period.slot for slot in breaks)
        measurements = {} if told is None else told.measurements
        for name, measured in measurements.items():
            published = period.publication.measurements[name]
            asked = question(published)
            for parameter, of in measured.parameters.items():
                if of.mean is None or of.lower is None or of.upper is None:
                    continue
                _, points = lines.get((name, parameter, asked), (published, []))
                follows = not is_broken and period.is_scheduled and bool(points) and points[-1].slot == before
                point = Point(
                    slot=period.slot,
                    mean=of.mean,
                    sd=of.sd,
                    lower=of.lower,
                    upper=of.upper,
                    n=published.release.request.n,
                    warnings=measured.warnings,
                    follows=follows,
                )
                points.append(point)
                lines[name, parameter, asked] = published, points
        before = period.slot
    for (name, parameter, _), (published, points) in lines.items():
        yield Line(measurement=name, parameter=parameter, published=published, points=tuple(points))
