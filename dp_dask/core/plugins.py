"""Plug-ins: one file each, found by the file's name."""

from __future__ import annotations

import difflib
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

__all__ = ["load", "names"]

FOLDERS = (
    "dp_dask.models",
    "dp_dask.simulators",
    "dp_dask.distances",
    "dp_dask.private.sources",
    "dp_dask.public.engines",
    "dp_dask.clusters",
)


def names(folder: str) -> list[str]:
    """List the plug-ins of a folder such as ``dp_dask.models``, sorted."""
    return sorted(module.name for module in iter_modules(import_module(folder).__path__))


def load(folder: str, name: str) -> Any:
    """Import the plug-in ``name`` and return its one public object; ``scheduler-file`` is ``scheduler_file``.

    The object is the module's ``plugin``. Raises ValueError for a folder that holds no plug-ins or a name
    that is not in it, with the nearest names that are.
    """
    if folder not in FOLDERS:
        msg = f"{folder} holds no plug-ins"
        raise ValueError(msg)
    known = names(folder)
    name = name if name in known else name.replace("-", "_")
    if name not in known:
        kind = folder.rpartition(".")[2].removesuffix("s")
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        msg = f"unknown {kind} {name!r}; {hint}known: {', '.join(known)}"
        raise ValueError(msg)
    return import_module(f"{folder}.{name}").plugin
