"""Candidates: bounds worth trying for a model under a prior, from the prior predictive alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.bounds import Bounds, check_support

__all__ = ["OWN", "Candidate", "candidates", "predictive"]

Floats = NDArray[np.float64]
OWN = "the file's"
RECORDS = 4000  # a tail of 2.5 % is then known to a quarter of a per cent


@dataclass(frozen=True, slots=True)
class Candidate:
    """Bounds, and where they come from."""

    label: str
    bounds: Bounds


def predictive(rng: np.random.Generator, model: Any, prior: Any) -> tuple[Floats, Floats]:
    """Draw parameters [k] or [k, p] from the prior, and one record [k] from the model at each."""
    theta = prior.rvs(rng, RECORDS)
    if hasattr(model, "features"):
        return theta, model.simulate(tuple(theta.reshape(RECORDS, -1).T), (RECORDS,), rng)
    return theta, np.concatenate([model.simulate(float(value), 1, rng) for value in theta])


def candidates(rng: np.random.Generator, model: Any, prior: Any, own: Bounds) -> tuple[Candidate, ...]:
    """Return the file's own bounds first, then others that lie inside the model's support, each once.

    The others hold 80 % and 95 % of the prior predictive, hold 95 % of the records at the prior mean (the median where there
    is no mean), and are half and twice as wide as the file's.
    """
    if model.natural_bounds is not None:
        return (Candidate(OWN, own),)
    theta, records = predictive(rng, model, prior)
    typical, named = np.atleast_1d(prior.mean), "mean"
    if not np.isfinite(typical).all():
        typical, named = np.atleast_1d(np.median(theta, axis=0)), "median"
    at_typical = (
        model.simulate(tuple(typical), (RECORDS,), rng)
        if hasattr(model, "features")
        else model.simulate(float(typical[0]), RECORDS, rng)
    )
    proposed = {
        "prior-predictive 10-90 %": _quantiles(records, 0.1),
        "prior-predictive 2.5-97.5 %": _quantiles(records, 0.025),
        f"95 % at the prior {named}": _quantiles(at_typical, 0.025),
        "half the file's width": _scaled(model, own, 0.5),
        "twice the file's width": _scaled(model, own, 2),
    }
    found = {own: OWN}
    for label, (lower, upper) in proposed.items():
        try:
            bounds = _tidy(model, lower, upper)
            check_support(bounds, model.support, is_integer=model.is_integer)
        except (ValueError, OverflowError):
            continue
        found.setdefault(bounds, label)
    return tuple(Candidate(label, bounds) for bounds, label in found.items())


def _quantiles(records: Floats, tail: float) -> tuple[float, float]:
    low, high = np.quantile(records, [tail, 1 - tail], method="nearest")
    return float(low), float(high)


def _scaled(model: Any, own: Bounds, factor: float) -> tuple[float, float]:
    """Return bounds so many times as wide: with the same end where the support has one end, else about the same middle.

    A statistic in octaves is scaled in logs.
    """
    if model.spacing == "octave":
        log_lower, log_upper = math.log(own.lower), math.log(own.upper)
        middle, half = (log_lower + log_upper) / 2, factor * (log_upper - log_lower) / 2
        return math.exp(middle - half), math.exp(middle + half)
    low, high = model.support
    if math.isfinite(low) and math.isinf(high):
        return own.lower, own.lower + factor * own.width
    middle = (own.lower + own.upper) / 2
    return middle - factor * own.width / 2, middle + factor * own.width / 2


def _tidy(model: Any, lower: float, upper: float) -> Bounds:
    """Round to numbers that a person would write: two or three digits of the width, none of them on an end of the support."""
    if model.is_integer:
        return Bounds(float(math.floor(lower)), float(math.ceil(upper)))
    if not (math.isfinite(lower) and lower < upper < math.inf):
        msg = f"[{lower}, {upper}] are no bounds"
        raise ValueError(msg)
    digits = 1 - math.floor(math.log10((upper - lower) / 5))
    low, high = model.support
    ends = []
    for end in (lower, upper):
        rounded = round(end, digits)
        is_moved = model.spacing == "octave" or (not low < rounded < high and low < end < high)
        ends.append(float(f"{end:.3g}") if is_moved else rounded)
    return Bounds(*ends)
