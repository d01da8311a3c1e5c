"""Designs: ways to release one measurement, each with its simulated posterior widths."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dp_dask.config import Pipeline
from dp_dask.core.bounds import Bounds, Outside
from dp_dask.core.grouped import GroupedSum
from dp_dask.core.privacy import Neighbours
from dp_dask.entries.measurement import Measurement, Privacy, redesign
from dp_dask.errors import InferenceError
from dp_dask.explore.results import Tried
from dp_dask.progress import Progress
from dp_dask.public.groups import GroupedObservation
from dp_dask.public.observation import Observation
from dp_dask.public.observe import ModelObservation, planned
from dp_dask.public.paired import PairedWidths, compare, simulate_widths, widths_like
from dp_dask.public.simulated import SimulatedObservation

__all__ = ["LEAST", "Design", "Setting", "is_wider", "within"]

T = TypeVar("T")
U = TypeVar("U")
Floats = NDArray[np.float64]
LEAST = 0.01  # of a width: less is nobody's reason to choose, however well it is known


@dataclass(frozen=True, slots=True, eq=False)
class Design:
    """A measurement as it could be asked for, where its bounds come from, and its simulated widths."""

    label: str
    measurement: Measurement
    widths: PairedWidths

    @property
    def bounds(self) -> Bounds:
        """The bounds."""
        made: Bounds = within(self.measurement).bounds
        return made

    @property
    def outside(self) -> Outside:
        """What becomes of records beyond them."""
        made: Outside = within(self.measurement).outside
        return made

    @property
    def inside_count(self) -> float | None:
        """The share of epsilon of the count of records inside, None where that is not released."""
        return self.measurement.inside_count

    @property
    def epsilon(self) -> Decimal:
        """The price."""
        return self.measurement.request.loss.amount

    def cell(self, own: Design, records: Floats) -> Tried:
        """Say what is to be expected of it, next to the file's own design."""
        ratio, error = compare(self.widths, own.widths)
        statistic, bounds = within(self.measurement), self.bounds
        return Tried(
            label=self.label,
            bounds=bounds,
            outside=self.outside,
            inside_count=self.inside_count,
            epsilon=self.epsilon,
            weight=statistic.count_weight / _largest(statistic) if statistic.count_weight else None,
            share_outside=float(np.mean((records < bounds.lower) | (records > bounds.upper))),
            replicates=len(self.widths),
            widths=tuple(map(float, widths_like(self.widths, own.widths))),
            ratio=ratio,
            error=error,
        )


@dataclass(frozen=True, slots=True)
class Setting:
    """What all designs of one measurement have in common."""

    pipeline: Pipeline
    seed: tuple[int, int]  # of the exploration, and the measurement's number
    progress: Progress

    def each(self, stage: str, items: Iterable[T], work: Callable[[T], U]) -> list[U]:
        """Work through items and tell how far it is."""
        listed, made = list(items), []
        for item in listed:
            made.append(work(item))
            self.progress(stage, len(made), len(listed))
        return made

    def redesign(
        self, m: Measurement, bounds: Bounds, outside: Outside, inside_count: float | None, epsilon: Decimal
    ) -> Measurement:
        """Return the measurement released in another way; raises ValueError where a file could not ask for it."""
        pipeline = self.pipeline
        privacy = Privacy(pipeline.neighbours, pipeline.n, pipeline.expected_n, unit=pipeline.protects)
        return redesign(m, privacy, bounds, outside, epsilon, inside_count)

    def at_epsilon(self, design: Design, epsilon: Decimal) -> Design:
        """Try a design at another price; raises ValueError for one that a file could not ask for."""
        moved = self.redesign(design.measurement, design.bounds, design.outside, design.inside_count, epsilon)
        return self.design(design.label, moved)

    def design(self, label: str, m: Measurement, *, is_first: bool = False) -> Design:
        """Try a measurement in full, or only so often that a far wider one is seen."""
        like, prior = self._like(m)
        few, many = _effort(like)
        return Design(label, m, self._run(m, like, prior, few if is_first else many, None))

    def complete(self, design: Design) -> Design:
        """Try a design as often as its kind is."""
        like, prior = self._like(design.measurement)
        return replace(design, widths=self._run(design.measurement, like, prior, _effort(like)[1], design.widths))

    def reweigh(self, design: Design, shares: tuple[float, ...]) -> list[Design]:
        """Try other weights of the released count, given as shares of the largest contribution; none where there is no count."""
        whole, statistic = design.measurement.request.statistic, within(design.measurement)
        if not statistic.count_weight:
            return []
        weights = sorted({max(1, round(share * _largest(statistic))) for share in shares})
        made = []
        for weight in weights:
            moved = replace(statistic, count_weight=weight)
            request = replace(
                design.measurement.request, statistic=replace(whole, within=moved) if isinstance(whole, GroupedSum) else moved
            )
            is_same = weight == statistic.count_weight
            made.append(design if is_same else self.design(design.label, replace(design.measurement, request=request)))
        return made if len(made) > 1 else []

    def _like(self, m: Measurement) -> tuple[ModelObservation, Any]:
        """Return a release as it is planned, and its prior; of groups, which are alike, one."""
        model, prior = m.whole
        like = planned(m.request, model, self.pipeline.expected_n)
        if isinstance(like, SimulatedObservation):
            msg = f"{m.name}: a simulator's summary is planned by dp-dask check, and not explored"
            raise InferenceError(msg)
        return (like.of_groups[0], m.prior) if isinstance(like, GroupedObservation) else (like, prior)

    def _run(self, m: Measurement, like: ModelObservation, prior: Any, count: int, done: PairedWidths | None) -> PairedWidths:
        try:
            return simulate_widths(self.seed, like, prior, count, done)
        except InferenceError as error:
            msg = f"{m.name}: {error}"
            raise InferenceError(msg) from None


def within(m: Measurement) -> Any:
    """Return the statistic that has the bounds: where there are groups, that of one."""
    statistic = m.request.statistic
    return statistic.within if isinstance(statistic, GroupedSum) else statistic


def is_wider(one: Design, other: Design, errors: float) -> bool:
    """Whether a design's posterior is wider than another's by more than so many Monte Carlo standard errors and a per cent."""
    ratio, error = compare(one.widths, other.widths)
    return math.log(ratio) - errors * error / ratio > math.log1p(LEAST)


def _largest(statistic: Any) -> int:
    """Return the largest contribution of a record, its part of the count left out."""
    largest: int = statistic.sensitivity(Neighbours.ADD_REMOVE) - statistic.count_weight
    return largest


def _effort(like: ModelObservation) -> tuple[int, int]:
    """Return the replicates that find a far wider design, and those of one that may be chosen: they take 3 ms to 1 s each."""
    if isinstance(like, Observation):
        return (20, 60) if like.n is not None else (8, 24)
    return (8, 20) if like.n is not None else (6, 12)
