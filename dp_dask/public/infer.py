"""Infer: a release and a prior to a posterior, by the engine asked for or the one that ``auto`` chooses."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

import numpy as np

from dp_dask.core import plugins
from dp_dask.core.priors import Prior
from dp_dask.errors import InferenceError
from dp_dask.public.counts import CountsObservation
from dp_dask.public.engines import Inference, edgeworth, guide, independent, lattice
from dp_dask.public.grid import FINE, find_cells
from dp_dask.public.groups import GroupedObservation, infer_groups
from dp_dask.public.joint import JointObservation
from dp_dask.public.joint_auto import infer_jointly
from dp_dask.public.observation import Observation
from dp_dask.public.observe import AnyObservation

__all__ = ["AUTO", "ENGINES", "infer"]

AUTO = "auto"
FOLDER = "dp_dask.public.engines"
ENGINES = (AUTO, *plugins.names(FOLDER))
RELEASES: dict[type, str] = {
    Observation: "one sum",
    JointObservation: "several sums of one column",
    CountsObservation: "counts of categories",
    GroupedObservation: "sums of groups",
}
AFFORDABLE = 1e8  # multiplications, about a second: up to there the exact engine is always taken
ALWAYS_EXACT = 30  # records: below, the correction's error estimate may be 4 times too small
LARGEST_ERROR = 0.02  # total variation


def infer(rng: np.random.Generator, observation: AnyObservation, prior: Any, n_draws: int, engine: str = AUTO) -> Inference:
    """Draw from p(theta | release); raises InferenceError where the engine cannot serve the model."""
    if isinstance(observation, GroupedObservation):
        return infer_groups(lambda each, of_group: infer(rng, each, of_group, n_draws, engine), observation, prior)
    if engine == AUTO and isinstance(observation, Observation):
        return _auto(rng, observation, prior, n_draws)
    if engine == AUTO and isinstance(observation, JointObservation):
        return infer_jointly(rng, observation, prior, n_draws)
    if engine == AUTO:
        engine = "factorised" if observation.n is None else "tree"
    function = plugins.load(FOLDER, engine)
    served = get_type_hints(function)["observation"]
    if not isinstance(observation, served):
        names = " or ".join(RELEASES[kind] for kind in (get_args(served) or (served,)))
        msg = f"engine {engine} serves releases of {names}, and this is one of {RELEASES[type(observation)]}; use auto"
        raise InferenceError(msg)
    made: Inference = function(rng, observation, prior, n_draws)
    return made


def _auto(rng: np.random.Generator, observation: Observation, prior: Prior, n_draws: int) -> Inference:
    """Take lattice where it is affordable or n is small, edgeworth where its error estimate is small, else lattice."""
    cells = find_cells(prior, guide(observation))
    theta = prior.parameter(cells.middle)
    price = lattice.cost(observation, theta) * max(FINE / len(cells), 1)
    is_few = observation.n_guess < ALWAYS_EXACT
    if price <= AFFORDABLE or (is_few and observation.n is not None):
        reason = f"exact, {price:.0e} operations"
    else:
        posterior, error = edgeworth.tabulated(observation, prior, cells)
        if error <= (LARGEST_ERROR / 4 if is_few else LARGEST_ERROR):
            reason = f"lattice would take {price:.0e} operations; the correction moves at most {error:.4f} of probability"
            return independent(rng, posterior, n_draws, engine="edgeworth", reason=reason, error=error)
        reason = f"exact, because edgeworth's error estimate {error:.3f} is above {LARGEST_ERROR}"
    posterior = lattice.tabulated(observation, prior, cells)
    return independent(rng, posterior, n_draws, engine="lattice", reason=reason, error=0.0)
