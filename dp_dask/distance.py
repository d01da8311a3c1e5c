"""Distance: how a pipeline file names a distance between data sets, and what it is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dp_dask.build import Faults, build, show
from dp_dask.core import plugins
from dp_dask.core.bounds import Bounds, Outside
from dp_dask.core.fourier import median_bandwidth
from dp_dask.core.selected import AnyDistance
from dp_dask.public.guarded import guarded
from dp_dask.public.simulator_model import SimulatorModel

__all__ = ["DISTANCES", "OPTIONS", "AnyOptions", "make_distance", "read_distance"]

DISTANCES = "dp_dask.distances"
SEED = 20260203  # of the simulated data sets that a bandwidth is chosen from: the same file asks for the same distance
PILOT, MOST_RECORDS = 200, 2_000  # data sets, and records of each
Ends = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Mmd:
    """Gaussian kernel of one column; without a bandwidth that of the median heuristic, on simulated records."""

    column: str
    bounds: Ends
    bandwidth: float | None = None
    outside: Outside = Outside.CLAMP
    integer: bool = False


@dataclass(frozen=True, slots=True)
class Histogram:
    """Shares of records between inner edges."""

    column: str
    bounds: Ends
    edges: tuple[float, ...]
    outside: Outside = Outside.CLAMP
    integer: bool = False


@dataclass(frozen=True, slots=True)
class Means:
    """Weighted means of bounded columns."""

    columns: dict[str, Ends]
    weights: dict[str, float]
    outside: Outside = Outside.CLAMP


@dataclass(frozen=True, slots=True)
class MmdProduct:
    """Gaussian kernel of up to four columns of one scale."""

    columns: dict[str, Ends]
    bandwidth: float | None = None


@dataclass(frozen=True, slots=True)
class MmdRandom:
    """Random features of a Gaussian kernel of any number of columns."""

    columns: dict[str, Ends]
    bandwidth: float | None = None
    features: int = 100
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Recordwise:
    """Record against record, clipped, evaluated beside the data."""

    weights: dict[str, float]
    clip: float


AnyOptions = Mmd | Histogram | Means | MmdProduct | MmdRandom | Recordwise
OPTIONS: dict[str, type] = {
    "histogram": Histogram,
    "means": Means,
    "mmd": Mmd,
    "mmd_product": MmdProduct,
    "mmd_random": MmdRandom,
    "recordwise": Recordwise,
}


def read_distance(given: Any, path: str, faults: Faults) -> AnyOptions | None:
    """Read ``{kind: .., ..}``; None where there was a fault."""
    kind = given.get("kind") if isinstance(given, dict) else given
    if not isinstance(given, dict) or kind not in OPTIONS:
        faults.add(path, f"is {show(kind)}; give {{kind: .., ..}} with one of {', '.join(OPTIONS)}")
        return None
    made: AnyOptions | None = build(OPTIONS[kind], {key: value for key, value in given.items() if key != "kind"}, path, faults)
    return made


def make_distance(options: AnyOptions, model: SimulatorModel, prior: Any, n: int) -> AnyDistance:
    """Make the distance of data sets of n records, a public number; raises ValueError for what cannot be."""
    kind = next(name for name, cls in OPTIONS.items() if isinstance(options, cls))
    make = plugins.load(DISTANCES, kind)
    made: AnyDistance
    if isinstance(options, Recordwise):
        made = make(columns=tuple(options.weights), weights=tuple(options.weights.values()), clip=options.clip, n=n)
    elif isinstance(options, Means):
        made = make(_bounds(options.columns), options.weights, n, outside=options.outside)
    elif isinstance(options, Histogram):
        shape = {"outside": options.outside, "is_integer": options.integer}
        made = make(options.column, Bounds(*options.bounds), options.edges, n, **shape)
    elif isinstance(options, Mmd):
        shape = {"outside": options.outside, "is_integer": options.integer}
        bandwidth = options.bandwidth or _bandwidth(model, prior, (options.column,), n)
        made = make(options.column, Bounds(*options.bounds), bandwidth, n, **shape)
    else:
        bandwidth = options.bandwidth or _bandwidth(model, prior, tuple(options.columns), n)
        more = {"features": options.features, "seed": options.seed} if isinstance(options, MmdRandom) else {}
        made = make(_bounds(options.columns), bandwidth, n, **more)
    return made


def _bounds(columns: dict[str, Ends]) -> dict[str, Bounds]:
    return {name: Bounds(*ends) for name, ends in columns.items()}


def _bandwidth(model: SimulatorModel, prior: Any, columns: tuple[str, ...], n: int) -> float:
    """Return the median distance of simulated records: a bandwidth of the records themselves would tell of them."""
    missing = [name for name in columns if name not in model.simulator.columns]
    if missing:
        msg = f"the distance compares column {missing[0]!r}; the simulator makes {', '.join(model.simulator.columns)}"
        raise ValueError(msg)
    rng = np.random.default_rng(SEED)
    size = None if model.simulator.decides_n else min(n, MOST_RECORDS)
    theta = np.reshape(prior.rvs(rng, PILOT), (PILOT, -1))
    made = guarded(model.simulator, theta, size, rng, policy="reject", call=model.call)
    return median_bandwidth(rng, made.simulated, columns)
