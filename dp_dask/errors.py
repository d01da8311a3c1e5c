"""What can go wrong, and the exit code each failure gives the command line.

::

    DpDaskError             1   anything not named below
    ├── ConfigError         2   the pipeline file, an option or a release file cannot be used
    ├── BudgetError         3   the ledger refuses the charge
    ├── SourceError         4   the records cannot be read as declared
    ├── ClusterError        5   no cluster, no workers, or the cluster was lost
    ├── LedgerError         1   the ledger is locked, unreadable or not consistent
    ├── InferenceError      1   an engine cannot serve this model or release
    └── LimitError          1   simulations came to the limit that was set for them

A message says what was given, what is allowed and what to do. It never holds a record's value or an
un-noised total.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "BudgetError",
    "ClusterError",
    "ConfigError",
    "DpDaskError",
    "InferenceError",
    "LedgerError",
    "LimitError",
    "Problem",
    "SourceError",
]


class DpDaskError(Exception):
    """The root of every error that dp_dask raises on purpose."""

    exit_code = 1


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault of a configuration: where it is in the file and what to do about it."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class ConfigError(DpDaskError):
    """A configuration that cannot be used; ``problems`` lists every fault found, in file order."""

    exit_code = 2

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        super().__init__("\n".join(map(str, problems)))

    @classmethod
    def of(cls, path: str, message: str) -> ConfigError:
        """Make the error for a single fault."""
        return cls([Problem(path, message)])


class BudgetError(DpDaskError):
    """A charge that the data set's budget does not cover, or a data set without a budget."""

    exit_code = 3


class SourceError(DpDaskError):
    """Records that cannot be read as declared; names the file or column, never a value."""

    exit_code = 4


class ClusterError(DpDaskError):
    """A cluster that cannot be started or reached, or was lost in mid-run."""

    exit_code = 5


class LedgerError(DpDaskError):
    """A ledger that is locked, unreadable, or whose entries do not add up."""


class InferenceError(DpDaskError):
    """An engine that cannot serve a model or a release."""


class LimitError(DpDaskError):
    """Simulations that would go beyond their limit; no InferenceError, for which another engine might be taken silently."""
