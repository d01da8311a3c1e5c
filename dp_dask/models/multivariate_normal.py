"""multivariate_normal(mean, sd, correlation): several bounded columns that are jointly normal, clamped to their bounds."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, ClassVar

from dp_dask.core.wishart import NormalInverseWishart

__all__ = ["plugin"]


@dataclass(frozen=True, slots=True)
class MultivariateNormal:
    """Means, standard deviations and correlations of ``columns``, which gives each column its bounds, [smallest, largest]."""

    columns: dict[str, tuple[float, float]]

    prior_type: ClassVar[type[NormalInverseWishart]] = NormalInverseWishart

    def __post_init__(self) -> None:
        if len(self.columns) < 2:  # noqa: PLR2004
            msg = f"columns holds {len(self.columns)}; give two or more, or use normal_mu_sigma for one"
            raise ValueError(msg)

    @property
    def bounded(self) -> dict[str, tuple[float, float]]:
        """Every column's bounds."""
        return self.columns

    @property
    def parameters(self) -> tuple[str, ...]:
        """Means, then standard deviations, then the correlation of each pair."""
        pairs = itertools.combinations(self.columns, 2)
        means, sds = (tuple(f"{kind}[{name}]" for name in self.columns) for kind in ("mean", "sd"))
        return (*means, *sds, *(f"correlation[{one}, {other}]" for one, other in pairs))

    def expand_prior(self, given: Any) -> Any:
        """Let scales stand for the whole prior."""
        return NormalInverseWishart.expand(given, len(self.columns))


plugin = MultivariateNormal
