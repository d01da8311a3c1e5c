"""Model: from its name and known parameters in a pipeline file or a release, and back."""

from __future__ import annotations

import dataclasses
from typing import Any

from dp_dask import log_partition
from dp_dask.core import plugins
from dp_dask.entries.build import Faults, build
from dp_dask.user_family import is_reference, load_class, wrap

__all__ = ["MODELS", "find_class", "known_names", "make_model", "plain_model"]

MODELS = "dp_dask.models"


def find_class(name: str, path: str, faults: Faults) -> Any:
    """Return the class of a family that ships, or of the user's own, module:Class; None where there was a fault."""
    try:
        return load_class(name, faults.folder) if is_reference(name) else plugins.load(MODELS, name)
    except ValueError as error:
        faults.add(path, str(error))
        return None


def known_names(cls: Any) -> list[str]:
    """List the known parameters of a family, such as the normal's sigma."""
    return [field.name for field in dataclasses.fields(cls)] if dataclasses.is_dataclass(cls) else []


def make_model(name: str, known: Any, path: str, faults: Faults) -> Any:
    """Make a model by name from its known parameters; None where there was a fault."""
    cls = find_class(name, path, faults)
    if cls is None:
        return None
    made: Any = build(cls, known, path, faults) if known_names(cls) else cls()
    if made is None or not is_reference(name):
        return made
    try:
        return wrap(name, faults.folder, made)
    except log_partition.NotDifferentiableError as error:
        faults.add(path, f"{name!r}: {error}")
        return None
    except Exception as error:  # noqa: BLE001  (the user's statistic may fail in any way)
        faults.add(path, f"{name!r}: its statistic fails inside the support ({type(error).__name__}: {error})")
        return None


def plain_model(model: Any) -> dict[str, Any]:
    """Return the known parameters as plain values; ``make_model`` makes the same model of them."""
    made = getattr(model, "family", model)
    return {name: getattr(made, name) for name in known_names(made)}
