"""Prior: from its entry in a pipeline file or a release, and back."""

from __future__ import annotations

import dataclasses
from typing import Any

from dp_dask.core.continuous import SCIPY, Continuous
from dp_dask.core.dirichlet import Dirichlet
from dp_dask.core.joint_priors import Independent
from dp_dask.core.pooled import Pooled
from dp_dask.core.prior_kinds import KINDS, Domain, check_kind, describe, kind_of, make, outside
from dp_dask.core.spellings import named_by, respell
from dp_dask.entries.build import Faults, build, check_keys, leaf, show
from dp_dask.public.simulator_model import SimulatorModel

__all__ = ["POOLED", "make_prior", "plain_prior"]

DIRICHLET = "dirichlet"  # the kind of a prior of probabilities that add up to 1
POOLED = "pooled"  # the kind of a prior that groups share


def make_prior(model: Any, given: Any, path: str, faults: Faults, *, is_grouped: bool = False) -> Any:
    """Make the prior of a model from its entry; None where there was a fault.

    ``{alpha: 1, beta: 1}`` is the conjugate prior, ``{kind: lognormal, mu: 0, sigma: 1}`` any other; of several parameters
    ``{mu: {kind: .., ..}, sigma: {kind: .., ..}}`` are independent priors. Groups may share one,
    ``{kind: pooled, mean: {kind: .., ..}, sd: {kind: .., ..}}``. A simulator's probabilities that add up to 1 have
    ``{kind: dirichlet, alpha: 1}``, or an alpha for each.
    """
    if _kind(given) == POOLED:
        return _pooled(model, given, path, faults, is_grouped=is_grouped)
    if isinstance(model, SimulatorModel) and (model.prior_type is Dirichlet or _kind(given) == DIRICHLET):
        return _dirichlet(model, given, path, faults)
    if hasattr(model, "expand_prior"):
        try:
            given = model.expand_prior(given)
        except (ValueError, TypeError) as error:
            faults.add(path, str(error))
            return None
    if not hasattr(model, "domains"):  # probabilities that sum to 1 have no priors of their own
        return build(model.prior_type, given, path, faults)
    if len(model.parameters) == 1:
        if isinstance(given, dict) and isinstance(given.get(model.parameters[0]), dict) and len(given) == 1:
            given, path = given[model.parameters[0]], f"{path}.{model.parameters[0]}"  # by its name, as several are given
        return _one(model.parameters[0], model.domains[0], kind_of(model.prior_type), given, path, faults)
    return _several(model, given, path, faults)


def _kind(given: Any) -> Any:
    return given.get("kind") if isinstance(given, dict) else None


def _dirichlet(model: SimulatorModel, given: Any, path: str, faults: Faults) -> Dirichlet | None:
    """Make the prior of probabilities that add up to 1; one alpha stands for all."""
    if _kind(given) != DIRICHLET or set(model.domains) != {"probability"} or len(model.parameters) == 1:
        told = "is for several probabilities that add up to 1" if _kind(given) == DIRICHLET else "is one of another kind"
        faults.add(path, f"{told}; of {', '.join(model.parameters)} give {{kind: {DIRICHLET}, alpha: 1}} where they add up to 1")
        return None
    size = len(model.parameters)
    alpha = given.get("alpha")
    values = {key: value for key, value in given.items() if key != "kind"}
    if alpha is not None and not isinstance(alpha, list | tuple | dict):
        values["alpha"] = [alpha] * size
    made = build(Dirichlet, values, path, faults)
    if made is not None and len(made.alpha) != size:
        faults.add(f"{path}.alpha", f"has {len(made.alpha)} numbers; give one for all, or {size}, one a parameter")
        return None
    return made


def _pooled(model: Any, given: dict[str, Any], path: str, faults: Faults, *, is_grouped: bool) -> Pooled | None:
    """Make a prior that groups share, from those of the mean and the sd of their parameter's coordinate."""
    values = check_keys(given, path, ["kind", "mean", "sd"], ["mean", "sd"], faults)
    if not is_grouped:
        faults.add(
            path, "kind: pooled is a prior that groups share, and this measurement has none: give group_by or another prior"
        )
    if len(model.parameters) != 1 or not hasattr(model, "domains"):
        faults.add(path, "kind: pooled serves models of one parameter")
    hyper: tuple[tuple[str, Domain], ...] = (("mean", "real"), ("sd", "positive"))
    mean, sd = (_one(key, domain, None, values[key], f"{path}.{key}", faults) if key in values else None for key, domain in hyper)
    if mean is None or sd is None or not is_grouped or len(model.parameters) != 1:
        return None
    try:
        return Pooled(model.domains[0], mean, sd)
    except ValueError as error:
        faults.add(path, str(error))
        return None


def _several(model: Any, given: Any, path: str, faults: Faults) -> Any:
    each = "{" + ", ".join(f"{name}: {{kind: .., ..}}" for name in model.parameters) + "}"
    is_conjugate = model.prior_type is not Independent
    values = list(given.values()) if isinstance(given, dict) else []
    mappings = sum(isinstance(value, dict) for value in values)
    if is_conjugate and not mappings:
        return build(model.prior_type, given, path, faults)
    if not mappings or mappings < len(values):
        or_conjugate = ""
        if is_conjugate:
            names = ", ".join(field.name for field in dataclasses.fields(model.prior_type))
            or_conjugate = f", or the numbers of {model.prior_type.__name__}, {names}, not both"
        faults.add(path, f"is {show(given)}; give a prior for each parameter, {each}{or_conjugate}")
        return None
    values_of = check_keys(given, path, model.parameters, model.parameters, faults)
    made = [
        _one(name, domain, None, values_of[name], f"{path}.{name}", faults)
        for name, domain in zip(model.parameters, model.domains, strict=True)
        if name in values_of
    ]
    return None if None in made or len(made) < len(model.parameters) else Independent(tuple(made))


def _one(parameter: str, domain: Domain, conjugate: str | None, given: Any, path: str, faults: Faults) -> Any:
    kind = given.get("kind", conjugate) if isinstance(given, dict) else conjugate
    if not isinstance(kind, str):
        where = f"{path}.kind" if isinstance(given, dict) else path
        faults.add(where, f"is {show(kind)}; give {{kind: .., ..}} with one of {', '.join([*KINDS, SCIPY])}")
        return None
    before = len(faults.problems)
    try:
        check_kind(kind)
    except ValueError as error:
        faults.add(f"{path}.kind", str(error))
        return None
    numbers = _scipy_numbers(given, path, faults) if kind == SCIPY else _numbers(kind, given, path, faults)
    if len(faults.problems) > before:
        return None
    try:
        prior = make(kind, **numbers)
    except ValueError as error:
        faults.add(path, str(error))
        return None
    problem = outside(prior, parameter, domain)
    if problem is not None:
        faults.add(path, problem)
        return None
    return prior


def _numbers(kind: str, given: Any, path: str, faults: Faults) -> dict[str, float]:
    """Return the numbers of a kind; a number by another name is a fault that says what it would mean."""
    arguments = KINDS[kind].arguments
    names = [argument.name for argument in arguments]
    entries = given.items() if isinstance(given, dict) else ()
    renamed = {key: named_by(kind, key) for key, _ in entries if key not in names and named_by(kind, key) is not None}
    ready = {key: leaf(float, value, f"{path}.{key}", faults) for key, value in entries if key in names or key in renamed}
    told = {key: number for key, number in ready.items() if number is not None}
    for key in renamed:
        if key in told:
            faults.add(f"{path}.{key}", respell(kind, key, told))
    plain = {key: value for key, value in entries if key not in renamed} if isinstance(given, dict) else given
    required = [a.name for a in arguments if a.default is None and a.name not in renamed.values()]
    check_keys(plain, path, ["kind", *names], required, faults)
    return {name: told[name] for name in names if name in told}


def _scipy_numbers(given: dict[str, Any], path: str, faults: Faults) -> dict[str, Any]:
    """Return the name and the numbers of a distribution of scipy.stats."""
    name = leaf(str, given.get("name"), f"{path}.name", faults)
    rest = {key: value for key, value in given.items() if key not in ("kind", "name")}
    return {"name": name, **{key: leaf(float, value, f"{path}.{key}", faults) for key, value in rest.items()}}


def plain_prior(model: Any, prior: Any) -> dict[str, Any]:
    """Return the entry that ``make_prior`` makes this prior from."""
    if isinstance(prior, Pooled):
        return {"kind": POOLED, "mean": describe(prior.mean_prior), "sd": describe(prior.sd_prior)}
    if isinstance(model, SimulatorModel) and isinstance(prior, Dirichlet):
        return {"kind": DIRICHLET, "alpha": list(prior.alpha)}
    if isinstance(prior, Independent):
        return {name: describe(one) for name, one in zip(model.parameters, prior.priors, strict=True)}
    if isinstance(prior, Continuous) or not isinstance(prior, model.prior_type):
        return describe(prior)
    return {field.name: getattr(prior, field.name) for field in dataclasses.fields(prior)}
