"""What every peer simulates: the toy of Park, Vinaroz & Jitkrittum (2021), five uniforms side by side, in two distances.

It needs NumPy and SciPy alone, so that it can be imported beside any other package.
"""

from __future__ import annotations

import json
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from dp_dask.core.bounds import Bounds
from dp_dask.core.dirichlet import Dirichlet
from dp_dask.core.plugins import load
from dp_dask.distances.histogram import histogram
from dp_dask.distances.mmd import mmd

if TYPE_CHECKING:
    from collections.abc import Callable

RECORDS = 5000
COMPONENTS = 5
TRUTH = np.array([0.25, 0.04, 0.33, 0.04, 0.34])
PRIOR = Dirichlet((1.0,) * COMPONENTS)
SIMULATOR = load("dp_dask.simulators", "uniform_mixture")(COMPONENTS)
BOUNDS = Bounds(0.0, float(COMPONENTS))
DISTANCES = {
    "lattice MMD": mmd("x", BOUNDS, 0.6, RECORDS),
    "bins": histogram("x", BOUNDS, range(1, COMPONENTS), RECORDS),
}
ANSWER = "answer: "  # before a line of JSON, among all else that a package may print


@dataclass(frozen=True)
class Toy:
    """Data sets reduced to sums, and the sums' distance to those of the observed data set."""

    name: str

    def sums(self, theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Simulate a data set for each row of theta [B, p] and add up its records [B, d]."""
        made = SIMULATOR.simulate(theta, RECORDS, rng)
        return DISTANCES[self.name].statistic.totals(made.values["x"], made.counts)

    def observed(self) -> np.ndarray:
        """Return the sums [d] of the observed data set."""
        return self.sums(TRUTH[None], np.random.default_rng(1))[0]

    def distance(self, sums: np.ndarray, observed: np.ndarray) -> np.ndarray:
        """Return the distances [B] in steps."""
        return DISTANCES[self.name].between(sums, observed)


def probabilities(sticks: np.ndarray) -> np.ndarray:
    """Map independent v_i ~ Beta(1, p - i) [B, p - 1] to a Dirichlet(1) vector [B, p], by breaking a stick."""
    left = np.cumprod(1 - sticks, axis=1)
    before = np.concatenate([np.ones((len(sticks), 1)), left], axis=1)
    return before * np.concatenate([sticks, np.ones((len(sticks), 1))], axis=1)


def serve(version: str, run: Callable[..., int]) -> None:
    """Answer each line of standard input, JSON of run's arguments, with the simulations that it made."""
    print(ANSWER + json.dumps({"version": version}), flush=True)
    for line in sys.stdin:
        reply: dict[str, Any]
        try:
            reply = {"simulations": run(**json.loads(line))}
        except Exception as error:  # noqa: BLE001  (told by the one who asked)
            traceback.print_exc()
            reply = {"error": f"{type(error).__name__}: {error}"}
        print(ANSWER + json.dumps(reply), flush=True)
