"""GroupedObservation: noisy sums and sizes of groups, each group its own small release with a private n."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dp_dask.core.grouped import GroupedSum
from dp_dask.core.joint_priors import Independent
from dp_dask.core.priors import Prior
from dp_dask.public.engines import Inference
from dp_dask.public.observation import Observation

__all__ = ["GroupedModel", "GroupedObservation", "infer_groups"]


@dataclass(frozen=True, slots=True)
class GroupedModel:
    """The same one-parameter family in every group, with a parameter of its own in each."""

    within: Any
    groups: tuple[str, ...] | tuple[int, ...]

    @property
    def parameters(self) -> tuple[str, ...]:
        """The family's parameter, once a group."""
        return tuple(f"{self.within.parameters[0]}[{group}]" for group in self.groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedObservation:
    """y = (sum, weighted count) of each group in turn, plus noise. n is the public number of all records, or None."""

    model: GroupedModel
    statistic: GroupedSum
    n: int | None
    scale: float
    y: tuple[int, ...]
    expected_n: float | None

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

    Given their own releases the groups know nothing of each other: their sizes are told by their noisy counts, whose prior is
    geometric, so that no pooling is needed and none is done.
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
