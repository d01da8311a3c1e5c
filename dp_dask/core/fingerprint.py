"""Fingerprint: a SHA-256 of a value that is the same in every process, whatever objects in it are shared or not.

A pickle is not: it tells two equal strings that are one object from two that are not. A value is told by what ``pickle`` would
make it from, or by what its method ``__fingerprint__`` returns in place of that, each part by its own digest; a class or function
by its name, and one of the user's own by its source as well.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Sequence
from functools import cached_property
from types import FunctionType
from typing import Any

import numpy as np

from dp_dask.core.source_digest import source_digest

__all__ = ["fingerprints"]

# Whoever keeps a fingerprint beyond a process adds these packages' versions to it.
KNOWN = frozenset({"dp_dask", "numpy", "scipy", *sys.stdlib_module_names}) - {"__main__"}
PROTOCOL = 4


def fingerprints(values: Sequence[Any]) -> list[str]:
    """Return each value's SHA-256 in 64 hexadecimal digits; a ``cached_property`` does not count.

    Raises TypeError for what cannot be told apart by it: a function without a name of its own, a cycle, what has no pickle.
    """
    seen: dict[int, tuple[Any, bytes]] = {}
    problem = ""
    try:
        return [_digest(value, seen).hex() for value in values]
    except Exception as error:  # noqa: BLE001  (what a foreign object raises when it is taken apart)
        problem = f"{type(error).__name__}: {error}"
    msg = f"has no fingerprint ({problem})"
    raise TypeError(msg)


def _digest(value: Any, seen: dict[int, tuple[Any, bytes]]) -> bytes:
    found = seen.get(id(value))
    if found is None:
        # The value is kept beside its digest: no other may get its id while that is used.
        found = seen[id(value)] = (value, hashlib.sha256(_encoded(value, seen)).digest())
    return found[1]


def _encoded(value: Any, seen: dict[int, tuple[Any, bytes]]) -> bytes:
    kind = type(value)
    if value is None or kind in (bool, int, float, complex, str, bytes):
        return f"{kind.__name__} {value!r}".encode()
    if kind in (tuple, list, dict):
        return kind.__name__.encode() + _joined(value.items() if kind is dict else value, seen)
    if kind in (set, frozenset):
        return kind.__name__.encode() + b"".join(sorted(_digest(each, seen) for each in value))
    if kind in (np.ndarray, *np.sctypeDict.values()) and not value.dtype.hasobject:
        return f"{kind.__name__} {value.dtype.descr} {value.shape} ".encode() + value.tobytes()
    if isinstance(value, type | FunctionType):
        return _named(value.__module__, value.__qualname__)
    return _taken_apart(value, seen)


def _taken_apart(value: Any, seen: dict[int, tuple[Any, bytes]]) -> bytes:
    """Encode an object by what it says of itself, or by what ``pickle`` would make it from: callable, arguments, state, items."""
    if hasattr(type(value), "__fingerprint__"):
        return b"told" + _joined((type(value), value.__fingerprint__()), seen)
    made = value.__reduce_ex__(PROTOCOL)
    if isinstance(made, str):
        return _named(value.__module__, made)
    function, arguments, state, *items = (*made, None, None, None)[:5]
    if isinstance(state, dict):
        state = {name: each for name, each in state.items() if not isinstance(getattr(type(value), name, None), cached_property)}
    return b"object" + _joined((function, arguments, state, *(None if each is None else list(each) for each in items)), seen)


def _named(module: str, name: str) -> bytes:
    if "<" in name:
        msg = f"{module}.{name} has no name of its own"
        raise TypeError(msg)
    source = "" if module.partition(".")[0] in KNOWN else source_digest(module)
    return f"named {module} {name} {source}".encode()


def _joined(parts: Iterable[Any], seen: dict[int, tuple[Any, bytes]]) -> bytes:
    return b"".join(_digest(part, seen) for part in parts)
