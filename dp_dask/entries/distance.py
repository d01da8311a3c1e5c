"""Distance: from its entry in a pipeline file, and the bandwidth that simulations choose where the file gives none."""

from __future__ import annotations

from typing import Any

import numpy as np

from dp_dask.core import plugins
from dp_dask.core.fourier import median_bandwidth
from dp_dask.core.selected import AnyDistance
from dp_dask.entries.build import Faults, build, show
from dp_dask.public.guarded import guarded
from dp_dask.public.simulator_model import SimulatorModel

__all__ = ["DISTANCES", "make_distance", "read_distance"]

DISTANCES = "dp_dask.distances"
SEED = 20260203  # of the simulated data sets that a bandwidth is chosen from: the same file asks for the same distance
PILOT, MOST_RECORDS = 200, 2_000  # data sets, and records of each


def read_distance(given: Any, path: str, faults: Faults) -> Any:
    """Read ``{kind: .., ..}`` as the options of a distance; None where there was a fault."""
    kind = given.get("kind") if isinstance(given, dict) else given
    known = plugins.names(DISTANCES)
    if not isinstance(given, dict) or kind not in known:
        faults.add(path, f"is {show(kind)}; give {{kind: .., ..}} with one of {', '.join(known)}")
        return None
    return build(plugins.load(DISTANCES, kind), {key: value for key, value in given.items() if key != "kind"}, path, faults)


def make_distance(options: Any, model: SimulatorModel, prior: Any, n: int) -> AnyDistance:
    """Make the distance of data sets of n records, a public number; raises ValueError for what cannot be."""
    made: AnyDistance = options.make(n, lambda columns: _bandwidth(model, prior, columns, n))
    return made


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
