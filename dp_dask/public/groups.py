"""GroupedObservation: noisy sums and sizes of groups, each group its own small release with a private n."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dp_dask.core.grouped import GroupedSum
from dp_dask.core.joint_priors import Independent
from dp_dask.core.pooled import PooledGroups
from dp_dask.core.priors import Prior
from dp_dask.errors import InferenceError
from dp_dask.public.engines import CHAINS, Inference
from dp_dask.public.grid import GridPosterior
from dp_dask.public.noise_law import Gaussian, Laplace, Noisy
from dp_dask.public.observation import Observation
from dp_dask.public.pooling import pool

__all__ = ["GroupedModel", "GroupedObservation", "infer_groups", "infer_pooled"]


@dataclass(frozen=True, slots=True)
class GroupedModel:
    """The same one-parameter family in every group, with a parameter of its own in each.

    ``shared`` are the names of what a pooled prior's groups have in common, the mean and sd of the parameter's coordinate.
    """

    within: Any
    groups: tuple[str, ...] | tuple[int, ...]
    shared: tuple[str, ...] = ()

    @property
    def parameters(self) -> tuple[str, ...]:
        """What the groups share, then the family's parameter, once a group."""
        return self.shared + tuple(f"{self.within.parameters[0]}[{group}]" for group in self.groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedObservation(Noisy):
    """y = (sum, weighted count) of each group in turn, plus noise. n is the public number of all records, or None."""

    model: GroupedModel
    statistic: GroupedSum
    n: int | None
    scale: float
    y: tuple[int, ...]
    expected_n: float | None
    law: type[Laplace | Gaussian] = Laplace

    @property
    def of_groups(self) -> list[Observation]:
        """Each group's own observation: its size is private, and expected to be an equal share of all records."""
        expected = self.n if self.n is not None else self.expected_n
        share = None if not expected else expected / len(self.model.groups)
        return [
            Observation(
                model=self.model.within,
                statistic=self.statistic.within,
                n=None,
                scale=self.scale,
                law=self.law,
                y=self.y[2 * i],
                count=self.y[2 * i + 1],
                expected_n=share,
            )
            for i in range(len(self.model.groups))
        ]


def infer_groups(
    one: Callable[[Observation, Prior], Inference], observation: GroupedObservation, prior: Independent
) -> Inference:
    """Infer group by group with ``one``; draws [chain, draw, group]. The error is the largest of the groups'.

    Under independent priors the groups know nothing of each other: their sizes are told by their noisy counts, whose prior is
    geometric.
    """
    made = [one(each, of_group) for each, of_group in zip(observation.of_groups, prior.priors, strict=True)]
    errors = [each.error for each in made if each.error is not None]
    engines = sorted({each.engine for each in made})
    return Inference(
        engine=" and ".join(engines),
        reason=f"{len(made)} groups, each its own posterior; the last: {made[-1].reason}",
        draws=np.concatenate([each.draws for each in made], axis=2),
        error=max(errors) if errors else None,
    )


def infer_pooled(
    rng: np.random.Generator,
    one: Callable[[Observation, Prior], Inference],
    observation: GroupedObservation,
    prior: PooledGroups,
    n_draws: int,
) -> Inference:
    """Draw independently what the groups share and each group's parameter, [chain, draw, 2 + group].

    ``one`` tabulates each group's posterior by itself; InferenceError where its engine does not. The error is the largest of the
    groups' and that of the tabulated mu and tau.
    """
    made = [one(each, prior.pooled) for each in observation.of_groups]
    grids = [each.grid for each in made if isinstance(each.grid, GridPosterior)]
    engines = " and ".join(sorted({each.engine for each in made}))
    if len(grids) < len(made):
        msg = f"engine {engines} does not tabulate a group's likelihood, which pooling takes; use auto, lattice or edgeworth"
        raise InferenceError(msg)
    names = [str(group) for group in observation.model.groups]
    draws, error = pool(rng, grids, prior.pooled, names, CHAINS * -(-n_draws // CHAINS))
    return Inference(
        engine=engines,
        reason=f"{len(made)} pooled groups; the last by itself: {made[-1].reason}",
        draws=draws.reshape(CHAINS, -1, draws.shape[1]),
        error=max([error, *(each.error for each in made if each.error is not None)]),
    )
