"""Loss: what a measurement may cost, epsilon or rho as its pipeline file says."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from dp_dask.core.privacy import Loss, Unit
from dp_dask.entries.build import Faults, leaf

__all__ = ["read_loss", "resolution"]


def read_loss(values: Mapping[str, Any], path: str, faults: Faults, *, is_delta_known: bool) -> Loss | None:
    """Return the one of epsilon and rho that is given, or None with its fault; a rho needs a delta to be told by."""
    given = [unit for unit in Unit if unit in values]
    if not given:
        faults.add(f"{path}.epsilon", "is missing; it has no default, write it down, or rho for discrete Gaussian noise")
        return None
    if len(given) > 1:
        what = "stands beside epsilon; give epsilon for discrete Laplace noise or rho for discrete Gaussian noise, not both"
        faults.add(f"{path}.rho", what)
        return None
    [unit] = given
    number = leaf(Decimal, values[unit], f"{path}.{unit}", faults)
    if number is None:
        return None
    try:
        loss = Loss(unit, number)
    except ValueError as error:
        faults.add(f"{path}.{unit}", str(error))
        return None
    if unit is Unit.RHO and not is_delta_known:
        what = "is missing; rho is told as (epsilon, delta) too, and the delta has no default: write it down"
        if all(problem.path != "privacy.delta" for problem in faults.problems):
            faults.add("privacy.delta", what)
    return loss


def resolution(loss: Loss) -> float:
    """Return the epsilon whose Laplace noise has about the standard deviation of this loss's: what grids are chosen for.

    For one coordinate of sensitivity D they are sqrt(2) D / epsilon and D / sqrt(2 rho).
    """
    return float(loss.amount) if loss.unit is Unit.EPSILON else 2 * math.sqrt(loss.amount)
