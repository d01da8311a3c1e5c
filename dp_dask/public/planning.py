"""Planning: which summary of a column to release for a simulator, by the design score of each and before any budget is spent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.bounds import Bounds, Outside
from dp_dask.core.cells import choose_cells
from dp_dask.core.fourier import lattice_features, median_bandwidth
from dp_dask.core.grid import MAX_PRIVATE_RECORDS, check_headroom
from dp_dask.core.joint_priors import JointPrior
from dp_dask.core.privacy import Loss, Neighbours
from dp_dask.core.table_sum import TableSum
from dp_dask.errors import InferenceError
from dp_dask.public.design import (
    Clouds,
    Linear,
    Whitened,
    are_independent,
    fit_cloud,
    linearise,
    noise_variance,
    predicted_variances,
    whiten,
)
from dp_dask.public.guarded import guarded
from dp_dask.public.simulated_cells import Column, Counted, simulate_counts
from dp_dask.public.summaries import bins, components, partition, regression, with_count
from dp_dask.simulators import Simulator

__all__ = ["Kind", "Plan", "PlannedSummary", "plan_summary", "simulate_plan"]

Floats = NDArray[np.float64]
Kind = Literal["partition", "regression", "components"]
CELLS = 1024
BANK = 4000  # simulations at prior draws: what regression and components are fitted to
DRAWS = 20  # of the prior, at which the score is averaged
CLOUD = 400  # simulations about each
REACH = 0.2  # of the way from the draw to other prior draws: inside the support where that is convex, and near to linear
RECORDS = 1000  # of a simulated data set, where records are independent and their sum is known from fewer
MOST_RECORDS = 100_000  # of a simulated data set where they are not
TRIAL_BINS = 16  # whose counts tell whether they are
PILOT = 200  # data sets that the bandwidth is chosen from
NARROWEST = 0.01  # of the bounds, the least bandwidth: some 200 features
PENALTIES = (1e-3, 1e-5)  # the larger one moves less by a record and tells less
FEW_CELLS = 64  # which are features themselves


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlannedSummary:
    """A candidate and what it promises.

    ``score`` is the mean over prior draws of the predicted posterior sd, in prior sds, root mean square over the parameters;
    ``predicted_sd`` [p] is that of each parameter, root mean square over the draws. ``non_private_score`` and ``non_private_sd``
    are those of the same summary without noise.
    """

    name: str
    kind: Kind
    statistic: TableSum
    score: float
    non_private_score: float
    predicted_sd: Floats
    non_private_sd: Floats
    prior_sd: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """Candidates with what scores them at any loss, without further simulations.

    ``guess``: of the number of records, where it is private and not the simulator's to decide.
    """

    neighbours: Neighbours
    prior: Whitened
    guess: int | None
    candidates: tuple[tuple[str, Kind, TableSum, list[Linear]], ...]

    def scored(self, loss: Loss) -> list[PlannedSummary]:
        """Score every candidate at this loss, the smallest first."""
        made = [self._score(*each, loss) for each in self.candidates]
        return sorted(made, key=lambda planned: planned.score)

    def _score(self, name: str, kind: Kind, statistic: TableSum, linear: list[Linear], loss: Loss) -> PlannedSummary:
        of_prior = self.prior.variances
        noise = noise_variance(statistic, loss, self.neighbours)
        private, public = (predicted_variances(linear, self.prior, each, self.guess) for each in (noise, 0.0))
        score, non_private_score = (float(np.sqrt((each / of_prior).mean(axis=1)).mean()) for each in (private, public))
        return PlannedSummary(
            name=name,
            kind=kind,
            statistic=statistic,
            score=score,
            non_private_score=non_private_score,
            predicted_sd=np.sqrt(private.mean(axis=0)),
            non_private_sd=np.sqrt(public.mean(axis=0)),
            prior_sd=np.sqrt(of_prior),
        )


def plan_summary(
    rng: np.random.Generator,
    simulator: Simulator,
    prior: JointPrior,
    n: int | None,
    neighbours: Neighbours,
    loss: Loss,
    **options: Any,
) -> list[PlannedSummary]:
    """Score candidate summaries of one column at this loss, the smallest first: ``simulate_plan``, whose options it takes."""
    return simulate_plan(rng, simulator, prior, n, neighbours, **options).scored(loss)


def simulate_plan(
    rng: np.random.Generator,
    simulator: Simulator,
    prior: JointPrior,
    n: int | None,
    neighbours: Neighbours,
    *,
    column: str,
    bounds: Bounds,
    outside: Outside = Outside.CLAMP,
    is_integer: bool = False,
    edges: Sequence[float] | None = None,
    bandwidth: float | None = None,
) -> Plan:
    """Make candidate summaries of one column and simulate what scores them; nothing here has seen a record.

    n: the records in a data set, a public guess of them under add_remove, None where the simulator decides. Candidates: a
    partition at the user's inner ``edges``, and equal bins; ridge regressions of theta on the mean Fourier features; the leading
    principal components of the simulated mean embeddings. The score is for choosing: what a release then tells depends on the
    parameters that made the records. Raises ValueError for bounds, edges or a bandwidth that cannot be used, InferenceError for a
    simulator or a prior that cannot.
    """
    if simulator.decides_n != (n is None):
        have = "decides n by its own course; leave n out" if simulator.decides_n else "needs n, the number of records"
        msg = f"this simulator {have}"
        raise ValueError(msg)
    if simulator.decides_n and neighbours is Neighbours.REPLACE:
        msg = "this simulator decides n by its own course, so that n tells of theta; use neighbours: add_remove"
        raise ValueError(msg)
    if n is not None and n < 1:
        msg = f"n is {n}; a plan needs a record at least"
        raise ValueError(msg)
    if column not in simulator.columns:
        msg = f"the simulator has no column {column!r}; it has {', '.join(simulator.columns)}"
        raise ValueError(msg)
    of = Column(
        name=column,
        bounds=bounds,
        outside=outside,
        cells=choose_cells(bounds, "even", is_integer=is_integer, wanted=CELLS),
    )
    bank, clouds = _simulate(rng, simulator, prior, n, None if n is None else min(n, RECORDS), of)
    if np.count_nonzero(bank.counts.sum(axis=0)) <= 1:
        told = f"one of {of.cells.count} cells between {bounds.lower:g} and {bounds.upper:g}"
        msg = f"simulated records all lie in {told}, or outside; give bounds nearer to what the simulator yields"
        raise ValueError(msg)
    if n is not None and clouds.factor > 1 and not are_independent(bins(of, min(TRIAL_BINS, of.cells.count)), clouds):
        if n > MOST_RECORDS:
            msg = (
                f"records are not independent given theta, and n = {n} is too many to simulate often; at most {MOST_RECORDS} are"
            )
            raise InferenceError(msg)
        bank, clouds = _simulate(rng, simulator, prior, n, n, of)
    made = _candidates(rng, simulator, clouds.prior, bank, of, neighbours, edges, bandwidth)
    for _, _, statistic in made:
        check_headroom(statistic.largest, MAX_PRIVATE_RECORDS if neighbours is Neighbours.ADD_REMOVE else max(n or 0, 1))
    guess = n if neighbours is Neighbours.ADD_REMOVE else None
    linear = tuple((*each, linearise(each[2], clouds)) for each in made)
    return Plan(neighbours=neighbours, prior=clouds.prior, guess=guess, candidates=linear)


def _simulate(
    rng: np.random.Generator, simulator: Simulator, prior: JointPrior, n: int | None, records: int | None, column: Column
) -> tuple[Counted, Clouds]:
    """Simulate at prior draws, and in a cloud about each of some: from the draw part of the way to other draws."""
    theta = _draw(prior, rng, BANK)
    whitened = whiten(theta)
    bank = simulate_counts(rng, simulator, theta, records, column)
    if len(bank.theta) < BANK // 2:
        msg = f"{BANK - len(bank.theta)} of {BANK} simulations at prior draws failed; keep the prior away from there"
        raise InferenceError(msg)
    clouds = []
    for centre in bank.theta[rng.choice(len(bank.theta), DRAWS, replace=False)]:
        about = centre + REACH * (_draw(prior, rng, CLOUD) - centre)
        clouds.append(fit_cloud(simulate_counts(rng, simulator, about, records, column), centre, whitened))
    return bank, Clouds(whitened, tuple(clouds), records, n)


def _draw(prior: JointPrior, rng: np.random.Generator, size: int) -> Floats:
    return np.reshape(prior.rvs(rng, size), (size, -1))


def _candidates(
    rng: np.random.Generator,
    simulator: Simulator,
    prior: Whitened,
    bank: Counted,
    column: Column,
    neighbours: Neighbours,
    edges: Sequence[float] | None,
    bandwidth: float | None,
) -> list[tuple[str, Kind, TableSum]]:
    n_parameters, rank = prior.root.shape
    cells = column.cells.count
    made: list[tuple[str, Kind, TableSum]] = []
    if edges is not None:
        made.append((f"the {len(edges) + 1} bins of the edges given", "partition", partition(column, edges)))
    wanted = {rank + 1, 2 * n_parameters, 4 * n_parameters, *([cells] if cells <= FEW_CELLS else [])}
    counts = sorted({min(count, cells) for count in wanted} - {1})
    made += [(f"{count} equal bins", "partition", bins(column, count)) for count in counts]
    features, what = _features(rng, simulator, bank, column, bandwidth)
    for penalty in PENALTIES:
        by_regression = regression(column, features, bank, np.sqrt(prior.variances), penalty)
        name = f"regression of the parameters on {what}, penalty {penalty:g}"
        made.append((name, "regression", with_count(by_regression, neighbours)))
    by_components = components(column, features, bank, min(rank, len(features)))
    made.append(
        (f"{len(by_components.table)} principal components of {what}", "components", with_count(by_components, neighbours))
    )
    return made


def _features(
    rng: np.random.Generator, simulator: Simulator, bank: Counted, column: Column, bandwidth: float | None
) -> tuple[Floats, str]:
    """Return the features [feature, cell] and what they are: few cells as they are, else Fourier features."""
    cells, bounds = column.cells.count, column.bounds
    if bandwidth is None and cells <= FEW_CELLS:
        return np.eye(cells), f"{cells} cells"
    if bandwidth is None:
        pilot = bank.theta[:PILOT]
        n = None if simulator.decides_n else PILOT
        simulated = guarded(simulator, pilot, n, rng, policy="reject").simulated
        bandwidth = max(median_bandwidth(rng, simulated, (column.name,)), NARROWEST * bounds.width)
    if not (math.isfinite(bandwidth) and bandwidth >= NARROWEST * bounds.width):
        msg = f"bandwidth is {bandwidth:g}; give at least {NARROWEST:g} of the bounds' width, {NARROWEST * bounds.width:g}"
        raise ValueError(msg)
    features = lattice_features(column.cells.middles(bounds), bounds.lower, bounds.width, bandwidth)
    return features[1:], f"{len(features) - 1} Fourier features"
