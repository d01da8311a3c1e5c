"""Build: plain YAML values to frozen dataclasses, gathering every fault with its path."""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

from pydantic import TypeAdapter, ValidationError

from dp_dask.errors import Problem

__all__ = ["Faults", "build", "check_keys", "key_of", "leaf", "leaves", "show"]

T = TypeVar("T")
LARGEST_EXPONENT = 300
NUMBERS = (int, float, Decimal, int | None, float | None)


@dataclasses.dataclass(slots=True)
class Faults:
    """The faults found so far, and the folder that relative paths start from."""

    folder: Path
    problems: list[Problem] = dataclasses.field(default_factory=list)

    def add(self, path: str, message: str) -> None:
        """Note one more fault."""
        self.problems.append(Problem(path, message))


def check_keys(given: Any, path: str, known: Iterable[str], required: Iterable[str], faults: Faults) -> dict[str, Any]:
    """Return the mapping's known keys; unknown ones, missing ones and anything but a mapping are faults."""
    known = list(known)
    if not isinstance(given, dict):
        faults.add(path, f"is {show(given)}; give a mapping with the keys {', '.join(known)}")
        return {}
    for key in given:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known) or 'none'}"
            faults.add(f"{path}.{key}".lstrip("."), f"unknown key; {hint}")
    for key in required:
        if key not in given:
            faults.add(f"{path}.{key}".lstrip("."), "is missing; it has no default, write it down")
    return {key: value for key, value in given.items() if key in known}


def leaf(kind: Any, value: Any, path: str, faults: Faults) -> Any:
    """Return one value as the type, or note what it should be and return None."""
    problem = _misfit(kind, value)
    if problem:
        faults.add(path, problem)
        return None
    inner: Any = next((each for each in (kind, *get_args(kind)) if dataclasses.is_dataclass(each)), None)
    if inner is not None and isinstance(value, dict):
        return build(inner, value, path, faults)
    try:
        result = TypeAdapter(kind).validate_python(value)
        if isinstance(result, Path):
            result = Path(os.path.normpath(faults.folder / result.expanduser()))
    except RuntimeError:
        faults.add(path, f"is {show(value)}; the home folder that it begins with is not known")
        return None
    except ValidationError as error:
        for fault in error.errors():
            where = ".".join([path, *map(str, fault["loc"])])
            wanted = fault["msg"].replace("Input should", "it should").removeprefix("Value error, ")
            faults.add(where, f"is {show(fault['input'])}; {wanted}")
        return None
    return result


def _misfit(kind: Any, value: Any) -> str:
    """Say why a value cannot be of the type, where there is more to say than the type; else nothing."""
    if isinstance(value, bool | str) and kind in NUMBERS:
        return f"is {show(value)}; give a number such as 10, 0.5 or 1e-3"
    if isinstance(value, Decimal) and value.is_finite() and abs(value.adjusted()) > LARGEST_EXPONENT:
        return f"is {show(value)}; give a number between 1e-300 and 1e300 in magnitude"
    if kind is Path and isinstance(value, str) and "://" in value:
        return "is a URL; give the path of a file or folder on a local or mounted disk"  # it may hold a password
    return ""


def leaves(kind: Any, given: Any, path: str, faults: Faults) -> list[Any]:
    """Return the values of a list without repeats as the type, None for a fault."""
    if not isinstance(given, list) or not given:
        faults.add(path, f"is {show(given)}; give a list with at least one entry, as [.., ..]")
        return []
    values = [leaf(kind, value, f"{path}[{i}]", faults) for i, value in enumerate(given)]
    if len(set(values)) < len(values) and None not in values:
        faults.add(path, "lists an entry twice")
    return values


def key_of(field: dataclasses.Field[Any]) -> str:
    """Return a field's key in the file: its name, or ``metadata["key"]`` where the class needs that name for something else."""
    return str(field.metadata.get("key", field.name))


def build(cls: type[T], given: Any, path: str, faults: Faults) -> T | None:
    """Make a dataclass whose fields' keys are the mapping's; None where there was a fault."""
    fields = {key_of(f): f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    required = [key for key, f in fields.items() if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING]
    before = len(faults.problems)
    values = check_keys(given, path, fields, required, faults)
    hints = get_type_hints(cls)
    ready = {fields[key].name: leaf(hints[fields[key].name], value, f"{path}.{key}", faults) for key, value in values.items()}
    if len(faults.problems) > before:
        return None
    try:
        return cls(**ready)
    except ValueError as error:
        faults.add(path, str(error))
        return None


def show(value: Any) -> str:
    """Show a configured value briefly, as it would be written in YAML."""
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value) if isinstance(value, Decimal) else repr(value)
    text = re.sub(r"://[^\s'\"]*@", "://***@", text)  # where an address has a password
    return text if len(text) <= 60 else text[:57] + "..."  # noqa: PLR2004
