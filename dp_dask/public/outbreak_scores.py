"""Scores: what one outbreak's summaries tell of each parameter, as a number between 0 and 1 that is made record by record.

An outbreak's score is the least-squares regression of the parameters on its eight summaries and their products, fitted to
simulations (Fearnhead & Prangle 2012, for one outbreak). It is a public function of one record: who holds outbreaks applies it to
each, and their sums are released.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dp_dask.core.bounds import Bounds, Outside
from dp_dask.core.cells import choose_cells
from dp_dask.core.prior_kinds import Domain
from dp_dask.core.simulated import Simulated, Size
from dp_dask.core.stacked_sum import StackedSum
from dp_dask.core.table_sum import TableSum, tabulate
from dp_dask.outbreaks.prior import OutbreakPrior
from dp_dask.outbreaks.summaries import NAMES
from dp_dask.public.emulator import polynomial
from dp_dask.simulators.tuberculosis import plugin as Tuberculosis  # noqa: N812

__all__ = ["COLUMNS", "ScoredOutbreaks", "Scores", "fit_scores", "score_sum", "simplified", "summaries_of"]

Floats = NDArray[np.float64]
COLUMNS = ("score_beta", "score_R1", "score_t1", "score_R2")
ENDS = (0.01, 0.99)  # quantiles of simulated scores that become 0 and 1; beyond, they are held there
UNITS = 2**10  # of a score


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """(p(z) coefficients - low) / (high - low), held to [0, 1]; p(z) are all products of up to two standardised summaries."""

    centre: Floats
    sd: Floats
    coefficients: Floats  # [features, 4]
    low: Floats
    high: Floats

    def __call__(self, summaries: Floats) -> Floats:
        """Return the scores [k, 4] of summaries [k, 8]."""
        raw = polynomial((summaries - self.centre) / self.sd, 2) @ self.coefficients
        return np.clip((raw - self.low) / (self.high - self.low), 0.0, 1.0)


def simplified(theta: Floats) -> Floats:
    """Return (beta, log(R1 - 1), log t1, log R2) [.., 4]: what the scores regress, as those vary by factors."""
    beta, r1, t1, r2 = np.moveaxis(theta, -1, 0)
    return np.stack([beta, np.log(r1 - 1), np.log(t1), np.log(r2)], axis=-1)


def fit_scores(rng: np.random.Generator, prior: OutbreakPrior, size: int) -> Scores:
    """Fit the scores to one outbreak at each of ``size`` prior draws; no record has a part in it."""
    theta = prior.rvs(rng, size)
    summaries = summaries_of(Tuberculosis("outbreak").simulate(theta, 1, rng))
    centre, sd = summaries.mean(axis=0), summaries.std(axis=0)
    x = polynomial((summaries - centre) / sd, 2)
    coefficients = np.linalg.lstsq(x, simplified(theta), rcond=None)[0]
    low, high = np.quantile(x @ coefficients, ENDS, axis=0)
    return Scores(centre, sd, np.asarray(coefficients, dtype=np.float64), low, high)


@dataclass(frozen=True, slots=True, eq=False)
class ScoredOutbreaks:
    """The simulator ``tuberculosis`` with an outbreak a record, each by its scores."""

    scores: Scores

    parameters: ClassVar[tuple[str, ...]] = Tuberculosis.parameters
    domains: ClassVar[tuple[Domain, ...]] = Tuberculosis.domains
    prior_type: ClassVar[type[OutbreakPrior]] = OutbreakPrior
    columns: ClassVar[tuple[str, ...]] = COLUMNS
    decides_n: ClassVar[bool] = False

    def simulate(self, theta: Floats, n: Size, rng: np.random.Generator) -> Simulated:
        """Run n outbreaks for each theta [B, 4] and score each."""
        made = Tuberculosis("outbreak").simulate(theta, n, rng)
        return Simulated(made.counts, dict(zip(COLUMNS, self.scores(summaries_of(made)).T, strict=True)))


def score_sum() -> StackedSum:
    """Return the sums of the four scores.

    Sensitivity: 4 where an outbreak is replaced, as each score may go from 0 to 1 at once (``StackedSum``). An outbreak is what
    is protected, all its patients together.
    """
    bounds = Bounds(0.0, 1.0)
    cells = choose_cells(bounds, "even", is_integer=False, wanted=UNITS)
    table, units, origins = tabulate(cells.middles(bounds)[None], unit=1.0 / UNITS, is_centred=False)
    return StackedSum(
        parts=tuple(
            TableSum(column=name, bounds=bounds, outside=Outside.CLAMP, cells=cells, table=table, units=units, origins=origins)
            for name in COLUMNS
        )
    )


def summaries_of(made: Simulated) -> Floats:
    """Return the summaries [k, 8] of all simulated outbreaks."""
    return np.stack([made.values[name] for name in NAMES], axis=1)
