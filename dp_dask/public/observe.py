"""Observe: a release, or one that is only planned, seen through its model."""

from __future__ import annotations

from typing import Any

from dp_dask.core.categories import CategoryCounts
from dp_dask.core.gram import GramSum
from dp_dask.core.grid import MOST_CELLS
from dp_dask.core.grouped import GroupedSum
from dp_dask.core.release import Release, Request
from dp_dask.core.table_sum import TableSum
from dp_dask.errors import InferenceError
from dp_dask.public.counts import CountsObservation
from dp_dask.public.gram_likelihood import GramObservation
from dp_dask.public.groups import GroupedModel, GroupedObservation
from dp_dask.public.joint import JointObservation
from dp_dask.public.observation import Observation

__all__ = ["AnyObservation", "observe", "planned"]

AnyObservation = Observation | JointObservation | CountsObservation | GroupedObservation | GramObservation


def observe(release: Release, model: Any, expected_n: float | None = None) -> AnyObservation:
    """See a release through a model; raises InferenceError for one that the model cannot explain."""
    return _see(release.request, release.scale, release.noisy_sums, release.noisy_count, model, expected_n)


def planned(request: Request, model: Any, expected_n: float | None = None) -> AnyObservation:
    """Return an observation with the request's noise and no data, for simulations to start from."""
    scale = request.statistic.sensitivity(request.neighbours) / float(request.epsilon)
    return _see(request, scale, (0,) * len(request.statistic.units), 0 if request.has_count else None, model, expected_n)


def _see(  # noqa: PLR0911  (one kind of statistic after the other)
    request: Request, scale: float, sums: tuple[int, ...], count: int | None, model: Any, expected_n: float | None
) -> AnyObservation:
    statistic = request.statistic
    if isinstance(statistic, CategoryCounts):
        if getattr(model, "categories", None) != statistic.categories:
            msg = "the release holds counts of categories; infer with the categorical model of the same categories"
            raise InferenceError(msg)
        return CountsObservation(model=model, statistic=statistic, n=request.n, scale=scale, y=sums, expected_n=expected_n)
    if isinstance(statistic, GroupedSum):
        if not isinstance(model, GroupedModel) or model.groups != statistic.by.categories:
            msg = "the release holds sums of groups; infer with the model that it was made for"
            raise InferenceError(msg)
        return GroupedObservation(model=model, statistic=statistic, n=request.n, scale=scale, y=sums, expected_n=expected_n)
    if isinstance(statistic, GramSum):
        if tuple(getattr(model, "bounded", ())) != statistic.columns:
            msg = "the release holds products of columns; infer with the model that it was made for"
            raise InferenceError(msg)
        return GramObservation(
            model=model, statistic=statistic, n=request.n, scale=scale, y=sums, count=count, expected_n=expected_n
        )
    is_scalar = len(sums) == 1 and len(model.parameters) == 1
    if request.n is None and not request.has_count:
        msg = "the release has no noisy count although n is private: it was not written by dp_dask"
        raise InferenceError(msg)
    facts: dict[str, Any] = {"model": model, "n": request.n, "scale": scale, "count": count, "expected_n": expected_n}
    if not is_scalar:
        if not isinstance(statistic, TableSum):
            msg = "the release is of one plain sum; infer with the model that it was made for"
            raise InferenceError(msg)
        return JointObservation(statistic=statistic, y=sums, **facts)
    observation = Observation(statistic=statistic, y=sums[0], **facts)
    if observation.high - observation.low > MOST_CELLS:
        msg = f"the release's grid has more than {MOST_CELLS} cells: it was not written by dp_dask"
        raise InferenceError(msg)
    return observation
