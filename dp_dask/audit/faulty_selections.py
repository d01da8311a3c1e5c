"""Faulty selections: sparse vectors that were published and are not private (Lyu, Su & Li 2017), and slips in ours."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dp_dask.abc_trials import Seeded
from dp_dask.audit.attack import Attack, claim_of
from dp_dask.audit.results import Control, control_of
from dp_dask.audit.scales import expected, ratio, scale_claims, spec_of
from dp_dask.audit.selection_attacks import gumbel_attack, joint_attack, sparse_attack
from dp_dask.core.selection import SparseVector, Variant

__all__ = ["selection_controls"]

RUNS = 100_000  # that catch every one of them
D = 2
UNLIMITED = 8  # acceptances, where a fault knows no end
DEEP, EVEN, SHALLOW = (2, 0, 10), (0, 0, 10), (-2, 0, 1)


def selection_controls(alpha: float, rng: np.random.Generator) -> Iterator[Control]:
    """Plant every fault, attack it, and add up the probabilities of those that are beyond sampling."""
    for fault, attack in _attacks(rng):
        claim = claim_of(attack, RUNS, alpha)
        yield control_of(fault, claim)
    for fault, spec, (threshold, query), is_resampled in _slips():
        found, epsilon = ratio(spec, threshold, query, is_resampled=is_resampled), float(spec.epsilon)
        told = f"epsilon is {found:.3g}, not {epsilon:g}"
        yield Control(fault=fault, check="exact", caught=found > epsilon * (1 + 1e-6), told=told)
    broken = [claim for claim in scale_claims(_twice) if not claim.held]
    told = broken[0].about if broken else ""
    fault = "scale 2 c D / epsilon although the threshold is drawn once"
    yield Control(fault=fault, check="noise scale", caught=bool(broken), told=told)


def _attacks(rng: np.random.Generator) -> Iterator[tuple[str, Attack]]:
    one, three = (spec_of(Variant.PUBLISHED, c, D) for c in (1, 3))  # scales 2 D and 4 D, 4 D and 8 D
    many = spec_of(Variant.PUBLISHED, UNLIMITED, D)  # scales 9 D and 18 D
    below = spec_of(Variant.ONE_SIDED, 1, D)
    yield "SVT3: the compared value is told", sparse_attack(one, rng, [EVEN], share=2, factors=(1, 1 / 2), tells=True)
    yield "SVT4: a distance's noise does not grow with c", sparse_attack(three, rng, [DEEP], factors=(1, 1 / 6))
    yield "SVT5: no noise on distances", sparse_attack(many, rng, [DEEP], factors=(2 / 9, 0), n_accepted=1)
    yield "SVT6: no end after c acceptances", sparse_attack(many, rng, [DEEP], factors=(2 / 9, 1 / 9), n_accepted=3)
    yield "one-sided noise of the wrong sign", sparse_attack(below, rng, [EVEN], sign=-1)
    yield (
        "c forgotten in a distance's noise",
        sparse_attack(spec_of(Variant.PUBLISHED, 3, D, "3"), rng, [DEEP], factors=(1, 1 / 3)),
    )
    weak = spec_of(Variant.ONE_SIDED, 1, D, "3")
    yield "a sparse vector with 30 % too little noise", sparse_attack(weak, rng, [SHALLOW], factors=(0.7, 0.7))
    yield "a joint choice with 30 % too little noise", joint_attack(1, Seeded(rng), factor=0.7, share=0.9)
    yield "a Gumbel choice with 30 % too little noise", gumbel_attack(1, Seeded(rng), factor=0.7)


def _slips() -> Iterator[tuple[str, SparseVector, tuple[float, float], bool]]:
    three, ten = (spec_of(Variant.PUBLISHED, c, D) for c in (3, 10))
    yield "a threshold drawn anew, at the scale of one that is drawn once", ten, expected(ten), True
    threshold, query = expected(three)
    yield "c forgotten in a distance's noise", three, (threshold, query / three.c), False
    for variant in Variant:
        spec = spec_of(variant, 3, D)
        threshold, query = expected(spec)
        is_resampled = variant is Variant.RESAMPLED
        yield f"a factor 2 forgotten in a distance's noise, {variant}", spec, (threshold, query / 2), is_resampled
        small = 0.99 * threshold, 0.99 * query
        yield f"1 % too little noise, {variant}", spec, small, is_resampled


def _twice(spec: SparseVector) -> tuple[float, float]:
    """Return the scales of Algorithm 1 as its published code has them: those of a threshold that is drawn anew, whichever."""
    threshold = 2 * spec.c * spec.sensitivity / float(spec.epsilon)
    return threshold, 2 * threshold
