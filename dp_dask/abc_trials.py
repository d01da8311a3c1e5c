"""ABC trials: choices among simulations and releases held against the truth, on records that are simulated or public.

What is drawn here protects nobody: all noise comes from a seed, so that a comparison can be made again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.categories import CategoryCounts
from dp_dask.core.dirichlet import Dirichlet
from dp_dask.core.distances import FAILED, FARTHEST
from dp_dask.core.of_sums import OfSums
from dp_dask.core.privacy import Loss, Neighbours, Unit
from dp_dask.core.selected import threshold_of
from dp_dask.core.selection import SparseVector, TopC, Variant
from dp_dask.core.simulated import Simulated
from dp_dask.errors import InferenceError
from dp_dask.gate.select import set_of
from dp_dask.gate.sparse_vector import answer, draw
from dp_dask.models.categorical import plugin as Categorical  # noqa: N812
from dp_dask.public.abc_comparison import Place, Trial
from dp_dask.public.candidate_simulations import Candidates, batch_size_of
from dp_dask.public.counts import CountsObservation
from dp_dask.public.guarded import guarded
from dp_dask.public.infer import infer
from dp_dask.public.noise_law import Gaussian, Laplace
from dp_dask.public.simulated import SimulatedObservation
from dp_dask.public.simulated_infer import infer_simulated
from dp_dask.public.simulator_model import SimulatorModel
from dp_dask.public.tempering import Effort

__all__ = ["METHODS", "Releasing", "Study", "accepted_by", "choices", "releases", "sparse_vector", "top_c"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
BLOCK = 256  # distances answered together; a long row would be looked through anew after each acceptance
OBSERVED, CANDIDATES, NOISE, RELEASE = range(4)  # what a seed is for
# The variant of the noise, and whether the sensitivity is the one of the paper's lemma 3.1 or the distance's own.
SPARSE = {
    "published": (Variant.PUBLISHED, True),
    "resampled": (Variant.RESAMPLED, True),
    "tight": (Variant.PUBLISHED, False),
    "split": (Variant.SPLIT, False),
    "one_sided": (Variant.ONE_SIDED, False),
}
METHODS = (*SPARSE, "select")


@dataclass(frozen=True, slots=True)
class Releasing:
    """Releases of one summary at several epsilons: each with no data yet, and how hard inference tries.

    ``is_categorical``: in its bins the simulator is categorical in its parameters, so that the exact posterior is known.
    """

    like: Mapping[Decimal, SimulatedObservation]
    is_categorical: bool
    n_draws: int
    effort: Effort


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A simulator, and what its choices are made from; ``truth`` is drawn from the prior where it is None.

    With ``observed`` records there is no truth, and no error; their distances to what was accepted are what is measured.
    """

    model: SimulatorModel
    prior: Any
    n: int
    distance: OfSums
    truth: tuple[float, ...] | None
    observed: Simulated | None
    methods: tuple[str, ...]
    epsilons: tuple[Decimal, ...]
    counts: tuple[int, ...]
    tolerances: tuple[float, ...]
    n_simulations: int
    releasing: Releasing | None = None

    def places(self, c: int) -> list[Place]:
        """What is asked for one c: every method at every epsilon and, where it has one, tolerance; two need no noise."""
        plain = [Place("nearest", c=c), *(Place("abc", c=c, tolerance=tolerance) for tolerance in self.tolerances)]
        return plain + [
            Place(method, epsilon, c, tolerance)
            for method in self.methods
            for epsilon in self.epsilons
            for tolerance in (self.tolerances if method in SPARSE else (None,))
        ]

    def question(self, method: str, epsilon: Decimal, c: int, tolerance: float | None) -> SparseVector | TopC:
        """Make what one of METHODS is asked; raises ValueError for what cannot be."""
        sensitivity = self.distance.sensitivity(Neighbours.REPLACE)
        if tolerance is None:
            return TopC(c=c, sensitivity=sensitivity, loss=Loss(Unit.EPSILON, epsilon))
        variant, is_published = SPARSE[method]
        if is_published:
            sensitivity = math.ceil(2 / (self.n * self.distance.step))  # lemma 3.1, of a kernel of at most 1
        question = SparseVector(
            variant=variant,
            c=c,
            sensitivity=sensitivity,
            threshold=threshold_of(self.distance, tolerance),
            epsilon=epsilon,
            n_queries=self.n_simulations,
        )
        return question.lowered() if variant in {Variant.SPLIT, Variant.ONE_SIDED} else question

    def records(self, seed: int, replicate: int) -> tuple[Floats | None, Simulated]:
        """Return the truth and the records of one replicate; raises InferenceError where they cannot be simulated."""
        if self.observed is not None:
            return None, self.observed
        rng = np.random.default_rng([seed, replicate, OBSERVED])
        drawn = self.prior.rvs(rng, 1) if self.truth is None else self.truth
        theta = np.reshape(np.asarray(drawn, dtype=np.float64), (1, -1))
        made = guarded(self.model.simulator, theta, self.n, rng, policy="raise", call=self.model.call)
        return theta[0], made.simulated


@dataclass(frozen=True, slots=True)
class Seeded:
    """The gate's noise, drawn from a seed: for studies of simulated records alone; the ledger takes nothing that it made."""

    rng: np.random.Generator
    sampler: str = "insecure"

    def add_discrete_laplace(self, values: Sequence[int], scale: float) -> list[int]:
        """Add pseudo-noise."""
        return [int(each) for each in np.asarray(values) + Laplace(scale).draw(self.rng, len(values))]

    def add_discrete_gaussian(self, values: Sequence[int], scale: float) -> list[int]:
        """Add pseudo-noise."""
        return [int(each) for each in np.asarray(values) + Gaussian(scale).draw(self.rng, len(values))]

    def lowest_with_gumbel(self, values: Sequence[int], c: int, scale: float) -> list[int]:
        """Choose by pseudo-noise."""
        return [int(each) for each in np.argsort(np.asarray(values) - self.rng.gumbel(size=len(values), scale=scale))[:c]]


def sparse_vector(rngs: Sequence[np.random.Generator], specs: Sequence[SparseVector], distances: Ints) -> Bools:
    """Return which distances [t], in steps, each question accepts [question, t]; all questions are of one c."""
    levels, noisy = [], []
    for rng, spec in zip(rngs, specs, strict=True):
        threshold_scale, query_scale = spec.nominal_scales
        own = spec.threshold + draw(spec, Seeded(rng), spec.n_thresholds, threshold_scale)
        levels.append(np.broadcast_to(own, spec.c))
        moved = np.clip(distances, -FARTHEST, FARTHEST) + draw(spec, Seeded(rng), len(distances), query_scale)
        noisy.append(np.where(distances == FAILED, FAILED, moved))
    return accepted_by(np.stack(noisy), np.stack(levels))


def accepted_by(noisy: Ints, levels: Ints) -> Bools:
    """Answer rows of noisy distances [question, t] by noisy thresholds [question, c], as the gate does."""
    used = np.zeros(len(noisy), dtype=np.int64)
    found = np.zeros(noisy.shape, dtype=np.bool_)
    for start in range(0, noisy.shape[1], BLOCK):
        block = answer(noisy[:, start : start + BLOCK], levels, used)
        found[:, start : start + BLOCK] = block
        used += block.sum(axis=1)
    return found


def choices(study: Study, seed: int, replicate: int) -> list[Trial]:
    """Simulate the candidates once, measure their distances, and let every method choose at every setting.

    ``abc`` takes the first c within the tolerance, ``nearest`` the c nearest, both without noise. What is drawn for a place
    depends on no other place.
    """
    truth, records = study.records(seed, replicate)
    candidates = Candidates(
        simulator=study.model.simulator,
        prior=study.prior,
        distance=study.distance,
        n=study.n,
        seed=int(np.random.SeedSequence([seed, replicate, CANDIDATES]).generate_state(1, np.uint64)[0]),
        n_simulations=study.n_simulations,
        batch_size=batch_size_of(study.distance),
        call=study.model.call,
    )
    sums = study.distance.statistic.totals_of(records)[0]
    parts = [np.where(b.is_whole, study.distance.between(b.data, sums), FAILED) for b in candidates.batches()]
    distances = np.concatenate(parts)
    theta = candidates.thetas(range(study.n_simulations))
    found: list[Trial] = []
    for c in study.counts:
        chosen = _chosen(study, seed, replicate, c, distances)
        found += [_trial(study, place, mask, theta, distances, truth) for place, mask in chosen.items()]
    if study.observed is None or replicate:
        return [replace(trial, theta=theta[:0]) for trial in found]  # only a picture of observed records needs them
    return found


def _chosen(study: Study, seed: int, replicate: int, c: int, distances: Ints) -> dict[Place, Bools]:
    """Return which candidates [t] are chosen at each place of one c."""
    found: dict[Place, Bools] = {}
    sparse: dict[Place, tuple[np.random.Generator, SparseVector]] = {}
    for place in study.places(c):
        if place.epsilon is None:
            order = np.flatnonzero(distances != FAILED)
            if place.tolerance is None:
                order = order[np.argsort(distances[order], kind="stable")]
            else:
                order = order[distances[order] <= threshold_of(study.distance, place.tolerance)]
            found[place] = _mask(order[:c], len(distances))
            continue
        spec = study.question(place.method, place.epsilon, c, place.tolerance)
        rng = np.random.default_rng([seed, replicate, NOISE, *str(place).encode()])
        if isinstance(spec, TopC):
            found[place] = _mask(top_c(rng, spec, distances), len(distances))
        else:
            sparse[place] = rng, spec
    if sparse:
        rngs, specs = zip(*sparse.values(), strict=True)
        found |= zip(sparse, sparse_vector(rngs, specs, distances), strict=True)
    return {place: found[place] for place in study.places(c)}


def top_c(rng: np.random.Generator, spec: TopC, distances: Ints) -> Ints:
    """Return the indices that a choice of c for an epsilon takes."""
    whole = np.flatnonzero(distances != FAILED)
    return whole[set_of(np.clip(distances[whole], -FARTHEST, FARTHEST), spec.c, spec.nominal_scale, Seeded(rng))]


def _mask(indices: Ints, size: int) -> Bools:
    chosen = np.zeros(size, dtype=np.bool_)
    chosen[indices] = True
    return chosen


def _trial(study: Study, place: Place, chosen: Bools, theta: Floats, distances: Ints, truth: Floats | None) -> Trial:
    """Measure a choice; one that accepted nothing has learned nothing, and is the prior."""
    taken = chosen if chosen.any() else distances != FAILED
    mean = theta[taken].mean(axis=0)
    is_full = place.tolerance is not None and chosen.sum() == place.c
    return Trial(
        place=place,
        error=math.nan if truth is None else float(np.abs(mean - truth).mean()),
        distance=float(distances[taken].mean()) * study.distance.step,
        accepted=int(chosen.sum()),
        answered=int(np.flatnonzero(chosen)[-1]) + 1 if is_full else len(chosen),
        theta=theta[chosen],
    )


def releases(study: Study, seed: int, replicate: int, epsilon: Decimal) -> list[Trial]:
    """Release the summary of the same records once, and infer from it; beside it what is known exactly, where it is."""
    truth, records = study.records(seed, replicate)
    if study.releasing is None or truth is None:
        msg = "there is nothing to release; give release, and a truth"
        raise InferenceError(msg)
    like = study.releasing.like[epsilon]
    n_draws = study.releasing.n_draws
    rng = np.random.default_rng([seed, replicate, RELEASE, *str(epsilon).encode()])
    sums = like.statistic.totals_of(records)[0]
    released = like.with_released(rng, sums + like.noise.draw(rng, len(sums)), study.n)
    draws = infer_simulated(rng, released, study.prior, n_draws, effort=study.releasing.effort).draws
    found = [_posterior(Place("release", epsilon), draws, truth)]
    if not study.releasing.is_categorical:
        return found
    names = tuple(f"bin {i}" for i in range(len(sums)))
    counts = CountsObservation(
        model=Categorical(names),
        statistic=CategoryCounts(column="bin", categories=names),
        n=study.n,
        scale=released.scale,
        y=released.y,
        expected_n=None,
    )
    exact = infer(rng, counts, study.prior, n_draws, "tree").draws
    found.append(_posterior(Place("exact", epsilon), exact, truth))
    if epsilon == next(iter(study.releasing.like)):  # the records are the same at all
        without = Dirichlet(tuple(float(each) for each in np.add(study.prior.alpha, sums)))
        error = float(np.abs(without.mean - truth).mean())
        found.append(Trial(place=Place("non_private"), error=error, sd=float(np.sqrt((without.sd**2).mean()))))
    return found


def _posterior(place: Place, draws: Floats, truth: Floats) -> Trial:
    theta = draws.reshape(-1, len(truth))
    error = float(np.abs(theta.mean(axis=0) - truth).mean())
    return Trial(place=place, error=error, sd=float(np.sqrt(theta.var(axis=0).mean())))
