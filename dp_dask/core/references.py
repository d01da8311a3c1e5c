"""References to code of the user's own, ``mypackage.myfile:Name``, in a file outside the package."""

from __future__ import annotations

import importlib
import os
import re
import sys
from pathlib import Path
from typing import Any

__all__ = ["import_object", "is_reference"]

REFERENCE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def is_reference(name: str) -> bool:
    """Tell what is the user's own, module:Name, from the name of a plug-in that ships."""
    return REFERENCE.fullmatch(name) is not None


def import_object(reference: str, folder: Path, form: str) -> Any:
    """Import the module, with the pipeline file's folder on the path, and return what it has of that name, or None.

    Raises ValueError where the module cannot be imported, or where another of its name, of another folder, was imported before:
    that one is what Python would go on to give. ``form`` tells how a reference reads, such as module:Class.
    """
    module_name, _, name = reference.partition(":")
    kind = ""
    sys.path.insert(0, str(folder))
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # noqa: BLE001  (a user's file may fail in any way)
        kind = f"{type(error).__name__}: {error}"
    finally:
        sys.path.remove(str(folder))
    if kind:
        where = "beside the pipeline file, on PYTHONPATH or installed"
        msg = f"{reference!r} cannot be imported ({kind}); it is {form}, the module {where}"
        raise ValueError(msg)
    _check_beside(reference, module_name.partition(".")[0], folder)
    return getattr(module, name, None)


def _check_beside(reference: str, first: str, folder: Path) -> None:
    """Raise ValueError where the module lies in the folder and it is not that one; a relative folder is no pipeline file's."""
    found = [place for place in (folder / f"{first}.py", folder / first / "__init__.py") if place.is_file()]
    origin = getattr(sys.modules[first], "__file__", None) or ""
    if folder.is_absolute() and found and not any(os.path.realpath(place) == os.path.realpath(origin) for place in found):
        msg = f"{reference!r}: another module {first} is imported already, from {origin or 'Python itself'}; rename the file"
        raise ValueError(msg)
