"""Simulated: the records of many simulated data sets, side by side in flat columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.prior_kinds import DOMAINS, Domain

__all__ = ["NUMERIC", "Failure", "Simulated", "Size", "check_theta", "record_counts", "refuse_size"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
NUMERIC = "fiub"  # kinds of numpy types: floats, whole numbers and truth values
Size = int | Ints | None  # records a data set: the same for all, one number each, or left to the simulator


@dataclass(frozen=True, slots=True)
class Failure:
    """A data set that could not be simulated: its row in the batch, its theta, and why."""

    row: int
    theta: tuple[float, ...]
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Simulated:
    """Records of many data sets, flat: ``counts`` [size] tells how many each has, ``values`` holds one array [k] a column.

    The records stand in the data sets' order, k of them in all. A data set may have any number of records, none too.
    """

    counts: Ints
    values: dict[str, Floats]

    @classmethod
    def of_dense(cls, values: dict[str, NDArray[Any]]) -> Simulated:
        """Make it from arrays [size, n], one a column: every data set has n records; TypeError where they hold no numbers."""
        first = next(iter(values.values()))
        for name, each in values.items():
            if each.dtype.kind not in NUMERIC:
                msg = f"{name} is of type {each.dtype}; it must hold numbers"
                raise TypeError(msg)
        return cls(
            np.full(len(first), first.shape[1]),
            {name: np.asarray(each, dtype=np.float64).reshape(-1) for name, each in values.items()},
        )

    @classmethod
    def of_records(cls, size: int, dataset: Ints, values: dict[str, Floats]) -> Simulated:
        """Make it from the data set of each record [k]; raises ValueError unless that ascends within 0 .. size - 1."""
        if len(dataset) and (dataset[0] < 0 or dataset[-1] >= size or np.any(dataset[1:] < dataset[:-1])):
            msg = f"the data sets of the records must ascend, from 0 or later to {size - 1} or before"
            raise ValueError(msg)
        return cls(np.bincount(dataset, minlength=size), values)

    @property
    def size(self) -> int:
        """The number of data sets."""
        return len(self.counts)

    @property
    def dataset(self) -> Ints:
        """The data set of each record [k], ascending; made anew each time."""
        return np.repeat(np.arange(self.size), self.counts)

    def dense(self, column: str) -> Floats:
        """Return a column as [size, n]; raises ValueError where data sets differ in their number of records."""
        if self.size and self.counts.min() != self.counts.max():
            told = f"between {self.counts.min()} and {self.counts.max()} records"
            msg = f"data sets have {told}; only equal numbers make a dense array"
            raise ValueError(msg)
        return self.values[column].reshape(self.size, int(self.counts[0]) if self.size else 0)

    def where(self, kept: NDArray[np.bool_]) -> Simulated:
        """Keep the records of some data sets [size], and of the others none."""
        records = np.repeat(kept, self.counts)
        return Simulated(self.counts * kept, {name: each[records] for name, each in self.values.items()})

    def parts(self, about: int) -> Iterator[Simulated]:
        """Yield consecutive data sets together, about so many records at a time; no part where there is no data set."""
        ends = np.concatenate([[0], np.cumsum(self.counts)])
        step = max(round(about * self.size / max(int(ends[-1]), 1)), 1)
        for first in range(0, self.size, step):
            last = min(first + step, self.size)
            records = slice(ends[first], ends[last])
            yield Simulated(self.counts[first:last], {name: each[records] for name, each in self.values.items()})

    @classmethod
    def assemble(cls, size: int, columns: Sequence[str], parts: Sequence[tuple[Ints, Simulated]]) -> Simulated:
        """Put parts together: data set i of a part becomes data set ``index[i]`` of ``size``; what no part names is empty.

        A data set may have its records in one part only.
        """
        index = np.concatenate([np.empty(0, dtype=np.int64), *(index for index, _ in parts)])
        if len(parts) == 1 and np.array_equal(index, np.arange(size)):
            return parts[0][1]
        counts = np.concatenate([np.empty(0, dtype=np.int64), *(part.counts for _, part in parts)])
        values = {name: np.concatenate([np.empty(0), *(part.values[name] for _, part in parts)]) for name in columns}
        if np.any(index[1:] < index[:-1]):
            order = np.argsort(np.repeat(index, counts), kind="stable")
            values = {name: each[order] for name, each in values.items()}
        return cls(np.bincount(index, weights=counts, minlength=size).astype(np.int64), values)


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
