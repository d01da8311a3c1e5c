"""Cells of the calibration table: a model with a vague prior, what is asked of its records, and an engine to be judged."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property

import numpy as np
from cases import CASES, JOINT_CASES, Case, statistic

from dp_dask.core.bounds import Bounds, Outside
from dp_dask.core.categories import CategoryCounts
from dp_dask.core.dirichlet import Dirichlet
from dp_dask.core.privacy import Neighbours
from dp_dask.core.release import Request
from dp_dask.public.calibration import rank
from dp_dask.public.observe import AnyObservation, planned

SIZES, EPSILONS = (1, 5, 20, 100, 1000, 100_000), ("0.1", "1", "10")
CATEGORICAL = Case("categorical", {"categories": tuple(range(5))}, Dirichlet((1.0,) * 5), Bounds(0, 1), ())
BY_MODEL = {case.name: case for case in [*CASES, *JOINT_CASES, CATEGORICAL]}


@dataclass(frozen=True)
class Cell:
    """What a release would be made of; where n is private it is geometric with mean ``n``."""

    model: str
    outside: Outside | None  # None for categories, which have no bounds
    neighbours: Neighbours
    n: int
    epsilon: str
    engine: str = "auto"

    @property
    def group(self) -> str:
        """The name without n and epsilon."""
        words = (self.model, self.outside, "public" if self.neighbours is Neighbours.REPLACE else "private", self.engine)
        return " ".join(str(word) for word in words if word is not None)

    @property
    def name(self) -> str:
        return f"{self.group} n={self.n} epsilon={self.epsilon}"

    @property
    def parameters(self) -> tuple[str, ...]:
        return BY_MODEL[self.model].model.parameters

    @cached_property
    def like(self) -> AnyObservation:
        """The release of a pipeline, without data."""
        case = BY_MODEL[self.model]
        n = self.n if self.neighbours is Neighbours.REPLACE else None
        if self.outside is None:
            asked = CategoryCounts(column="x", categories=case.model.categories)
        else:
            asked = statistic(case, outside=self.outside, neighbours=self.neighbours, epsilon=float(self.epsilon), n=self.n)
        request = Request(dataset="d", statistic=asked, neighbours=self.neighbours, n=n, epsilon=Decimal(self.epsilon))
        return planned(request, case.model, None if n is not None else float(self.n))

    def rank(self, seed: int, replicate: int) -> tuple[list[float], str]:
        """Return the ranks of one replicate, which depend on seed, cell and replicate alone, and the engine that was taken."""
        rng = np.random.default_rng([seed, zlib.crc32(self.name.encode()), replicate])
        u, engine = rank(rng, self.like, BY_MODEL[self.model].prior, self.engine)
        return u.tolist(), engine


def every_cell(engine: str = "auto") -> list[Cell]:
    """All cells of all models; those with natural bounds lose no record, so that clamp and truncate are one."""
    return [
        Cell(case.name, outside, neighbours, n, epsilon, engine)
        for case in BY_MODEL.values()
        for outside in _outsides(case)
        for neighbours in Neighbours
        for n in SIZES
        for epsilon in EPSILONS
    ]


def _outsides(case: Case) -> list[Outside | None]:
    if case is CATEGORICAL:
        return [None]
    return [Outside.CLAMP] if case.model.natural_bounds is not None else list(Outside)
