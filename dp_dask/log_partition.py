"""Moments of a user's exponential family by automatic differentiation of its log-partition and cdf.

Where a record has density ``h(x) exp(eta t(x) - A(eta))``, derivatives of the normaliser are moments of t. With D = d / d eta,
P the probability that x lies inside and M_k = E[(t - c)^k; inside]: ``M_0 = P`` and ``M_(k+1) = (A' - c) M_k + D M_k``. Its
first step, P times the gradient of log Z of the truncated family, is that of Bernstein & Sheldon 2018, section 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["NotDifferentiableError", "check", "log_density", "partial_moments"]

Floats = NDArray[np.float64]
Function = Callable[[Any], Any]
TYPICAL = {"real": 0.3, "positive": 0.7, "probability": 0.4}  # a parameter of each domain
EXTRA = "autograd is not installed: pip install 'dp-dask[autodiff]', or leave log_partition out"


class NotDifferentiableError(ValueError):
    """A log-partition that cannot be used, and why."""


def check(family: Any) -> None:
    """Raise NotDifferentiableError unless autograd is installed, the parts are there and autograd can differentiate them."""
    missing = [name for name in ("natural_parameter", "log_partition") if not hasattr(family, name)]
    if missing:
        msg = f"log_partition(eta) and natural_parameter(theta) belong together; missing: {', '.join(missing)}"
        raise NotDifferentiableError(msg)
    _derivatives(lambda theta: theta, np.array([1.0]), 1)
    theta = np.array([TYPICAL[getattr(family, "domains", ("real",))[0]]])
    start, end = map(float, family.support)
    low, high = start if math.isfinite(start) else -1.0, end if math.isfinite(end) else 2.0
    inside = (2 * low + high) / 3 if high > low else low + 1
    parts: dict[str, Function] = {
        "natural_parameter": family.natural_parameter,
        "log_partition": lambda each: family.log_partition(family.natural_parameter(each)),
        "cdf": lambda each: family.cdf(inside, each),
    }
    for name, part in parts.items():
        kind = ""
        try:
            with np.errstate(all="ignore"):  # what is not finite is ``public.verify``'s to say
                _derivatives(part, theta, 2)
        except Exception as error:  # noqa: BLE001  (a user's function may fail in any way)
            kind = f"{type(error).__name__}: {error}"
        if kind:
            msg = (
                f"autograd cannot differentiate {name} ({kind}); write it with numpy's elementary functions and "
                "with autograd.scipy's others, or leave log_partition out: moments are then sums over the cdf"
            )
            raise NotDifferentiableError(msg)


def partial_moments(
    family: Any, theta: Floats, lower: float, upper: float, about: float, order: int
) -> tuple[list[Floats], Floats]:
    """Return E[(t - about)^k; lower < x <= upper] [theta], k = 0 .. order, and the mean of t [theta] over all records.

    Rounding grows by a factor of the mean's distance, in units of the width of t inside, with each k.
    """
    start, end = map(float, family.support)
    is_integer = bool(getattr(family, "is_integer", False))

    def inside(each: Any) -> Any:
        if lower < start or (lower == start and not is_integer):
            return family.cdf(upper, each) if upper < end else 1.0
        if upper >= end:
            return family.sf(lower, each) if hasattr(family, "sf") else 1.0 - family.cdf(lower, each)
        return family.cdf(upper, each) - family.cdf(lower, each)

    slope = _derivative(_derivatives(family.natural_parameter, theta, order + 1))
    of_normaliser = _derivatives(lambda each: family.log_partition(family.natural_parameter(each)), theta, order + 1)
    mean = _divided(_derivative(of_normaliser), slope)
    centred = mean.copy()
    centred[0] -= about
    moment = _derivatives(inside, theta, order)
    found = [moment[0]]
    for _ in range(order):
        moment = _product(centred, moment[:-1]) + _divided(_derivative(moment), slope)
        found.append(moment[0])
    return found, mean[0]


def log_density(family: Any, x: Floats, theta: Floats) -> Floats:
    """Return log h(x) + eta t(x) - A(eta)."""
    eta = family.natural_parameter(theta)
    return np.asarray(family.log_base_density(x) + eta * family.statistic(x) - family.log_partition(eta), dtype=np.float64)


def _derivatives(function: Function, theta: Floats, order: int) -> Floats:
    """Return the Taylor coefficients f^(k) / k! [order + 1, theta], each theta on its own."""
    try:
        import autograd.numpy as anp  # noqa: PLC0415  (an extra)
        import autograd.scipy.special  # noqa: F401, PLC0415  (teaches autograd those functions of scipy.special that it knows)
        from autograd import elementwise_grad  # noqa: PLC0415
    except ImportError:
        raise NotDifferentiableError(EXTRA) from None

    def each(value: Any) -> Any:
        return function(value) + 0.0 * anp.sin(value)  # never constant, of which autograd warns

    rows, current = [], each
    for k in range(order + 1):
        rows.append(np.asarray(current(theta), dtype=np.float64) / math.factorial(k))
        current = elementwise_grad(current)
    return np.stack(rows)


def _derivative(series: Floats) -> Floats:
    return series[1:] * np.arange(1, len(series))[:, None]


def _product(one: Floats, other: Floats) -> Floats:
    size = min(len(one), len(other))
    return np.stack([sum((one[i] * other[k - i] for i in range(k + 1)), np.zeros_like(one[0])) for k in range(size)])


def _divided(series: Floats, divisor: Floats) -> Floats:
    """Return the quotient, as many coefficients as the shorter one has."""
    rows: list[Floats] = []
    for k in range(min(len(series), len(divisor))):
        taken = sum((rows[i] * divisor[k - i] for i in range(k)), np.zeros_like(series[0]))
        rows.append((series[k] - taken) / divisor[0])
    return np.stack(rows)
