"""Examples: a small choice among simulations of the toy, and noise that is known."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace
from decimal import Decimal

import numpy as np

from dp_dask.core.bounds import Bounds
from dp_dask.core.dirichlet import Dirichlet
from dp_dask.core.plugins import load
from dp_dask.core.privacy import Loss, Neighbours, Unit
from dp_dask.core.selected import Selection, SelectionRequest, mechanism_of, threshold_of
from dp_dask.core.selection import SparseVector, TopC, Variant
from dp_dask.core.sensitive import Sensitive
from dp_dask.core.statistic import Total
from dp_dask.distances.histogram import histogram
from dp_dask.gate.ledger import Ledger
from dp_dask.gate.noise import OpenDPNoise
from dp_dask.gate.selecting import compare_sums, run
from dp_dask.public.candidate_simulations import Candidates

N, COMPONENTS = 60, 3
DISTANCE = histogram("x", Bounds(0, COMPONENTS), [1, 2], N)
PRIOR = Dirichlet((1.0,) * COMPONENTS)
RECORDS = np.repeat([0.5, 1.5, 2.5], [30, 20, 10])


def sparse(*, c=4, tolerance=0.15, size=100, epsilon="2", variant=Variant.PUBLISHED, distance=DISTANCE):
    return SparseVector(
        variant=variant,
        c=c,
        sensitivity=distance.sensitivity(Neighbours.REPLACE),
        threshold=threshold_of(distance, tolerance),
        epsilon=Decimal(epsilon),
        n_queries=size,
    )


def top(*, c=4, amount="2", unit=Unit.EPSILON, distance=DISTANCE):
    return TopC(c=c, sensitivity=distance.sensitivity(Neighbours.REPLACE), loss=Loss(unit, Decimal(amount)))


def make_request(question=None, *, size=100, batch_size=10, distance=DISTANCE, **facts):
    given = {
        "dataset": "people",
        "distance": distance,
        "neighbours": Neighbours.REPLACE,
        "n": distance.n,
        "question": question or sparse(size=size, distance=distance),
        "simulator": "uniform_mixture",
        "known": {"components": COMPONENTS},
        "prior": {"alpha": [1.0] * COMPONENTS},
        "seed": 7,
        "n_simulations": size,
        "batch_size": batch_size,
    }
    return SelectionRequest(**given | facts)


def make_candidates(request, simulator=None, **facts):
    return replace(Candidates.of(request, simulator or load("dp_dask.simulators", "uniform_mixture")(COMPONENTS), PRIOR), **facts)


def make_selection(request, *, sampler="opendp 0", accepted=None, n_answered=None):
    """A release by hand: the first c of the request's candidates."""
    question = request.question
    indices = tuple(range(question.c)) if accepted is None else accepted
    scales = question.nominal_scales if isinstance(question, SparseVector) else (question.nominal_scale,)
    return Selection(
        id=uuid.uuid4().hex,
        created="2026-01-01T00:00:00+00:00",
        request=request,
        mechanism=mechanism_of(question),
        sampler=sampler,
        scales=tuple(1.5 * scale for scale in scales),
        privacy_losses=tuple(float(request.loss.amount) / 3 for _ in scales),
        accepted=indices,
        n_answered=n_answered if n_answered is not None else question.c,
        n_failed=0,
    )


def sealed(records=RECORDS, distance=DISTANCE):
    return Sensitive(Total(tuple(distance.statistic.contributions(records).sum(axis=0).tolist()), len(records)))


@dataclass
class Frozen:
    """Noise whose k-th draw is the same however the calls are cut, times ``factor``."""

    seed: int = 0
    factor: float = 1.0
    sampler: str = "frozen"
    rng: np.random.Generator = field(init=False)

    def __post_init__(self):
        self.rng = np.random.default_rng(self.seed)

    def add_discrete_laplace(self, values, scale):
        return [int(value + np.rint(self.factor * self.rng.laplace(0, scale))) for value in values]

    def lowest_with_gumbel(self, values, c, scale):
        moved = np.array(values) - self.factor * self.rng.gumbel(0, scale, len(values))
        return [int(i) for i in np.argsort(moved, kind="stable")[:c]]


def answer_until_killed(url, first, acknowledge):
    """Run and commit a choice for each seed from ``first`` on, telling the seed once the ledger has said that it may be shown."""
    ledger = Ledger(url)
    ledger.balance("people")
    acknowledge.send(first - 1)
    for seed in range(first, first + 10_000):
        commit_one(ledger, seed)
        acknowledge.send(seed)


def commit_one(ledger, seed):
    request = make_request(top(amount="0.000001"), size=20, seed=seed)
    made = run(request, make_candidates(request).batches(), compare_sums(request, sealed()), OpenDPNoise())
    return ledger.commit([(ledger.digest(request, "v"), made)], who="crasher", why="test")[0]
