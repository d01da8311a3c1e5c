"""Observe: a release, or one that is only planned, seen through its model."""

from __future__ import annotations

import math
from typing import Any

from dp_dask.core.categories import CategoryCounts
from dp_dask.core.cluster_bands import ClusterBands
from dp_dask.core.gram import GramSum
from dp_dask.core.grid import MOST_CELLS
from dp_dask.core.grouped import GroupedSum
from dp_dask.core.privacy import Unit
from dp_dask.core.release import Release, Request
from dp_dask.core.table_sum import TableSum
from dp_dask.errors import InferenceError
from dp_dask.public.counts import CountsObservation
from dp_dask.public.gram_likelihood import GramObservation
from dp_dask.public.groups import GroupedObservation
from dp_dask.public.joint import JointObservation
from dp_dask.public.noise_law import Gaussian, Laplace
from dp_dask.public.observation import Observation
from dp_dask.public.simulated import SimulatedObservation
from dp_dask.public.simulator_model import SimulatorModel

__all__ = ["AnyObservation", "ModelObservation", "observe", "planned"]

ModelObservation = Observation | JointObservation | CountsObservation | GroupedObservation | GramObservation
AnyObservation = ModelObservation | SimulatedObservation


def observe(release: Release, model: Any, expected_n: float | None = None) -> AnyObservation:
    """See a release through a model; raises InferenceError for one that the model cannot explain."""
    return _see(release.request, release.scale, release.noisy_sums, release.noisy_count, model, expected_n)


def planned(request: Request, model: Any, expected_n: float | None = None) -> AnyObservation:
    """Return an observation with the request's noise and no data, for simulations to start from."""
    statistic, amount = request.statistic, float(request.loss.amount)
    if request.loss.unit is Unit.RHO:
        scale = math.sqrt(request.squared_sensitivity / (2 * amount))
    else:
        scale = request.sensitivity / amount
    return _see(request, scale, (0,) * len(statistic.units), 0 if request.has_count else None, model, expected_n)


def _see(
    request: Request, scale: float, sums: tuple[int, ...], count: int | None, model: Any, expected_n: float | None
) -> AnyObservation:
    statistic = request.statistic
    law = Gaussian if request.loss.unit is Unit.RHO else Laplace
    if isinstance(model, SimulatorModel):
        if not isinstance(statistic, TableSum | ClusterBands):
            raise InferenceError("the release holds no sums that a simulator can be seen through; infer with its own model")
        return SimulatedObservation(
            simulator=model.simulator,
            policy=model.policy,
            call=model.call,
            statistic=statistic,
            n=request.n,
            scale=scale,
            y=sums,
            count=count,
            expected_n=expected_n,
            law=law,
        )
    if isinstance(statistic, ClusterBands):
        msg = "the release holds bands of clusters: a simulator explains them, and no model of records one by one"
        raise InferenceError(msg)
    _check_fits(request, model)
    facts: dict[str, Any] = {"model": model, "n": request.n, "scale": scale, "law": law, "expected_n": expected_n}
    if isinstance(statistic, CategoryCounts):
        return CountsObservation(statistic=statistic, y=sums, **facts)
    if isinstance(statistic, GroupedSum):
        return GroupedObservation(statistic=statistic, y=sums, **facts)
    facts["count"] = count
    if isinstance(statistic, GramSum):
        return GramObservation(statistic=statistic, y=sums, **facts)
    if isinstance(statistic, TableSum) and not _is_scalar(request, model):
        return JointObservation(statistic=statistic, y=sums, **facts)
    observation = Observation(statistic=statistic, y=sums[0], **facts)
    if observation.high - observation.low > MOST_CELLS:
        msg = f"the release's grid has more than {MOST_CELLS} cells: it was not written by dp_dask"
        raise InferenceError(msg)
    return observation


def _is_scalar(request: Request, model: Any) -> bool:
    """Whether there is one sum, and one parameter that it tells of."""
    return len(request.statistic.units) == 1 and len(model.parameters) == 1


def _check_fits(request: Request, model: Any) -> None:
    """Raise InferenceError unless the model explains such a release."""
    statistic = request.statistic
    if isinstance(statistic, CategoryCounts):
        what, fits = "counts of categories", getattr(model, "categories", None) == statistic.categories
    elif isinstance(statistic, GroupedSum):
        what, fits = "sums of groups", getattr(model, "groups", None) == statistic.by.categories
    elif isinstance(statistic, GramSum):
        what, fits = "products of columns", tuple(getattr(model, "bounded", ())) == statistic.columns
    else:
        is_of_numbers = hasattr(model, "spacing") and (isinstance(statistic, TableSum) or _is_scalar(request, model))
        what, fits = "sums of one column", is_of_numbers
    if not fits:
        msg = f"the release holds {what}; infer with the model that it was made for"
        raise InferenceError(msg)
    if request.n is None and not request.has_count and not isinstance(statistic, CategoryCounts | GroupedSum):
        msg = "the release has no noisy count although n is private: it was not written by dp_dask"
        raise InferenceError(msg)
