"""Questions: events, functions and contrasts of parameters, answered from posterior draws; free, as is all after a release.

Draws of unlike measurements are paired as they come. That is right where the releases are of different records (periods,
groups, data sets): the priors are independent, so that p(a, b | releases) = p(a | release 1) p(b | release 2), and any pairing
of draws of independent variables is a draw of the pair. Columns of the same records may be correlated given the
parameters, which no release tells: their noise is independent but their sums are not, the sd of a difference
can then be up to sqrt(2) times too small, and the answer says so in a note.
"""

from __future__ import annotations

import difflib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dp_dask.errors import ConfigError
from dp_dask.public.expressions import ExpressionError, evaluate
from dp_dask.public.posterior import INTERVAL, Posterior

__all__ = ["Answer", "Asked", "answer"]

Floats = NDArray[np.float64]
MOST_LISTED, MOST_COMPARED, MOST_SHOWN = 12, 1000, 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer to one question: of an event its probability, of a quantity what is known of it.

    ``error`` is the Monte Carlo standard error of the probability or of the mean, from ``ess`` effectively independent draws.
    """

    question: str
    probability: float | None = None
    mean: float | None = None
    sd: float | None = None
    median: float | None = None
    lower: float | None = None
    upper: float | None = None
    error: float
    ess: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """A posterior under the name that questions know it by, and its data set."""

    name: str
    dataset: str
    posterior: Posterior

    def variables(self) -> dict[str, Floats]:
        """Return each parameter's draws [chain, draw] by its full name."""
        draws = self.posterior.inference.draws
        return {f"{self.name}.{parameter}": draws[:, :, j] for j, parameter in enumerate(self.posterior.parameters)}


def answer(questions: Sequence[str], asked: Sequence[Asked]) -> list[Answer]:
    """Answer each question; raises ConfigError for one that cannot be answered, naming the part and what is allowed."""
    twice = [name for name, count in Counter(each.name for each in asked).items() if count > 1]
    if twice:
        raise ConfigError.of("--with", f"makes two posteriors named {twice[0]}; give the other release another name")
    draws = {name: values for each in asked for name, values in each.variables().items()}
    owners = {name: each for each in asked for name in each.variables()}
    return [_answer(question, draws, owners) for question in questions]


def _answer(question: str, draws: Mapping[str, Floats], owners: Mapping[str, Asked]) -> Answer:
    used: dict[str, None] = {}

    def lookup(name: str) -> Floats:
        full = _full_name(name, draws)
        used[full] = None
        return draws[full]

    try:
        value = evaluate(question, lookup)
        note = _note(list(dict.fromkeys(owners[name].name for name in used)), {each.name: each for each in owners.values()})
    except ExpressionError as error:
        raise _unanswerable(question, str(error)) from None
    if value.dtype == np.bool_:
        return _probability(question, value, min(_ess(draws[name]) for name in used), note)
    return _quantity(question, value, note)


def _unanswerable(question: str, problem: str) -> ConfigError:
    place = f"question {question if len(question) <= MOST_SHOWN else question[:MOST_SHOWN] + '..'!r}"
    return ConfigError.of(place, problem)


def _full_name(name: str, draws: Mapping[str, Floats]) -> str:
    """Return the parameter that is meant: its full name, or the end of only one."""
    if name in draws:
        return name
    found = [full for full in draws if full.endswith(f".{name}")]
    if len(found) == 1:
        return found[0]
    if found:
        msg = f"{name!r} may be {_listed(found)}; say which"
    else:
        some = list(draws)[:MOST_COMPARED]
        cut = [full for full in some if full.startswith(f"{name}-")]  # a hyphen was read as a minus
        near = [f'"{full}"' for full in cut] or difflib.get_close_matches(name, some, n=1)
        msg = f"unknown name {name!r}{f'; did you mean {near[0]}?' if near else ''}; there are: {_listed(list(draws))}"
    raise ExpressionError(msg)


def _listed(names: list[str]) -> str:
    return ", ".join(names[:MOST_LISTED]) + (f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else "")


def _note(names: list[str], asked: Mapping[str, Asked]) -> str:
    """Say what pairing the draws of these measurements assumes; raises ExpressionError where it would be wrong for certain."""
    of_data_set = Counter(asked[name].dataset for name in names)
    for i, first in enumerate(names):
        for second in names[:i]:
            one, other = asked[first], asked[second]
            if one.posterior.release.id == other.posterior.release.id:
                msg = f"{second} and {first} are one release, so that their parameters are not independent; ask about one of them"
                raise ExpressionError(msg)
    shared = [name for name, count in of_data_set.items() if count > 1]
    if not shared:
        return ""
    together = ", ".join(name for name in names if asked[name].dataset == shared[0])
    return (
        f"{together} are of one data set, {shared[0]}: if of the same records, this takes their columns as independent; the "
        f"sd may then be up to {math.sqrt(of_data_set[shared[0]]):.3g} times too small, or larger than need be"
    )


def _ess(values: NDArray[np.float64]) -> float:
    """Return the effective number of draws for the mean; that of a constant is the number of draws."""
    from arviz_stats.base import array_stats  # noqa: PLC0415  (a second of imports)

    if values.min() == values.max():
        return float(values.size)
    return float(array_stats.ess(values, method="mean", chain_axis=0, draw_axis=1))


def _probability(question: str, event: NDArray[np.bool_], ess_of_parameters: float, note: str) -> Answer:
    """Return the share of draws, with the standard error of a share that counts one more draw on each side.

    The plain formula would claim certainty where all draws agree.
    """
    p = float(event.mean())
    ess = ess_of_parameters if p in (0.0, 1.0) else _ess(event.astype(np.float64))
    smoothed = (p * ess + 1) / (ess + 2)
    error = math.sqrt(smoothed * (1 - smoothed) / ess)
    return Answer(question=question, probability=p, error=error, ess=ess, note=note)


def _quantity(question: str, value: Floats, note: str) -> Answer:
    tail = (1 - INTERVAL) / 2
    lower, median, upper = np.quantile(value, [tail, 0.5, 1 - tail])
    with np.errstate(over="ignore"):
        mean, sd = float(value.mean()), float(value.std(ddof=1))
    if not (math.isfinite(mean) and math.isfinite(sd)):
        raise _unanswerable(question, "its mean or sd is beyond 1.8e308; ask about its logarithm")
    ess = _ess(value)
    return Answer(
        question=question, mean=mean, sd=sd, median=float(median), lower=float(lower), upper=float(upper),
        error=sd / math.sqrt(ess), ess=ess, note=note,
    )  # fmt: skip
