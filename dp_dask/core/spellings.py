"""Spellings: other names that a prior's numbers go by elsewhere, and what each would mean here.

A rate given as a scale is a valid prior of quite another size, so nothing is converted silently: the message shows the mean
and the sd of either meaning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from dp_dask.core.prior_kinds import KINDS, make, tell_moments

__all__ = ["named_by", "respell"]


class Reading(NamedTuple):
    """How a number of another name becomes ours; ``formula`` holds {} for that name, and is empty where the two are equal."""

    formula: str
    value: Callable[[float, Mapping[str, float]], float]


_SAME = Reading("", lambda x, _: x)
_INVERSE = Reading("1 / {}", lambda x, _: 1 / x)
_ROOT = Reading("sqrt({})", lambda x, _: math.sqrt(x))
_INVERSE_ROOT = Reading("1 / sqrt({})", lambda x, _: 1 / math.sqrt(x))
_LOG = Reading("log({})", lambda x, _: math.log(x))


def _same(*names: str) -> dict[str, Reading]:
    return dict.fromkeys(names, _SAME)


_SPREAD = {
    **_same("sd", "std", "stdev", "scale", "s"),
    **dict.fromkeys(("tau", "precision"), _INVERSE_ROOT),
    **dict.fromkeys(("var", "variance"), _ROOT),
}
_CENTRE = _same("loc", "location", "mean", "median", "m")
_SCALE = _same("scale", "sigma", "s")
_LOWER, _UPPER = _same("low", "min", "a", "start"), _same("high", "max", "b", "end")

SPELLINGS: dict[str, dict[str, dict[str, Reading]]] = {
    "beta": {"alpha": _same("a"), "beta": _same("b")},
    "cauchy": {"alpha": _same("loc", "location", "median", "mu", "x0"), "beta": {**_SCALE, **_same("gamma")}},
    "exponential": {
        "lam": {**_same("rate", "lambda", "beta"), **dict.fromkeys(("scale", "theta", "mean", "sd"), _INVERSE)},
    },
    "gamma": {
        "alpha": _same("shape", "a", "k"),
        "beta": {
            **_same("rate", "b", "lam", "lambda"),
            **dict.fromkeys(("scale", "theta"), _INVERSE),
            "mean": Reading("alpha / {}", lambda x, others: others["alpha"] / x),
            "sd": Reading("sqrt(alpha) / {}", lambda x, others: math.sqrt(others["alpha"]) / x),
            **dict.fromkeys(("var", "variance"), Reading("sqrt(alpha / {})", lambda x, others: math.sqrt(others["alpha"] / x))),
        },
    },
    "half_cauchy": {"beta": {**_SCALE, **_same("gamma", "median")}},
    "half_normal": {"sigma": _SPREAD},
    "inverse_gamma": {"alpha": _same("shape", "a"), "beta": _same("scale", "rate", "b", "theta")},
    "lognormal": {"mu": {**_same("loc", "mean", "m"), "median": _LOG}, "sigma": _SPREAD},
    "normal": {"mu": _CENTRE, "sigma": _SPREAD},
    "student_t": {
        "nu": _same("df", "dof", "k"),
        "mu": _CENTRE,
        "sigma": {
            **_same("scale", "s"),
            **dict.fromkeys(("tau", "precision", "lam"), _INVERSE_ROOT),
            **dict.fromkeys(("sd", "std"), Reading("{} sqrt((nu - 2) / nu)", lambda x, o: x * math.sqrt(1 - 2 / o["nu"]))),
        },
    },
    "truncated_normal": {"mu": _CENTRE, "sigma": _SPREAD, "lower": _LOWER, "upper": _UPPER},
    "uniform": {
        "lower": {**_LOWER, **_same("loc")},
        "upper": {**_UPPER, "scale": Reading("loc + {}", lambda x, others: others["loc"] + x)},
    },
    "weibull": {
        "alpha": _same("shape", "k", "c", "a"),
        "beta": {**_same("scale", "lam", "lambda", "sigma", "b", "theta"), "rate": _INVERSE},
    },
}


def named_by(kind: str, key: str) -> str | None:
    """Return the argument of a kind that goes by the name ``key`` elsewhere, None where no one does."""
    return next((name for name, readings in SPELLINGS[kind].items() if key in readings), None)


def respell(kind: str, key: str, given: Mapping[str, float]) -> str:
    """Say what to write in place of ``key``, with the mean and the sd of each thing that it may mean.

    ``given`` holds all the numbers of the prior, by the names that they were given.
    """
    name = named_by(kind, key) or key
    meaning = next(argument.meaning for argument in KINDS[kind].arguments if argument.name == name)
    reading = SPELLINGS[kind][name][key]
    value = _value(kind, name, key, given)
    told = f"{kind} takes {name}, {meaning}"
    if reading.formula:
        told += f" = {reading.formula.format(key)}"
    if value is None:
        return told
    told += f": {value:.4g}" if reading.formula else f"; write {name}: {value:.4g}"
    moments = [_moments(kind, name, meant, given) for meant in dict.fromkeys((given[key], value))]
    if None in moments:
        return told
    return f"{told}; {', '.join(filter(None, moments))}"


def _value(kind: str, name: str, key: str, given: Mapping[str, float]) -> float | None:
    try:
        return SPELLINGS[kind][name][key].value(given[key], given)
    except (KeyError, ValueError, ArithmeticError):
        return None


def _moments(kind: str, name: str, value: float, given: Mapping[str, float]) -> str | None:
    """Return the mean and sd that the prior would have with this value, None where the other numbers do not make a prior."""
    numbers = {name: value}
    for key, number in given.items():
        other = key if any(key == argument.name for argument in KINDS[kind].arguments) else named_by(kind, key)
        if other is not None and other not in numbers:
            meant = number if other == key else _value(kind, other, key, given)
            if meant is not None:
                numbers[other] = meant
    try:
        prior = make(kind, **numbers)
    except ValueError:
        return None
    return f"{name} {value:.4g} gives {tell_moments(prior.mean, prior.sd)}"
