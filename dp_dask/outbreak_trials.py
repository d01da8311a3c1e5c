"""Outbreak trials: choices among simulations and releases held against one truth, where a record is a whole outbreak.

What is drawn here protects nobody: all noise comes from a seed, so that a comparison can be made again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from dp_dask.abc_trials import sparse_vector, top_c
from dp_dask.core.privacy import Loss, Neighbours, Unit
from dp_dask.core.recordwise import LEVELS, Recordwise
from dp_dask.core.selected import threshold_of
from dp_dask.core.selection import SparseVector, TopC, Variant
from dp_dask.errors import InferenceError
from dp_dask.outbreaks.prior import OutbreakPrior
from dp_dask.outbreaks.summaries import NAMES, RELATIVE, WEIGHTS, distance
from dp_dask.public.engines import synthetic
from dp_dask.public.outbreak_comparison import Trial
from dp_dask.public.outbreak_scores import ScoredOutbreaks, Scores, fit_scores, score_sum, summaries_of
from dp_dask.public.simulated import SimulatedObservation
from dp_dask.public.tempering import Effort, first_cloud, temper
from dp_dask.simulators.tuberculosis import plugin as Tuberculosis  # noqa: N812

__all__ = ["Study", "candidates", "choices", "compared", "observed", "release", "scores"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
OBSERVED, CANDIDATES, NOISE, RELEASE, SCORES = range(5)  # what a seed is for
DRAWS = 4_000
GENERATIONS = 5  # of prior draws and of tempering, before the first emulator
SCORED = 4  # generations that the scores are fitted to


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """The truth and the prior; the numbers of outbreaks; what is chosen from which candidates, and how much a release simulates.

    ``generation``: the outbreaks that a release simulates at once, one for each theta; about ten generations are made.
    """

    truth: tuple[float, float, float, float]
    prior: OutbreakPrior
    sizes: tuple[int, ...]
    epsilon: Decimal
    c: int
    clip: float
    tolerance: float
    simulations: int
    generation: int
    seed: int

    def distance(self, n: int) -> Recordwise:
        """The published distance's step and sensitivity: replacing an outbreak moves the clipped mean by clip / n."""
        return Recordwise(columns=NAMES, weights=tuple(WEIGHTS.tolist()), clip=self.clip, n=n)


def observed(study: Study, replicate: int) -> Floats:
    """Simulate the summaries [n, 8] of the largest number of outbreaks at the truth; a smaller number takes the first."""
    rng = np.random.default_rng([study.seed, OBSERVED, replicate])
    return summaries_of(Tuberculosis("outbreak").simulate(np.array([study.truth]), max(study.sizes), rng))


def candidates(study: Study, first: int, last: int) -> Floats:
    """Draw the parameters [last - first, 4] of candidates: the same ones for every replicate and n."""
    rng = np.random.default_rng([study.seed, CANDIDATES])
    return study.prior.rvs(rng, study.simulations)[first:last]


def compared(study: Study, records: Floats, first: int, last: int) -> Ints:
    """Return the steps [candidate, n, replicate] from candidates, n outbreaks each, to ``records`` [replicate, n, 8].

    Outbreak i of a candidate meets outbreak i of the records, and one that has no distance lies at the clip's.
    """
    theta = candidates(study, first, last)
    rng = np.random.default_rng([study.seed, CANDIDATES, 1, first])
    n = records.shape[1]
    made = summaries_of(Tuberculosis("outbreak").simulate(theta, n, rng)).reshape(len(theta), n, len(NAMES))
    steps = np.empty((len(theta), len(study.sizes), len(records)), dtype=np.int64)
    for r, own in enumerate(records):
        known = np.all(own[:, RELATIVE] > 0, axis=1)
        far = np.full(made.shape[:2], np.inf)
        far[:, known] = distance(made[:, known], own[known])
        levels = np.floor(np.minimum(far / study.clip, 1) * LEVELS).astype(np.int64).cumsum(axis=1)
        steps[:, :, r] = levels[:, np.array(study.sizes) - 1]
    return steps


def choices(study: Study, n: int, replicate: int, steps: Ints) -> list[Trial]:
    """Let every method choose among the candidates, which lie so many steps [t] away; what chooses none is the prior.

    published: Algorithm 1 of Park, Vinaroz & Jitkrittum (2021) without resampling. select: the c nearest in one go. abc: all
    within the tolerance, and nearest: the c nearest, both without noise.
    """
    of = study.distance(n)
    theta = candidates(study, 0, study.simulations)
    sensitivity, threshold = of.sensitivity(Neighbours.REPLACE), threshold_of(of, study.tolerance)
    published = SparseVector(
        variant=Variant.PUBLISHED,
        c=study.c,
        sensitivity=sensitivity,
        threshold=threshold,
        epsilon=study.epsilon,
        n_queries=study.simulations,
    )
    select = TopC(c=study.c, sensitivity=sensitivity, loss=Loss(Unit.EPSILON, study.epsilon))
    rngs = [np.random.default_rng([study.seed, NOISE, n, replicate, i]) for i in range(2)]
    chosen = {
        "prior": np.empty(0, dtype=np.int64),
        "published": np.flatnonzero(sparse_vector(rngs[:1], [published], steps)[0]),
        "select": top_c(rngs[1], select, steps),
        "abc": np.flatnonzero(steps <= threshold),
        "nearest": np.argsort(steps, kind="stable")[: study.c],
    }
    made = []
    for method, indices in chosen.items():
        mean = theta[indices].mean(axis=0) if len(indices) else study.prior.mean
        made.append(Trial(n=n, method=method, error=_error(study, mean), accepted=len(indices)))
    return made


def scores(study: Study) -> Scores:
    """Fit the scores that are released."""
    return fit_scores(np.random.default_rng([study.seed, SCORES]), study.prior, SCORED * study.generation)


def release(study: Study, own: Scores, records: Sequence[Floats], n: int, replicate: int) -> Trial:
    """Release the sums of the scores of the first n outbreaks once, and infer from them with one simulated outbreak a theta."""
    rng = np.random.default_rng([study.seed, RELEASE, n, replicate])
    statistic = score_sum()
    like = SimulatedObservation(
        simulator=ScoredOutbreaks(own),
        statistic=statistic,
        n=n,
        each=1,
        scale=statistic.sensitivity(Neighbours.REPLACE) / float(study.epsilon),
        y=(0,) * len(statistic.units),
        count=None,
        expected_n=None,
    )
    sums = statistic.contributions(own(records[replicate][:n])).sum(axis=0)
    seen = like.with_released(rng, sums + like.noise.draw(rng, len(sums)), n)
    size = study.generation
    effort = Effort(per_generation=size, most=GENERATIONS * size, wanted=1_000, emulating=size)
    try:
        cloud = temper(first_cloud(rng, seen, study.prior, effort.per_generation), effort)
        fitted = synthetic.trusted(rng, cloud, effort, DRAWS)
    except InferenceError as error:
        return Trial(n=n, method="release", error=(np.nan,) * 4, refusal=str(error))
    theta = fitted.cloud.problem.unknowns.theta(fitted.posterior.draw(rng, DRAWS))
    sd = tuple((theta.std(axis=0) / study.prior.sd).tolist())
    return Trial(n=n, method="release", error=_error(study, theta.mean(axis=0)), sd=sd, simulated=fitted.cloud.size)


def _error(study: Study, mean: Floats) -> tuple[float, ...]:
    return tuple((np.abs(mean - np.array(study.truth)) / study.prior.sd).tolist())
