"""Schema: the JSON schema of a pipeline file, for editors; made from the same dataclasses that validate it."""

from __future__ import annotations

import dataclasses
from typing import Any, get_type_hints

from pydantic import TypeAdapter

from dp_dask.config import CLUSTERS, SOURCES, Inference
from dp_dask.core import plugins
from dp_dask.measurement import MODELS, Privacy
from dp_dask.public.infer import ENGINES

__all__ = ["schema"]

EPSILON = {"type": "number", "exclusiveMinimum": 0, "description": "privacy loss; no default"}
GROUP_BY = {
    "type": "object",
    "properties": {"column": {"type": "string"}, "groups": {"type": "array", "items": {"type": ["integer", "string"]}}},
    "required": ["column", "groups"],
    "additionalProperties": False,
}
PATH = {"type": "string", "description": "relative to this file"}


def schema() -> dict[str, Any]:
    """Return the schema (draft 2020-12)."""
    name = {"type": "string", "pattern": "^[A-Za-z0-9._-]+$"}
    dataset = {
        "name": name,
        "source": {"oneOf": [_kind(SOURCES, kind) for kind in plugins.names(SOURCES)]},
        "unit": {"const": "record"},
        "version": {"type": "string"},
    }
    clusters = plugins.names(CLUSTERS)
    properties = {
        "dataset": _mapping(dataset, ["name", "source", "unit"]),
        "privacy": _dataclass(Privacy),
        "measurements": {
            "type": "object",
            "propertyNames": name,
            "minProperties": 1,
            "additionalProperties": {"oneOf": [_measurement(model) for model in plugins.names(MODELS)]},
        },
        "inference": _dataclass(Inference),
        "cluster": {"oneOf": [{"enum": clusters}, *[_kind(CLUSTERS, kind) for kind in clusters]]},
        "ledger": {"type": "string", "description": "sqlite:///FILE (relative to this file) or a PostgreSQL URL"},
        "output": PATH,
    }
    properties["inference"]["properties"]["engine"] = {"enum": list(ENGINES)}
    whole = _mapping(properties, ["dataset", "privacy", "measurements", "ledger"])
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "dp-dask pipeline", **whole}


def _mapping(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _dataclass(cls: Any) -> dict[str, Any]:
    """Describe a dataclass field by field."""
    hints = get_type_hints(cls)
    fields = dataclasses.fields(cls)
    required = [f.name for f in fields if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING]
    return _mapping({f.name: TypeAdapter(hints[f.name]).json_schema() for f in fields}, required)


def _kind(folder: str, kind: str) -> dict[str, Any]:
    described = _dataclass(plugins.load(folder, kind))
    described["properties"] = {"kind": {"const": kind}, **described["properties"]}
    described["required"] = ["kind", *described["required"]]
    return described


def _measurement(name: str) -> dict[str, Any]:
    model = plugins.load(MODELS, name)
    known = _dataclass(model)
    bounds = {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}
    has_bounds = hasattr(model, "spacing")
    properties = {
        "model": {"const": name},
        "column": {"type": "string"},
        **({"bounds": bounds, "outside": {"enum": ["clamp", "truncate"]}, "group_by": GROUP_BY} if has_bounds else {}),
        "epsilon": EPSILON,
        "prior": _dataclass(model.prior_type) if has_bounds else {"type": "object"},
        **known["properties"],
    }
    needed = ["bounds"] if has_bounds and model.natural_bounds is None else []
    return _mapping(properties, ["model", "column", "epsilon", "prior", *needed, *known["required"]])
