"""Measure inference: draws per second against the published Gibbs sampler, milliseconds, and what privacy costs in width.

Run ``python benchmarks/inference.py`` where dp_dask can be imported. CPU time of one process throughout. The methods of one
comparison run in turn, round by round, and a printed ratio is the median of the rounds' own ratios, with [min, max] behind it:
on a machine that others use as well, ratios can be trusted more than seconds. This is no test: the exit status is 0.

The published method is Bernstein & Sheldon (2018), algorithm 1: the sum given parameter, noise variance and release, the noise
variance given the sum (inverse Gaussian), the parameter given the sum. Once as ``dp_dask.public.engines.gibbs`` runs it,
many chains as one array; once as a plain loop over scalars. Its sweeps are counted as what they are worth, the bulk effective
sample size, and its warm-up is free; our draws are independent, and each of our 4,000 pays its share of the posterior's table.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from arviz_stats.base import array_stats

from dp_dask.core.bounds import Outside
from dp_dask.core.dirichlet import Dirichlet
from dp_dask.core.privacy import Neighbours
from dp_dask.public.calibration import ranks
from dp_dask.public.engines import gibbs
from dp_dask.public.infer import infer
from dp_dask.public.simulation import Width, expected_widths, simulate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from calibration_cells import CATEGORICAL, Cell
from cases import CASES, JOINT_CASES, SENSIBLE, Case, observation

DRAWS = 4000
CHAINS, SWEEPS, WARMUP = 100, 400, 100  # of the array of chains
SCALAR_CHAINS, SCALAR_SWEEPS = 4, 1500  # the authors run so many
GROUP_DRAWS, GROUP_SIZES = 1000, (20, 200, 2000)
CALLS = 10  # of ours a round: one would be too short to time


def _seconds(function: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    begin = time.process_time()
    result = function(*arguments)
    return time.process_time() - begin, result


def _spread(values: list[float], style: str = ".2g") -> str:
    parts = (format(value, style) for value in (statistics.median(values), min(values), max(values)))
    return "{} [{}, {}]".format(*parts)


# --- The published sampler over scalars -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scalar:
    """One chain for a sum of n records, all in the units of the statistic."""

    n: int
    released: float
    scale: float
    a: float  # of the prior
    b: float

    def omega(self, rng: np.random.Generator, total: float) -> float:
        """Draw the noise's variance given the sum."""
        distance = max(abs(self.released - total), 1e-8 * self.scale)
        return 1 / float(rng.wald(1 / (self.scale * distance), 1 / self.scale**2))

    def sum(self, rng: np.random.Generator, omega: float, mean: float, variance: float) -> float:
        """Draw the sum given the noise's variance."""
        gain = variance / (variance + omega)
        return float(rng.normal(mean + gain * (self.released - mean), math.sqrt(gain * omega)))

    def bernoulli(self, rng: np.random.Generator, sweeps: int) -> list[float]:
        """Beta-binomial."""
        draws, total, p = [], 0.0, float(rng.beta(self.a, self.b))
        for _ in range(sweeps):
            total = self.sum(rng, self.omega(rng, total), self.n * p, max(self.n * p * (1 - p), 1e-300))
            inside = min(max(total, 0.0), float(self.n))
            p = float(rng.beta(self.a + inside, self.b + self.n - inside))
            draws.append(p)
        return draws

    def exponential(self, rng: np.random.Generator, sweeps: int, lower: float, upper: float) -> list[float]:
        """Truncated exponential: the sums of the records below, within and above the bounds are three sections."""
        draws, inside, rate = [], 0.0, float(rng.gamma(self.a, 1 / self.b))
        for _ in range(sweeps):
            omega = self.omega(rng, inside)
            inside = self.sum(rng, omega, *self.section(rate, lower, upper))
            total = inside
            for low, high in ((0.0, lower), (upper, math.inf)):
                mean, variance = self.section(rate, low, high)
                total += float(rng.normal(mean, math.sqrt(variance)))
            rate = float(rng.gamma(self.a + self.n, 1 / (self.b + max(total, 0.0))))
            draws.append(rate)
        return draws

    def section(self, rate: float, low: float, high: float) -> tuple[float, float]:
        """Mean and variance of the sum of the records within: n E[x; inside], n (E[x^2; inside] - E[x; inside]^2)."""
        first = second = 0.0
        for end, sign in ((low, 1), (high, -1)):
            if end < math.inf:
                tail = math.exp(-rate * end)
                first += sign * tail * (end + 1 / rate)
                second += sign * tail * (end**2 + 2 * end / rate + 2 / rate**2)
        return self.n * first, self.n * max(second - first**2, 0.0) + 1e-300


# --- What is measured -------------------------------------------------------------------------------------------------


def compare_with_gibbs(rounds: int) -> None:
    """Print effective draws per second, and ratios."""
    print("independent draws (ours) and effective draws (Gibbs) per CPU second; truncated, public n; median [min, max]")
    print(f"{'':<34}{'ours':>9}{'chains':>9}{'scalar':>9}{'ours / chains':>26}{'ours / scalar':>26}{'ESS a sweep':>13}")
    by_name = {case.name: case for case in CASES}
    for name, truth in (("bernoulli", 0.3), ("exponential", 4.0)):
        case = by_name[name]
        outside = Outside.CLAMP if case.model.natural_bounds is not None else Outside.TRUNCATE
        for n in (100, 1000):
            for epsilon in (0.1, 1.0):
                like = observation(case, n=n, epsilon=epsilon, outside=outside)
                rng = np.random.default_rng(n)
                seen = simulate(rng, like, truth).observation
                rates: dict[str, list[float]] = {"ours": [], "chains": [], "scalar": []}
                worth = 0.0
                for _ in range(rounds):
                    rates["ours"].append(_our_rate(rng, seen, case))
                    rate, worth = _array_rate(rng, seen, case)
                    rates["chains"].append(rate)
                    rates["scalar"].append(_scalar_rate(rng, seen, case))
                medians = "".join(f"{statistics.median(values):>9.2g}" for values in rates.values())
                ratios = ([a / b for a, b in zip(rates["ours"], rates[other], strict=True)] for other in ("chains", "scalar"))
                texts = "".join(f"{_spread(values):>26}" for values in ratios)
                print(f"{f'{name} n={n} epsilon={epsilon:g}':<34}{medians}{texts}{worth:>13.4f}")


def _our_rate(rng: np.random.Generator, seen: Any, case: Case) -> float:
    used = sum(_seconds(infer, rng, seen, case.prior, DRAWS)[0] for _ in range(CALLS))
    return CALLS * DRAWS / used


def _array_rate(rng: np.random.Generator, seen: Any, case: Case) -> tuple[float, float]:
    y = np.full(CHAINS, float(seen.y))
    run = partial(gibbs.chains, thin=1, warmup=WARMUP)
    whole, draws = _seconds(run, rng, seen, case.prior, y, SWEEPS)
    worth = float(array_stats.ess(draws))
    return worth / (whole * SWEEPS / (SWEEPS + WARMUP)), worth / draws.size


def _scalar_rate(rng: np.random.Generator, seen: Any, case: Case) -> float:
    unit, bounds = seen.statistic.units[0], seen.statistic.bounds
    prior = case.prior
    chain = Scalar(seen.n, unit * (seen.y + seen.n * seen.origin), unit * seen.scale, prior.alpha, prior.beta)
    used, draws = 0.0, []
    for _ in range(SCALAR_CHAINS):
        if case.name == "bernoulli":
            seconds, values = _seconds(chain.bernoulli, rng, SCALAR_SWEEPS)
        else:
            seconds, values = _seconds(chain.exponential, rng, SCALAR_SWEEPS, bounds.lower, bounds.upper)
        used += seconds
        draws.append(values[SCALAR_SWEEPS // 5 :])
    return float(array_stats.ess(np.array(draws))) / (0.8 * used)


def time_models(rounds: int) -> None:
    """Print milliseconds for 4,000 draws of each model."""
    sizes = ((20, 1.0), (1000, 0.1), (1000, 1.0), (1000, 10.0), (100_000, 1.0))
    print(
        f"CPU ms of a posterior with {DRAWS} draws, clamped, truths from the vague prior; median [min, max] of {rounds} releases"
    )
    print(f"{'':<20}" + "".join(f"{f'n={n} epsilon={epsilon:g}':>26}" for n, epsilon in sizes))
    for case in [*CASES, *JOINT_CASES]:
        texts = []
        for n, epsilon in sizes:
            like = Cell(case.name, Outside.CLAMP, Neighbours.REPLACE, n, str(epsilon)).like
            rng = np.random.default_rng(n)
            used = []
            for _ in range(rounds + 1):  # the first warms up
                seen = simulate(rng, like, case.prior.rvs(rng, 1)[0]).observation
                used.append(1000 * _seconds(infer, rng, seen, case.prior, DRAWS)[0])
            texts.append(_spread(used[1:], ".3g"))
        print(f"{case.name:<20}" + "".join(f"{text:>26}" for text in texts))


def time_calibration() -> None:
    """Print what 1,000 replicates take."""
    print("CPU seconds of 1,000 calibration replicates, public n, clamped, n = 1000, epsilon 1; of 10,000 on two cores")
    for name in ("exponential", "poisson"):
        cell = Cell(name, Outside.CLAMP, Neighbours.REPLACE, 1000, "1")
        prior = next(case.prior for case in CASES if case.name == name)
        seconds, _ = _seconds(ranks, np.random.SeedSequence(1), cell.like, prior, 1000, "auto")
        print(f"{name:<20}{seconds:>8.2f}{5 * seconds:>8.1f}, extrapolated")


def time_groups() -> None:
    """Print what a thousand groups take, each with its own private size, from a hundred of them."""
    print(f"CPU seconds of 1,000 groups with {GROUP_DRAWS} draws each, private sizes, clamped, epsilon 1; extrapolated from 100")
    print(f"{'records a group':<20}" + "".join(f"{n:>10}" for n in GROUP_SIZES))
    for name in ("bernoulli", "exponential", "poisson", "normal"):
        case = next(case for case in CASES if case.name == name)
        texts = []
        for n in GROUP_SIZES:
            like = Cell(name, Outside.CLAMP, Neighbours.ADD_REMOVE, n, "1").like
            rng = np.random.default_rng(1)
            seen = [simulate(rng, like, case.prior.rvs(rng, 1)[0], case.prior).observation for _ in range(101)]
            infer(rng, seen.pop(), case.prior, GROUP_DRAWS)  # warms up
            texts.append(f"{10 * sum(_seconds(infer, rng, one, case.prior, GROUP_DRAWS)[0] for one in seen):>10.1f}")
        print(f"{name:<20}" + "".join(texts))


def time_categories(n_categories: int = 10_000) -> None:
    """Print seconds for many categories."""
    print(f"CPU seconds of {DRAWS} draws of {n_categories} probabilities, n = 100,000, epsilon 1")
    prior = Dirichlet((1.0,) * n_categories)
    for neighbours in Neighbours:
        like = Cell("categorical", None, neighbours, 100_000, "1").like
        model = replace(CATEGORICAL.model, categories=tuple(range(n_categories)))
        statistic = replace(like.statistic, categories=model.categories)
        like = replace(like, model=model, statistic=statistic, y=(0,) * n_categories)
        rng = np.random.default_rng(1)
        seen = simulate(rng, like, prior.rvs(rng, 1)[0], prior).observation
        seconds, _ = _seconds(infer, rng, seen, prior, DRAWS)
        print(f"{'public n' if neighbours is Neighbours.REPLACE else 'private n':<20}{seconds:>8.2f}")


def print_widths(replicates: int) -> None:
    """Print each posterior's width beside the non-private one's."""
    print("posterior sd at n = 1000, epsilon 1, clamped; and without privacy or bounds")
    print(f"medians of {replicates} releases, truths from the vague prior; a private n is geometric with mean 1000")
    print(f"{'':<30}{'public n':>10}{'records':>10}{'ratio':>8}{'private n':>10}{'records':>10}{'ratio':>8}")
    for case in [*CASES, *JOINT_CASES, CATEGORICAL]:
        outside = None if case is CATEGORICAL else Outside.CLAMP
        texts = [""] * len(case.model.parameters)
        for neighbours in (Neighbours.REPLACE, Neighbours.ADD_REMOVE):
            like = Cell(case.name, outside, neighbours, 1000, "1").like
            rng = np.random.default_rng(1)
            runs = [expected_widths(rng, like, case.prior, 1) for _ in range(replicates)]
            for i, widths in enumerate(zip(*runs, strict=True)):
                texts[i] += f"{statistics.median(width.private for width in widths):>10.4f}" + _beside(widths)
        for parameter, text in zip(case.model.parameters, texts, strict=True):
            print(f"{f'{case.name} {parameter}':<30}{text}")
    print("public n, bounds that 1 % of the records exceed and a prior that knows as much:")
    for case in SENSIBLE:
        like = observation(case, n=1000, epsilon=1.0, outside=Outside.CLAMP)
        rng = np.random.default_rng(1)
        widths = [expected_widths(rng, like, case.prior, 1)[0] for _ in range(10 * replicates)]
        text = f"{statistics.median(width.private for width in widths):>10.4f}" + _beside(widths)
        print(f"{f'{case.name} {case.bounds.lower:g} to {case.bounds.upper:g}':<30}{text}")


def _beside(widths: Sequence[Width]) -> str:
    exact = [width.non_private for width in widths if width.non_private is not None]
    ratios = [width.ratio for width in widths if width.ratio is not None]
    return f"{statistics.median(exact):>10.4f}{statistics.median(ratios):>8.2f}" if exact else f"{'-':>10}{'-':>8}"


PARTS: dict[str, Callable[[int], None]] = {
    "gibbs": compare_with_gibbs,
    "models": time_models,
    "calibration": lambda _: time_calibration(),
    "categories": lambda _: time_categories(),
    "groups": lambda _: time_groups(),
    "widths": lambda rounds: print_widths(4 * rounds),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each comparison (default: 5)")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="only these")
    arguments = parser.parse_args()
    for name in arguments.parts:
        PARTS[name](arguments.rounds)
        print(flush=True)


if __name__ == "__main__":
    main()
