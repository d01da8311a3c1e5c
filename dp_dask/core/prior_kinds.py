"""Prior kinds: the families that a prior can be named by, in PyMC's parametrisation, and the way back to the name."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from dp_dask.core.continuous import SCIPY, Continuous, from_scipy
from dp_dask.core.priors import Beta, Gamma, Normal, Prior

__all__ = [
    "DOMAINS",
    "KINDS",
    "Argument",
    "Domain",
    "Kind",
    "check_kind",
    "describe",
    "kind_of",
    "make",
    "outside",
    "tell_moments",
]

Domain = Literal["real", "positive", "probability"]
DOMAINS: dict[str, tuple[float, float]] = {
    "real": (-math.inf, math.inf),
    "positive": (0, math.inf),
    "probability": (0, 1),
}
SUGGESTED = {
    "real": "normal",
    "positive": "gamma, lognormal, half_normal, or truncated_normal with lower: 0",
    "probability": "beta, uniform, or truncated_normal with lower: 0 and upper: 1",
}
DEEPEST = 30.0  # standard deviations from the mean to where a truncated normal begins


@dataclass(frozen=True, slots=True)
class Argument:
    """One number of a family: its name, what it is, whether it must be positive, and its default, which may be infinite."""

    name: str
    meaning: str
    is_positive: bool = True
    default: float | None = None


@dataclass(frozen=True, slots=True)
class Kind:
    """A family: a prior of our own, or scipy's name of it with our numbers turned into scipy's."""

    arguments: tuple[Argument, ...]
    family: type[Beta | Gamma | Normal] | str
    numbers: Callable[..., dict[str, float]] = dict


def _truncnorm(mu: float, sigma: float, lower: float, upper: float) -> dict[str, float]:
    if not lower < upper:
        msg = f"lower is {lower}, upper is {upper}; lower must be below upper"
        raise ValueError(msg)
    a, b = (lower - mu) / sigma, (upper - mu) / sigma
    if a > DEEPEST or b < -DEEPEST:
        msg = (
            f"next to nothing of normal(mu={mu}, sigma={sigma}) lies between {lower} and {upper}; "
            f"give a mu within {DEEPEST:g} sigma of them"
        )
        raise ValueError(msg)
    return {"a": a, "b": b, "loc": mu, "scale": sigma}


def _uniform(lower: float, upper: float) -> dict[str, float]:
    if not lower < upper:
        msg = f"lower is {lower}, upper is {upper}; lower must be below upper"
        raise ValueError(msg)
    return {"loc": lower, "scale": upper - lower}


_SD = Argument("sigma", "the standard deviation")
_MEAN = Argument("mu", "the mean", is_positive=False)
_BEFORE = "before truncation"

KINDS: dict[str, Kind] = {
    "beta": Kind((Argument("alpha", "the first shape"), Argument("beta", "the second shape")), Beta),
    "cauchy": Kind(
        (Argument("alpha", "the median", is_positive=False), Argument("beta", "the scale, half the interquartile range")),
        "cauchy",
        lambda alpha, beta: {"loc": alpha, "scale": beta},
    ),
    "exponential": Kind((Argument("lam", "the rate"),), "expon", lambda lam: {"scale": 1 / lam}),
    "gamma": Kind((Argument("alpha", "the shape"), Argument("beta", "the rate")), Gamma),
    "half_cauchy": Kind((Argument("beta", "the scale, which is the median"),), "halfcauchy", lambda beta: {"scale": beta}),
    "half_normal": Kind(
        (Argument("sigma", "the standard deviation of the normal distribution that is folded"),),
        "halfnorm",
        lambda sigma: {"scale": sigma},
    ),
    "inverse_gamma": Kind(
        (Argument("alpha", "the shape"), Argument("beta", "the scale")),
        "invgamma",
        lambda alpha, beta: {"a": alpha, "scale": beta},
    ),
    "lognormal": Kind(
        (Argument("mu", "the mean of the log", is_positive=False), Argument("sigma", "the standard deviation of the log")),
        "lognorm",
        lambda mu, sigma: {"s": sigma, "scale": math.exp(mu)},
    ),
    "normal": Kind((_MEAN, _SD), Normal),
    "student_t": Kind(
        (
            Argument("nu", "the degrees of freedom"),
            Argument("mu", "the median", is_positive=False),
            Argument("sigma", "the scale"),
        ),
        "t",
        lambda nu, mu, sigma: {"df": nu, "loc": mu, "scale": sigma},
    ),
    "truncated_normal": Kind(
        (
            Argument("mu", f"the mean {_BEFORE}", is_positive=False),
            Argument("sigma", f"the standard deviation {_BEFORE}"),
            Argument("lower", "the lower end", is_positive=False, default=-math.inf),
            Argument("upper", "the upper end", is_positive=False, default=math.inf),
        ),
        "truncnorm",
        _truncnorm,
    ),
    "uniform": Kind(
        (Argument("lower", "the lower end", is_positive=False), Argument("upper", "the upper end", is_positive=False)),
        "uniform",
        _uniform,
    ),
    "weibull": Kind(
        (Argument("alpha", "the shape"), Argument("beta", "the scale")),
        "weibull_min",
        lambda alpha, beta: {"c": alpha, "scale": beta},
    ),
}


def kind_of(family: Any) -> str | None:
    """Return the kind that makes priors of this class, None where there is none."""
    return next((name for name, kind in KINDS.items() if kind.family is family), None)


def check_kind(kind: str) -> None:
    """Raise ValueError for a kind of prior that there is not."""
    if kind != SCIPY and kind not in KINDS:
        near = difflib.get_close_matches(kind, KINDS, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        msg = f"unknown kind of prior {kind!r}; {hint}known: {', '.join([*KINDS, SCIPY])}"
        raise ValueError(msg)


def make(kind: str, **numbers: Any) -> Prior:
    """Make a prior by its kind's name and numbers, ``make("lognormal", mu=0, sigma=1)``.

    Kind ``scipy`` takes the name of a continuous distribution of scipy.stats and its numbers, ``make("scipy", name="lognorm",
    s=1)``. Raises ValueError for an unknown kind, missing or unknown numbers, and numbers that give no proper distribution.
    """
    if kind == SCIPY:
        return Continuous(from_scipy(str(numbers.pop("name", "")), numbers))
    check_kind(kind)
    found = KINDS[kind]
    names = [argument.name for argument in found.arguments]
    values = {a.name: a.default for a in found.arguments if a.default is not None} | numbers
    if set(values) != set(names):
        msg = f"{kind} takes {', '.join(names)}, not {', '.join(numbers) or 'nothing'}"
        raise ValueError(msg)
    for argument in found.arguments:
        _check(argument, values[argument.name])
    ordered = {name: float(values[name]) for name in names}
    if not isinstance(found.family, str):
        return found.family(**ordered)
    try:
        frozen = from_scipy(found.family, found.numbers(**ordered))
    except (OverflowError, ZeroDivisionError):
        msg = f"{kind}({', '.join(f'{name}={value}' for name, value in ordered.items())}) lies beyond what float64 can hold"
        raise ValueError(msg) from None
    support = (ordered["lower"], ordered["upper"]) if "lower" in ordered else (math.nan, math.nan)
    finite = tuple((name, value) for name, value in ordered.items() if math.isfinite(value))
    return Continuous(frozen, kind, finite, support)


def _check(argument: Argument, value: float) -> None:
    if math.isinf(value) and argument.default is not None:
        return
    if not math.isfinite(value) or (argument.is_positive and value <= 0):
        wanted = "a positive finite number" if argument.is_positive else "a finite number"
        msg = f"{argument.name} is {float(value)}; it must be {wanted} (an improper prior is not supported)"
        raise ValueError(msg)


def describe(prior: Any) -> dict[str, Any]:
    """Return a prior's kind and numbers, from which ``make`` makes it again."""
    if isinstance(prior, Continuous):
        return {"kind": prior.kind, **dict(prior.arguments)}
    return {"kind": kind_of(type(prior)), **asdict(prior)}


def tell_moments(mean: float, sd: float) -> str:
    """Tell a mean and an sd, either of which may not exist."""
    first = "no mean" if math.isnan(mean) else "infinite mean" if math.isinf(mean) else f"mean {mean:.4g}"
    return f"{first} and {'infinite sd' if math.isinf(sd) else f'sd {sd:.4g}'}"


def outside(prior: Any, parameter: str, domain: Domain) -> str | None:
    """Say that a prior reaches beyond its parameter's domain, or None where it does not."""
    low, high = DOMAINS[domain]
    lower, upper = _support(prior)
    if lower >= low and upper <= high:
        return None
    return (
        f"prior outside the support: {parameter} lies in ({low:g}, {high:g}), {prior} in ({lower:g}, {upper:g}), "
        f"with {tell_moments(prior.mean, prior.sd)}; take {SUGGESTED[domain]}"
    )


def _support(prior: Any) -> tuple[float, float]:
    if isinstance(prior, Continuous):
        return prior.support
    return DOMAINS[{Beta: "probability", Gamma: "positive"}.get(type(prior), "real")]
