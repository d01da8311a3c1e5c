"""Attempts: work beside the data, whose failures are values: an exception that crossed the cluster would carry records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from dp_dask.core.sensitive import Sensitive
from dp_dask.errors import SourceError
from dp_dask.private.stopping import is_given_back

__all__ = ["Failure", "Place", "UnreachableError", "attempt"]

T = TypeVar("T")
ATTEMPTS = 3


class UnreachableError(SourceError):
    """Files that could not be reached just now: to try again may help."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a task's files could not be read, or what was read not merged (``index`` is None then); safe to show."""

    index: int | None
    message: str
    is_transient: bool = False


@dataclass(slots=True)
class Place:
    """The file that is being read."""

    name: str = ""


def attempt(index: int, work: Callable[[Place], T]) -> Sensitive[T] | Failure:
    """Do the work of task ``index`` on a worker and seal what it makes; failures of the disk are tried again there."""
    outcome: Sensitive[T] | Failure = Failure(index, "not tried")
    for _ in range(ATTEMPTS):
        outcome = _once(index, work)
        if not (isinstance(outcome, Failure) and outcome.is_transient):
            break
    return outcome


def _once(index: int, work: Callable[[Place], T]) -> Sensitive[T] | Failure:
    message, is_transient, place = "", False, Place()
    try:
        return Sensitive(work(place))
    except SourceError as error:
        message, is_transient = str(error), isinstance(error, UnreachableError)
    except OSError as error:
        message, is_transient = type(error).__name__, True
    except BaseException as error:  # also a panic of a Rust library: whatever it is, its text may quote a record
        if is_given_back(error):
            raise
        message = type(error).__name__
    # Outside the except blocks: nothing of the exception, its context included, leaves this function.
    if "\n" not in message and ":" not in message:
        message = f"{place.name}: reading failed with {message}"
    return Failure(index, message, is_transient)
