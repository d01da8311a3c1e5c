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


def one_hot(components=5, count_weight=0):
    """The components' counts as a table: its cells, quarters of octaves above a half, end where components do."""
    bounds = Bounds(0.5, components - 0.001)
    first, last = (np.array([bounds.lower, bounds.upper]).view(np.int64) >> 50).tolist()
    cells = Cells(spacing="octave", exponent=50, first=first, count=last - first + 1)
    component = np.minimum(np.floor(cells.middles(bounds)), components - 1)
    table = tuple(" ".join(str(int(value == j)) for value in component) for j in range(components))
    facts = {"column": "x", "bounds": bounds, "outside": Outside.CLAMP, "count_weight": count_weight}
    return TableSum(cells=cells, table=table, units=(1.0,) * components, origins=(0,) * components, **facts)


def release(rng, *, n, scale, truth=TRUTH, law=Laplace, **facts):
    """A noisy release of n records of the toy."""
    k = len(truth)
    y = rng.multinomial(n, truth) + law(scale).draw(rng, k)
    given = {"n": n, "count": None, "expected_n": None} | facts
    simulator = load("dp_dask.simulators", "uniform_mixture")(k)
    return SimulatedObservation(simulator=simulator, statistic=one_hot(k), scale=scale, y=tuple(y.tolist()), law=law, **given)


def exact(like, prior=PRIOR, size=40_000):
    """Draws [size, k] of the exact posterior, by the engines for counts of categories.

    Where n is private they take its prior for negative binomial with the Dirichlet's total as shape: geometric at a total of 1.
    """
    names = tuple("abcde")[: len(like.y)]
    facts = {"n": like.n, "scale": like.scale, "y": like.y, "expected_n": like.expected_n, "law": like.law}
    model = load("dp_dask.models", "categorical")(names)
    counts = CountsObservation(model=model, statistic=CategoryCounts(column="x", categories=names), **facts)
    return infer(np.random.default_rng(1), counts, prior, size).draws.reshape(size, -1)


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
