"""Verify: hold the parts of a user's family against each other, before anything is released with it.

cdf against its own limits, density against cdf by quadrature, simulated records against cdf, simulated sums against the cells'
moments, moments by automatic differentiation against quadrature and simulation. A family that contradicts itself would give a
posterior that nobody could find wrong.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dp_dask import log_partition
from dp_dask.core.table_sum import TableSum
from dp_dask.public.observation import of_table

__all__ = ["verify"]

Floats = NDArray[np.float64]
TRUTHS, RECORDS = 5, 4000
RARE = 1e-6  # p-value below which simulated records are not those of the cdf
SURE = 6.0  # standard errors
FALLS = 1e-12  # what rounding may let a cdf fall by
CLOSE = 1e-3  # of probability, between the density's integral and the cdf
FINE, NEAR = 8192, 1e-5  # pieces of the bounds, and what moments may differ by, in powers of t's range
LEAST_SD = 1e-3
NODES = np.polynomial.legendre.leggauss(8)


def verify(rng: np.random.Generator, model: Any, statistic: TableSum, prior: Any) -> list[str]:
    """Return what is wrong with the family at parameters drawn from the prior, one sentence a fault."""
    faults: dict[str, str] = {}
    for theta in np.reshape(prior.rvs(rng, TRUTHS), (TRUTHS, -1)):
        columns = tuple(np.array([value]) for value in theta)
        where = ", ".join(f"{name} = {value:.4g}" for name, value in zip(model.parameters, theta, strict=True))
        for fault in (
            _of_cdf(model, statistic, columns),
            _of_density(model, statistic, columns),
            _of_moments(rng, model, statistic, columns),
            *_of_records(rng, model, statistic, columns),
        ):
            if fault:
                faults.setdefault(fault.partition(":")[0], f"{fault} (at {where})")
    return list(faults.values())


def _of_cdf(model: Any, statistic: TableSum, columns: tuple[Floats, ...]) -> str:
    start, end = model.support
    bounds = statistic.bounds
    x = np.concatenate([[bounds.lower], statistic.cells.edges, [bounds.upper]])
    with np.errstate(all="ignore"):
        cdf = model.cdf(x, *columns)
        far = model.cdf(np.array([max(start, -1e300), min(end, 1e300)]), *columns)
    if cdf.shape != x.shape or not np.isfinite(cdf).all():
        return "cdf does not give one finite number for each x"
    if (np.diff(cdf) < -FALLS).any() or cdf.min() < 0 or cdf.max() > 1:
        return "cdf falls somewhere, or leaves [0, 1]"
    if math.isfinite(start) and not model.is_integer and abs(far[0]) > CLOSE:
        return "cdf is not 0 at the support's start"
    return "" if abs(far[1] - 1) < CLOSE else "cdf is not 1 at the support's end"


def _of_density(model: Any, statistic: TableSum, columns: tuple[Floats, ...]) -> str:
    family = getattr(model, "family", model)
    name, log_density = "log_density", getattr(family, "log_density", None)
    if log_density is None and hasattr(family, "log_base_density"):
        name, log_density = "log_base_density + eta t - log_partition", partial(log_partition.log_density, family)
    if log_density is None or model.is_integer:
        return ""
    bounds = statistic.bounds
    ends = np.concatenate([[bounds.lower], statistic.cells.edges, [bounds.upper]])
    width = np.diff(ends)
    x = ends[:-1, None] + width[:, None] * (NODES[0] + 1) / 2
    with np.errstate(all="ignore"):
        density = np.exp(np.asarray(log_density(x.ravel(), *columns))).reshape(x.shape)
    inside = (density @ (NODES[1] / 2)) @ width
    wanted = float(np.ptp(model.cdf(np.array([bounds.lower, bounds.upper]), *columns)))
    return "" if abs(inside - wanted) < CLOSE else f"{name} does not integrate to the cdf's difference between the bounds"


def _of_moments(rng: np.random.Generator, model: Any, statistic: TableSum, columns: tuple[Floats, ...]) -> str:
    """Hold E[t] and E[t^2] inside the bounds, by automatic differentiation, against quadrature and simulated records.

    Of the three the one that two others contradict is named.
    """
    if not getattr(model, "has_log_partition", False):
        return ""
    theta, bounds, family = columns[0], statistic.bounds, model.family
    with np.errstate(all="ignore"):
        normaliser = np.asarray(family.log_partition(family.natural_parameter(theta)))
    if normaliser.shape != theta.shape or not np.isfinite(normaliser).all():
        return "log_partition does not give one finite number for each natural_parameter"
    ends = model.statistic(np.array([bounds.lower, bounds.upper]))
    about, width = float(ends.mean()), max(float(np.ptp(ends)), 1e-300)
    powers = width ** np.arange(3.0)
    exact = np.ravel(model.partial_moments(theta, bounds.lower, bounds.upper, about)) / powers
    summed = np.ravel(model.by_sums(theta, bounds.lower, bounds.upper, about, 2, FINE)) / powers
    records = model.simulate(theta, RECORDS, rng)
    is_inside = (records >= bounds.lower) & (records <= bounds.upper)
    values = ((model.statistic(records) - about) / width) ** np.arange(3.0)[:, None] * is_inside
    simulated, error = values.mean(axis=1), SURE * (values.std(axis=1) + LEAST_SD) / math.sqrt(RECORDS)
    if (np.abs(exact - summed) <= NEAR).all():
        return ""
    told = f"E[t; inside] is {_told(exact, powers, about)} by automatic differentiation, "
    told += f"{_told(summed, powers, about)} by quadrature, {_told(simulated, powers, about)} simulated"
    is_right = [bool((np.abs(simulated - each) <= error).all()) for each in (exact, summed)]
    if is_right == [False, True]:
        return f"log_partition or natural_parameter contradicts cdf and simulated records: {told}"
    if is_right == [True, False]:
        return f"cdf contradicts log_partition and simulated records: {told}"
    return f"log_partition and cdf contradict each other: {told}"


def _told(scaled: Floats, powers: Floats, about: float) -> str:
    """Write E[t; inside] out from scaled moments about a point."""
    return f"{scaled[1] * powers[1] + about * scaled[0]:.5g}"


def _of_records(rng: np.random.Generator, model: Any, statistic: TableSum, columns: tuple[Floats, ...]) -> tuple[str, str]:
    is_scalar = not hasattr(model, "features")
    records = model.simulate(columns[0] if is_scalar else columns, RECORDS if is_scalar else (RECORDS,), rng)
    if records.shape != (RECORDS,) or not np.isfinite(records).all():
        return "simulate does not give the records that were asked for", ""
    u = np.sort(model.cdf(records, *columns))
    i = np.arange(RECORDS)
    # P(x <= record) lies above its rank for whole numbers: only the upper side is then a test.
    below = 0.0 if model.is_integer else float((u - i / RECORDS).max())
    distance = max(below, float(((i + 1) / RECORDS - u).max()))
    law = "" if special.kolmogorov(distance * math.sqrt(RECORDS)) > RARE else "simulate does not draw from the cdf"
    inside, outside = of_table(model, statistic, *[column[:, None] for column in columns])
    rows = statistic.rows.astype(np.float64)
    mean = rows @ inside[0]
    sd = np.sqrt(np.maximum(rows**2 @ inside[0] - mean**2, 0)) + 1e-9 * statistic.largest
    moves = statistic.contributions(records).mean(axis=0)
    is_far = (np.abs(moves - mean) > SURE * sd / math.sqrt(RECORDS)).any()
    moments = "the sums of simulated records are not those that the cdf gives" if is_far and not law else ""
    total = float(inside.sum() + outside[0])
    return law, moments or ("" if abs(total - 1) < CLOSE else "the probabilities of the cells do not add up to 1")
