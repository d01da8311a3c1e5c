"""What sparse vector or a choice of c can be expected to do, from distances to simulated stand-ins, before anything is spent."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.selection import SparseVector, TopC, Variant, log_sets

__all__ = ["SparsePlan", "TopPlan", "flip_probability", "flips", "plan_sparse_vector", "plan_top_c"]

Floats = NDArray[np.float64]
THRESHOLDS = 199  # equally likely values that stand for the threshold's noise
FEW_THRESHOLDS = 31  # where every frequency of a run's length is looked at
DAMPING = 1e-9  # of the coefficients that a finite transform folds back


def flip_probability(distance: Floats | float, b: float) -> Floats:
    """Return G_b(a) = (4 exp(-a / 2b) - exp(-a / b)) / 6, the probability that noise changes the answer to a distance.

    a = |distance - threshold|, the threshold's noise Laplace of scale b, the distance's of 2 b (Park, Vinaroz & Jitkrittum
    2021, proposition 4.2).
    """
    return _laplace_flip(np.asarray(distance), b, 2 * b)


def _laplace_flip(a: Floats, s: float, r: float) -> Floats:
    if math.isclose(r, s):
        return np.asarray((2 + a / r) * np.exp(-a / r) / 4)
    return np.asarray((r**2 * np.exp(-a / r) - s**2 * np.exp(-a / s)) / (2 * (r**2 - s**2)))


def flips(spec: SparseVector, a: Floats) -> tuple[Floats, Floats]:
    """Return the probabilities that a distance ``a`` beyond the threshold is accepted, and one ``a`` within it is rejected.

    With M the threshold's noise of scale s and V the distance's of scale r the first is P(M - V >= a), the second P(V - M > a).
    For Laplace noise both are (r^2 exp(-a / r) - s^2 exp(-a / s)) / (2 (r^2 - s^2)), G_b for s = b and r = 2 b; for one-sided
    noise, M and V minus exponential variables, r exp(-a / r) / (r + s) and s exp(-a / s) / (r + s).
    """
    s, r = spec.nominal_scales
    if spec.is_one_sided:
        return r * np.exp(-a / r) / (r + s), s * np.exp(-a / s) / (r + s)
    both = _laplace_flip(a, s, r)
    return both, both


@dataclass(frozen=True, slots=True, kw_only=True)
class SparsePlan:
    """What a sparse vector run is expected to do; averages over its noise and over the stand-ins.

    ``plain_rate`` and ``rate`` are the shares of simulations that plain ABC accepts, and that the noisy comparison does;
    ``flip`` the probability that noise changes an answer. The others are of a run that ends at the c-th acceptance or the
    last query: how many it ``accepted``, how many simulations were ``answered``, how many acceptances and rejections
    were false. ``bound`` is of the error of a posterior mean (theorem 4.3), in units of the largest |f|.
    """

    spec: SparseVector
    plain_rate: float
    rate: float
    flip: float
    accepted: float
    answered: float
    false_accepts: float
    false_rejects: float
    bound: float

    @property
    def needed(self) -> float:
        """How many simulations bring c acceptances at the average rate; infinite where there are none."""
        return self.spec.c / self.rate if self.rate > 0 else math.inf

    def chance_of_error(self, error: float) -> float:
        """Bound the probability that the posterior mean is off by ``error``, in units of the largest |f|, by Markov's inequality.

        The published form, (4 / (3 error c')) times the sum of exp(-a / 2b), follows from it as G_b(a) <= (2 / 3) exp(-a / 2b).
        """
        return min(1.0, self.bound / error)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopPlan:
    """What a choice of c is expected to do: how many are among the c nearest, and how far those chosen are.

    Beside it how far the nearest are, and c taken by chance.
    """

    spec: TopC
    hits: float
    mean_chosen: float
    mean_nearest: float
    mean_of_all: float

    @property
    def refusal(self) -> str:
        """Say why the choice cannot work; empty where it can.

        The rule: those chosen are, on average, nearer to the nearest than to what chance would take.
        """
        if 2 * self.mean_chosen <= self.mean_nearest + self.mean_of_all:
            return ""
        spec = self.spec
        return (
            f"the noise of choosing {spec.c} at {spec.loss} is too large: on average the nearest of the simulated distances are "
            f"{self.mean_nearest:.4g} grid units, those chosen would be {self.mean_chosen:.4g}, and by chance they would be "
            f"{self.mean_of_all:.4g}. Lower c, raise {spec.loss.unit}, or release a summary instead (method: release), whose "
            "noise does not grow with c"
        )


def plan_sparse_vector(spec: SparseVector, simulated: Floats) -> SparsePlan:
    """Average over ``simulated`` [stand-in, simulation], distances in grid units; NaN and infinity are failed simulations.

    Simulations are taken as independent draws of those given. Where one noisy threshold m serves all, a run answers
    min(T, N) queries, N negative binomial with the acceptance probability p(m), and so accepts E min(c, B), B binomial (T,
    p(m)), and answers 1 / p(m) as many (Wald). ``bound`` is (2 / c') times the sum of flip probabilities over
    simulations, c' the number that plain ABC accepts (Park, Vinaroz & Jitkrittum 2021, theorem 4.3), here of the law in use.
    Raises ValueError for no simulation.
    """
    simulated = np.atleast_2d(simulated)
    if not simulated.size:
        msg = "there is no simulated distance to plan from; simulate at least one stand-in and its distances"
        raise ValueError(msg)
    rows = [_plan_one(spec, row) for row in simulated]
    plain, rate, flip, accepted, answered, false_accepts, false_rejects, bound = (float(x) for x in np.mean(rows, axis=0))
    return SparsePlan(
        spec=spec,
        plain_rate=plain,
        rate=rate,
        flip=flip,
        accepted=accepted,
        answered=answered,
        false_accepts=false_accepts,
        false_rejects=false_rejects,
        bound=bound,
    )


def plan_top_c(spec: TopC, simulated: Floats, rng: np.random.Generator, *, repeats: int = 20) -> TopPlan:
    """Choose by pseudo-noise from ``simulated`` [stand-in, simulation], distances in grid units, ``repeats`` times a stand-in.

    Raises ValueError where a stand-in has fewer than c finite distances.
    """
    rows = [np.sort(row[np.isfinite(row)]) for row in np.atleast_2d(simulated)]
    if not rows or min(map(len, rows)) < spec.c:
        msg = f"c is {spec.c}, and a stand-in has fewer distances; simulate more, or lower c"
        raise ValueError(msg)
    found = []
    for row in rows:
        logs, nearest = log_sets(spec.c, len(row)), row[: spec.c]
        for _ in range(repeats):
            chosen = row[_choose(spec, row, logs, rng)]
            found.append((np.sum(chosen <= nearest[-1]), chosen.mean(), nearest.mean(), row.mean()))
    hits, mean_chosen, mean_nearest, mean_of_all = (float(x) for x in np.mean(found, axis=0))
    return TopPlan(spec=spec, hits=hits, mean_chosen=mean_chosen, mean_nearest=mean_nearest, mean_of_all=mean_of_all)


def _choose(spec: TopC, distances: Floats, logs: Floats, rng: np.random.Generator) -> NDArray[np.int64]:
    """Choose c of ascending ``distances`` by pseudo-noise; ``logs`` count the sets, as ``log_sets`` does."""
    c, scale = spec.c, spec.nominal_scale
    if not spec.is_joint:
        return np.argpartition(distances - rng.gumbel(size=len(distances), scale=scale), c - 1)[:c]
    last = c - 1 + int(np.argmax(logs - distances[c - 1 :] / scale + rng.gumbel(size=len(logs))))
    return np.append(rng.choice(last, c - 1, replace=False), last)


def _plan_one(spec: SparseVector, distances: Floats) -> tuple[float, ...]:
    """The plan's numbers for one stand-in, in the order of its fields."""
    n, excess = len(distances), np.sort(np.rint(distances[np.isfinite(distances)]) - spec.threshold)
    near, far = excess[excess <= 0], excess[excess > 0]
    is_resampled = spec.variant is Variant.RESAMPLED
    threshold_scale, query_scale = spec.nominal_scales
    m = _thresholds(threshold_scale, FEW_THRESHOLDS if is_resampled else THRESHOLDS, is_one_sided=spec.is_one_sided)
    true, false = (_acceptances(part, m, query_scale, is_one_sided=spec.is_one_sided) / n for part in (near, far))
    missed = len(near) / n - true
    run = _run_resampled if is_resampled else _run
    accepted, answered, false_accepts, false_rejects = run(spec, true + false, false, missed)
    plain, flip = len(near) / n, float((false + missed).mean())
    bound = 2 * flip / plain if plain else math.inf
    return plain, float((true + false).mean()), flip, accepted, answered, false_accepts, false_rejects, bound


def _thresholds(scale: float, count: int, *, is_one_sided: bool) -> Floats:
    """Return the noise of the threshold at ``count`` equally likely places: whole numbers, as the law's are."""
    u = (np.arange(count) + 0.5) / count
    if is_one_sided:
        return np.minimum(np.ceil(scale * np.log(u)), 0)
    half = np.minimum(np.ceil(scale * np.log(np.minimum(u, 1 - u) * (1 + math.exp(-1 / scale)))), 0)
    return np.where(u <= 0.5, half, -half)  # noqa: PLR2004  (the median)


def _acceptances(excess: Floats, m: Floats, scale: float, *, is_one_sided: bool) -> Floats:
    """Return, for each m, the sum over sorted ``excess`` d of P(V <= m - d), V the noise of a distance.

    Both laws fall exponentially, so that running sums of exp(d / scale) and exp(-d / scale), kept as logs, give all at once.
    """
    below = np.searchsorted(excess, m, side="right")
    above = np.append(np.logaddexp.accumulate(-excess[::-1] / scale)[::-1], -np.inf)[below]
    if is_one_sided:
        return np.asarray(below + np.exp(above + m / scale), dtype=np.float64)
    under = np.append(-np.inf, np.logaddexp.accumulate(excess / scale))[below]
    return below + (np.exp(above + m / scale) - np.exp(under - (m + 1) / scale)) / (1 + math.exp(-1 / scale))


def _run(spec: SparseVector, p: Floats, false: Floats, missed: Floats) -> Iterable[float]:
    """Return the expected acceptances, answers, false acceptances and false rejections, with one threshold for all."""
    from scipy import stats  # noqa: PLC0415  (half a second of imports)

    c, n = spec.c, spec.n_queries
    accepted = c * stats.binom.sf(c - 1, n, p) + n * p * stats.binom.cdf(c - 2, n - 1, p)
    answered = np.where(p > 0, accepted / np.maximum(p, 1e-300), n)
    return tuple(float(x.mean()) for x in (accepted, answered, false * answered, missed * answered))


def _run_resampled(spec: SparseVector, p: Floats, false: Floats, missed: Floats) -> Iterable[float]:
    """Return the same where the threshold is drawn anew after each acceptance, by generating functions.

    A stretch with acceptance probability p ends at its k-th answer with probability p (1 - p)^(k - 1), whose generating function
    is averaged over m to L(z). Stretches begin at the times with function U = 1 + L + .. + L^(c - 1), and what happens with
    probability x at each answer has U times the average of x z / (1 - (1 - p) z). Its first n coefficients are read off
    a circle whose radius damps those beyond.
    """
    n = spec.n_queries
    size = 1 << (2 * n).bit_length()
    radius = DAMPING ** (1 / size)
    z = radius * np.exp(-2j * math.pi * np.arange(size // 2 + 1) / size)
    totals = np.zeros((4, len(z)), dtype=np.complex128)
    for each in zip(p, np.ones_like(p), false, missed, strict=True):
        totals += np.array(each)[:, None] * (z / (1 - (1 - each[0]) * z)) / len(p)
    ends = totals[0]
    begins = (1 - ends**spec.c) / (1 - ends)
    series = np.fft.irfft(begins * totals, size, axis=1)[:, 1 : n + 1] / radius ** np.arange(1, n + 1)
    return tuple(float(x) for x in series.sum(axis=1))
