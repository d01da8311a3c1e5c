"""A simulator of the user's own, from one file outside the package: ``simulator: mypackage.myfile:simulate``.

It is a function ``simulate(theta, n, rng)`` of theta [B, p], the number of records in a data set and a numpy Generator, which it
takes all its randomness from. It returns ``Simulated``, or a mapping of each column to an array [B, n], or, of one column, the
array. ``parameters`` and ``columns`` are attributes of the function or stand in the pipeline file; ``domains`` (default real) and
``decides_n`` (default false) may be attributes too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.prior_kinds import DOMAINS, Domain
from dp_dask.core.references import import_object
from dp_dask.core.simulated import Simulated, Size
from dp_dask.core.source_digest import module_folder, source_digest

__all__ = ["UserSimulator", "load_simulator"]

Floats = NDArray[np.float64]
FORM = "module:function"


@dataclass(frozen=True, slots=True)
class UserSimulator:
    """The user's function, by reference: workers import it themselves, and refuse another than the one that was loaded.

    ``source`` is the digest of its file and of those that it imports beside it; an empty one refuses nothing.
    """

    reference: str
    folder: Path
    parameters: tuple[str, ...]
    columns: tuple[str, ...]
    domains: tuple[Domain, ...]
    decides_n: bool = False
    source: str = ""

    def prepare(self) -> None:
        """Import the function; raises ValueError where it, or the source that it was loaded with, is not to be had."""
        _function(self.reference, self.folder)
        if self.source not in ("", source_digest(_module(self.reference))):
            msg = f"{self.reference!r} is not the code that was loaded: edited since, or another file here; restart all processes"
            raise ValueError(msg)

    def __fingerprint__(self) -> tuple[Any, ...]:
        """What it is, wherever its file lies."""
        where = self.source or self.folder
        return self.reference, where, self.parameters, self.columns, self.domains, self.decides_n

    def simulate(self, theta: Floats, n: Size, rng: np.random.Generator) -> Simulated:
        """Call the function; raises TypeError or ValueError where what it returns is not of the declared form."""
        found = _function(self.reference, self.folder)(theta, n, rng)
        if isinstance(found, Simulated):
            return found
        if isinstance(found, np.ndarray) and len(self.columns) == 1:
            found = {self.columns[0]: found}
        if not isinstance(found, Mapping):
            msg = f"returned {type(found).__name__}; it must be Simulated, a mapping of columns, or the array of its one column"
            raise TypeError(msg)
        arrays = {str(name): np.asarray(each) for name, each in found.items()}
        shapes = {name: each.shape for name, each in arrays.items()}
        if len(set(shapes.values())) != 1 or any(len(shape) != 2 or shape[0] != len(theta) for shape in shapes.values()):  # noqa: PLR2004
            told = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
            msg = f"returned shapes {told or 'of no column'}; each column must be [{len(theta)}, n], one row a data set"
            raise ValueError(msg)
        return Simulated.of_dense(arrays)


def load_simulator(
    reference: str,
    folder: Path,
    parameters: tuple[str, ...] | None = None,
    columns: tuple[str, ...] | None = None,
    domains: tuple[Domain, ...] | None = None,
) -> UserSimulator:
    """Import the function, with the pipeline file's folder on the path; what is given here goes before its attributes.

    Raises ValueError where the function is not there, or neither here nor there says its parameters and columns.
    """
    function = _function(reference, folder)
    named = {"parameters": parameters, "columns": columns}
    for what, given in named.items():
        found = given if given is not None else getattr(function, what, None)
        if isinstance(found, str) or not found or not all(isinstance(each, str) for each in found) or len({*found}) < len(found):
            attribute = f"{reference.partition(':')[2]}.{what}"
            msg = f"{reference!r}: {what} is {found!r}; give names, each once, in the pipeline file or as {attribute}"
            raise ValueError(msg)
        named[what] = tuple(found)
    names = named["parameters"] or ()
    ranges = tuple(domains if domains is not None else getattr(function, "domains", ("real",) * len(names)))
    if len(ranges) != len(names) or not set(ranges) <= set(DOMAINS):
        msg = f"{reference!r}: domains are {ranges}; give one of {', '.join(DOMAINS)} for each of {', '.join(names)}"
        raise ValueError(msg)
    decides_n = bool(getattr(function, "decides_n", False))
    try:
        source = source_digest(_module(reference))
    except TypeError as error:
        told = f"{reference!r}: {error}; a simulator is a function in a file"
        raise ValueError(told) from None
    home = module_folder(_module(reference), folder)
    return UserSimulator(reference, home, names, named["columns"] or (), ranges, decides_n, source)


def _module(reference: str) -> str:
    return reference.partition(":")[0]


@cache
def _function(reference: str, folder: Path) -> Callable[..., Any]:
    found = import_object(reference, folder, FORM)
    if not callable(found) or isinstance(found, type):
        msg = f"{reference!r} is {type(found).__name__}; it must be a function simulate(theta, n, rng)"
        raise ValueError(msg)  # noqa: TRY004  (what a pipeline file says, like its other faults)
    return found
