"""Summary: which sums of the records are released for a simulator, as a pipeline file says it or as simulations plan it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from dp_dask.core.bounds import Bounds, Outside
from dp_dask.core.cells import choose_cells
from dp_dask.core.cluster_bands import ClusterBands
from dp_dask.core.privacy import Loss, Neighbours
from dp_dask.core.table_sum import TableSum
from dp_dask.entries.build import Faults, build, show
from dp_dask.errors import InferenceError
from dp_dask.public.planning import CELLS, PlannedSummary, simulate_plan
from dp_dask.public.simulated_cells import Column
from dp_dask.public.simulator_model import SimulatorModel
from dp_dask.public.summaries import bins, partition

__all__ = ["SUMMARIES", "Bins", "Clusters", "Partition", "Planned", "Setting", "Summary", "make_summary", "plan", "read_summary"]

SEED = 20260202  # of plans: the same file plans the same summary, and so asks for the same release, every time


@dataclass(frozen=True, slots=True)
class Partition:
    """Counts of records between inner edges, strictly inside the bounds."""

    edges: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Bins:
    """Counts of records in equal bins."""

    count: int

    def __post_init__(self) -> None:
        if self.count < 2:  # noqa: PLR2004
            msg = f"count is {self.count}; give at least 2 bins"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class Clusters:
    """Numbers of clusters, named by the column, with at least k records, and in at least k periods, in bands of k."""

    sizes: tuple[int, ...]
    period: str | None = None
    spans: tuple[int, ...] = ()
    texts: tuple[str, ...] = ()  # which of the two columns are texts

    def made(self, column: str) -> ClusterBands:
        """Make the statistic; raises ValueError for bands that cannot be."""
        return ClusterBands(cluster=column, sizes=self.sizes, period=self.period, spans=self.spans, texts=self.texts)


@dataclass(frozen=True, slots=True)
class Planned:
    """What simulations find best at the file's loss, of all kinds or of one; ``bandwidth`` is that of its Fourier features."""

    kind: Literal["auto", "regression", "components"] = "auto"
    bandwidth: float | None = None


Summary = Partition | Bins | Clusters | Planned
SUMMARIES: dict[str, type] = {
    "auto": Planned,
    "partition": Partition,
    "bins": Bins,
    "clusters": Clusters,
    "regression": Planned,
    "components": Planned,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """All that a summary is planned for: the column and what is known of it, and a public number of records or a guess."""

    model: SimulatorModel
    prior: Any
    column: str
    bounds: Bounds
    outside: Outside
    is_integer: bool
    neighbours: Neighbours
    n: int | None

    @property
    def cells(self) -> Column:
        """The column's cells."""
        cells = choose_cells(self.bounds, "even", is_integer=self.is_integer, wanted=CELLS)
        return Column(name=self.column, bounds=self.bounds, outside=self.outside, cells=cells)


def read_summary(given: Any, path: str, faults: Faults) -> Summary | None:
    """Read ``auto`` or ``{kind: .., ..}``; None where there was a fault."""
    if given == "auto":
        return Planned()
    kind = given.get("kind") if isinstance(given, dict) else given
    if not isinstance(given, dict) or kind not in SUMMARIES:
        faults.add(path, f"is {show(kind)}; give auto, or {{kind: .., ..}} with one of {', '.join(SUMMARIES)}")
        return None
    values = given if SUMMARIES[kind] is Planned else {key: value for key, value in given.items() if key != "kind"}
    made: Summary | None = build(SUMMARIES[kind], values, path, faults)
    return made


def make_summary(summary: Partition | Bins | Planned, setting: Setting, loss: Loss) -> TableSum:
    """Make the statistic; raises ValueError for what cannot be, and InferenceError where the simulator cannot be planned for."""
    if isinstance(summary, Partition):
        return partition(setting.cells, summary.edges)
    if isinstance(summary, Bins):
        return bins(setting.cells, summary.count)
    found = plan(setting, loss, bandwidth=summary.bandwidth)
    return next(each.statistic for each in found if summary.kind in {"auto", each.kind})


def plan(
    setting: Setting, loss: Loss, *, bandwidth: float | None = None, edges: tuple[float, ...] | None = None
) -> list[PlannedSummary]:
    """Score the candidates at this loss, the smallest score first; ``edges`` are those of one more."""
    if setting.n is None and not setting.model.simulator.decides_n:
        msg = "to plan a summary takes a number of records; give privacy.expected_records, a public guess"
        raise InferenceError(msg)
    made = simulate_plan(
        np.random.default_rng(SEED),
        setting.model.simulator,
        setting.prior,
        None if setting.model.simulator.decides_n else setting.n,
        setting.neighbours,
        column=setting.column,
        bounds=setting.bounds,
        outside=setting.outside,
        is_integer=setting.is_integer,
        edges=edges,
        bandwidth=bandwidth,
    )
    return made.scored(loss)
