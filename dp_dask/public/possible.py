"""Possible: refuse a release that its own n, bounds and noise do not make, whatever the parameter.

What is checked needs no model: how much noise, at least, lies between the release and the nearest sums of any number of records.
Beyond, engines would work in tails where no digit is left, and an answer would mean nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from dp_dask.core.cluster_bands import ClusterBands
from dp_dask.core.grid import MAX_PRIVATE_RECORDS
from dp_dask.core.stacked_sum import StackedSum
from dp_dask.errors import InferenceError
from dp_dask.public.counts import CountsObservation
from dp_dask.public.gram_likelihood import GramObservation
from dp_dask.public.joint import JointObservation
from dp_dask.public.observation import Observation
from dp_dask.public.simulated import SimulatedObservation

__all__ = ["check_possible"]

LEAST = 700.0  # noise scales: |noise| of K coordinates sums to more than 700 + 3 K scales less than once in e^600 (Chernoff)
WIDEST = 2.0**53  # grid units of noise scale: noise then leaves int64 less than once in e^500
Possible = Observation | JointObservation | GramObservation | CountsObservation | SimulatedObservation
Ranges = Sequence[tuple[float, float]]  # of one record's contribution, by coordinate, 0 included


def check_possible(observation: Possible) -> None:
    """Raise InferenceError for a release that noise of its scale makes less than once in e^600, for every parameter and n."""
    scale = observation.scale
    if scale > WIDEST:
        msg = f"noise of scale {scale:.3g} grid units does not fit in 64 bits, {WIDEST:.0e} does; release with a larger epsilon"
        raise InferenceError(msg)
    y = (observation.y,) if isinstance(observation, Observation) else observation.y
    count = None if isinstance(observation, CountsObservation) else observation.count
    n_coordinates = len(y) + (count is not None)
    scales = _least_noise(observation, y, count) / scale
    if scales > LEAST + 3 * n_coordinates:
        known = f"n = {observation.n} records" if observation.n is not None else "any number of records"
        msg = (
            f"the noisy sums lie {scales:.3g} noise scales, all told, beyond what {known} inside the bounds can add up to; noise "
            "does not do that: n, bounds or noise scale are not those of this release, or it was not written by dp_dask"
        )
        raise InferenceError(msg)
    if count is not None:
        n = (count - LEAST * scale) / observation.statistic.count_weight
        what = "the noisy count means"
    else:
        n = float(sum(y)) - (LEAST + 3 * len(y)) * scale if isinstance(observation, CountsObservation) else 0.0
        what = "the noisy counts add up to"
    if n > MAX_PRIVATE_RECORDS:
        msg = (
            f"{what} more than {n:.3g} records; at most {MAX_PRIVATE_RECORDS:.3g} are ever summed: it is not a release of dp_dask"
        )
        raise InferenceError(msg)


def _least_noise(observation: Possible, y: Sequence[int], count: int | None) -> float:
    """Return the least sum of abs(noise) over the coordinates and the count, for any contributions and any private n."""
    if isinstance(observation, CountsObservation):
        below, above = float(-sum(min(k, 0) for k in y)), float(sum(max(k, 0) for k in y))
        return below if observation.n is None else below + abs(above - observation.n)
    ranges = _ranges(observation)
    if observation.n is not None or count is None:
        return _beyond(y, ranges, float(observation.n or 0))
    # Convex and piecewise linear in n: its minimum is at a kink.
    weight = observation.statistic.count_weight
    kinks = [0.0, count / weight]
    kinks += [value / end for value, ends in zip(y, ranges, strict=True) for end in ends if value * end > 0]
    return min(abs(count - weight * n) + _beyond(y, ranges, n) for n in kinks if n >= 0)


def _beyond(y: Sequence[int], ranges: Ranges, n: float) -> float:
    """Return how far, summed over the coordinates, y lies outside n times the ranges."""
    return sum(max(value - n * high, n * low - value, 0.0) for value, (low, high) in zip(y, ranges, strict=True))


def _ranges(observation: Observation | JointObservation | GramObservation | SimulatedObservation) -> Ranges:
    if isinstance(observation, Observation):
        return [(observation.low, observation.high)]
    if isinstance(observation.statistic, ClusterBands):
        return [(0.0, 1.0)] * len(observation.statistic.units)  # that each record raises by 1 at most, in any order
    if isinstance(observation, JointObservation | SimulatedObservation):
        tables = observation.statistic
        parts = tables.parts if isinstance(tables, StackedSum) else (tables,)
        rows = [row for part in parts for row in part.rows]
        return [(min(float(row.min()), 0.0), max(float(row.max()), 0.0)) for row in rows]
    statistic = observation.statistic
    c, unit, centre = len(statistic.columns), float(statistic.unit), float(statistic.centre)
    products = [(-centre, unit - centre) if i == j else (-unit, unit) for i in range(c) for j in range(i, c)]
    return [(-unit, unit)] * c + products
