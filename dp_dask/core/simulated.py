"""Simulated: the records of many simulated data sets, side by side in flat columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.prior_kinds import DOMAINS, Domain

__all__ = ["NUMERIC", "Simulated", "Size", "check_theta", "record_counts", "refuse_size"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
NUMERIC = "fiub"  # kinds of numpy types: floats, whole numbers and truth values
Size = int | Ints | None  # records a data set: the same for all, one number each, or left to the simulator


@dataclass(frozen=True, slots=True, eq=False)
class Simulated:
    """Records of ``size`` data sets: record r belongs to data set ``dataset[r]``, which ascends; one array [k] a column.

    A data set may have any number of records, none too.
    """

    size: int
    dataset: Ints
    values: dict[str, Floats]

    @classmethod
    def of_counts(cls, counts: Ints, values: dict[str, Floats]) -> Simulated:
        """Make it from the number of records in each data set [size], the records in the data sets' order."""
        return cls(len(counts), np.repeat(np.arange(len(counts)), counts), values)

    @classmethod
    def of_dense(cls, values: dict[str, Floats]) -> Simulated:
        """Make it from arrays [size, n], one a column: every data set has n records; TypeError where they hold no numbers."""
        first = next(iter(values.values()))
        for name, each in values.items():
            if each.dtype.kind not in NUMERIC:
                msg = f"{name} is of type {each.dtype}; it must hold numbers"
                raise TypeError(msg)
        flat = {name: np.asarray(each, dtype=np.float64).reshape(-1) for name, each in values.items()}
        return cls.of_counts(np.full(len(first), first.shape[1]), flat)

    @property
    def counts(self) -> Ints:
        """The number of records in each data set [size]."""
        return np.diff(np.searchsorted(self.dataset, np.arange(self.size + 1)))

    def dense(self, column: str) -> Floats:
        """Return a column as [size, n]; raises ValueError where data sets differ in their number of records."""
        counts = self.counts
        if self.size and counts.min() != counts.max():
            msg = f"data sets have between {counts.min()} and {counts.max()} records; only equal numbers make a dense array"
            raise ValueError(msg)
        return self.values[column].reshape(self.size, int(counts[0]) if self.size else 0)

    def where(self, kept: NDArray[np.bool_]) -> Simulated:
        """Keep the records of some data sets [size], and of the others none."""
        records = kept[self.dataset]
        return Simulated(self.size, self.dataset[records], {name: each[records] for name, each in self.values.items()})

    @classmethod
    def assemble(cls, size: int, columns: Sequence[str], parts: Sequence[tuple[Ints, Simulated]]) -> Simulated:
        """Put parts together: data set i of a part becomes data set ``index[i]`` of ``size``; what no part names is empty."""
        dataset = np.concatenate([np.empty(0, dtype=np.int64), *(index[part.dataset] for index, part in parts)])
        values = {name: np.concatenate([np.empty(0), *(part.values[name] for _, part in parts)]) for name in columns}
        if np.all(dataset[1:] >= dataset[:-1]):
            return cls(size, dataset, values)
        order = np.argsort(dataset, kind="stable")
        return cls(size, dataset[order], {name: each[order] for name, each in values.items()})


def record_counts(n: Size, size: int) -> Ints:
    """Return the number of records of each data set [size]; raises ValueError where n is left open or below 0."""
    if n is None:
        msg = "this simulator needs n, the number of records in a data set"
        raise ValueError(msg)
    counts = np.broadcast_to(np.asarray(n, dtype=np.int64), (size,))
    if np.any(counts < 0):
        msg = f"n is {counts.min()}; it must be 0 or more"
        raise ValueError(msg)
    return counts


def refuse_size(n: Size, what: str) -> None:
    """Raise ValueError where n is given to a simulator whose own course decides it."""
    if n is not None:
        msg = f"{what} decides by its own course how many records there are; leave n out (neighbours: add_remove)"
        raise ValueError(msg)


def check_theta(theta: Floats, parameters: tuple[str, ...], domains: tuple[Domain, ...]) -> None:
    """Raise ValueError unless theta is [size, parameter], finite and inside the domains; a probability may be 0 or 1."""
    if theta.ndim != 2 or theta.shape[1] != len(parameters):  # noqa: PLR2004
        msg = f"theta has shape {theta.shape}; it must be [data sets, {len(parameters)}], for {', '.join(parameters)}"
        raise ValueError(msg)
    for name, domain, column in zip(parameters, domains, theta.T, strict=True):
        low, high = DOMAINS[domain]
        inside = (column >= low) & (column <= high) if domain == "probability" else (column > low) & (column < high)
        if not inside.all():
            msg = f"{name} is {column[~inside][0]}; it must be a {domain} number"
            raise ValueError(msg)
