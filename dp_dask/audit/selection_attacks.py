"""Attacks on choices among simulations: sparse vector and choice of c, by the code that answers a pipeline's.

A sparse vector runs on seeded noise, many runs at once: what is tried is which noise goes where, at which scale, and how the
answers end. The samplers themselves are tried where sums are released, and Gumbel noise in the choice of one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_dask.abc_trials import Seeded
from dp_dask.audit.attack import Attack, Pair
from dp_dask.audit.bounds import epsilon_bound, rho_bound
from dp_dask.audit.scales import spec_of
from dp_dask.core.privacy import Loss, Unit
from dp_dask.core.selection import SparseVector, TopC, Variant
from dp_dask.gate.noise import Noise, OpenDPNoise
from dp_dask.gate.select import selection_scale, set_of
from dp_dask.gate.sparse_vector import answer, draw, scales
from dp_dask.public.noise_law import Laplace

__all__ = ["choice_attacks", "gumbel_attack", "joint_attack", "sparse_attack", "sparse_attacks", "sparse_pair"]

Ints = NDArray[np.int64]
D, EPSILON = 2, "3"
AMOUNT = Decimal(1)  # epsilon or rho of a choice
WIDE, OTHERS = 50, 10  # a sensitivity that leaves little of epsilon to rounding, and simulations beside those that are near
# Distances of the rejected and the accepted, and how many are rejected before one is, or all are, accepted.
SHAPES = ((0, 0, 10), (2, 0, 10), (-2, 0, 1), (0, -4, 3))


@dataclass(frozen=True, slots=True)
class Bulk(Seeded):
    """The same seeded noise, as one array: to make a list of millions takes longer than to draw them."""

    def add_discrete_laplace(self, values: Sequence[int], scale: float) -> Any:
        """Add pseudo-noise."""
        return np.asarray(values) + Laplace(scale).draw(self.rng, len(values))


def sparse_attacks(rng: np.random.Generator) -> list[Attack]:
    """Attack every variant."""
    return [sparse_attack(spec_of(variant, c, D, EPSILON), rng) for variant in Variant for c in (1, 3)]


def sparse_attack(
    spec: SparseVector, rng: np.random.Generator, shapes: Any = SHAPES, *, share: float = 1.0, **how: Any
) -> Attack:
    """Attack one question; ``how`` are faults, as ``sparse_pair`` has them."""
    pairs = tuple(sparse_pair(spec, rng, *shape, **how) for shape in shapes)
    name = f"sparse vector {spec.variant}, c {spec.c}"
    return Attack(name, float(spec.epsilon), "epsilon", epsilon_bound(), pairs, share)


def sparse_pair(
    spec: SparseVector,
    rng: np.random.Generator,
    rejected: int,
    accepted: int,
    times: int,
    *,
    factors: tuple[float, float] = (1.0, 1.0),
    sign: int = 1,
    tells: bool = False,
    n_accepted: int | None = None,
) -> Pair:
    """Make neighbours whose distances move against each other by the sensitivity: some are rejected, then c accepted.

    The noise is at ``factors`` of the scales and of ``sign``; ``tells`` gives the last compared value too, and with
    ``n_accepted`` no more are tried, however many may be accepted.
    """
    d, noise = spec.sensitivity, Bulk(rng)
    is_resampled = spec.variant is Variant.RESAMPLED
    stretches, c = (spec.c, 1) if is_resampled else (1, n_accepted or spec.c)
    here = np.array(stretches * ([rejected + d] * times + [accepted] * c))
    there = np.array(stretches * ([rejected] * times + [accepted + d] * c))
    pattern = np.array(stretches * ([False] * times + [True] * c))
    threshold, query = (factor * each.scale for factor, each in zip(factors, scales(spec), strict=True))

    def run(is_second: bool, n: int) -> NDArray[np.bool_]:  # noqa: FBT001
        noisy = np.tile(there if is_second else here, (n, 1))
        if query:
            noisy = noisy + sign * draw(spec, noise, noisy.size, query).reshape(noisy.shape)
        levels = sign * draw(spec, noise, n * spec.n_thresholds, threshold).reshape(n, spec.n_thresholds)
        answers = answer(noisy, np.broadcast_to(levels, (n, spec.c)), np.zeros(n, dtype=np.int64))
        as_asked: NDArray[np.bool_] = (answers == pattern).all(axis=1)
        return as_asked & (noisy[:, -1] >= -d if tells else True)

    name = f"{times} at {rejected} rejected, {c} at {accepted} accepted"
    return Pair(run, {name: lambda outcome: outcome})


def choice_attacks(rng: np.random.Generator) -> list[Attack]:
    """Attack the choice of c: of one set for an epsilon, by Gumbel noise for a rho."""
    seeded = Seeded(rng)
    return [*(joint_attack(c, seeded) for c in (1, 3)), gumbel_attack(1, OpenDPNoise(), share=0.05), gumbel_attack(3, seeded)]


def joint_attack(c: int, noise: Noise, *, factor: float = 1.0, share: float = 0.4) -> Attack:
    """Attack the choice of one set of c; ``factor`` of its scale is a fault."""
    scale = factor * selection_scale(_top(c, Unit.EPSILON)).scale
    # Odds of one to ten against all other sets together, before distances move.
    lead = 0 if c == 1 else round(scale * math.log(math.comb(c + OTHERS, c) / 10))
    pair = _choices(c, lead, lambda d: set_of(d, c, scale, noise))
    return Attack(f"joint choice, c {c}", float(AMOUNT), "epsilon", epsilon_bound(), (pair,), share)


def gumbel_attack(c: int, noise: Noise, *, factor: float = 1.0, share: float = 0.2) -> Attack:
    """Attack the choice of the c smallest by Gumbel noise; ``factor`` of its scale is a fault."""
    scale = factor * selection_scale(_top(c, Unit.RHO)).scale
    pairs = tuple(_choices(c, lead, lambda d: noise.lowest_with_gumbel(d.tolist(), c, scale)) for lead in (WIDE, 2 * WIDE))
    return Attack(f"Gumbel choice, c {c}", float(AMOUNT), "rho", rho_bound, pairs, share)


def _choices(c: int, lead: int, choose: Callable[[Ints], Any]) -> Pair:
    """Make neighbours of which the c nearest distances go up while all others go down."""
    sides = [np.array([nearest] * c + [other] * OTHERS) for nearest, other in ((-lead, 0), (WIDE - lead, -WIDE))]

    def run(is_second: bool, n: int) -> NDArray[np.bool_]:  # noqa: FBT001
        return np.array([all(t < c for t in choose(sides[is_second])) for _ in range(n)])

    return Pair(run, {f"the {c} that lead by {lead} are chosen": lambda outcome: outcome, "they are not": np.logical_not})


def _top(c: int, unit: Unit) -> TopC:
    return TopC(c=c, sensitivity=WIDE, loss=Loss(unit, AMOUNT))
