"""Scales: what the theorems ask of the noise, written out once more, beside what the mechanisms take.

Noise that is too large is a fault as well: what it would cost is not what is charged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from decimal import Decimal

from dp_dask.audit.exact import Law, largest_ratio
from dp_dask.audit.results import Claim
from dp_dask.core.privacy import Loss, Unit
from dp_dask.core.selection import SparseVector, TopC, Variant
from dp_dask.gate.noise import gaussian_scale, laplace_scale
from dp_dask.gate.select import selection_scale
from dp_dask.gate.sparse_vector import scales

__all__ = ["COUNTS", "exact_claim", "expected", "ratio", "scale_claims", "spec_of"]

TOLERANCE = 1e-9
ROUNDING = 1e-9  # of the exact sums, relative to epsilon
COUNTS = (1, 3, 10)
SENSITIVITY, EPSILON = 3, "1"
SENSITIVITIES, AMOUNTS = (1, 7, 12345), ("0.1", "1", "3.7")


def spec_of(variant: Variant, c: int, sensitivity: int = SENSITIVITY, epsilon: str = EPSILON) -> SparseVector:
    """Make the question of a sparse vector whose threshold is 0."""
    return SparseVector(variant=variant, c=c, sensitivity=sensitivity, threshold=0, epsilon=Decimal(epsilon), n_queries=10**6)


def expected(spec: SparseVector) -> tuple[float, float]:
    """Return the scales of the threshold and of a distance (Park, Vinaroz & Jitkrittum 2021; Lyu, Su & Li 2017)."""
    c, unit = spec.c, spec.sensitivity / float(spec.epsilon)
    if spec.variant is Variant.PUBLISHED:
        return (c + 1) * unit, 2 * (c + 1) * unit
    if spec.variant is Variant.RESAMPLED:
        return 2 * c * unit, 4 * c * unit
    ratio = (2 * c) ** (2 / 3)
    return (1 + ratio) * unit, 2 * c * (1 + 1 / ratio) * unit


def scale_claims(of: Callable[[SparseVector], tuple[float, float]] | None = None) -> Iterator[Claim]:
    """Yield a claim for each mechanism: by how much its scales differ from the theorem's, relatively.

    ``of`` gives a sparse vector's scales, where it is not the mechanism itself.
    """
    pairs: dict[str, list[tuple[float, float]]] = {}
    for variant in Variant:
        for c in COUNTS:
            spec = spec_of(variant, c)
            taken = _taken(spec) if of is None else of(spec)
            pairs.setdefault(f"sparse vector {variant}", []).extend(zip(taken, expected(spec), strict=True))
    for d in SENSITIVITIES:
        for text in AMOUNTS:
            amount, x = Decimal(text), float(text)
            found = {
                "discrete Laplace": (laplace_scale(d, amount).scale, d / x),
                "discrete Gaussian": (gaussian_scale(d, amount).scale, math.sqrt(d / (2 * x))),
                "joint choice of c": (selection_scale(_top(3, d, Unit.EPSILON, amount)).scale, 2 * (d + 1) / x),
                "Gumbel choice of c": (selection_scale(_top(3, d, Unit.RHO, amount)).scale, d * math.sqrt(3 / (2 * x))),
            }
            for name, pair in found.items():
                pairs.setdefault(name, []).append(pair)
    for name, each in pairs.items():
        off = max(abs(a - b) / b for a, b in each)
        yield Claim(
            part="exact",
            about=f"noise scale, {name}",
            held=off <= TOLERANCE,
            claimed=TOLERANCE,
            found=off,
            unit="relative",
            told=f"{len(each)} scales beside the theorem's",
        )


def ratio(spec: SparseVector, threshold: float, query: float, *, is_resampled: bool) -> float:
    """Return the largest log ratio of answers of a sparse vector with noise of these scales."""
    laws = Law(threshold, spec.is_one_sided), Law(query, spec.is_one_sided)
    return largest_ratio(*laws, spec.sensitivity, 1 if is_resampled else spec.c, spec.c if is_resampled else 1)


def exact_claim(variant: Variant) -> Claim:
    """Hold the exact probabilities of a variant's answers, at the scales that it takes, against epsilon."""
    ratios = {}
    for c in COUNTS:
        spec = spec_of(variant, c)
        ratios[c] = ratio(spec, *_taken(spec), is_resampled=variant is Variant.RESAMPLED)
    epsilon, found = float(EPSILON), max(ratios.values())
    return Claim(
        part="exact",
        about=f"answers of sparse vector {variant}",
        held=found <= epsilon * (1 + ROUNDING),
        claimed=epsilon,
        found=found,
        unit="epsilon",
        told=f"by exact sums, c of {', '.join(map(str, COUNTS))}",
    )


def _taken(spec: SparseVector) -> tuple[float, float]:
    threshold, query = scales(spec)
    return threshold.scale, query.scale


def _top(c: int, sensitivity: int, unit: Unit, amount: Decimal) -> TopC:
    return TopC(c=c, sensitivity=sensitivity, loss=Loss(unit, amount))
