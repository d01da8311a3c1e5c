"""The toy of Park, Vinaroz & Jitkrittum (2021), with its components' counts as the release: its exact posterior is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dp_dask.core.bounds import Bounds, Outside
from dp_dask.core.categories import CategoryCounts
from dp_dask.core.cells import Cells
from dp_dask.core.dirichlet import Dirichlet
from dp_dask.core.plugins import load
from dp_dask.core.simulated import Simulated
from dp_dask.core.table_sum import TableSum
from dp_dask.public.counts import CountsObservation
from dp_dask.public.infer import infer
from dp_dask.public.noise_law import Laplace
from dp_dask.public.simulated import SimulatedObservation

PRIOR = Dirichlet((1.0,) * 5)
TRUTH = np.array([0.25, 0.04, 0.33, 0.04, 0.34])
EDGES = (1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0)  # quarters of octaves: the cells above a half end where components do


def one_hot(count_weight=0):
    cells = Cells(spacing="octave", exponent=50, first=int(np.float64(0.5).view(np.int64) >> 50), count=14)
    component = np.minimum(np.floor(cells.middles(Bounds(0.5, 4.999))), 4)
    table = tuple(" ".join(str(int(value == j)) for value in component) for j in range(5))
    facts = {"column": "x", "bounds": Bounds(0.5, 4.999), "outside": Outside.CLAMP, "count_weight": count_weight}
    return TableSum(cells=cells, table=table, units=(1.0,) * 5, origins=(0,) * 5, **facts)


def release(rng, *, n, scale, truth=TRUTH, law=Laplace, **facts):
    """A noisy release of n records of the toy."""
    y = rng.multinomial(n, truth) + law(scale).draw(rng, 5)
    given = {"n": n, "count": None, "expected_n": None} | facts
    simulator = load("dp_dask.simulators", "uniform_mixture")(5)
    return SimulatedObservation(simulator=simulator, statistic=one_hot(), scale=scale, y=tuple(y.tolist()), law=law, **given)


def exact(like, prior=PRIOR, size=40_000):
    """Draws [size, 5] of the exact posterior, by the engines for counts of categories.

    Where n is private they take its prior for negative binomial with the Dirichlet's total as shape: geometric at a total of 1.
    """
    model = load("dp_dask.models", "categorical")(tuple("abcde"))
    counts = CountsObservation(
        model=model, statistic=CategoryCounts(column="x", categories=tuple("abcde")), n=like.n, scale=like.scale, y=like.y,
        expected_n=like.expected_n, law=like.law,
    )  # fmt: skip
    return infer(np.random.default_rng(1), counts, prior, size).draws.reshape(-1, 5)


def compare(weight, theta, reference):
    """The means' errors [5] in units of the exact sd, and the ratios of the sds [5] to the exact ones."""
    mean = weight @ theta
    sd = np.sqrt(weight @ (theta - mean) ** 2)
    return (mean - reference.mean(axis=0)) / reference.std(axis=0), sd / reference.std(axis=0)


@dataclass(frozen=True)
class Broken:
    """The toy, failing where p[1] is above a half: by an exception, by a record that is no number, or by no record at all."""

    how: str
    parameters: ClassVar = tuple(f"p[{i}]" for i in range(1, 6))
    domains: ClassVar = ("probability",) * 5
    columns: ClassVar = ("x",)
    decides_n: ClassVar = False

    def simulate(self, theta, n, rng):
        made = load("dp_dask.simulators", "uniform_mixture")(5).simulate(theta, n, rng)
        is_bad = np.repeat(theta[:, 0] > 0.5, made.counts)
        if self.how == "raise" and is_bad.any():
            raise ArithmeticError("no such process")
        if self.how == "nan":
            made.values["x"][is_bad] = np.nan
        if self.how == "empty":
            return made.where(theta[:, 0] <= 0.5)
        return made


@dataclass(frozen=True)
class Visits:
    """A Poisson number of records, each 0 or 1 with probability a half."""

    parameters: ClassVar = ("rate",)
    domains: ClassVar = ("positive",)
    columns: ClassVar = ("x",)
    decides_n: ClassVar = True

    def simulate(self, theta, n, rng):
        assert n is None
        counts = rng.poisson(theta[:, 0])
        return Simulated(counts, {"x": rng.integers(0, 2, counts.sum()) + 0.5})
