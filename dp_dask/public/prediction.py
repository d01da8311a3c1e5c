"""Prediction: the next records, one drawn from the model for each posterior draw, as they are before bounds and rounding."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dp_dask.public.counts import CountsObservation
from dp_dask.public.gram_likelihood import GramObservation
from dp_dask.public.groups import GroupedObservation
from dp_dask.public.observation import Observation
from dp_dask.public.posterior import INTERVAL, Posterior, seed
from dp_dask.public.simulated import SimulatedObservation

__all__ = ["Prediction", "predict"]

Floats = NDArray[np.float64]
LARGEST = float(np.finfo(np.float64).max)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Records [chain, draw] of the posterior predictive distribution, and what is known of a new one from them.

    Mean and sd are None where they are beyond float64: the model has so heavy a tail that it may have neither.
    """

    measurement: str
    group: str | None  # None where there are no groups
    column: str
    draws: Floats
    mean: float | None
    sd: float | None
    median: float
    lower: float
    upper: float

    @property
    def name(self) -> str:
        """MEASUREMENT.record: unlike the noisy sums of observed_data, which bear the measurement's name."""
        return f"{self.measurement}.record" + ("" if self.group is None else f"[{self.group}]")


def predict(posterior: Posterior) -> list[Prediction]:
    """Draw one new record for each posterior draw, in each group where there are groups.

    None is drawn for categories, whose posterior means are the probabilities of a record, nor for several columns, nor through a
    simulator, which makes whole data sets and no single record.
    Repeats give the same records.
    """
    observation, draws = posterior.observation, posterior.inference.draws
    rng = np.random.default_rng(seed(posterior.release, posterior.measurement).spawn(2)[1])
    if isinstance(observation, CountsObservation | GramObservation | SimulatedObservation):
        return []
    if isinstance(observation, GroupedObservation):
        column, model = observation.statistic.within.column, observation.model.within
        theta = draws[:, :, len(observation.model.shared) :].reshape(-1, len(observation.model.groups)).T
        with np.errstate(all="ignore"):
            records = [model.simulate(of_group, len(of_group), rng) for of_group in theta]
        groups = map(str, observation.model.groups)
        return [_summarised(posterior, group, column, one) for group, one in zip(groups, records, strict=True)]
    theta = draws.reshape(-1, draws.shape[2])
    with np.errstate(all="ignore"):
        if isinstance(observation, Observation):
            drawn = observation.model.simulate(theta[:, 0], len(theta), rng)
        else:
            drawn = observation.model.simulate(tuple(theta.T), (len(theta),), rng)
    return [_summarised(posterior, None, observation.statistic.column, drawn)]


def _summarised(posterior: Posterior, group: str | None, column: str, records: Floats) -> Prediction:
    records = np.clip(records, -LARGEST, LARGEST)
    with np.errstate(all="ignore"):
        mean = float(records.mean())
        sd = math.sqrt(float(np.square(records - mean).mean()))
    is_finite = math.isfinite(mean) and math.isfinite(sd)
    tail = (1 - INTERVAL) / 2
    lower, median, upper = (float(value) for value in np.quantile(records, [tail, 0.5, 1 - tail]))
    return Prediction(
        measurement=posterior.measurement, group=group, column=column, draws=records.reshape(posterior.inference.draws.shape[:2]),
        mean=mean if is_finite else None, sd=sd if is_finite else None, median=median, lower=lower, upper=upper,
    )  # fmt: skip
