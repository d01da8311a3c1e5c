"""Measurement: one posterior to be made, from its entry in the pipeline file."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from dp_dask.core import plugins
from dp_dask.core.bounds import Bounds, Outside, check_support
from dp_dask.core.categories import CategoryCounts
from dp_dask.core.gram import GramSum, gram_sum
from dp_dask.core.grid import MAX_PRIVATE_RECORDS, MOST_CELLS, check_headroom, choose_grid, wanted_cells
from dp_dask.core.grouped import GroupedSum
from dp_dask.core.joint_priors import Independent
from dp_dask.core.pooled import Pooled, PooledGroups
from dp_dask.core.privacy import Loss, Neighbours, Unit
from dp_dask.core.release import AnyStatistic, Request
from dp_dask.core.statistic import BoundedSum
from dp_dask.core.table_sum import TableSum
from dp_dask.entries.build import Faults, check_keys, leaf, show
from dp_dask.entries.groups import GroupBy, read_group_by
from dp_dask.entries.loss import read_loss, resolution
from dp_dask.entries.model import MODELS, find_class, known_names, make_model
from dp_dask.entries.prior import make_prior
from dp_dask.entries.summary import Setting
from dp_dask.entries.tables import inside_sum, table_sum
from dp_dask.entries.unit import Privacy, check_unit
from dp_dask.public.gram_report import GramPrior
from dp_dask.public.groups import GroupedModel
from dp_dask.public.simulator_model import SimulatorModel
from dp_dask.user_family import is_reference

__all__ = [
    "INSIDE_SHARE",
    "Measurement",
    "Privacy",
    "for_report",
    "make_measurement",
    "make_request",
    "make_statistic",
    "read_bounds",
    "redesign",
]

INSIDE_SHARE = 0.5  # of epsilon for the count of records inside, where the file says no more than that it is wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One posterior to be made: a model of one column, its statistic, its price and its prior."""

    name: str
    model_name: str
    model: Any
    prior: Any
    request: Request
    setting: Setting | None = None  # what the summary was chosen for, where the posterior is through a simulator
    inside_count: float | None = None  # the share of epsilon that the count of records inside the bounds was asked for with

    @property
    def is_simulated(self) -> bool:
        """Whether the posterior is one through a simulator."""
        return isinstance(self.model, SimulatorModel)

    @property
    def whole(self) -> tuple[Any, Any]:
        """The model and the prior of all that is reported."""
        return for_report(self.model, self.prior, self.request.statistic)


def for_report(model: Any, prior: Any, statistic: AnyStatistic) -> tuple[Any, Any]:
    """Return model and prior of all that is reported: of every group, or of a regression's coefficients."""
    if isinstance(statistic, GramSum):
        return model, GramPrior(prior, model, statistic)
    if not isinstance(statistic, GroupedSum):
        return model, prior
    groups = statistic.by.categories
    if isinstance(prior, Pooled):
        name = prior.name(model.parameters[0])
        return GroupedModel(model, groups, (f"{name}_mean", f"{name}_sd")), PooledGroups(prior, len(groups))
    return GroupedModel(model, groups), Independent((prior,) * len(groups))


def _share(privacy: Privacy, n_groups: int) -> Privacy:
    """What is known of one group of several: its size is private, and expected to be an equal share."""
    expected = privacy.n if privacy.n is not None else privacy.expected_records
    return Privacy(Neighbours.ADD_REMOVE, None, max(expected / n_groups, 1.0) if expected else None)


def make_measurement(
    name: str, given: Any, path: str, dataset: str, privacy: Privacy | None, faults: Faults
) -> Measurement | None:
    """Make the measurement of a model; None where there was a fault."""
    before = len(faults.problems)
    model_name = given.get("model") if isinstance(given, dict) else None
    if not isinstance(model_name, str):
        faults.add(f"{path}.model", f"is {show(model_name)}; known models: {', '.join(plugins.names(MODELS))}")
        return None
    cls = find_class(model_name, f"{path}.model", faults)
    if cls is None:
        return None
    has_bounds = hasattr(cls, "spacing") or is_reference(model_name)  # a model of numbers, not of categories
    natural = getattr(cls, "natural_bounds", None)
    known = known_names(cls)
    of_one = [] if hasattr(cls, "bounded") else ["column"]  # a model of several columns names them itself
    of_bounds = ["bounds", "outside", "inside_count", "group_by"] if has_bounds else []
    shared = ["model", *of_one, "epsilon", "rho", "prior", *of_bounds]
    needed = [*of_one, "prior", *(["bounds"] if has_bounds and natural is None else [])]
    values = check_keys(given, path, [*shared, *known], [*needed, *known], faults)
    given_known = {key: values[key] for key in known if key in values}
    model = make_model(model_name, given_known, path, faults) if len(given_known) == len(known) else None
    column = leaf(str, values.get("column", ""), f"{path}.column", faults)
    outside = leaf(Outside, values.get("outside", "clamp"), f"{path}.outside", faults)
    inside_count = _inside_count(values.get("inside_count", False), f"{path}.inside_count", faults)
    loss = read_loss(values, path, faults, is_delta_known=privacy is None or privacy.delta is not None)
    bounds = model.natural_bounds if has_bounds and model is not None else None
    if "bounds" in values:
        bounds = read_bounds(values["bounds"], model or cls, f"{path}.bounds", faults)
    prior = None
    if model is not None and "prior" in values:
        prior = make_prior(model, values["prior"], f"{path}.prior", faults, is_grouped="group_by" in values)
    by = read_group_by(values["group_by"], f"{path}.group_by", faults) if "group_by" in values else None
    if by is not None and hasattr(model, "features"):
        faults.add(f"{path}.group_by", f"serves models of one parameter and one sum, which {model_name} is not")
    if inside_count is not None and (by is not None or outside is not Outside.TRUNCATE or hasattr(model, "features")):
        allowed = "outside: truncate, models of one parameter and one sum, and no groups"
        faults.add(f"{path}.inside_count", f"goes with {allowed}; leave it out here")
    if len(faults.problems) > before or privacy is None or model is None or prior is None or loss is None:
        return None
    try:
        epsilon = resolution(privacy.unit.for_a_record(loss))
        statistic = _statistic(model, column, bounds, outside, privacy, epsilon, by, inside_count)
    except ValueError as error:
        where = "bounds" if has_bounds else "columns" if hasattr(cls, "bounded") else "categories"
        faults.add(f"{path}.{where}", str(error))
        return None
    check_unit(privacy.unit, statistic, name, faults, is_integer=getattr(model, "is_integer", False))
    if len(faults.problems) > before:
        return None
    request = make_request(dataset, statistic, privacy, loss)
    return Measurement(name=name, model_name=model_name, model=model, prior=prior, request=request, inside_count=inside_count)


def _statistic(
    model: Any,
    column: str,
    bounds: Bounds | None,
    outside: Outside,
    privacy: Privacy,
    epsilon: float,
    by: GroupBy | None,
    inside_count: float | None,
) -> AnyStatistic:
    if hasattr(model, "bounded"):
        bounded = {name: Bounds(*ends) for name, ends in model.bounded.items()}
        return gram_sum(tuple(bounded), tuple(bounded.values()), privacy.neighbours, privacy.n)
    if bounds is None:
        return CategoryCounts(column=column, categories=model.categories)
    if by is not None:
        share = _share(privacy, len(by.groups))
        within = make_statistic(model, column, bounds, outside, share, epsilon)
        return GroupedSum(within=within, by=CategoryCounts(column=by.column, categories=by.groups))
    return make_statistic(model, column, bounds, outside, privacy, epsilon, inside_count)


def redesign(
    m: Measurement, privacy: Privacy, bounds: Bounds, outside: Outside, epsilon: Decimal, inside_count: float | None = None
) -> Measurement:
    """Return the same measurement of numbers released in another way.

    Raises ValueError for bounds, a rule for what lies outside or an epsilon that a file could not ask for either.
    """
    check_support(bounds, m.model.support, is_integer=m.model.is_integer)
    statistic = m.request.statistic
    by = GroupBy(statistic.by.column, statistic.by.categories) if isinstance(statistic, GroupedSum) else None
    loss = Loss(Unit.EPSILON, epsilon)
    resolved = resolution(privacy.unit.for_a_record(loss))
    made = _statistic(m.model, statistic.columns[0], bounds, outside, privacy, resolved, by, inside_count)
    request = dataclasses.replace(m.request, statistic=made, epsilon=loss.amount)
    return dataclasses.replace(m, request=request, inside_count=inside_count)


def make_statistic(
    model: Any,
    column: str,
    bounds: Bounds,
    outside: Outside,
    privacy: Privacy,
    epsilon: float,
    inside_count: float | None = None,
) -> BoundedSum | TableSum:
    """Choose grid, units and the counts' weights of a model's statistic from public facts; raises ValueError."""
    expected = None if privacy.expected_records is None else round(privacy.expected_records)
    n = privacy.n if privacy.neighbours is Neighbours.REPLACE else expected
    largest_n = MAX_PRIVATE_RECORDS if privacy.n is None else max(privacy.n, 1)
    if inside_count is not None:
        made: BoundedSum | TableSum = inside_sum(model, column, bounds, outside, wanted_cells(n, epsilon), inside_count)
    elif model.spacing is None:
        grid = choose_grid(
            bounds, outside=outside, neighbours=privacy.neighbours, is_integer=model.is_integer, epsilon=epsilon, n=n
        )
        if grid.high - grid.low > MOST_CELLS:
            msg = "truncate with bounds so far from zero: the sensitivity is the distance to zero; use outside: clamp"
            raise ValueError(msg)
        made = BoundedSum(column=column, bounds=bounds, outside=outside, grid=grid)
    else:
        made = table_sum(model, column, bounds, outside, wanted_cells(n, epsilon))
    check_headroom(made.largest, largest_n)
    if privacy.neighbours is Neighbours.REPLACE:
        return made
    # Half the largest contribution: within 10 % of the best share for the count.
    return dataclasses.replace(made, count_weight=max(1, round(made.sensitivity(Neighbours.ADD_REMOVE) / 2)))


def _inside_count(value: Any, path: str, faults: Faults) -> float | None:
    """Return the share of epsilon for the count of records inside the bounds, None where it is not wanted."""
    if isinstance(value, bool):
        return INSIDE_SHARE if value else None
    share = None if value is None or isinstance(value, str) else leaf(float, value, path, faults)
    if share is None or not 0 < share < 1:
        faults.add(path, f"is {show(value)}; give true, false, or its share of epsilon: above 0 and below 1")
        return None
    return float(share)


def make_request(dataset: str, statistic: AnyStatistic, privacy: Privacy, loss: Loss) -> Request:
    """Ask for a statistic for the file's unit and relation, by the noise of this loss."""
    return Request(
        dataset=dataset,
        statistic=statistic,
        neighbours=privacy.neighbours,
        n=privacy.n,
        epsilon=loss.amount if loss.unit is Unit.EPSILON else None,
        rho=loss.amount if loss.unit is Unit.RHO else None,
        unit=privacy.unit,
    )


def read_bounds(value: Any, cls: Any, path: str, faults: Faults) -> Bounds | None:
    """Read ``[smallest, largest]``, inside the support of a model where there is one; None where there was a fault."""
    if not isinstance(value, list) or len(value) != 2:  # noqa: PLR2004
        faults.add(path, f"is {show(value)}; give [smallest, largest]")
        return None
    ends = [leaf(float, end, f"{path}[{i}]", faults) for i, end in enumerate(value)]
    if None in ends:
        return None
    try:
        bounds = Bounds(*ends)
        if cls is not None:
            check_support(bounds, cls.support, is_integer=getattr(cls, "is_integer", False))
    except ValueError as error:
        faults.add(path, str(error))
        return None
    return bounds
