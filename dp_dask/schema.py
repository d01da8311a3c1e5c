"""Schema: the JSON schema of a pipeline file, for editors; made from the same dataclasses that validate it."""

from __future__ import annotations

import dataclasses
from typing import Any, get_type_hints

from pydantic import TypeAdapter

from dp_dask.config import Inference
from dp_dask.core import plugins
from dp_dask.core.continuous import SCIPY
from dp_dask.core.joint_priors import Independent
from dp_dask.core.prior_kinds import KINDS
from dp_dask.core.schedule import Schedule
from dp_dask.entries.build import key_of
from dp_dask.entries.cluster import CLUSTERS
from dp_dask.entries.dataset import SOURCES
from dp_dask.entries.distance import DISTANCES
from dp_dask.entries.model import MODELS
from dp_dask.entries.prior import POOLED
from dp_dask.entries.selection_measurement import METHODS, Choice, Threshold
from dp_dask.entries.simulator import SIMULATORS, Handling
from dp_dask.entries.unit import Persons, Relation
from dp_dask.public.infer import ENGINES

__all__ = ["schema"]

EPSILON = {"type": "number", "exclusiveMinimum": 0, "description": "privacy loss, by discrete Laplace noise; no default"}
RHO = {"type": "number", "exclusiveMinimum": 0, "description": "in place of epsilon: zCDP, by discrete Gaussian noise"}
GROUP_BY = {
    "type": "object",
    "properties": {
        "column": {"type": "string"},
        "groups": {
            "oneOf": [
                {"type": "array", "items": {"type": ["integer", "string"]}},
                {
                    "type": "object",
                    "description": "a public .csv or .parquet file, and the column of it that lists the groups",
                    "properties": {"table": {"type": "string"}, "column": {"type": "string"}},
                    "required": ["table", "column"],
                    "additionalProperties": False,
                },
            ]
        },
    },
    "required": ["column", "groups"],
    "additionalProperties": False,
}
POSITIVE = {"exclusiveMinimum": 0}
INSIDE_COUNT = {
    "oneOf": [{"type": "boolean"}, {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}],
    "description": "release the count of records inside the bounds too (outside: truncate), with this share of epsilon",
}
PRIOR = "#/$defs/prior"
POOLED_PRIOR = {
    "type": "object",
    "description": "shared by groups: of the mean and the sd of their parameter, of its log or logit where it is bounded",
    "properties": {"kind": {"const": POOLED}, "mean": {"$ref": PRIOR}, "sd": {"$ref": PRIOR}},
    "required": ["kind", "mean", "sd"],
    "additionalProperties": False,
}
SCIPY_PRIOR = {
    "type": "object",
    "properties": {
        "kind": {"const": SCIPY},
        "name": {"type": "string", "description": "a continuous distribution of scipy.stats"},
    },
    "required": ["kind", "name"],
    "additionalProperties": {"type": "number"},
}
SUMMARY = {
    "oneOf": [
        {"const": "auto"},
        {
            "type": "object",
            "properties": {
                "kind": {"const": "partition"},
                "edges": {"type": "array", "items": {"type": "number"}, "minItems": 1},
            },
            "required": ["kind", "edges"],
            "additionalProperties": False,
        },
        {
            "type": "object",
            "properties": {"kind": {"const": "bins"}, "count": {"type": "integer", "minimum": 2}},
            "required": ["kind", "count"],
            "additionalProperties": False,
        },
        {
            "type": "object",
            "properties": {
                "kind": {"const": "clusters"},
                "sizes": {"type": "array", "items": {"type": "integer"}, "minItems": 1},
                "period": {"type": "string"},
                "spans": {"type": "array", "items": {"type": "integer"}},
                "texts": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["kind", "sizes"],
            "additionalProperties": False,
        },
        {
            "type": "object",
            "properties": {"kind": {"enum": ["auto", "regression", "components"]}, "bandwidth": {"type": "number", **POSITIVE}},
            "required": ["kind"],
            "additionalProperties": False,
        },
    ],
    "description": "the sums that are released; auto (the default) takes what simulations from the prior find best",
}
VALUE = {"type": ["string", "number", "boolean"]}
END = {"type": ["number", "string"], "description": "a number, or a date as 2026-01-31; included"}
WHERE = {
    "type": "object",
    "description": "only records that meet every condition, column by column; the number of records is then private",
    "additionalProperties": {
        "oneOf": [
            VALUE,
            {"type": "array", "items": VALUE, "minItems": 1},
            {"type": "object", "properties": {"from": END, "to": END}, "minProperties": 1, "additionalProperties": False},
            {"type": "object", "properties": {"is": {"const": "known"}}, "required": ["is"], "additionalProperties": False},
        ]
    },
    "minProperties": 1,
}
CLUSTER_NAME = {"type": "string", "description": "a kind, or a name from clusters.yaml or Dask's configuration"}
PATH = {"type": "string", "description": "relative to this file"}


def schema() -> dict[str, Any]:
    """Return the schema (draft 2020-12)."""
    name = {"type": "string", "pattern": "^[A-Za-z0-9._-]+$"}
    dataset = {
        "name": name,
        "source": {"oneOf": [_kind(SOURCES, kind) for kind in plugins.names(SOURCES)]},
        "unit": {"oneOf": [{"const": "record"}, _persons()], "description": "whom epsilon protects: a record, or a person"},
        "version": {"type": "string"},
        "where": WHERE,
    }
    clusters = plugins.names(CLUSTERS)
    properties = {
        "dataset": _mapping(dataset, ["name", "source", "unit"]),
        "privacy": _dataclass(Relation),
        "measurements": {
            "type": "object",
            "propertyNames": name,
            "minProperties": 1,
            "additionalProperties": {
                "oneOf": [
                    *[_measurement(model) for model in plugins.names(MODELS)],
                    *[form(simulator) for simulator in plugins.names(SIMULATORS) for form in (_simulated, _selected)],
                ]
            },
        },
        "inference": _dataclass(Inference),
        "cluster": {"anyOf": [CLUSTER_NAME, *[_kind(CLUSTERS, kind) for kind in clusters]]},
        "simulation_cluster": {"anyOf": [CLUSTER_NAME, *[_kind(CLUSTERS, kind) for kind in clusters]]},
        "ledger": {"type": "string", "description": "sqlite:///FILE (relative to this file) or a PostgreSQL URL"},
        "output": PATH,
        "schedule": _dataclass(Schedule),
    }
    properties["inference"]["properties"]["engine"] = {"enum": list(ENGINES)}
    whole = _mapping(properties, ["dataset", "privacy", "measurements", "ledger"])
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "dp-dask pipeline"}
    return {**head, **whole, "$defs": {"prior": {"oneOf": [*map(_prior_kind, KINDS), SCIPY_PRIOR]}}}


def _mapping(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _dataclass(cls: Any) -> dict[str, Any]:
    """Describe a dataclass field by field."""
    hints = get_type_hints(cls)
    fields = dataclasses.fields(cls)
    required = [key_of(f) for f in fields if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING]
    return _mapping({key_of(f): _leaf(hints[f.name]) for f in fields}, required)


def _leaf(kind: Any) -> dict[str, Any]:
    return _dataclass(kind) if dataclasses.is_dataclass(kind) else TypeAdapter(kind).json_schema()


def _persons() -> dict[str, Any]:
    described = _dataclass(Persons)
    return {**described, "oneOf": [{"required": ["max_records"]}, {"required": ["combine"]}]}


def _kind(folder: str, kind: str) -> dict[str, Any]:
    described = _dataclass(plugins.load(folder, kind))
    described["properties"] = {"kind": {"const": kind}, **described["properties"]}
    described["required"] = ["kind", *described["required"]]
    return described


def _prior_kind(kind: str) -> dict[str, Any]:
    arguments = KINDS[kind].arguments
    numbers = {a.name: {"type": "number", "description": a.meaning, **(POSITIVE if a.is_positive else {})} for a in arguments}
    return _mapping({"kind": {"const": kind}, **numbers}, ["kind", *[a.name for a in arguments if a.default is None]])


def _prior(model: Any) -> dict[str, Any]:
    if not hasattr(model, "domains"):
        return {"type": "object"}
    if len(model.parameters) == 1:
        return {"oneOf": [_dataclass(model.prior_type), {"$ref": PRIOR}, POOLED_PRIOR]}
    each = _mapping({name: {"$ref": PRIOR} for name in model.parameters}, list(model.parameters))
    return each if model.prior_type is Independent else {"oneOf": [_dataclass(model.prior_type), each]}


def _simulated(name: str) -> dict[str, Any]:
    simulator = plugins.load(SIMULATORS, name)
    known, handling = _dataclass(simulator), _dataclass(Handling)
    properties = {
        "simulator": {"const": name},
        "method": {"const": "release"},
        "column": {"type": "string", "description": "one of the simulator's columns, by its name in the data (rename)"},
        "bounds": {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2},
        "outside": {"enum": ["clamp", "truncate"]},
        "integer": {"type": "boolean", "description": "the column holds whole numbers"},
        "summary": SUMMARY,
        "epsilon": EPSILON,
        "rho": RHO,
        "prior": {"type": "object"},
        **known["properties"],
        **handling["properties"],
    }
    described = _mapping(properties, ["simulator", "column", "prior", *known["required"]])
    return {**described, "oneOf": [{"required": ["epsilon"]}, {"required": ["rho"]}]}


def _selected(name: str) -> dict[str, Any]:
    known, handling = _dataclass(plugins.load(SIMULATORS, name)), _dataclass(Handling)
    own = {**_dataclass(Choice)["properties"], **_dataclass(Threshold)["properties"]}
    properties = {
        "simulator": {"const": name},
        "method": {"enum": list(METHODS), "description": "svt: sparse vector; select: the c nearest of all"},
        "distance": {"oneOf": [_kind(DISTANCES, kind) for kind in plugins.names(DISTANCES)]},
        **own,
        "epsilon": EPSILON,
        "rho": RHO,
        "prior": {"type": "object"},
        **known["properties"],
        **handling["properties"],
    }
    described = _mapping(properties, ["simulator", "method", "distance", "c", "prior", *known["required"]])
    return {**described, "oneOf": [{"required": ["epsilon"]}, {"required": ["rho"]}]}


def _measurement(name: str) -> dict[str, Any]:
    model = plugins.load(MODELS, name)
    known = _dataclass(model)
    bounds = {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}
    has_bounds = hasattr(model, "spacing")
    properties = {
        "model": {"const": name},
        **({} if hasattr(model, "bounded") else {"column": {"type": "string"}}),
        **({"bounds": bounds, "outside": {"enum": ["clamp", "truncate"]}} if has_bounds else {}),
        **({"group_by": GROUP_BY, "inside_count": INSIDE_COUNT} if has_bounds and not hasattr(model, "features") else {}),
        "epsilon": EPSILON,
        "rho": RHO,
        "prior": _prior(model),
        **known["properties"],
    }
    needed = ["bounds"] if has_bounds and model.natural_bounds is None else []
    of_one = [] if hasattr(model, "bounded") else ["column"]
    described = _mapping(properties, ["model", *of_one, "prior", *needed, *known["required"]])
    return {**described, "oneOf": [{"required": ["epsilon"]}, {"required": ["rho"]}]}
