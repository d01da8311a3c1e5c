"""Explore: what to choose before spending: bounds, clamp or truncate, the count's weight, and how measurements share epsilon.

All of it from the prior predictive: no file of records is opened and no ledger asked. Every design is tried on the same
simulated records (common random numbers), so that the ratio of two widths is known far better than either.
"""

from __future__ import annotations

from decimal import Decimal
from itertools import chain

import numpy as np

from dp_dask.config import Pipeline
from dp_dask.core.bounds import Bounds, Outside
from dp_dask.core.grouped import GroupedSum
from dp_dask.core.pooled import Pooled
from dp_dask.core.privacy import Unit
from dp_dask.entries.measurement import INSIDE_SHARE, Measurement
from dp_dask.errors import ConfigError, InferenceError
from dp_dask.explore.choose import choose, of_bounds, of_count, of_outside
from dp_dask.explore.designs import Design, Setting, is_wider, within
from dp_dask.explore.results import Exploration, Explored, Split, Tried, tell
from dp_dask.explore.split import split
from dp_dask.progress import Progress, silent
from dp_dask.public.candidates import OWN, candidates, predictive
from dp_dask.public.paired import compare

__all__ = ["Exploration", "Explored", "Split", "Tried", "explore"]

MULTIPLES = tuple(map(Decimal, ("0.1", "0.3", "1", "3")))  # of the file's epsilon
WEIGHTS = (0.25, 0.5, 1.0)  # of the count, as shares of the largest contribution
HOPELESS = 2.5  # standard errors, by which a design that is not tried further is wider than the best


def explore(pipeline: Pipeline, *, entropy: int = 0, progress: Progress = silent) -> Exploration:
    """Try other designs for each measurement of numbers; the same entropy gives the same numbers.

    Raises ConfigError for a private n of which nothing is said, for a measurement in rho, and for a file without a measurement of
    numbers.
    """
    if pipeline.n is None and pipeline.expected_n is None:
        raise ConfigError.of("privacy.expected_records", "is missing; to simulate a private n takes a public guess of it")
    for m in pipeline.measurements:
        if m.request.loss.unit is Unit.RHO:
            msg = "is not explored: designs are compared under Laplace noise; give an epsilon of 2 sqrt(rho) while exploring"
            path = f"measurements.{m.name}.rho"
            raise ConfigError.of(path, msg)
    numbers = [m for m in pipeline.measurements if hasattr(m.model, "spacing")]
    if not numbers:
        raise ConfigError.of("measurements", "none is a model of one column of numbers, whose bounds could be chosen")
    settings = [Setting(pipeline, (entropy, i), progress) for i in range(len(numbers))]
    made = [_explore_one(setting, m) for setting, m in zip(settings, numbers, strict=True)]
    return Exploration(
        dataset=pipeline.dataset,
        measurements=tuple(told for told, _, _ in made),
        split=split(settings, [chosen for _, chosen, _ in made], [curve for _, _, curve in made]),
    )


def _explore_one(setting: Setting, m: Measurement) -> tuple[Explored, Design, list[Design]]:
    """Return what is told of a measurement, its chosen design, and that at several epsilons."""
    rng = np.random.default_rng(setting.seed)
    own = setting.design(OWN, m)
    others, refused = _others(setting, m, own, rng)
    chosen = choose(own, [d for d in others if len(d.widths) == len(own.widths)])
    curve = _at_epsilons(setting, chosen)
    weighed = setting.reweigh(chosen, WEIGHTS)
    _, records = predictive(rng, m.model, m.prior)
    designs = [own, *others]
    cells = {d: d.cell(own, records) for d in [*designs, *curve, *weighed]}
    weights = tuple(cells[d] for d in weighed)
    reasons = (
        of_bounds(chosen, own, designs, cells[chosen].share_outside),
        of_outside(chosen, designs),
        of_count(chosen, weighed, [cell.weight or 0 for cell in weights]),
    )
    exact = own.widths.average(own.widths.exact)
    told = Explored(
        measurement=m.name,
        parameters=m.model.parameters,
        prior=str(m.prior),
        has_sd=own.widths.has_sd,
        non_private=tuple(float(value) if np.isfinite(value) else None for value in exact),
        designs=tuple(cells[d] for d in designs),
        chosen=cells[chosen],
        epsilons=tuple(cells[d] for d in curve),
        weights=weights,
        reasons=tuple(reason for reason in reasons if reason is not None),
        warnings=(*refused, *_warnings(own)),
    )
    return told, chosen, curve


def _others(setting: Setting, m: Measurement, own: Design, rng: np.random.Generator) -> tuple[list[Design], list[str]]:
    """Try all other bounds, clamped and truncated: all a little, and in full what is not far wider than the best of them."""
    statistic = within(m)
    tried = candidates(rng, m.model, m.prior, statistic.bounds)
    wanted = [(c.label, c.bounds, *rule) for c in tried for rule in _rules(m)]
    wanted.remove((OWN, statistic.bounds, statistic.outside, m.inside_count))
    refused: list[str] = []

    def first(spec: tuple[str, Bounds, Outside, float | None]) -> list[Design]:
        label, bounds, outside, inside_count = spec
        try:
            moved = setting.redesign(m, bounds, outside, inside_count, m.request.loss.amount)
            return [setting.design(label, moved, is_first=True)]
        except (ValueError, InferenceError) as error:
            refused.append(f"{tell(bounds, outside, inside_count)}, {label}, cannot be had: {error}")
            return []

    quick = list(chain.from_iterable(setting.each(f"{m.name}: bounds", wanted, first)))
    best = min([own, *quick], key=lambda d: compare(d.widths, own.widths)[0])
    near = [d for d in quick if not is_wider(d, best, HOPELESS)]
    full = dict(zip(near, setting.each(f"{m.name}: the narrowest", near, setting.complete), strict=True))
    return [full.get(d, d) for d in quick], refused


def _rules(m: Measurement) -> list[tuple[Outside, float | None]]:
    """Return what may become of records outside, the file's own rule among them, with the share of a count of those inside."""
    own = (within(m).outside, m.inside_count)
    if m.model.natural_bounds is not None:
        return [own]
    rules: list[tuple[Outside, float | None]] = [(outside, None) for outside in Outside]
    if m.inside_count is not None:
        return [*rules, own]
    is_counted = len(m.request.statistic.units) == 1  # of several sums or groups no count is offered
    return [*rules, (Outside.TRUNCATE, INSIDE_SHARE)] if is_counted else rules


def _at_epsilons(setting: Setting, chosen: Design) -> list[Design]:
    """Try the chosen design at multiples of its epsilon, those left out that a file could not ask for."""
    curve = []
    for multiple in MULTIPLES:
        if multiple == 1:
            curve.append(chosen)
            continue
        try:
            curve.append(setting.at_epsilon(chosen, chosen.epsilon * multiple))
        except (ValueError, InferenceError):
            continue
        setting.progress(f"{chosen.measurement.name}: epsilon", len(curve), len(MULTIPLES))
    return curve


def _warnings(own: Design) -> list[str]:
    found = []
    if not own.widths.has_sd:
        found.append("the prior has no finite sd, hence no posterior has: widths are medians of half the central 68 % interval")
    if isinstance(own.measurement.request.statistic, GroupedSum):
        found.append("groups are alike before they are seen: one of them stands for all")
    if isinstance(own.measurement.prior, Pooled):
        found.append("widths are those of a group by itself: what it learns from the others is left out")
    return found
