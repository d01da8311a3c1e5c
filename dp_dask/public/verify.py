"""Verify: hold the parts of a user's family against each other, before anything is released with it.

cdf against its own limits, density against cdf by quadrature, simulated records against cdf, simulated sums against the cells'
moments. A family that contradicts itself would give a posterior that nobody could find wrong.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dp_dask.core.table_sum import TableSum
from dp_dask.public.observation import of_table

__all__ = ["verify"]

Floats = NDArray[np.float64]
TRUTHS, RECORDS = 5, 4000
RARE = 1e-6  # p-value below which simulated records are not those of the cdf
SURE = 6.0  # standard errors
FALLS = 1e-12  # what rounding may let a cdf fall by
CLOSE = 1e-3  # of probability, between the density's integral and the cdf
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
            *_of_records(rng, model, statistic, columns),
        ):
            if fault:
                faults.setdefault(fault, f"{fault} (at {where})")
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
    log_density = getattr(getattr(model, "family", model), "log_density", None)
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
    return "" if abs(inside - wanted) < CLOSE else "log_density does not integrate to the cdf's difference between the bounds"


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
